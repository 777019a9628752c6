//! Whether this process was forked from one that had loaded a driver.
//!
//! A driver does not survive a fork, and neither do locks: another thread of the parent may have held one, and the child
//! has no such thread. So a child must find out before it takes a lock. A handler that runs at each fork sets a flag,
//! and the calls look at it first: [`check_not_forked`] in calls that return errors, [`unless_forked`] in others. In
//! debug builds, a lock that a child takes panics.

use super::{DriverError, Error, Result};
use crate::locks::FORKED;
pub(crate) use crate::locks::forked;
use core::sync::atomic::{AtomicU32, Ordering};
use cuda_sys::CUresult;
use std::sync::Once;

/// The process that first loaded a driver; 0 before that.
static LOADED_BY: AtomicU32 = AtomicU32::new(0);

/// Records which process loaded a driver. Its forked children learn that they cannot use it.
pub(crate) fn note_loading() {
    extern "C" fn in_child() {
        FORKED.store(true, Ordering::Relaxed);
    }
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        LOADED_BY.store(std::process::id(), Ordering::Relaxed);
        // Miri knows no forks.
        if !cfg!(miri) {
            // SAFETY: the handler only stores to an atomic, which is allowed in a forked child.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        }
    });
}

/// Refuses a call in a forked process, before it takes a lock.
///
/// # Errors
///
/// [`Error::Forked`].
#[doc(hidden)]
#[inline]
pub fn check_not_forked(call: &'static str) -> Result<()> {
    if forked() { Err(error(call)) } else { Ok(()) }
}

/// The answer of a call that returns no error. In a forked process, the empty one, without a lock.
#[inline]
pub(crate) fn unless_forked<R: Default>(answer: impl FnOnce() -> R) -> R {
    if forked() { R::default() } else { answer() }
}

#[cold]
pub(crate) fn error(call: &'static str) -> Error {
    Error::Forked { call, loaded_by: LOADED_BY.load(Ordering::Relaxed), process: std::process::id() }
}

/// The driver's code as an error. A child that no handler saw, of a raw system call, learns from the code that it was
/// forked.
#[cold]
pub(super) fn refusal(call: &'static str, code: CUresult) -> Error {
    let loaded_by = LOADED_BY.load(Ordering::Relaxed);
    if code == CUresult::CUDA_ERROR_NOT_INITIALIZED && loaded_by != 0 && loaded_by != std::process::id() {
        return error(call);
    }
    DriverError { call, code }.into()
}
