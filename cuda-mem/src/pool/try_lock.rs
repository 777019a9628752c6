//! A try-lock, so that a thread that finds a front in use goes to the heap and does not wait.

use super::sync::{AtomicBool, Ordering, UnsafeCell, yield_now};
use core::ops::{Deref, DerefMut};

/// A value that one thread at a time may use. Entering is one atomic operation, leaving a plain store: half the cost of
/// a `Mutex`.
#[derive(Debug)]
pub(super) struct TryLock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that has set `taken` reaches the value, which is `Send`.
unsafe impl<T: Send> Sync for TryLock<T> {}

/// Access to the value. Its drop leaves the gate.
#[derive(Debug)]
pub(super) struct TryLockGuard<'gate, T> {
    gate: &'gate TryLock<T>,
}

impl<T> TryLock<T> {
    pub fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Enters, unless another thread is inside.
    #[inline]
    pub fn try_enter(&self) -> Option<TryLockGuard<'_, T>> {
        let entered = self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // Not `then_some`: the drop of an unused guard would open another thread's gate.
        entered.is_ok().then(|| TryLockGuard { gate: self })
    }

    /// Enters as soon as no thread is inside. Threads inside make no blocking calls, so that is soon.
    pub fn enter(&self) -> TryLockGuard<'_, T> {
        loop {
            if let Some(entered) = self.try_enter() {
                return entered;
            }
            yield_now();
        }
    }
}

impl<T> Deref for TryLockGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `TryLock::try_enter` makes no second guard until this guard is dropped.
        self.gate.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for TryLockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        self.gate.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for TryLockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.gate.taken.store(false, Ordering::Release);
    }
}
