//! A context's lock, as in the real driver: frees and loads that wait for all work of the context hold the lock
//! meanwhile, and other calls wait for them. cuCtxSynchronize and cuModuleUnload wait without the lock.

use crate::sync::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// The lock. Most calls only wait until it is free.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    held: Mutex<bool>,
    opened: Condvar,
}

/// Holds the lock until dropped.
pub(crate) struct GateGuard<'gate>(&'gate Gate);

/// Whether calls take locks at all.
static ON: AtomicBool = AtomicBool::new(true);

pub(crate) fn set(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

impl Gate {
    /// Waits until nobody holds the lock.
    pub(crate) fn pass(&self) {
        let held = lock(&self.held);
        drop(self.opened.wait_while(held, |held| *held).unwrap_or_else(PoisonError::into_inner));
    }

    /// Takes the lock when it is free; `None` if locks are off. The holder must not take it again.
    pub(crate) fn hold(&self) -> Option<GateGuard<'_>> {
        if !ON.load(Ordering::Relaxed) {
            return None;
        }
        let held = lock(&self.held);
        let mut held = self.opened.wait_while(held, |held| *held).unwrap_or_else(PoisonError::into_inner);
        *held = true;
        drop(held);
        Some(GateGuard(self))
    }
}

impl Drop for GateGuard<'_> {
    fn drop(&mut self) {
        *lock(&self.0.held) = false;
        self.0.opened.notify_all();
    }
}
