//! Ends that wait until a host function has returned.
//!
//! A host function must not call the driver, so a value that is dropped in one ends later: its drop moves what it holds
//! here, and a thread of this module's drops that once the function has returned. The thread ends when nothing is left.

use crate::callback::call_back;
use crate::{Error, Result};
use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// How many host functions run now. While there are none, no thread has to look whether it is in one.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

static LEFT: Mutex<Left> = Mutex::new(Left { values: Vec::new(), ending: false });

struct Left {
    /// What is to be dropped.
    values: Vec<Box<dyn Send>>,
    /// Whether a thread drops them now.
    ending: bool,
}

fn left() -> MutexGuard<'static, Left> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the calling thread is in a host function of this crate's.
#[inline]
pub(crate) fn inside_host_function() -> bool {
    RUNNING.load(Ordering::Relaxed) != 0 && INSIDE.try_with(Cell::get).unwrap_or(false)
}

/// Refuses a call of the driver in a host function.
#[inline]
pub(crate) fn check_outside() -> Result<()> {
    if inside_host_function() { Err(Error::InsideHostFunction) } else { Ok(()) }
}

/// Drops a value when the host function that the calling thread is in has returned.
#[cold]
pub(crate) fn drop_later(value: impl Send + 'static) {
    left().values.push(Box::new(value));
}

/// The calling thread is in a host function while this lives.
pub(crate) struct Inside(());

impl Inside {
    pub fn enter() -> Self {
        RUNNING.fetch_add(1, Ordering::Relaxed);
        INSIDE.set(true);
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
        RUNNING.fetch_sub(1, Ordering::Relaxed);
        let mut left = left();
        if left.values.is_empty() || left.ending {
            return;
        }
        // Where the system has no thread left, the next host function tries again.
        left.ending = thread::Builder::new().name("cuda-mem-ends".into()).spawn(end_all).is_ok();
    }
}

fn end_all() {
    loop {
        let values = {
            let mut left = left();
            left.ending = !left.values.is_empty();
            core::mem::take(&mut left.values)
        };
        if values.is_empty() {
            return;
        }
        for value in values {
            // An owner of the caller's may panic when it ends; the others end all the same.
            let _ = call_back(|| drop(value));
        }
    }
}
