//! Signals, such as that of Ctrl-C, during calls that wait.

use core::cell::{Cell, RefCell};
use cuda_mem::waiting::interruptible;
use pyo3::prelude::*;

thread_local! {
    /// Whether this is the thread on which Python runs the handlers of signals, once that is known.
    static HANDLES: Cell<Option<bool>> = const { Cell::new(None) };
    /// The exception of a handler, which ends the wait.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Calls `work` without the GIL. On the main thread, the handlers of signals run during waits, and an exception of a handler
/// ends a wait of `work` that may end early (`cuda_mem::waiting::interruptible` says which) and is raised.
pub fn detach<R: Send>(py: Python<'_>, work: impl FnOnce() -> R + Send) -> PyResult<R> {
    if !handles(py)? {
        return Ok(py.detach(work));
    }
    let done = py.detach(|| interruptible(is_over, work));
    match RAISED.take() {
        Some(exception) => Err(exception),
        None => Ok(done),
    }
}

fn handles(py: Python<'_>) -> PyResult<bool> {
    if let Some(known) = HANDLES.get() {
        return Ok(known);
    }
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    let is_main = main.eq(threading.call_method0("get_ident")?)?;
    HANDLES.set(Some(is_main));
    Ok(is_main)
}

/// Runs the handlers of signals that came. Whether one raised an exception.
fn is_over() -> bool {
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(exception) => {
            RAISED.set(Some(exception));
            true
        }
    })
}
