//! The lock of a thread cache. A thread that finds a thread cache in use goes to the heap and does not wait.

use super::sync::{AtomicBool, Ordering, UnsafeCell, yield_now};

/// A value that one thread at a time may use.
///
/// The lock of a thread cache with an owner: the owner enters with plain stores, while it [is
/// present](crate::cpu::presence). Other threads [close](Self::close) the lock, and wait until the owner has left. The
/// lock of a thread cache without an owner: threads close it to enter, which is one locked operation.
#[derive(Debug)]
pub(super) struct CacheLock<T> {
    /// Keeps the owner out, and other threads.
    closed: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that is inside reaches the value, which is `Send`.
unsafe impl<T: Send> Sync for CacheLock<T> {}

/// The lock is closed. Its drop opens the lock.
#[derive(Debug)]
pub(super) struct Closed<'lock, T> {
    lock: &'lock CacheLock<T>,
}

impl<T> CacheLock<T> {
    pub fn new(value: T) -> Self {
        Self { closed: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Whether a thread has closed the lock. The owner asks after it has noted its presence.
    #[inline]
    pub fn is_closed(&self) -> bool {
        // Pairs with the drop of `Closed`: what that thread did is seen.
        self.closed.load(Ordering::Acquire)
    }

    /// Passes the value to a closure.
    ///
    /// # Safety
    ///
    /// The calling thread is inside, and in no other call of this method for this lock. Inside is
    ///
    /// - the lock's only owner, present in the place of the lock since before it found the lock open;
    /// - a thread that has closed the lock, if the lock has no owner, or if a heavy fence was made since and the owner was
    ///   then seen elsewhere.
    #[inline]
    pub unsafe fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: no other thread is inside: either it saw the lock closed, or this thread waited until it had left.
        self.value.with_mut(|value| work(unsafe { &mut *value }))
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

impl<T> Drop for Closed<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.closed.store(false, Ordering::Release);
    }
}
