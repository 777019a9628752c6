//! Values that calls set for parts of an allocation.

use std::ops::Range;

/// Values of address ranges. The last value set for an address holds.
#[derive(Debug)]
pub(crate) struct Spans<T>(Vec<(Range<u64>, T)>);

impl<T> Default for Spans<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone + Default + PartialEq> Spans<T> {
    pub(crate) fn set(&mut self, range: Range<u64>, value: T) {
        let mut parts = Vec::with_capacity(self.0.len() + 2);
        for (part, old) in self.0.drain(..) {
            let (before, after) = (part.start..part.end.min(range.start), part.start.max(range.end)..part.end);
            parts.extend([before, after].into_iter().filter(|part| !part.is_empty()).map(|part| (part, old.clone())));
        }
        parts.push((range, value));
        self.0 = parts;
    }

    /// The value of a whole range; the default if its parts differ, or if a part has no value.
    pub(crate) fn get(&self, range: &Range<u64>) -> T {
        let inside = |part: &Range<u64>| part.end.min(range.end).saturating_sub(part.start.max(range.start));
        let mut parts = self.0.iter().filter(|(part, _)| inside(part) > 0);
        let Some((first, value)) = parts.next() else { return T::default() };
        let mut covered = inside(first);
        for (part, other) in parts {
            if other != value {
                return T::default();
            }
            covered += inside(part);
        }
        if covered == range.end - range.start { value.clone() } else { T::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_holds_and_parts_that_differ_say_nothing() {
        let mut spans = Spans::default();
        assert_eq!(spans.get(&(0..10)), 0);
        spans.set(0..10, 1);
        spans.set(4..6, 2);
        assert_eq!((spans.get(&(0..4)), spans.get(&(4..6)), spans.get(&(6..10))), (1, 2, 1));
        assert_eq!((spans.get(&(0..10)), spans.get(&(3..5)), spans.get(&(6..11))), (0, 0, 0));
        spans.set(4..6, 1);
        assert_eq!(spans.get(&(0..10)), 1);
    }
}
