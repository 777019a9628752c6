//! Tracks which bytes of a frame were written and not flushed. Policy without CUDA and without `unsafe`.

use core::ops::Range;

/// One range that includes all such bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Written(Range<usize>);

impl Written {
    /// Bytes may be written from now on.
    pub fn add(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        self.0 = if self.0.is_empty() { range } else { self.0.start.min(range.start)..self.0.end.max(range.end) };
    }

    /// Bytes were flushed. Bytes in the middle of the range are flushed once more at the end.
    pub fn flushed(&mut self, range: &Range<usize>) {
        if range.start <= self.0.start {
            self.0.start = self.0.start.max(range.end).min(self.0.end);
        } else if range.end >= self.0.end {
            self.0.end = self.0.end.min(range.start);
        }
    }

    /// The bytes that are left to flush.
    pub fn left(&self) -> Range<usize> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 16 } else { 512 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// Compared with one bool for each byte.
        #[test]
        fn no_byte_that_was_written_is_left_unflushed(
            steps in prop::collection::vec((any::<bool>(), 0usize..12, 0usize..12), 0..40)
        ) {
            let (mut written, mut dirty) = (Written::default(), [false; 12]);
            for (write, a, b) in steps {
                let range = a.min(b)..a.max(b);
                dirty[range.clone()].fill(write);
                if write { written.add(range) } else { written.flushed(&range) }
                let left = written.left();
                prop_assert!(left.start <= left.end && left.end <= 12);
                for (byte, dirty) in dirty.iter().enumerate() {
                    prop_assert!(!dirty || left.contains(&byte), "byte {byte} of {left:?}");
                }
            }
            written.flushed(&(0..12));
            prop_assert!(written.left().is_empty());
        }
    }

    #[test]
    fn what_is_flushed_in_order_is_flushed_once() {
        let mut written = Written::default();
        for packet in 0..4 {
            let range = packet * 100..packet * 100 + 100;
            written.add(range.clone());
            assert_eq!(written.left(), range);
            written.flushed(&range);
            assert!(written.left().is_empty());
        }
    }
}
