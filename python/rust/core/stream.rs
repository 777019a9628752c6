//! Streams.

use super::calls::checked;
use super::current::{self, needed};
use crate::closable::Closable;
use crate::context::Context;
use crate::error::Outcome;
use crate::signals;
use crate::stream::{LEGACY, PER_THREAD, from_handle, protocol};
use cuda_mem::StreamOptions;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;

/// What `cuda_mem.core.Stream` derives from.
#[pyclass(frozen, weakref, subclass, module = "cuda_mem._native.core")]
pub struct StreamBase {
    inner: Inner,
}

enum Inner {
    /// A default stream: of the context that is current when it is used.
    Default(usize),
    /// A stream of a context.
    Of(Closable<cuda_mem::Stream>),
}

/// The stream of an argument. `home` is the context of default streams; without it, it is the current one.
pub fn of_argument(object: &Bound<'_, PyAny>, home: Option<&cuda_mem::Context>) -> Outcome<cuda_mem::Stream> {
    if let Ok(stream) = object.cast::<StreamBase>() {
        return stream.get().stream(home);
    }
    match protocol(object)? {
        Some((0, handle)) => foreign(handle, home, Some(object)),
        Some((version, _)) => {
            let text = format!("__cuda_stream__ has version {version}, but only 0 is known");
            Err(PyRuntimeError::new_err(text).into())
        }
        None => {
            let kind = object.get_type().qualname()?;
            let text = format!(
                "Argument 'stream' must be a Stream, a GraphBuilder or an object with __cuda_stream__, not {kind}"
            );
            Err(PyTypeError::new_err(text).into())
        }
    }
}

/// A stream of another library, or a default stream.
fn foreign(
    handle: usize,
    home: Option<&cuda_mem::Context>,
    owner: Option<&Bound<'_, PyAny>>,
) -> Outcome<cuda_mem::Stream> {
    let context = match home {
        _ if handle > PER_THREAD => current::of_stream(handle)?,
        Some(home) => home.clone(),
        None => needed("stream")?,
    };
    Ok(from_handle(&context, handle, owner))
}

impl StreamBase {
    /// The stream, if it is open.
    pub fn stream(&self, home: Option<&cuda_mem::Context>) -> Outcome<cuda_mem::Stream> {
        match &self.inner {
            Inner::Default(handle) => foreign(*handle, home, None),
            Inner::Of(stream) => Ok(stream.open("Stream")?.clone()),
        }
    }
}

#[pymethods]
impl StreamBase {
    /// Of a handle of a stream; of an object that has one; or, without both, a new stream of a context.
    #[new]
    #[pyo3(signature = (*, handle = None, owner = None, context = None, nonblocking = true, priority = 0))]
    fn new(
        py: Python<'_>,
        handle: Option<usize>,
        owner: Option<&Bound<'_, PyAny>>,
        context: Option<PyRef<'_, Context>>,
        nonblocking: bool,
        priority: i32,
    ) -> Outcome<Self> {
        let stream = match (handle, owner, context) {
            (Some(0), None, _) => return Ok(Self { inner: Inner::Default(LEGACY) }),
            (Some(handle @ (LEGACY | PER_THREAD)), None, _) => return Ok(Self { inner: Inner::Default(handle) }),
            (Some(handle), owner, _) => foreign(handle, None, owner)?,
            (None, Some(owner), _) => of_argument(owner, None)?,
            (None, None, context) => {
                let context = context.map_or_else(|| needed("Stream"), |context| Ok(context.inner.clone()))?;
                let mut options = StreamOptions::default();
                (options.blocking, options.priority) = (!nonblocking, priority);
                py.detach(|| cuda_mem::Stream::with_options(&context, options))?
            }
        };
        Ok(Self { inner: Inner::Of(stream.into()) })
    }

    /// The driver's handle, a CUstream; 0 when the stream is closed.
    #[getter]
    fn handle(&self) -> usize {
        match &self.inner {
            Inner::Default(handle) => *handle,
            Inner::Of(stream) => stream.read().map_or(0, |stream| stream.raw().addr()),
        }
    }

    /// Gives the stream up. Buffers and events that need it keep it. Default streams stay.
    fn close(&self, py: Python<'_>) -> Outcome {
        match &self.inner {
            Inner::Default(_) => Ok(()),
            Inner::Of(stream) => stream.close(py, "Stream.close"),
        }
    }

    /// Whether the stream is closed.
    #[getter]
    fn is_closed(&self) -> bool {
        matches!(&self.inner, Inner::Of(stream) if stream.is_closed())
    }

    /// Waits until all work queued so far is done.
    fn sync(&self, py: Python<'_>) -> Outcome {
        let stream = self.stream(None)?;
        Ok(signals::detach(py, || stream.synchronize())??)
    }

    /// The context of the stream; for a default stream the current one.
    fn _context(&self) -> Outcome<Context> {
        Ok(Context { inner: self.stream(None)?.context().clone().into() })
    }

    /// Whether the stream does not wait for the legacy default stream.
    #[getter]
    fn is_nonblocking(&self) -> Outcome<bool> {
        let (stream, mut flags) = (self.stream(None)?, 0);
        let cuda = stream.context().driver().raw();
        // SAFETY: `flags` is writable, and the stream lives.
        checked("cuStreamGetFlags", unsafe { cuda.cuStreamGetFlags(stream.raw(), &mut flags) })?;
        Ok(flags & 1 != 0)
    }

    /// The priority. Smaller is more urgent.
    #[getter]
    fn priority(&self) -> Outcome<i32> {
        let (stream, mut priority) = (self.stream(None)?, 0);
        let cuda = stream.context().driver().raw();
        // SAFETY: `priority` is writable, and the stream lives.
        checked("cuStreamGetPriority", unsafe { cuda.cuStreamGetPriority(stream.raw(), &mut priority) })?;
        Ok(priority)
    }

    /// Makes later work wait for all work so far of another stream.
    fn _wait_for_stream(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> Outcome {
        let (stream, other) = (self.stream(None)?, of_argument(other, None)?);
        Ok(py.detach(|| stream.join(&other))?)
    }

    /// Whether the stream captures a graph.
    #[getter]
    fn _is_capturing(&self) -> Outcome<bool> {
        Ok(self.stream(None)?.is_capturing()?)
    }

    /// The protocol for other libraries: (0, handle).
    fn __cuda_stream__(&self) -> (u32, usize) {
        (0, self.handle())
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<StreamBase>().is_ok_and(|other| self.handle() == other.get().handle())
    }

    fn __hash__(&self) -> isize {
        self.handle() as isize
    }
}
