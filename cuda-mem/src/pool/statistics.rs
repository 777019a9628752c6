//! Figures of a pool.

use serde::Serialize;

/// One figure over the life of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Figure {
    /// What it is now.
    pub current: u64,
    /// The most that it was since the peaks were reset.
    pub peak: u64,
    /// All that was ever added.
    pub total: u64,
    /// All that was ever taken away.
    pub freed: u64,
}

impl Figure {
    pub(super) fn add(&mut self, amount: u64) {
        self.total += amount;
        self.current += amount;
        self.peak = self.peak.max(self.current);
    }

    pub(super) fn subtract(&mut self, amount: u64) {
        self.freed += amount;
        self.current -= amount;
    }

    pub(super) fn set(&mut self, current: u64) {
        match current.checked_sub(self.current) {
            Some(more) => self.add(more),
            None => self.subtract(self.current - current),
        }
    }

    /// Takes over what was counted elsewhere.
    pub(super) fn note(&mut self, total: u64, freed: u64) {
        (self.total, self.freed) = (total, freed);
        // Both are read while others count.
        self.current = total.saturating_sub(freed);
        self.peak = self.peak.max(self.current);
    }

    pub(super) fn reset_peak(&mut self) {
        self.peak = self.current;
    }
}

/// What freed memory waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PendingBytes {
    /// The driver's handle of the stream.
    pub stream: u64,
    /// How many freed bytes wait for its work, or are kept for it in fronts.
    pub bytes: u64,
}

/// What a pool has and does. Bytes, unless it is called a count.
///
/// The peaks of `requested`, `allocated` and `blocks` are taken at every 32nd block from the heap, and whenever somebody
/// asks; that of `active` only then. Between that they may miss what was there for a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Statistics {
    /// What was asked for in the blocks that there are.
    pub requested: Figure,
    /// The sizes of the blocks that there are.
    pub allocated: Figure,
    /// How many blocks there are: a count.
    pub blocks: Figure,
    /// What blocks use, and what is kept in fronts or waits for work.
    pub active: Figure,
    /// What is free in regions that hold blocks.
    pub inactive_split: Figure,
    /// What the pool has of its source.
    pub reserved: Figure,
    /// In how many regions: a count.
    pub regions: Figure,
    /// What fronts keep.
    pub in_fronts: u64,
    /// What freed memory waits for, by stream.
    pub pending: Vec<PendingBytes>,
    /// The largest free range.
    pub largest_free: u64,
    /// Which part of the free memory lies outside of the largest free range: 0 to 1.
    pub fragmentation: f64,
    /// How many events were recorded: a count.
    pub events_recorded: u64,
    /// How often streams were told to wait: a count.
    pub waits: u64,
    /// How often the hook asked for another look: a count.
    pub retries: u64,
    /// How often there was no memory: a count.
    pub out_of_memory: u64,
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
        figure.note(20, 9);
        assert_eq!(figure, Figure { current: 11, peak: 11, total: 20, freed: 9 });
    }
}
