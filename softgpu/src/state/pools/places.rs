//! Space in a pool's file. Freed space is reused at once, as a driver reuses physical memory: a process that still maps
//! it sees the next owner's bytes.

use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct Places {
    length: u64,
    /// The start of the part that was never used.
    fresh: u64,
    /// Free parts before `fresh`, by start, with their ends. No two are adjacent.
    free: BTreeMap<u64, u64>,
}

impl Places {
    pub(crate) fn new(length: u64) -> Self {
        Self { length, fresh: 0, free: BTreeMap::new() }
    }

    /// Takes the first part that is large enough. Returns its start.
    pub(crate) fn take(&mut self, size: u64) -> Option<u64> {
        let fits = self.free.iter().find(|(begin, end)| *end - *begin >= size).map(|(begin, end)| (*begin, *end));
        if let Some((begin, end)) = fits {
            self.free.remove(&begin);
            if begin + size < end {
                self.free.insert(begin + size, end);
            }
            return Some(begin);
        }
        let begin = self.fresh;
        let end = begin.checked_add(size).filter(|end| *end <= self.length)?;
        self.fresh = end;
        Some(begin)
    }

    /// Gives a part back that was taken with this size.
    pub(crate) fn give(&mut self, begin: u64, size: u64) {
        let (mut begin, mut end) = (begin, begin + size);
        if let Some((before, touching)) = self.free.range(..begin).next_back().map(|(before, end)| (*before, *end))
            && touching == begin
        {
            self.free.remove(&before);
            begin = before;
        }
        if let Some(after) = self.free.remove(&end) {
            end = after;
        }
        if end == self.fresh {
            self.fresh = begin;
        } else {
            self.free.insert(begin, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_place_is_the_next_one_of_its_size() {
        let mut places = Places::new(100);
        assert_eq!([10, 20, 30].map(|size| places.take(size)), [Some(0), Some(10), Some(30)]);
        places.give(10, 20);
        assert_eq!((places.take(20), places.take(41)), (Some(10), None));
    }

    #[test]
    fn freed_places_side_by_side_become_one_and_no_two_overlap() {
        let mut places = Places::new(1000);
        let mut taken: Vec<(u64, u64)> = Vec::new();
        let mut number = 7_u64;
        for _ in 0..10_000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let choice = number >> 33;
            if choice.is_multiple_of(2) && !taken.is_empty() {
                let (begin, size) = taken.swap_remove((choice / 2) as usize % taken.len());
                places.give(begin, size);
            } else if let Some(begin) = places.take(choice % 50 + 1) {
                let size = choice % 50 + 1;
                assert!(begin + size <= 1000);
                assert!(taken.iter().all(|(other, length)| begin + size <= *other || other + length <= begin));
                taken.push((begin, size));
            }
        }
        taken.into_iter().for_each(|(begin, size)| places.give(begin, size));
        assert_eq!((places.fresh, places.free.len()), (0, 0));
    }
}
