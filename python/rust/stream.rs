//! Streams.

use crate::context::{Context, context_of};
use crate::error::{Outcome, refused, shown};
use crate::event::{Event, new_event};
use crate::signals;
use core::ptr;
use core::time::Duration;
use cuda_mem::StreamOptions;
use pyo3::intern;
use pyo3::prelude::*;
use std::sync::Arc;

/// The handles of the default streams.
pub const LEGACY: usize = 1;
pub const PER_THREAD: usize = 2;

/// A stream: work on it runs in order. Objects of other libraries that have `__cuda_stream__` are streams too: each
/// argument `stream` takes them. Such an object lives while buffers and streams on its stream are open, also if only the
/// object itself has them.
///
/// >>> stream = cuda_mem.Stream()
/// >>> stream.synchronize()
/// >>> stream.is_done
/// True
#[pyclass(frozen, weakref, module = "cuda_mem")]
pub struct Stream {
    pub inner: cuda_mem::Stream,
}

/// The time limit of an argument in seconds.
pub fn limit(seconds: f64) -> Outcome<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        refused(format!("timeout is {seconds:?}, but it must be a finite number of seconds, 0 or more, or None"))
    })
}

/// Waits by `wait`, or by `wait_for` if the argument `timeout` sets a limit.
pub fn wait_within(
    py: Python<'_>,
    timeout: Option<f64>,
    wait: impl FnOnce() -> cuda_mem::Result<()> + Send,
    wait_for: impl FnOnce(Duration) -> cuda_mem::Result<()> + Send,
) -> Outcome {
    let limit = timeout.map(limit).transpose()?;
    Ok(signals::detach(py, || limit.map_or_else(wait, wait_for))??)
}

/// Calls `work` with the stream of an argument: a Stream, an object with `__cuda_stream__`, or None for `default`.
#[inline]
pub fn with_stream<R>(
    argument: Option<&Bound<'_, PyAny>>,
    default: &cuda_mem::Stream,
    work: impl FnOnce(&cuda_mem::Stream) -> Outcome<R>,
) -> Outcome<R> {
    match argument {
        None => work(default),
        Some(object) => match object.cast::<Stream>() {
            Ok(stream) => work(&stream.get().inner),
            Err(_) if object.is_none() => work(default),
            Err(_) => work(&borrow(default.context(), object)?),
        },
    }
}

/// A stream of another library, which lives as long as the result and what is made from it.
fn borrow(context: &cuda_mem::Context, object: &Bound<'_, PyAny>) -> Outcome<cuda_mem::Stream> {
    match protocol(object)? {
        Some((0, handle)) => Ok(from_handle(context, handle, Some(object))),
        Some((version, _)) => {
            Err(refused(format!("__cuda_stream__ has version {version}, but this release knows version 0 only")))
        }
        None => {
            let text =
                format!("stream must be a Stream, an object with __cuda_stream__, or None, not {}", shown(object));
            Err(pyo3::exceptions::PyTypeError::new_err(text).into())
        }
    }
}

/// What an object says by `__cuda_stream__`: a version and a handle. None if it has no such attribute.
pub fn protocol(object: &Bound<'_, PyAny>) -> PyResult<Option<(u32, usize)>> {
    let Some(method) = object.getattr_opt(intern!(object.py(), "__cuda_stream__"))? else { return Ok(None) };
    // The protocol is a method; some libraries made it an attribute.
    let answer = if method.is_callable() { method.call0()? } else { method };
    answer.extract().map(Some)
}

/// The stream of a handle, which its owner keeps.
///
/// Python's garbage collector does not see the reference to the owner. It ends the objects of a cycle in any order, so it
/// could end what an owner's stream is made of (by its `__del__`, or that of an attribute) before a buffer that the owner
/// keeps has queued its free there. So an owner that keeps buffers or streams of its own stream lives until they are closed.
pub fn from_handle(context: &cuda_mem::Context, handle: usize, owner: Option<&Bound<'_, PyAny>>) -> cuda_mem::Stream {
    match handle {
        0 | LEGACY => cuda_mem::Stream::legacy_default(context),
        PER_THREAD => cuda_mem::Stream::per_thread_default(context),
        handle => {
            let raw = ptr::with_exposed_provenance_mut(handle);
            // SAFETY: the object that owns the stream lives as long as the result and its clones; without an owner, the
            // documentation of `Stream.from_handle` requires it of the program.
            unsafe {
                match owner {
                    Some(owner) => cuda_mem::Stream::borrow_with_owner(context, raw, Arc::new(owner.clone().unbind())),
                    None => cuda_mem::Stream::borrow_raw(context, raw),
                }
            }
        }
    }
}

#[pymethods]
impl Stream {
    /// A new stream. `context` is a Context, a Device, an ordinal, or None for device 0. A `blocking` stream waits for
    /// the legacy default stream, which waits for it too. Smaller priorities are more urgent.
    #[new]
    #[pyo3(signature = (context = None, *, blocking = false, priority = 0))]
    fn new(py: Python<'_>, context: Option<&Bound<'_, PyAny>>, blocking: bool, priority: i32) -> Outcome<Self> {
        let context = context_of(py, context)?;
        let mut options = StreamOptions::default();
        (options.blocking, options.priority) = (blocking, priority);
        Ok(Self { inner: py.detach(|| cuda_mem::Stream::with_options(&context, options))? })
    }

    /// The legacy default stream, which PyTorch and CuPy use unless they are told otherwise.
    #[staticmethod]
    #[pyo3(signature = (context = None))]
    fn legacy_default(py: Python<'_>, context: Option<&Bound<'_, PyAny>>) -> Outcome<Self> {
        Ok(Self { inner: cuda_mem::Stream::legacy_default(&context_of(py, context)?) })
    }

    /// The default stream of the calling thread.
    #[staticmethod]
    #[pyo3(signature = (context = None))]
    fn per_thread_default(py: Python<'_>, context: Option<&Bound<'_, PyAny>>) -> Outcome<Self> {
        Ok(Self { inner: cuda_mem::Stream::per_thread_default(&context_of(py, context)?) })
    }

    /// The stream of another library: an object with `__cuda_stream__`, which this one keeps alive, or a handle, whose
    /// stream the program keeps while this object and buffers on it live. A number that is not the handle of a stream
    /// ends the process in the driver.
    #[staticmethod]
    #[pyo3(signature = (stream, context = None))]
    fn from_handle(py: Python<'_>, stream: &Bound<'_, PyAny>, context: Option<&Bound<'_, PyAny>>) -> Outcome<Self> {
        let context = context_of(py, context)?;
        let inner = match stream.extract::<usize>() {
            Ok(handle) => from_handle(&context, handle, None),
            Err(_) => borrow(&context, stream)?,
        };
        Ok(Self { inner })
    }

    /// The driver's handle, a CUstream.
    #[getter]
    fn handle(&self) -> usize {
        self.inner.raw().addr()
    }

    /// The context.
    #[getter]
    fn context(&self) -> Context {
        Context { inner: self.inner.context().clone().into() }
    }

    /// Whether all work queued so far is done.
    #[getter]
    fn is_done(&self, py: Python<'_>) -> Outcome<bool> {
        Ok(py.detach(|| self.inner.is_done())?)
    }

    /// Waits until all work queued so far is done. Raises WaitTimeoutError after `timeout` seconds.
    #[pyo3(signature = (timeout = None))]
    fn synchronize(&self, py: Python<'_>, timeout: Option<f64>) -> Outcome {
        wait_within(py, timeout, || self.inner.synchronize(), |limit| self.inner.synchronize_for(limit))
    }

    /// Makes later work of this stream wait for an event, or for all work so far of another stream. The CPU does not
    /// wait. Both may be of another device; an object with `__cuda_stream__` is taken for a stream of this one's device, so
    /// pass `Stream.from_handle(object, context)` for one of another.
    fn wait(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> Outcome {
        if let Ok(event) = other.cast::<Event>() {
            let event = &event.get().inner;
            return Ok(py.detach(|| self.inner.wait(event))?);
        }
        with_stream(Some(other), &self.inner, |other| Ok(py.detach(|| self.inner.join(other))?))
    }

    /// Records a new event after all work so far.
    #[pyo3(signature = (*, timing = false))]
    fn record(&self, py: Python<'_>, timing: bool) -> Outcome<Event> {
        let inner = py.detach(|| {
            let event = new_event(self.inner.context(), timing)?;
            event.record(&self.inner)?;
            Ok::<_, cuda_mem::Error>(event)
        })?;
        Ok(Event { inner })
    }

    /// The protocol for other libraries: (0, handle).
    fn __cuda_stream__(&self) -> (u32, usize) {
        (0, self.inner.raw().addr())
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Stream>().is_ok_and(|other| {
            let (one, two) = (&self.inner, &other.get().inner);
            one.raw() == two.raw() && one.context() == two.context()
        })
    }

    fn __hash__(&self) -> isize {
        self.inner.raw().addr() as isize
    }

    fn __repr__(&self) -> String {
        format!("Stream(handle={:#x}, device={})", self.inner.raw().addr(), self.inner.context().device().ordinal())
    }
}
