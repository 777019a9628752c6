//! The device's ends of a ring of 64-bit items, as `cudamem/signal.cuh` has them, and how kernels wait.

use super::kernel::word;
use super::memory::Range;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

/// The time of a kernel's wait.
pub(super) struct Patience<'kernel> {
    start: Instant,
    /// Zero is for ever.
    length: Duration,
    turns: u32,
    /// Whether the kernel may go on.
    goes_on: &'kernel dyn Fn() -> bool,
}

impl<'kernel> Patience<'kernel> {
    pub(super) fn new(nanoseconds: u64, goes_on: &'kernel dyn Fn() -> bool) -> Self {
        Self { start: Instant::now(), length: Duration::from_nanos(nanoseconds), turns: 0, goes_on }
    }

    /// For a turn in vain: whether the wait is to end. Whoever is waited for may need this processor.
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

    /// Something came: the time begins anew.
    pub(super) fn renew(&mut self) {
        (self.start, self.turns) = (Instant::now(), 0);
    }
}

/// The memory of a ring, as a descriptor names it.
pub(super) struct Ring {
    /// The tail, and whether the producer has closed.
    pub(super) consumer: Range,
    /// The head, and whether the consumer has closed.
    pub(super) producer: Range,
    pub(super) items: Range,
    pub(super) capacity: u32,
}

impl Ring {
    fn item(&self, index: u32) -> &AtomicU64 {
        let at = self.items.address + 8 * (index & (self.capacity - 1)) as usize;
        // SAFETY: aligned and inside the items (checked when the range was made), which hold their block.
        unsafe { AtomicU64::from_ptr(ptr::with_exposed_provenance_mut(at)) }
    }

    fn tail(&self) -> u32 {
        word(&self.consumer, 0).load(Ordering::Acquire)
    }

    fn head(&self) -> u32 {
        word(&self.producer, 0).load(Ordering::Acquire)
    }

    /// Pushes items as long as there is room; gives how many.
    pub(super) fn push(&self, items: &[u64]) -> usize {
        // The tail is this end's own.
        let (tail, head) = (self.tail(), self.head());
        let room = self.capacity.saturating_sub(tail.wrapping_sub(head)) as usize;
        let count = items.len().min(room);
        for (index, item) in (0..).zip(&items[..count]) {
            self.item(tail.wrapping_add(index)).store(*item, Ordering::Relaxed);
        }
        word(&self.consumer, 0).store(tail.wrapping_add(count as u32), Ordering::Release);
        count
    }

    /// Pops an item, if there is one.
    pub(super) fn pop(&self) -> Option<u64> {
        let (tail, head) = (self.tail(), self.head());
        if tail == head {
            return None;
        }
        let item = self.item(head).load(Ordering::Relaxed);
        word(&self.producer, 0).store(head.wrapping_add(1), Ordering::Release);
        Some(item)
    }

    /// Pops an item, and waits for one; none if the producer has closed, or in vain.
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

    /// Pushes an item, and waits for room; says whether it could.
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
