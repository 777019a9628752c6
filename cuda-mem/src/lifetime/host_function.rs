//! Host functions, which must not call the driver.
//!
//! The drop of a value inside one moves the contents to the queue. The worker drops them after the function has
//! returned. Values of the program that are due inside a submission go the same way.

use super::end_queue::EndQueue;
use super::worker::{ENDS, Waiting};
use crate::error::{check_not_forked, forked};
use crate::locks::later;
use crate::{Error, Result};
use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

/// Number of host functions that run now. At 0, [`inside_host_function`] skips the thread-local flag.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The values that were dropped in host functions, or inside submissions.
static DROPPED: EndQueue<Box<dyn Send>> = EndQueue::new();

struct DroppedInside;

static FOR_WORKER: LazyLock<Arc<DroppedInside>> = LazyLock::new(|| Arc::new(DroppedInside));

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
pub(crate) fn drop_after_host_function(value: impl Send + 'static) {
    if forked() {
        return core::mem::forget(value);
    }
    DROPPED.push(Box::new(value));
}

/// Drops what may run code of the program, where nothing is held: now or [later], or on the worker, if this thread is inside
/// a host function.
pub(crate) fn drop_outside(value: impl Send + 'static) {
    if inside_host_function() { drop_on_worker(value) } else { later::run(move || drop(value)) }
}

/// Leaves a value to the worker, which drops it outside of host functions. For threads that must not wait for the
/// program.
pub(crate) fn drop_on_worker(value: impl Send + 'static) {
    drop_after_host_function(value);
    if !forked() {
        employ_worker();
    }
}

fn employ_worker() {
    // If the system cannot start a thread, the end of the next host function tries again.
    let _ = ENDS.employ(&FOR_WORKER);
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
        if !DROPPED.is_empty() {
            employ_worker();
        }
    }
}

impl Waiting for DroppedInside {
    fn look(&self) -> bool {
        DROPPED.take_all().into_iter().for_each(|value| later::run(|| drop(value)));
        // What these drops add asks for another look.
        !DROPPED.is_empty()
    }
}
