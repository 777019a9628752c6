//! The memory of a buffer, and its free.

use super::stream::of_argument;
use crate::detached;
use crate::error::Failure;
use cuda_mem::memory::kind::Any;
use cuda_mem::{SharedBuffer, Stream};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// What an open buffer has.
pub struct Body {
    pub address: u64,
    pub size: usize,
    pub memory: Held,
    /// The resource of Python that the memory is from.
    pub resource: Option<Py<PyAny>>,
    pub owner: Option<Py<PyAny>>,
}

/// Who frees the memory.
pub enum Held {
    /// This buffer.
    Whole(cuda_mem::Buffer<u8, Any>),
    /// The last of several imports in this process.
    Imported(SharedBuffer<u8, Any>),
    /// The resource of Python, in order of a stream of Python and with a context current; or nobody.
    Foreign { stream: Option<Py<PyAny>>, context: Option<cuda_mem::Context> },
}

impl Held {
    /// The stream in whose order the memory is freed, if that is known.
    pub fn home(&self) -> Option<&Stream> {
        match self {
            Self::Whole(buffer) => Some(buffer.stream()),
            Self::Imported(buffer) => Some(buffer.stream()),
            Self::Foreign { .. } => None,
        }
    }

    /// Makes the free wait for the work of another stream so far.
    pub fn record_use(&self, stream: &Stream) -> cuda_mem::Result<()> {
        match self {
            Self::Whole(buffer) => buffer.record_use(stream),
            Self::Imported(buffer) => buffer.record_use(stream),
            Self::Foreign { .. } => Ok(()),
        }
    }
}

/// A free that failed, and what is left of the buffer.
pub struct NotFreed {
    pub left: Option<Body>,
    pub error: Failure,
}

impl NotFreed {
    fn new(left: Option<Body>, error: Failure) -> Box<Self> {
        Box::new(Self { left, error })
    }
}

impl Body {
    /// Frees the memory of a buffer that ends without a close. Errors become warnings.
    pub fn end(mut self) {
        match &self.memory {
            // The drop of the memory frees it. It may wait for work that calls Python.
            Held::Whole(_) | Held::Imported(_) => {
                detached::end(core::mem::replace(&mut self.memory, Held::Foreign { stream: None, context: None }));
            }
            Held::Foreign { .. } if self.resource.is_none() => {}
            // The parent frees it.
            Held::Foreign { .. } if cuda_mem::check_not_forked("Buffer").is_err() => core::mem::forget(self),
            Held::Foreign { .. } => {
                let _ = Python::try_attach(|py| {
                    // The exception on its way, if one ends the buffer: the resource's calls would replace it.
                    let raised = PyErr::take(py);
                    let resource = self.resource.as_ref().map(|resource| resource.clone_ref(py));
                    if let Err(failed) = self.free(py, None) {
                        PyErr::from(failed.error)
                            .write_unraisable(py, resource.as_ref().map(|resource| resource.bind(py)));
                    }
                    if let Some(raised) = raised {
                        raised.restore(py);
                    }
                });
            }
        }
    }

    /// Frees the memory. An error returns what is left.
    pub fn free(mut self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> Result<(), Box<NotFreed>> {
        let given = match stream.map(|stream| of_argument(stream, None)).transpose() {
            Ok(given) => given,
            Err(error) => return Err(NotFreed::new(Some(self), error)),
        };
        let memory = core::mem::replace(&mut self.memory, Held::Foreign { stream: None, context: None });
        match memory {
            Held::Whole(buffer) => {
                let freed = py.detach(|| match given {
                    Some(stream) if stream != *buffer.stream() => buffer.close_on(&stream),
                    _ => buffer.close(),
                });
                freed.map_err(|refused| {
                    self.memory = Held::Whole(refused.value);
                    NotFreed::new(Some(self), refused.error.into())
                })
            }
            Held::Imported(mut buffer) => py
                .detach(|| {
                    given.map_or(Ok(()), |stream| buffer.set_stream(&stream))?;
                    // Errors of the free become warnings.
                    drop(buffer);
                    Ok::<_, cuda_mem::Error>(())
                })
                .map_err(|error| NotFreed::new(None, error.into())),
            Held::Foreign { stream: kept, context } => {
                let Some(resource) = self.resource.take() else { return Ok(()) };
                let freed = || -> PyResult<()> {
                    let stream = match (stream, kept) {
                        (Some(stream), _) => stream.clone(),
                        (None, Some(kept)) => kept.into_bound(py),
                        (None, None) => default_stream(py)?,
                    };
                    let _current = context.as_ref().map(cuda_mem::Context::bind).transpose().ok();
                    let arguments = PyDict::new(py);
                    arguments.set_item(intern!(py, "stream"), stream)?;
                    let method = resource.bind(py).getattr(intern!(py, "deallocate"))?;
                    method.call((self.address, self.size), Some(&arguments))?;
                    Ok(())
                };
                freed().map_err(|error| NotFreed::new(None, error.into()))
            }
        }
    }
}

/// The default stream of `cuda_mem.core`.
fn default_stream(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import(intern!(py, "cuda_mem.core._stream"))?.call_method0(intern!(py, "default_stream"))
}
