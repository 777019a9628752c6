//! Drops values after a host function has returned.
//!
//! A host function must not call the driver. So the drop of a value inside one moves the contents to this module's
//! queue. After the function has returned, a thread drops them, and ends when the queue is empty.

use crate::callback::call_back;
use crate::error::{check_not_forked, forked};
use crate::{Error, Result};
use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Number of host functions that run now. At 0, [`inside_host_function`] skips the thread-local flag.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

static LEFT: Mutex<DropQueue> = Mutex::new(DropQueue { values: Vec::new(), ending: false });

struct DropQueue {
    values: Vec<Box<dyn Send>>,
    /// Whether a thread is dropping them.
    ending: bool,
}

fn left() -> MutexGuard<'static, DropQueue> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the calling thread must not call the driver: it is inside one of this crate's host functions, or the process
/// was forked.
#[inline]
pub(crate) fn inside_host_function() -> bool {
    forked() || RUNNING.load(Ordering::Relaxed) != 0 && INSIDE.try_with(Cell::get).unwrap_or(false)
}

/// Refuses a driver call inside a host function.
#[inline]
pub(crate) fn check_outside() -> Result<()> {
    if inside_host_function() { refuse() } else { Ok(()) }
}

#[cold]
fn refuse() -> Result<()> {
    check_not_forked("a call of the driver")?;
    Err(Error::InsideHostFunction)
}

/// Queues a value, to be dropped after the calling thread's host function has returned. In a forked process, forgets
/// it: the parent owns what it stands for.
#[cold]
pub(crate) fn drop_later(value: impl Send + 'static) {
    if forked() {
        return core::mem::forget(value);
    }
    left().values.push(Box::new(value));
}

/// Marks the calling thread as inside a host function while it lives.
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
        // If the system cannot start a thread, the end of the next host function tries again.
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
            // A caller's owner may panic in its drop. The other values are dropped nevertheless.
            let _ = call_back(|| drop(value));
        }
    }
}
