//! Errors of drops, which have no caller that an exception could reach. They become warnings at the next allocation or
//! close, on whatever thread.

use core::sync::atomic::{AtomicBool, Ordering};
use cuda_mem::{Context, DropErrorHook};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Whether an error waits. Read by every allocation.
static WAITING: AtomicBool = AtomicBool::new(false);
/// The texts, at most `CAPACITY`.
static TEXTS: Mutex<Vec<String>> = Mutex::new(Vec::new());
const CAPACITY: usize = 64;

/// Collects the drop errors of a context.
pub fn collect(context: &Context) {
    static HOOK: OnceLock<DropErrorHook> = OnceLock::new();
    let hook = HOOK.get_or_init(|| {
        Arc::new(|error| {
            let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
            if texts.len() < CAPACITY {
                texts.push(error.to_string());
            }
            WAITING.store(true, Ordering::Release);
        })
    });
    context.set_drop_error_hook(Some(hook.clone()));
}

/// Warns of errors that wait.
#[inline]
pub fn warn(py: Python<'_>) -> PyResult<()> {
    if WAITING.load(Ordering::Relaxed) { warn_now(py) } else { Ok(()) }
}

#[cold]
fn warn_now(py: Python<'_>) -> PyResult<()> {
    let class = py.import("cuda_mem._errors")?.getattr("DropErrorWarning")?;
    for text in take_drop_errors() {
        py.import("warnings")?.call_method1("warn", (text, &class, 2))?;
    }
    Ok(())
}

/// Returns the texts of errors that happened while memory, streams or events were freed without a caller, as by the
/// garbage collector, and forgets them. Without this call they become warnings of the class DropErrorWarning at the next
/// allocation or close.
///
/// >>> cuda_mem.take_drop_errors()
/// []
#[pyfunction]
pub fn take_drop_errors() -> Vec<String> {
    // A forked child takes no lock.
    if cuda_mem::check_not_forked("take_drop_errors").is_err() {
        return Vec::new();
    }
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    WAITING.store(false, Ordering::Relaxed);
    std::mem::take(&mut *texts)
}
