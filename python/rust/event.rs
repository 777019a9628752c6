//! Events.

use crate::context::context_of;
use crate::error::Outcome;
use crate::stream::{wait_within, with_stream};
use pyo3::prelude::*;

/// An event: a point in the work of a stream.
///
/// >>> stream = cuda_mem.Stream()
/// >>> event = stream.record()
/// >>> event.synchronize()
/// >>> event.is_done
/// True
#[pyclass(frozen, weakref, module = "cuda_mem")]
pub struct Event {
    pub inner: cuda_mem::Event,
}

/// A new event, which measures times if `timing` says so.
pub fn new_event(context: &cuda_mem::Context, timing: bool) -> cuda_mem::Result<cuda_mem::Event> {
    if timing { cuda_mem::Event::with_timing(context) } else { cuda_mem::Event::new(context) }
}

#[pymethods]
impl Event {
    /// An event that nothing recorded yet. With `timing`, it measures times.
    #[new]
    #[pyo3(signature = (context = None, *, timing = false))]
    fn new(py: Python<'_>, context: Option<&Bound<'_, PyAny>>, timing: bool) -> Outcome<Self> {
        let context = context_of(py, context)?;
        Ok(Self { inner: py.detach(|| new_event(&context, timing))? })
    }

    /// The driver's handle, a CUevent.
    #[getter]
    fn handle(&self) -> usize {
        self.inner.raw().addr()
    }

    /// Records the event after all work of the stream so far.
    fn record(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> Outcome {
        let default = cuda_mem::Stream::legacy_default(self.inner.context());
        with_stream(Some(stream), &default, |stream| Ok(py.detach(|| self.inner.record(stream))?))
    }

    /// Whether the work before the event is done.
    #[getter]
    fn is_done(&self, py: Python<'_>) -> Outcome<bool> {
        Ok(py.detach(|| self.inner.is_done())?)
    }

    /// Waits for the work before the event. Raises WaitTimeoutError after `timeout` seconds.
    #[pyo3(signature = (timeout = None))]
    fn synchronize(&self, py: Python<'_>, timeout: Option<f64>) -> Outcome {
        wait_within(py, timeout, || self.inner.synchronize(), |limit| self.inner.synchronize_for(limit))
    }

    /// The seconds from this event to a later one. Both need `timing`, and their work must be done.
    fn elapsed(&self, py: Python<'_>, later: PyRef<'_, Event>) -> Outcome<f64> {
        let later = &later.inner;
        Ok(py.detach(|| self.inner.elapsed(later))?.as_secs_f64())
    }

    fn __repr__(&self) -> String {
        format!("Event(handle={:#x})", self.inner.raw().addr())
    }
}
