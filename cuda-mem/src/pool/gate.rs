//! A lock that nobody waits for on the common path: who finds it taken goes another way.

use super::sync::{AtomicBool, Ordering, UnsafeCell, yield_now};
use core::ops::{Deref, DerefMut};

/// A value that one thread at a time may enter. Entering is one atomic operation, leaving a plain store: half of what a
/// `Mutex` takes.
#[derive(Debug)]
pub(super) struct Gate<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `taken` lets one thread at a time reach the value, which may move between threads.
unsafe impl<T: Send> Sync for Gate<T> {}

/// The way out.
#[derive(Debug)]
pub(super) struct Entered<'gate, T> {
    gate: &'gate Gate<T>,
}

impl<T> Gate<T> {
    pub fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Enters, unless another thread is inside.
    #[inline]
    pub fn try_enter(&self) -> Option<Entered<'_, T>> {
        let entered = self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // Made only where it was entered: its drop opens the gate.
        entered.is_ok().then(|| Entered { gate: self })
    }

    /// Enters as soon as it can. Whoever is inside makes no calls there, so it is soon.
    pub fn enter(&self) -> Entered<'_, T> {
        loop {
            if let Some(entered) = self.try_enter() {
                return entered;
            }
            yield_now();
        }
    }
}

impl<T> Deref for Entered<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `Gate::try_enter` made this value, and makes no other until it is dropped.
        self.gate.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for Entered<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        self.gate.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for Entered<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.gate.taken.store(false, Ordering::Release);
    }
}
