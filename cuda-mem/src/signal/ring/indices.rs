//! A ring's arithmetic: indices that count on and wrap around, and their slots. No memory, no `unsafe`.

use core::ops::Range;

/// Greatest capacity of a ring: the difference of its two indices must tell full from empty.
pub(super) const MOST_ITEMS: u32 = 1 << 31;

/// One end's view: its own index, and the other end's as last read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub own: u32,
    pub other: u32,
    /// A power of two.
    pub capacity: u32,
}

impl View {
    /// Number of items in the ring, by both indices; `None` if the indices do not match.
    fn used(tail: u32, head: u32, capacity: u32) -> Option<u32> {
        let used = tail.wrapping_sub(head);
        (used <= capacity).then_some(used)
    }

    /// For the producer, whose own index is the tail: the number of items that have room.
    pub fn room(self) -> Option<u32> {
        Self::used(self.own, self.other, self.capacity).map(|used| self.capacity - used)
    }

    /// For the consumer, whose own index is the head: the number of items in the ring.
    pub fn filled(self) -> Option<u32> {
        Self::used(self.other, self.own, self.capacity)
    }
}

/// The slots of `count` items from an index on: one run, or two if they wrap around the end. `count` is at most the
/// capacity.
pub(super) fn runs(index: u32, count: u32, capacity: u32) -> [Range<usize>; 2] {
    let start = index & (capacity - 1);
    let first = count.min(capacity - start);
    let range = |from: u32, length: u32| from as usize..from as usize + length as usize;
    [range(start, first), range(0, count - first)]
}

/// The smallest capacity for `items` items: a power of two.
pub(super) fn capacity_for(items: usize) -> Option<u32> {
    let capacity = u32::try_from(items.max(1)).ok()?.checked_next_power_of_two()?;
    (capacity <= MOST_ITEMS).then_some(capacity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn capacities_are_powers_of_two() {
        assert_eq!([0, 1, 2, 3, 1000].map(capacity_for), [Some(1), Some(1), Some(2), Some(4), Some(1024)]);
        assert_eq!(capacity_for(1 << 31), Some(MOST_ITEMS));
        assert_eq!(capacity_for((1 << 31) + 1), None);
    }

    #[test]
    fn indices_that_do_not_fit_are_seen() {
        let view = |own, other| View { own, other, capacity: 8 };
        assert_eq!((view(3, u32::MAX).room(), view(u32::MAX, 3).filled()), (Some(4), Some(4)));
        assert_eq!((view(9, 0).room(), view(0, 1).room()), (None, None));
        assert_eq!((view(0, 9).filled(), view(1, 0).filled()), (None, None));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn runs_are_the_slots_one_after_the_other(index: u32, log in 0u32..12, part in 0u32..=4096) {
            let capacity = 1 << log;
            let count = part % (capacity + 1);
            let slots: Vec<usize> = runs(index, count, capacity).into_iter().flatten().collect();
            let expected: Vec<usize> = (0..count).map(|n| (index.wrapping_add(n) % capacity) as usize).collect();
            prop_assert_eq!(slots, expected);
        }
    }
}
