//! Size classes: pure functions from a size to its class, and the set of classes with free ranges.
//!
//! Each power of two has [`SUBDIVISIONS`] classes of equal width, so the sizes of one class differ by less than one
//! part in
//! 32. Each size below 64 has its own class.

/// The base-2 logarithm of [`SUBDIVISIONS`].
const SUBDIVISIONS_LOG2: u32 = 5;

/// The number of classes of each power of two, which is the number of bits in a word of [`ClassSet`].
const SUBDIVISIONS: usize = 1 << SUBDIVISIONS_LOG2;

/// The number of classes, for all sizes of 64 bits.
pub(super) const CLASSES: usize = class_of(u64::MAX) + 1;

/// How many low bits of a size do not affect its class.
#[inline]
const fn width_log2(size: u64) -> u32 {
    // Below 64 the class is the size. Setting the low bits gives all these sizes a width of 0.
    (size | (2 * SUBDIVISIONS as u64 - 1)).ilog2() - SUBDIVISIONS_LOG2
}

/// The class of a range of this size. Larger sizes never have smaller classes.
#[inline]
pub(super) const fn class_of(size: u64) -> usize {
    let width = width_log2(size);
    // The shifted size keeps its highest bit, which adds one to the count of powers of two.
    ((width as usize) << SUBDIVISIONS_LOG2) + (size >> width) as usize
}

/// The first class whose ranges are all at least this large. It may lie behind the last class.
#[inline]
pub(super) const fn class_of_at_least(size: u64) -> usize {
    let below = (1u64 << width_log2(size)) - 1;
    class_of(size) + (size & below != 0) as usize
}

/// A set of classes in two levels of bits, in which a search takes two steps.
#[derive(Clone, Debug)]
pub(super) struct ClassSet {
    /// One bit for each word that is not zero.
    summary: u64,
    /// One bit for each class.
    words: [u32; CLASSES / SUBDIVISIONS],
}

impl ClassSet {
    pub const fn new() -> Self {
        Self { summary: 0, words: [0; CLASSES / SUBDIVISIONS] }
    }

    #[inline]
    pub fn insert(&mut self, class: usize) {
        self.words[class / SUBDIVISIONS] |= 1 << (class % SUBDIVISIONS);
        self.summary |= 1 << (class / SUBDIVISIONS);
    }

    #[inline]
    pub fn remove(&mut self, class: usize) {
        let word = &mut self.words[class / SUBDIVISIONS];
        *word &= !(1 << (class % SUBDIVISIONS));
        if *word == 0 {
            self.summary &= !(1 << (class / SUBDIVISIONS));
        }
    }

    /// The smallest class of the set that is not below `class`.
    #[inline]
    pub fn first_from(&self, class: usize) -> Option<usize> {
        let index = class / SUBDIVISIONS;
        let word = self.words.get(index)? & (u32::MAX << (class % SUBDIVISIONS));
        if word != 0 {
            return Some(index * SUBDIVISIONS + word.trailing_zeros() as usize);
        }
        let above = self.summary & (u64::MAX << (index + 1));
        let index = above.trailing_zeros() as usize;
        let word = self.words.get(index)?;
        Some(index * SUBDIVISIONS + word.trailing_zeros() as usize)
    }

    /// The largest class of the set.
    pub fn last(&self) -> Option<usize> {
        let index = self.summary.checked_ilog2()? as usize;
        Some(index * SUBDIVISIONS + self.words[index].checked_ilog2()? as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Sizes at and around every border that a class can have.
    fn sizes() -> impl Iterator<Item = u64> {
        let edges = (6..64u32).flat_map(|bit| (32..64u64).map(move |high| high << (bit - 5)));
        (1..200).chain(edges.flat_map(|edge| [edge - 1, edge, edge + 1])).chain([u64::MAX - 1, u64::MAX])
    }

    #[test]
    fn sizes_below_64_have_classes_of_their_own() {
        for size in 1..64 {
            assert_eq!((class_of(size), class_of_at_least(size)), (size as usize, size as usize));
        }
        assert_eq!(class_of(64), class_of(65));
        assert_eq!(CLASSES, 1920);
    }

    #[test]
    fn classes_follow_the_order_of_sizes_without_gaps() {
        for size in sizes().filter(|&size| size < u64::MAX) {
            let step = class_of(size + 1) - class_of(size);
            assert!(step <= 1, "{size}");
            // For the smallest size of a class, both functions return that class.
            if step == 1 {
                assert_eq!(class_of_at_least(size + 1), class_of(size + 1), "{size}");
            }
        }
    }

    #[test]
    fn class_of_at_least_is_the_first_class_with_no_smaller_size() {
        for size in sizes() {
            let (own, least) = (class_of(size), class_of_at_least(size));
            let smaller_in_own = size > 1 && class_of(size - 1) == own;
            assert_eq!(least, own + usize::from(smaller_in_own), "{size}");
        }
    }

    #[test]
    fn the_sizes_of_a_class_differ_by_less_than_one_part_in_32() {
        let mut smallest = 1;
        for size in sizes() {
            if class_of(size) != class_of(smallest) {
                smallest = size;
            }
            assert!((size - smallest) <= smallest / 32, "{smallest} and {size}");
        }
    }

    #[test]
    fn the_set_answers_as_an_ordered_set() {
        let (mut set, mut model) = (ClassSet::new(), BTreeSet::new());
        let mut state = 1u64;
        for step in 0..3000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let class = (state >> 33) as usize % CLASSES;
            // The set first fills, then empties.
            let known = model.range(class..).next().copied();
            match known.filter(|_| step % 4 < step / 800) {
                Some(known) => {
                    set.remove(known);
                    model.remove(&known);
                }
                None => {
                    set.insert(class);
                    model.insert(class);
                }
            }
            assert_eq!(set.last(), model.last().copied());
            for from in [0, class.saturating_sub(1), class, class + 1, CLASSES - 1, CLASSES] {
                assert_eq!(set.first_from(from), model.range(from..).next().copied(), "from {from}");
            }
        }
        assert_eq!(ClassSet::new().first_from(0), None);
        assert_eq!(ClassSet::new().last(), None);
    }
}
