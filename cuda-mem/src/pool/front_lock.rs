//! The lock of a front. A thread that finds a front in use goes to the heap and does not wait.

use super::sync::{AtomicBool, Ordering, UnsafeCell, yield_now};

/// A value that one thread at a time may use.
///
/// The lock of a front with an owner: the owner enters with plain stores, while it [is present](crate::cpu::presence).
/// Other threads [close](Self::close) the lock, and wait until the owner has left. The lock of a front without an owner:
/// threads close it to enter, which is one locked operation.
#[derive(Debug)]
pub(super) struct FrontLock<T> {
    /// Keeps the owner out, and other threads.
    closed: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that is inside reaches the value, which is `Send`.
unsafe impl<T: Send> Sync for FrontLock<T> {}

/// The lock is closed. Its drop opens the lock.
#[derive(Debug)]
pub(super) struct Closed<'lock, T> {
    lock: &'lock FrontLock<T>,
}

impl<T> FrontLock<T> {
    pub fn new(value: T) -> Self {
        Self { closed: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Passes the value to the owner's closure, unless the lock is closed.
    ///
    /// # Safety
    ///
    /// The calling thread is the lock's only owner. It is present in the place of which this lock is part, and makes no
    /// other call of this method in the closure. Threads that close the lock use the value only after the owner has
    /// left the place.
    #[inline]
    pub unsafe fn with_own<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        // Pairs with the drop of `Closed`: what that thread did is seen.
        if self.closed.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: this thread noted its presence before it read `closed`. So a thread that closes the lock waits.
        Some(self.value.with_mut(|value| work(unsafe { &mut *value })))
    }

    /// Closes the lock, unless it is closed.
    #[inline]
    pub fn try_close(&self) -> Option<Closed<'_, T>> {
        let closed = self.closed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // Not `then_some`: the drop of an unused value would open another thread's lock.
        closed.is_ok().then(|| Closed { lock: self })
    }

    /// Closes the lock as soon as it is open. Threads that have closed it make no blocking calls, so that is soon.
    pub fn close(&self) -> Closed<'_, T> {
        loop {
            if let Some(closed) = self.try_close() {
                return closed;
            }
            yield_now();
        }
    }
}

impl<T> Closed<'_, T> {
    /// Passes the value to a closure.
    ///
    /// # Safety
    ///
    /// The lock has no owner, or its owner has left the place since the lock was closed: a heavy fence was made, and then
    /// the owner was seen elsewhere.
    #[inline]
    pub unsafe fn with<R>(&mut self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: this value keeps other threads out, and this function's contract the owner.
        self.lock.value.with_mut(|value| work(unsafe { &mut *value }))
    }
}

impl<T> Drop for Closed<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.closed.store(false, Ordering::Release);
    }
}
