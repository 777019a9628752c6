//! Events.

use super::current::needed;
use super::stream::of_argument;
use crate::closable::Closable;
use crate::context::Context;
use crate::error::Outcome;
use crate::signals;
use cuda_mem::ipc::Descriptor;
use cuda_mem::{Event, EventOptions};
use pyo3::prelude::*;

/// What `cuda_mem.core.Event` derives from.
#[pyclass(frozen, weakref, subclass, module = "cuda_mem._native.core")]
pub struct EventBase {
    inner: Closable<Event>,
}

impl EventBase {
    /// Calls `work` with the event, if it is open.
    pub fn with<R>(&self, work: impl FnOnce(&Event) -> Outcome<R>) -> Outcome<R> {
        work(&*self.inner.open("Event")?)
    }
}

#[pymethods]
impl EventBase {
    /// A new event of a context, or the import of another process's.
    #[new]
    #[pyo3(signature = (*, context = None, timing = false, blocking_sync = false, shareable = false, descriptor = None))]
    fn new(
        py: Python<'_>,
        context: Option<PyRef<'_, Context>>,
        timing: bool,
        blocking_sync: bool,
        shareable: bool,
        descriptor: Option<&[u8]>,
    ) -> Outcome<Self> {
        let context = context.map_or_else(|| needed("Event"), |context| Ok(context.inner.clone()))?;
        let event = match descriptor {
            Some(bytes) => {
                let descriptor = Descriptor::from_bytes(bytes)?;
                py.detach(|| Event::import(&context, &descriptor))
            }
            None => {
                let mut options = EventOptions::default();
                (options.timing, options.blocking_sync, options.shareable) = (timing, blocking_sync, shareable);
                py.detach(|| Event::with_options(&context, options))
            }
        };
        Ok(Self { inner: event?.into() })
    }

    /// The driver's handle, a CUevent; 0 when the event is closed.
    #[getter]
    fn handle(&self) -> usize {
        self.inner.read().map_or(0, |event| event.raw().addr())
    }

    /// Gives the event up.
    fn close(&self, py: Python<'_>) -> Outcome {
        self.inner.close(py, "Event.close")
    }

    /// Whether the event is closed.
    #[getter]
    fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    /// Waits for the work before the event.
    fn sync(&self, py: Python<'_>) -> Outcome {
        self.with(|event| Ok(signals::detach(py, || event.synchronize())??))
    }

    /// Whether the work before the event is done.
    #[getter]
    fn is_done(&self, py: Python<'_>) -> Outcome<bool> {
        self.with(|event| Ok(py.detach(|| event.is_done())?))
    }

    /// Records the event after all work of a stream so far.
    fn _record(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> Outcome {
        let stream = of_argument(stream, None)?;
        self.with(|event| Ok(py.detach(|| event.record(&stream))?))
    }

    /// Makes later work of a stream wait for the event.
    fn _hold_up(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> Outcome {
        let stream = of_argument(stream, None)?;
        self.with(|event| Ok(py.detach(|| stream.wait(event))?))
    }

    /// The milliseconds since an earlier event.
    fn _since(&self, py: Python<'_>, earlier: PyRef<'_, EventBase>) -> Outcome<f64> {
        self.with(|later| earlier.with(|earlier| Ok(py.detach(|| earlier.elapsed(later))?.as_secs_f64() * 1000.0)))
    }

    /// What another process imports the event by.
    fn _export(&self, py: Python<'_>) -> Outcome<Vec<u8>> {
        self.with(|event| Ok(py.detach(|| event.export())?.to_bytes().to_vec()))
    }

    /// The context.
    fn _context(&self) -> Outcome<Context> {
        self.with(|event| Ok(Context { inner: event.context().clone().into() }))
    }
}
