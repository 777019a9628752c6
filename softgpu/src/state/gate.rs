//! A context's lock, as the real driver holds it: a call that waits for all work of the context keeps it meanwhile, and
//! other calls wait behind that call.

use super::sync::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// The lock. Calls that do not wait only pass through it.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    held: Mutex<bool>,
    opened: Condvar,
}

/// Keeps a gate closed while it lives.
pub(crate) struct Held<'gate>(&'gate Gate);

/// Whether gates close at all.
static ON: AtomicBool = AtomicBool::new(true);

/// Sets whether gates close.
pub(crate) fn set(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

impl Gate {
    /// Returns when nobody holds it.
    pub(crate) fn pass(&self) {
        let held = lock(&self.held);
        drop(self.opened.wait_while(held, |held| *held).unwrap_or_else(PoisonError::into_inner));
    }

    /// Closes it, when nobody else holds it. A thread that holds it must not ask again.
    pub(crate) fn hold(&self) -> Option<Held<'_>> {
        if !ON.load(Ordering::Relaxed) {
            return None;
        }
        let held = lock(&self.held);
        let mut held = self.opened.wait_while(held, |held| *held).unwrap_or_else(PoisonError::into_inner);
        *held = true;
        drop(held);
        Some(Held(self))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *lock(&self.0.held) = false;
        self.0.opened.notify_all();
    }
}
