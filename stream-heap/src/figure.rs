//! A quantity with its history.

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

/// A quantity over the life of a pool. Changes are made one at a time, so the peak is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Figure {
    /// The quantity now.
    pub current: u64,
    /// The largest value since the peaks were reset.
    pub peak: u64,
    /// The sum of all additions.
    pub total: u64,
    /// The sum of all subtractions.
    pub freed: u64,
}

impl Figure {
    /// Adds to the quantity.
    #[inline]
    pub fn add(&mut self, amount: u64) {
        self.total += amount;
        self.current += amount;
        self.peak = self.peak.max(self.current);
    }

    /// Subtracts from the quantity, which must be at least as large.
    #[inline]
    pub fn subtract(&mut self, amount: u64) {
        self.freed += amount;
        self.current -= amount;
    }

    /// Adds or subtracts whatever leads to this value.
    #[inline]
    pub fn set(&mut self, current: u64) {
        match current.checked_sub(self.current) {
            Some(more) => self.add(more),
            None => self.subtract(self.current - current),
        }
    }

    /// Resets the peak to the current value.
    pub fn reset_peak(&mut self) {
        self.peak = self.current;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_keeps_its_peak_until_that_is_reset() {
        let mut figure = Figure::default();
        figure.add(10);
        figure.set(4);
        figure.set(6);
        assert_eq!(figure, Figure { current: 6, peak: 10, total: 12, freed: 6 });
        figure.reset_peak();
        figure.subtract(1);
        assert_eq!(figure, Figure { current: 5, peak: 6, total: 12, freed: 7 });
    }
}
