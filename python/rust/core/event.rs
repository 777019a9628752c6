//! Events.

use super::current::needed;
use super::stream::of_argument;
use crate::context::Context;
use crate::error::{Outcome, raise};
use crate::signals;
use cuda_mem::ipc::Descriptor;
use cuda_mem::{Event, EventOptions};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::RwLock;

/// What `cuda_mem.core.Event` derives from.
#[pyclass(frozen, weakref, subclass, module = "cuda_mem._native.core")]
pub struct EventBase {
    /// None when it is closed. Only try_read and try_write lock it: a thread may wait for the GIL with the lock.
    inner: RwLock<Option<Event>>,
}

impl EventBase {
    /// Calls `work` with the event, if it is open.
    pub fn with<R>(&self, work: impl FnOnce(&Event) -> Outcome<R>) -> Outcome<R> {
        match self.inner.try_read() {
            Ok(event) => match &*event {
                Some(event) => work(event),
                None => Err(PyRuntimeError::new_err("Event has been closed").into()),
            },
            Err(_) => Err(raise("ClosedError", "another thread closes the Event", None)),
        }
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
        Ok(Self { inner: RwLock::new(Some(event?)) })
    }

    /// The driver's handle, a CUevent; 0 when the event is closed.
    #[getter]
    fn handle(&self) -> usize {
        self.inner.try_read().ok().and_then(|event| event.as_ref().map(|event| event.raw().addr())).unwrap_or(0)
    }

    /// Gives the event up.
    fn close(&self) -> Outcome {
        match self.inner.try_write() {
            Ok(mut event) => drop(event.take()),
            Err(_) => return Err(raise("SharedError", "another thread uses the Event", None)),
        }
        Ok(())
    }

    /// Whether the event is closed.
    #[getter]
    fn is_closed(&self) -> bool {
        self.inner.try_read().is_ok_and(|event| event.is_none())
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
