//! What waits for one reason.

use crate::locks::{Mutex, MutexGuard};
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};

/// A list of values that wait for the same reason. Nothing of them runs under its lock.
pub(crate) struct EndQueue<T> {
    waiting: Mutex<Vec<T>>,
    /// Length of `waiting`, readable without its lock.
    count: AtomicUsize,
}

impl<T> Default for EndQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> EndQueue<T> {
    pub const fn new() -> Self {
        Self { waiting: Mutex::new(Vec::new()), count: AtomicUsize::new(0) }
    }

    fn change<R>(&self, change: impl FnOnce(&mut Vec<T>) -> R) -> R {
        let mut waiting: MutexGuard<'_, _> = self.waiting.lock();
        let result = change(&mut waiting);
        self.count.store(waiting.len(), Ordering::Release);
        result
    }

    pub fn push(&self, value: T) {
        self.change(|waiting| waiting.push(value));
    }

    /// Takes the values. The oldest comes first.
    pub fn take_all(&self) -> Vec<T> {
        if self.is_empty() { Vec::new() } else { self.change(core::mem::take) }
    }

    /// Takes the oldest value of those that `wanted` chooses.
    pub fn take_first(&self, wanted: impl FnMut(&T) -> bool) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        self.change(|waiting| waiting.iter().position(wanted).map(|place| waiting.remove(place)))
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }
}

impl<T> fmt::Debug for EndQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndQueue").field("count", &self.count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_out_in_their_order_and_once() {
        let queue = EndQueue::new();
        assert!(queue.is_empty() && queue.take_all().is_empty());
        queue.push(1);
        assert_eq!((queue.take_first(|value| *value == 2), queue.take_first(|value| *value == 1)), (None, Some(1)));
        queue.push(1);
        queue.push(2);
        assert!(!queue.is_empty());
        assert_eq!((queue.take_all(), queue.take_all(), queue.is_empty()), (vec![1, 2], vec![], true));
    }
}
