//! Values of ranges of bytes.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of bytes with a value each. No two overlap.
#[derive(Clone, Debug)]
pub(super) struct Stretches<T>(BTreeMap<usize, (usize, T)>);

impl<T> Default for Stretches<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// The bytes that two ranges have in common.
pub(super) fn common(one: &Range<usize>, other: &Range<usize>) -> Option<Range<usize>> {
    let both = one.start.max(other.start)..one.end.min(other.end);
    (!both.is_empty()).then_some(both)
}

impl<T: Clone> Stretches<T> {
    /// The parts of `bytes` that have a value.
    pub(super) fn over(&self, bytes: &Range<usize>) -> impl Iterator<Item = (Range<usize>, &T)> {
        let before = self.0.range(..bytes.start).next_back();
        let found = before.into_iter().chain(self.0.range(bytes.clone()));
        found.filter_map(|(start, (end, value))| Some((common(&(*start..*end), bytes)?, value)))
    }

    /// The parts of `bytes` that have a value, to change the values of these parts only.
    pub(super) fn over_mut(&mut self, bytes: &Range<usize>) -> impl Iterator<Item = (Range<usize>, &mut T)> {
        self.cut(bytes.start);
        self.cut(bytes.end);
        self.0.range_mut(bytes.clone()).map(|(start, (end, value))| (*start..*end, value))
    }

    /// The parts of `bytes` without a value.
    pub(super) fn gaps(&self, bytes: &Range<usize>) -> Vec<Range<usize>> {
        let (mut gaps, mut reached) = (Vec::new(), bytes.start);
        for (part, _) in self.over(bytes) {
            gaps.push(reached..part.start);
            reached = part.end;
        }
        gaps.push(reached..bytes.end);
        gaps.retain(|gap| !gap.is_empty());
        gaps
    }

    pub(super) fn set(&mut self, bytes: Range<usize>, value: T) {
        self.remove(&bytes);
        if !bytes.is_empty() {
            self.0.insert(bytes.start, (bytes.end, value));
        }
    }

    pub(super) fn remove(&mut self, bytes: &Range<usize>) {
        if self.0.is_empty() {
            return;
        }
        self.cut(bytes.start);
        self.cut(bytes.end);
        let inside: Vec<usize> = self.0.range(bytes.clone()).map(|(start, _)| *start).collect();
        inside.iter().for_each(|start| drop(self.0.remove(start)));
    }

    /// Divides the stretch around `at` at that address.
    fn cut(&mut self, at: usize) {
        let Some((_, (end, value))) = self.0.range_mut(..at).next_back() else { return };
        if *end > at {
            let right = (*end, value.clone());
            *end = at;
            self.0.insert(at, right);
        }
    }
}

impl Stretches<()> {
    /// Adds bytes, and joins them with their neighbours.
    pub(super) fn add(&mut self, bytes: &Range<usize>) {
        if bytes.is_empty() {
            return;
        }
        let before = self.0.range(..=bytes.start).next_back().filter(|(_, (end, ()))| *end >= bytes.start);
        if before.is_some_and(|(_, (end, ()))| *end >= bytes.end) {
            return;
        }
        let start = before.map_or(bytes.start, |(start, _)| *start);
        let last = self.0.range(..=bytes.end).next_back().map_or(0, |(_, (end, ()))| *end);
        self.set(start..bytes.end.max(last), ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<T: Clone>(stretches: &Stretches<T>) -> Vec<(Range<usize>, T)> {
        stretches.over(&(0..100)).map(|(part, value)| (part, value.clone())).collect()
    }

    #[test]
    fn a_value_holds_for_its_bytes_until_another_replaces_it() {
        let mut stretches = Stretches::default();
        stretches.set(10..20, 'a');
        stretches.set(15..30, 'b');
        stretches.set(5..5, 'c');
        assert_eq!(all(&stretches), [(10..15, 'a'), (15..30, 'b')]);
        assert_eq!(stretches.over(&(12..16)).map(|(part, _)| part).collect::<Vec<_>>(), [12..15, 15..16]);
        assert_eq!((stretches.gaps(&(0..40)), stretches.gaps(&(12..16))), (vec![0..10, 30..40], vec![]));
        stretches.over_mut(&(20..22)).for_each(|(_, value)| *value = 'd');
        stretches.remove(&(0..12));
        assert_eq!(all(&stretches), [(12..15, 'a'), (15..20, 'b'), (20..22, 'd'), (22..30, 'b')]);
    }

    #[test]
    fn bytes_that_touch_become_one_stretch() {
        let mut stretches = Stretches::default();
        for bytes in [10..20, 30..40, 50..60, 20..30, 45..45, 38..50, 12..14, 0..5] {
            stretches.add(&bytes);
        }
        assert_eq!(all(&stretches), [(0..5, ()), (10..60, ())]);
    }
}
