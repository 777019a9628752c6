//! Counts of what thread caches and the heap hand out and take back.

use super::sync::{AtomicU64, Ordering};

/// Counts of allocations and frees. The thread that is inside the thread cache, or that has the pool's lock, counts;
/// all threads may read.
#[derive(Debug, Default)]
pub(super) struct Tally {
    allocated: Counters,
    freed: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    requested: AtomicU64,
    bytes: AtomicU64,
    blocks: AtomicU64,
}

/// Sums over allocations or over frees: the requested bytes, the bytes of the blocks, and the number of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub requested: u64,
    pub bytes: u64,
    pub blocks: u64,
}

impl Sum {
    pub fn add(&mut self, other: Sum) {
        self.requested += other.requested;
        self.bytes += other.bytes;
        self.blocks += other.blocks;
    }
}

impl Counters {
    #[inline]
    fn count(&self, requested: usize, bytes: usize) {
        // One thread at a time counts, so no update is lost between load and store.
        let add = |counter: &AtomicU64, amount: u64| {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
        };
        add(&self.requested, requested as u64);
        add(&self.bytes, bytes as u64);
        add(&self.blocks, 1);
    }

    fn sum(&self) -> Sum {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Sum { requested: read(&self.requested), bytes: read(&self.bytes), blocks: read(&self.blocks) }
    }
}

impl Tally {
    #[inline]
    pub fn allocated(&self, requested: usize, bytes: usize) {
        self.allocated.count(requested, bytes);
    }

    #[inline]
    pub fn freed(&self, requested: usize, bytes: usize) {
        self.freed.count(requested, bytes);
    }

    /// The sums over allocations and over frees.
    pub fn sums(&self) -> (Sum, Sum) {
        // Frees are read first, so that they do not exceed the allocations.
        let freed = self.freed.sum();
        (self.allocated.sum(), freed)
    }
}
