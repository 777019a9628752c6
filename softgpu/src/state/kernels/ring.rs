//! The device's ends of a ring of 64-bit items, as in `cudamem/signal.cuh`, and the waits of kernels.

use super::built_in::word;
use crate::state::memory::Range;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

/// The time limit of a kernel's wait.
pub(super) struct Patience<'kernel> {
    start: Instant,
    /// Zero for no limit.
    length: Duration,
    turns: u32,
    goes_on: &'kernel dyn Fn() -> bool,
}

impl<'kernel> Patience<'kernel> {
    pub(super) fn new(nanoseconds: u64, goes_on: &'kernel dyn Fn() -> bool) -> Self {
        Self { start: Instant::now(), length: Duration::from_nanos(nanoseconds), turns: 0, goes_on }
    }

    /// Pauses after a failed try, because the other side may need this processor. Returns whether the wait is over.
    pub(super) fn is_over(&mut self) -> bool {
        self.turns = self.turns.saturating_add(1);
        match self.turns {
            0..64 => std::hint::spin_loop(),
            64..4096 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(20)),
        }
        if !self.turns.is_multiple_of(64) {
            return false;
        }
        !(self.goes_on)() || !self.length.is_zero() && self.start.elapsed() > self.length
    }

    /// Restarts the time limit after a success.
    pub(super) fn renew(&mut self) {
        (self.start, self.turns) = (Instant::now(), 0);
    }
}

/// The memory of a ring, as its descriptor names it.
pub(super) struct Ring {
    /// For the consumer: the tail, and whether the producer has closed.
    pub(super) consumer: Range,
    /// For the producer: the head, and whether the consumer has closed.
    pub(super) producer: Range,
    pub(super) items: Range,
    pub(super) capacity: u32,
}

impl Ring {
    fn item(&self, index: u32) -> &AtomicU64 {
        let at = self.items.address + 8 * (index & (self.capacity - 1)) as usize;
        // SAFETY: aligned and inside the items (checked when the range was made), which hold their allocation.
        unsafe { AtomicU64::from_ptr(ptr::with_exposed_provenance_mut(at)) }
    }

    fn tail(&self) -> u32 {
        word(&self.consumer, 0).load(Ordering::Acquire)
    }

    fn head(&self) -> u32 {
        word(&self.producer, 0).load(Ordering::Acquire)
    }

    /// Pushes items while there is room. Returns how many.
    pub(super) fn push(&self, items: &[u64]) -> usize {
        // Only this end changes the tail.
        let (tail, head) = (self.tail(), self.head());
        let room = self.capacity.saturating_sub(tail.wrapping_sub(head)) as usize;
        let count = items.len().min(room);
        for (index, item) in (0..).zip(&items[..count]) {
            self.item(tail.wrapping_add(index)).store(*item, Ordering::Relaxed);
        }
        word(&self.consumer, 0).store(tail.wrapping_add(count as u32), Ordering::Release);
        count
    }

    pub(super) fn pop(&self) -> Option<u64> {
        let (tail, head) = (self.tail(), self.head());
        if tail == head {
            return None;
        }
        let item = self.item(head).load(Ordering::Relaxed);
        word(&self.producer, 0).store(head.wrapping_add(1), Ordering::Release);
        Some(item)
    }

    /// Waits for an item and pops it. `None` if the producer has closed, or after the time limit.
    pub(super) fn receive(&self, patience: &mut Patience<'_>) -> Option<u64> {
        patience.renew();
        loop {
            let closed = word(&self.consumer, 4).load(Ordering::Acquire) != 0;
            if let Some(item) = self.pop() {
                return Some(item);
            }
            if closed || patience.is_over() {
                return None;
            }
        }
    }

    /// Waits for room and pushes an item. Returns whether it did.
    pub(super) fn send(&self, item: u64, patience: &mut Patience<'_>) -> bool {
        patience.renew();
        while self.push(&[item]) == 0 {
            if word(&self.producer, 4).load(Ordering::Acquire) != 0 || patience.is_over() {
                return false;
            }
        }
        true
    }

    pub(super) fn close_producer(&self) {
        fence(Ordering::SeqCst);
        word(&self.consumer, 4).store(1, Ordering::Release);
    }

    pub(super) fn close_consumer(&self) {
        fence(Ordering::SeqCst);
        word(&self.producer, 4).store(1, Ordering::Release);
    }
}
