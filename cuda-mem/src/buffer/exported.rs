//! The exported bytes of an allocation.

use core::ops::Range;

/// Ranges of bytes in ascending order, with gaps between them.
#[derive(Debug, Default)]
pub(super) struct ExportedParts(Vec<Range<usize>>);

impl ExportedParts {
    pub fn add(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|known| known.end < range.start);
        let after = self.0.partition_point(|known| known.start <= range.end);
        let joined =
            self.0[first..after].iter().fold(range, |all, known| all.start.min(known.start)..all.end.max(known.end));
        self.0.splice(first..after, [joined]);
    }

    /// Whether all of a range was exported, by one or several exports.
    pub fn covers(&self, range: &Range<usize>) -> bool {
        let known = self.0.get(self.0.partition_point(|known| known.end < range.end));
        range.is_empty() || known.is_some_and(|known| known.start <= range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: usize = 24;

    fn range() -> impl Strategy<Value = Range<usize>> {
        (0..=SIZE, 0..=SIZE).prop_map(|(one, other)| one.min(other)..one.max(other))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 512 }))]

        /// Compares with a flag per byte.
        #[test]
        fn what_was_added_is_covered_and_nothing_else(
            added in proptest::collection::vec(range(), 0..6), asked in range(),
        ) {
            let (mut exported, mut flags) = (ExportedParts::default(), [false; SIZE]);
            for range in added {
                flags[range.clone()].fill(true);
                exported.add(range);
            }
            prop_assert_eq!(exported.covers(&asked), flags[asked].iter().all(|flag| *flag));
            prop_assert!(exported.0.windows(2).all(|pair| pair[0].end < pair[1].start), "{:?}", exported);
        }
    }
}
