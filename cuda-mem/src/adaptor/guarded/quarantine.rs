//! A queue of freed blocks that is bounded in bytes.

use std::collections::VecDeque;

/// Values with sizes. The oldest leave when the sum exceeds the limit.
#[derive(Debug)]
pub(super) struct Quarantine<T> {
    held: VecDeque<(T, usize)>,
    bytes: usize,
    limit: usize,
}

impl<T> Quarantine<T> {
    pub fn new(limit: usize) -> Self {
        Self { held: VecDeque::new(), bytes: 0, limit }
    }

    /// Whether a value of this size may be held at all.
    pub fn admits(&self, bytes: usize) -> bool {
        bytes <= self.limit
    }

    pub fn hold(&mut self, value: T, bytes: usize) {
        self.held.push_back((value, bytes));
        self.bytes += bytes;
    }

    /// Removes the oldest value if the sum exceeds the limit.
    pub fn take_excess(&mut self) -> Option<(T, usize)> {
        if self.bytes > self.limit { self.take_oldest() } else { None }
    }

    pub fn take_oldest(&mut self) -> Option<(T, usize)> {
        let (value, bytes) = self.held.pop_front()?;
        self.bytes -= bytes;
        Some((value, bytes))
    }

    /// Puts a value back as the oldest.
    pub fn put_back(&mut self, value: T, bytes: usize) {
        self.held.push_front((value, bytes));
        self.bytes += bytes;
    }

    /// Oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.held.iter().map(|(value, _)| value)
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 8 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// Compares with a plain list.
        #[test]
        fn the_newest_values_that_fit_are_held(limit in 0usize..200, sizes in prop::collection::vec(0usize..100, 0..50)) {
            let mut quarantine = Quarantine::new(limit);
            let mut model: Vec<(usize, usize)> = Vec::new();
            for (number, size) in sizes.into_iter().enumerate() {
                prop_assert_eq!(quarantine.admits(size), size <= limit);
                quarantine.hold(number, size);
                model.push((number, size));
                while let Some(left) = quarantine.take_excess() {
                    prop_assert_eq!(left, model.remove(0));
                }
                let sum: usize = model.iter().map(|(_, size)| size).sum();
                prop_assert!(sum <= limit && quarantine.bytes() == sum);
                let held: Vec<usize> = quarantine.iter().copied().collect();
                prop_assert_eq!(held, model.iter().map(|(number, _)| *number).collect::<Vec<_>>());
            }
            if let Some((oldest, size)) = quarantine.take_oldest() {
                quarantine.put_back(oldest, size);
                prop_assert_eq!(quarantine.iter().next(), Some(&model[0].0));
            }
        }
    }
}
