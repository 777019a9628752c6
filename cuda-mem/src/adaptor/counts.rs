//! Counters of allocations, without any driver calls.

use core::fmt;
use core::ops::RangeInclusive;

/// One counter over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Count {
    /// The live amount. Negative in a section that freed more than it allocated.
    pub current: i64,
    /// The highest live amount; not below 0.
    pub peak: i64,
    /// The sum of all allocations.
    pub total: u64,
}

impl Count {
    fn add(&mut self, amount: u64) {
        self.current = self.current.saturating_add_unsigned(amount);
        self.peak = self.peak.max(self.current);
        self.total = self.total.saturating_add(amount);
    }

    fn subtract(&mut self, amount: u64) {
        self.current = self.current.saturating_sub_unsigned(amount);
    }
}

/// The counters of [`Statistics`](super::Statistics).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Bytes, by the sizes of the allocated blocks.
    pub bytes: Count,
    /// Blocks.
    pub blocks: Count,
    /// Allocations that failed.
    pub failed_allocations: u64,
    /// Frees that failed. Their blocks are still live.
    pub failed_frees: u64,
    /// All blocks ever allocated, by size.
    pub sizes: SizeClasses,
}

impl Counts {
    pub(super) fn allocated(&mut self, size: usize) {
        self.bytes.add(size as u64);
        self.blocks.add(1);
        self.sizes.add(size);
    }

    pub(super) fn freed(&mut self, size: usize) {
        self.bytes.subtract(size as u64);
        self.blocks.subtract(1);
    }

    /// Takes a free back that the upstream refused.
    pub(super) fn free_failed(&mut self, size: usize) {
        for (counter, amount) in [(&mut self.bytes, size as u64), (&mut self.blocks, 1)] {
            counter.current = counter.current.saturating_add_unsigned(amount);
        }
        self.failed_frees += 1;
    }

    pub(super) fn reset_peaks(&mut self) {
        for counter in [&mut self.bytes, &mut self.blocks] {
            counter.peak = counter.current;
        }
    }
}

/// Counts of blocks by size: one class for each power of two.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SizeClasses([u64; Self::CLASSES]);

impl SizeClasses {
    const CLASSES: usize = usize::BITS as usize;

    fn add(&mut self, size: usize) {
        self.0[Self::class(size)] += 1;
    }

    /// The class of a size; 0 for one byte.
    fn class(size: usize) -> usize {
        size.checked_ilog2().unwrap_or(0) as usize
    }

    /// The number of blocks in the class that contains `size`.
    pub fn of(&self, size: usize) -> u64 {
        self.0[Self::class(size)]
    }

    /// The classes that had blocks, smallest first: the range of sizes in bytes, and the number of blocks.
    pub fn iter(&self) -> impl Iterator<Item = (RangeInclusive<usize>, u64)> {
        let range = |class| {
            let smallest = 1usize << class;
            smallest..=smallest + (smallest - 1)
        };
        self.0.iter().enumerate().filter(|(_, count)| **count != 0).map(move |(class, count)| (range(class), *count))
    }
}

impl Default for SizeClasses {
    fn default() -> Self {
        Self([0; Self::CLASSES])
    }
}

impl fmt::Debug for SizeClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn current_peak_and_total_follow_allocations_and_frees() {
        let mut counts = Counts::default();
        counts.allocated(100);
        counts.allocated(20);
        counts.freed(100);
        counts.allocated(30);
        assert_eq!(counts.bytes, Count { current: 50, peak: 120, total: 150 });
        assert_eq!(counts.blocks, Count { current: 2, peak: 2, total: 3 });
        counts.reset_peaks();
        assert_eq!(counts.bytes, Count { current: 50, peak: 50, total: 150 });
        counts.freed(20);
        counts.freed(30);
        assert_eq!((counts.bytes.current, counts.bytes.peak, counts.blocks.current), (0, 50, 0));
    }

    #[test]
    fn frees_of_uncounted_blocks_make_counts_negative_but_not_peaks() {
        let mut counts = Counts::default();
        counts.freed(10);
        assert_eq!(counts.bytes, Count { current: -10, peak: 0, total: 0 });
        counts.allocated(4);
        assert_eq!(counts.bytes, Count { current: -6, peak: 0, total: 4 });
    }

    #[test]
    fn every_size_has_one_class() {
        let mut sizes = SizeClasses::default();
        for size in [1, 2, 3, 4, 255, 256, usize::MAX] {
            sizes.add(size);
        }
        assert_eq!((sizes.of(1), sizes.of(3), sizes.of(7), sizes.of(128), sizes.of(511)), (1, 2, 1, 1, 1));
        assert_eq!(sizes.of(1 << 20), 0);
        let listed: Vec<_> = sizes.iter().collect();
        assert_eq!(listed[1], (2..=3, 2));
        assert_eq!(listed.last(), Some(&((usize::MAX / 2 + 1)..=usize::MAX, 1)));
        assert_eq!(listed.len(), 6);
    }
}
