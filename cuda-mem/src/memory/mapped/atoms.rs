//! Atoms: the unit in which non-coherent memory is flushed and invalidated. Pure functions and a bitmap; no unsafe.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

/// The whole atoms that a range touches, cut off at the end of the memory. An empty range touches none.
pub(crate) fn round_outward(range: Range<usize>, atom: usize, end: usize) -> Range<usize> {
    if range.is_empty() {
        return range;
    }
    let start = range.start / atom * atom;
    start..range.end.checked_next_multiple_of(atom).map_or(end, |rounded| rounded.min(end))
}

/// The atoms that hold unflushed CPU writes, as a bitmap.
#[derive(Debug)]
pub(crate) struct DirtyAtoms {
    atom: usize,
    words: Box<[AtomicU64]>,
}

impl DirtyAtoms {
    pub fn new(atom: usize, size: usize) -> Self {
        let words = size.div_ceil(atom).div_ceil(64);
        Self { atom, words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Marks the atoms that a range of bytes touches.
    pub fn mark(&self, range: Range<usize>) {
        self.each_word(range, |word, mask| {
            word.fetch_or(mask, Ordering::Relaxed);
        });
    }

    /// Unmarks the atoms that a range of bytes touches.
    pub fn clear(&self, range: Range<usize>) {
        self.each_word(range, |word, mask| {
            word.fetch_and(!mask, Ordering::Relaxed);
        });
    }

    /// Whether the atom that holds a byte is marked.
    pub fn is_dirty(&self, byte: usize) -> bool {
        let index = byte / self.atom;
        self.words.get(index / 64).is_some_and(|word| word.load(Ordering::Relaxed) >> (index % 64) & 1 == 1)
    }

    /// The runs of marked atoms among those that a range touches, as ranges of bytes. The last run may extend past the
    /// end of the memory.
    pub fn runs(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
        let last = if range.is_empty() { 0 } else { range.end.div_ceil(self.atom) };
        let mut index = range.start / self.atom;
        core::iter::from_fn(move || {
            let start = self.next(index, last, true)?;
            let end = self.next(start, last, false).unwrap_or(last);
            index = end;
            Some(start * self.atom..end * self.atom)
        })
    }

    /// The first atom from `index` on and before `last` whose mark equals `marked`.
    fn next(&self, mut index: usize, last: usize, marked: bool) -> Option<usize> {
        while index < last {
            let word = self.words.get(index / 64)?.load(Ordering::Relaxed);
            let word = if marked { word } else { !word } >> (index % 64);
            if word != 0 {
                index += word.trailing_zeros() as usize;
                return (index < last).then_some(index);
            }
            index = (index / 64 + 1) * 64;
        }
        None
    }

    fn each_word(&self, range: Range<usize>, mut apply: impl FnMut(&AtomicU64, u64)) {
        if range.is_empty() {
            return;
        }
        let (first, last) = (range.start / self.atom, (range.end - 1) / self.atom);
        for word in first / 64..=last / 64 {
            let low = if word == first / 64 { u64::MAX << (first % 64) } else { u64::MAX };
            let high = if word == last / 64 { u64::MAX >> (63 - last % 64) } else { u64::MAX };
            if let Some(word) = self.words.get(word) {
                apply(word, low & high);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_grow_to_whole_atoms_and_stop_at_the_end() {
        let reach = if cfg!(miri) { 9 } else { 130 };
        for atom in [1, 2, 4, 8, 64, 256] {
            for end in [1, 7, 64, 65, 300, 1024] {
                for start in 0..=end.min(reach) {
                    for stop in start..=end.min(start + reach) {
                        let rounded = round_outward(start..stop, atom, end);
                        if start == stop {
                            assert!(rounded.is_empty());
                            continue;
                        }
                        assert!(rounded.start <= start && rounded.end >= stop && rounded.end <= end);
                        assert!(rounded.start.is_multiple_of(atom) && start - rounded.start < atom);
                        assert!(rounded.end == end || rounded.end.is_multiple_of(atom) && rounded.end - stop < atom);
                    }
                }
            }
        }
        assert_eq!(round_outward(usize::MAX - 3..usize::MAX, 64, usize::MAX), usize::MAX - 63..usize::MAX);
    }

    proptest! {
        /// Compares with one bool per atom.
        #[test]
        #[cfg_attr(miri, ignore = "slow under Miri; the exhaustive tests run there")]
        fn the_bitmap_does_what_a_list_of_flags_does(
            atom in prop::sample::select(vec![1usize, 4, 64, 256]),
            atoms in 1usize..300,
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..40),
        ) {
            let size = atom * atoms;
            let bitmap = DirtyAtoms::new(atom, size);
            let mut flags = vec![false; atoms];
            for (mark, a, b) in steps {
                let (a, b) = (a.index(size + 1), b.index(size + 1));
                let range = a.min(b)..a.max(b);
                if mark { bitmap.mark(range.clone()) } else { bitmap.clear(range.clone()) }
                if !range.is_empty() {
                    flags[range.start / atom..=(range.end - 1) / atom].fill(mark);
                }
            }
            let mut seen = vec![false; atoms];
            let mut before = None;
            for run in bitmap.runs(0..size) {
                prop_assert!(before.is_none_or(|end| end < run.start), "runs are maximal and in order");
                before = Some(run.end);
                seen[run.start / atom..run.end / atom].fill(true);
            }
            prop_assert_eq!(&seen, &flags);
            for (index, flag) in flags.iter().enumerate() {
                prop_assert_eq!(bitmap.is_dirty(index * atom), *flag);
            }
        }
    }

    #[test]
    fn runs_are_limited_to_the_atoms_that_a_range_touches() {
        let bitmap = DirtyAtoms::new(64, 64 * 200);
        bitmap.mark(0..64 * 200);
        assert_eq!(bitmap.runs(65..66).collect::<Vec<_>>(), vec![64..128]);
        assert_eq!(bitmap.runs(10..10).count(), 0);
        bitmap.clear(64..65);
        assert_eq!(bitmap.runs(0..64 * 200).collect::<Vec<_>>(), vec![0..64, 128..64 * 200]);
    }
}
