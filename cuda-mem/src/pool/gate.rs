//! A lock that nobody waits for on the common path: who finds it taken goes another way.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

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
    pub const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Enters, unless another thread is inside.
    #[inline]
    pub fn try_enter(&self) -> Option<Entered<'_, T>> {
        let entered = self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // Not `then_some`: a way out that was made in vain would open the gate when it is dropped.
        entered.is_ok().then(|| Entered { gate: self })
    }

    /// Enters as soon as it can. Whoever is inside makes no calls there, so it is soon.
    pub fn enter(&self) -> Entered<'_, T> {
        loop {
            if let Some(entered) = self.try_enter() {
                return entered;
            }
            std::thread::yield_now();
        }
    }
}

impl<T> Deref for Entered<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `Gate::try_enter` made this value, and makes no other until it is dropped.
        unsafe { &*self.gate.value.get() }
    }
}

impl<T> DerefMut for Entered<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.gate.value.get() }
    }
}

impl<T> Drop for Entered<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.gate.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_is_inside() {
        let gate = Gate::new(0u64);
        let rounds = if cfg!(miri) { 20 } else { 10_000 };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..rounds).for_each(|_| *gate.enter() += 1));
            }
        });
        let inside = gate.enter();
        assert_eq!(*inside, 3 * rounds);
        assert!(gate.try_enter().is_none());
        assert!(gate.try_enter().is_none(), "who did not enter does not open it");
        drop(inside);
        assert!(gate.try_enter().is_some());
    }
}
