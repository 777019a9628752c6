//! The layout of red zones around a block, as plain numbers.

use core::ops::Range;

/// Zones are multiples of at least this many bytes.
pub(super) const UNIT: usize = 256;

/// A block with its red zones, as offsets in the allocation for all three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Zones {
    front: usize,
    size: usize,
    back: usize,
}

impl Zones {
    /// Zones of at least `red_zone` bytes; none for 0. The block begins at a multiple of `unit`, and the total size is
    /// one, so that a block shares no atom of that size with a neighbour. The zone behind begins directly at the
    /// block's end. `None` if the total exceeds isize.
    pub fn new(size: usize, alignment: usize, red_zone: usize, unit: usize) -> Option<Self> {
        if red_zone == 0 {
            return (size <= isize::MAX as usize).then_some(Self { front: 0, size, back: 0 });
        }
        let front = red_zone.checked_next_multiple_of(alignment.max(unit))?;
        let end = size.checked_add(red_zone)?.checked_next_multiple_of(unit)?;
        front.checked_add(end).filter(|total| *total <= isize::MAX as usize)?;
        Some(Self { front, size, back: end - size })
    }

    /// The size of the allocation, in bytes.
    pub fn total(&self) -> usize {
        self.front + self.size + self.back
    }

    /// The zone before the block.
    pub fn before(&self) -> Range<usize> {
        0..self.front
    }

    /// The block itself.
    pub fn block(&self) -> Range<usize> {
        self.front..self.front + self.size
    }

    /// The zone behind the block.
    pub fn after(&self) -> Range<usize> {
        self.front + self.size..self.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 8 } else { 1024 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn zones_lie_side_by_side_and_keep_the_alignment(
            size in 1usize..100_000, alignment in 0u32..20, red_zone in 1usize..5000, unit in 8u32..13,
        ) {
            let (alignment, unit) = (1 << alignment, 1 << unit);
            let zones = Zones::new(size, alignment, red_zone, unit).unwrap();
            prop_assert_eq!(zones.before().start, 0);
            prop_assert_eq!(zones.before().end, zones.block().start);
            prop_assert_eq!(zones.block().end, zones.after().start);
            prop_assert_eq!(zones.after().end, zones.total());
            prop_assert!(zones.before().len() >= red_zone && zones.after().len() >= red_zone);
            prop_assert!(zones.after().len() < red_zone + unit);
            prop_assert_eq!(zones.block().len(), size);
            prop_assert_eq!(zones.block().start % alignment.max(unit), 0);
            prop_assert_eq!(zones.total() % unit, 0);
        }
    }

    #[test]
    fn sizes_at_the_limits_are_refused_and_never_wrap() {
        assert_eq!(Zones::new(isize::MAX as usize, 1, 256, UNIT), None);
        assert_eq!(Zones::new(usize::MAX, 1, 0, UNIT), None);
        assert_eq!(Zones::new(1, 1 << 63, 1, UNIT), None);
        assert_eq!(Zones::new(1, 1, usize::MAX, UNIT), None);
        assert_eq!(
            Zones::new(isize::MAX as usize, 4096, 0, UNIT).map(|zones| zones.total()),
            Some(isize::MAX as usize)
        );
    }
}
