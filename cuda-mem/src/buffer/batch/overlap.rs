//! Whether the targets of a batch overlap. Pure.

use core::ops::Range;

/// Two targets that overlap, if there are any. None of them is empty. May change their order.
pub(super) fn overlapping(targets: &mut [Range<usize>]) -> Option<[Range<usize>; 2]> {
    if are_different_slots(targets) {
        return None;
    }
    targets.sort_unstable_by_key(|target| target.start);
    let pair = targets.windows(2).find(|pair| pair[1].start < pair[0].end)?;
    Some([pair[0].clone(), pair[1].clone()])
}

/// Whether the targets are different slots of one size, as the blocks of a cache are: found out in a sixth of the time that
/// their sort takes.
fn are_different_slots(targets: &[Range<usize>]) -> bool {
    let Some(size) = targets.first().map(Range::len) else { return true };
    let Some(last) = targets.iter().map(|target| target.start).max() else { return true };
    let words = last / size / 64 + 1;
    // A table that is much larger than the list would take longer than the sort.
    if words > 4 * targets.len() {
        return false;
    }
    let mut taken = vec![0u64; words];
    targets.iter().all(|target| {
        let (slot, rest) = (target.start / size, target.start % size);
        let (word, bit) = (&mut taken[slot / 64], 1 << (slot % 64));
        let is_free = *word & bit == 0;
        *word |= bit;
        is_free && rest == 0 && target.len() == size
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn slots(numbers: &[usize], size: usize) -> Vec<Range<usize>> {
        numbers.iter().map(|number| number * size..(number + 1) * size).collect()
    }

    #[test]
    fn slots_of_one_size_overlap_only_if_two_are_the_same() {
        for size in [1, 3, 4096] {
            assert_eq!(overlapping(&mut slots(&[], size)), None);
            assert_eq!(overlapping(&mut slots(&[5, 0, 63, 64, 2, 127], size)), None);
            let twice = overlapping(&mut slots(&[5, 0, 64, 63, 5, 1], size));
            assert_eq!(twice, Some([5 * size..6 * size, 5 * size..6 * size]));
            assert!(are_different_slots(&slots(&[5, 0, 64, 63], size)));
            assert!(!are_different_slots(&slots(&[5, 0, 64, 63, 5], size)));
        }
    }

    #[test]
    fn targets_of_any_place_and_size_are_compared() {
        assert_eq!(overlapping(&mut [10..20, 0..10, 20..30]), None);
        assert_eq!(overlapping(&mut [10..20, 0..11]), Some([0..11, 10..20]));
        assert_eq!(overlapping(&mut [5..15, 15..25, 24..34]), Some([15..25, 24..34]));
        assert_eq!(overlapping(&mut [0..10, 20..30, 10..21]), Some([10..21, 20..30]));
        // Far apart.
        assert_eq!(overlapping(&mut [0..1, 1 << 40..(1 << 40) + 1]), None);
        assert_eq!(overlapping(&mut [usize::MAX - 1..usize::MAX, 0..1]), None);
    }
}
