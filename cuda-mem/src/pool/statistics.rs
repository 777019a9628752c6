//! Figures of a pool.

use core::fmt;
use serde::{Deserialize, Serialize};

/// One figure over the life of a pool. It changes under the pool's lock, so that its peak is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

    pub(super) fn reset_peak(&mut self) {
        self.peak = self.current;
    }
}

/// What came and went over the life of a pool. Threads count it apart, so nobody knows how much there was at most:
/// [`adaptor::Statistics`](crate::adaptor::Statistics) in front of the pool does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Flow {
    /// What there is now.
    pub current: u64,
    /// All that ever came.
    pub total: u64,
    /// All that ever went.
    pub freed: u64,
}

impl Flow {
    pub(super) fn new(total: u64, freed: u64) -> Self {
        // Both are read while others count.
        Self { current: total.saturating_sub(freed), total, freed }
    }
}

/// What freed memory waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PendingBytes {
    /// The driver's handle of the stream.
    pub stream: u64,
    /// How many freed bytes wait for its work, those in fronts too.
    pub bytes: u64,
}

/// What a pool has and does. Bytes, unless it is called a count. Prints as a table; serialises as JSON, with the names of
/// the fields.
///
/// The figures are those of PyTorch's `memory_stats`, under shorter names:
///
/// | here | there |
/// |---|---|
/// | `requested`, `allocated`, `active`, `inactive_split`, `reserved` | `requested_bytes.all`, `allocated_bytes.all` and so on |
/// | `blocks`, `regions` | `allocation.all`, `segment.all` |
/// | `regions.total`, `regions.freed` | `num_device_alloc`, `num_device_free` |
/// | `retries`, `out_of_memory` | `num_alloc_retries`, `num_ooms` |
///
/// `requested`, `allocated` and `blocks` have no peak; that of `active` is never below theirs, since fronts keep what was
/// freed. For exact ones put [`adaptor::Statistics`](crate::adaptor::Statistics) in front of the pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PoolStatistics {
    /// What was asked for in the blocks that there are.
    pub requested: Flow,
    /// The sizes of the blocks that there are.
    pub allocated: Flow,
    /// How many blocks there are: a count.
    pub blocks: Flow,
    /// What blocks use, and what fronts keep.
    pub active: Figure,
    /// What is free in regions that hold blocks.
    pub inactive_split: Figure,
    /// What the pool has of its source.
    pub reserved: Figure,
    /// In how many regions: a count.
    pub regions: Figure,
    /// What fronts keep.
    pub in_fronts: u64,
    /// What freed memory waits for, by stream. Whether a stream has work is asked for these figures; streams that are done
    /// with theirs are not here.
    pub pending: Vec<PendingBytes>,
    /// The largest free range, where what fronts keep is free too.
    pub largest_free: u64,
    /// Which part of the free memory is in pieces: in regions that hold blocks, outside of the largest free range there.
    /// What fronts keep is free. 0 to 1.
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

impl fmt::Display for PoolStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<16}{:>20}{:>20}{:>20}{:>20}", "", "current", "peak", "total", "freed")?;
        for (name, Flow { current, total, freed }) in
            [("requested", self.requested), ("allocated", self.allocated), ("blocks", self.blocks)]
        {
            writeln!(f, "{name:<16}{current:>20}{:>20}{total:>20}{freed:>20}", "-")?;
        }
        for (name, Figure { current, peak, total, freed }) in [
            ("active", self.active),
            ("inactive split", self.inactive_split),
            ("reserved", self.reserved),
            ("regions", self.regions),
        ] {
            writeln!(f, "{name:<16}{current:>20}{peak:>20}{total:>20}{freed:>20}")?;
        }
        let pending: u64 = self.pending.iter().map(|pending| pending.bytes).sum();
        for (name, count) in [
            ("in fronts", self.in_fronts),
            ("pending", pending),
            ("largest free", self.largest_free),
            ("events recorded", self.events_recorded),
            ("waits", self.waits),
            ("retries", self.retries),
            ("out of memory", self.out_of_memory),
        ] {
            writeln!(f, "{name:<16}{count:>20}")?;
        }
        write!(f, "{:<16}{:>19.1}%", "fragmentation", self.fragmentation * 100.0)
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
        assert_eq!(Flow::new(20, 9), Flow { current: 11, total: 20, freed: 9 });
        assert_eq!(Flow::new(8, 9).current, 0);
    }

    #[test]
    fn the_table_has_all_figures_in_aligned_columns() {
        let figure = |current| Figure { current, peak: 20, total: 300, freed: 290 };
        let statistics = PoolStatistics {
            requested: Flow::new(300, 290),
            reserved: figure(2_097_152),
            pending: vec![PendingBytes { stream: 1, bytes: 256 }, PendingBytes { stream: 2, bytes: 512 }],
            fragmentation: 0.25,
            out_of_memory: 3,
            ..PoolStatistics::default()
        };
        let text = statistics.to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 16, "{text}");
        assert!(lines[..8].iter().all(|line| line.len() == 96), "{text}");
        assert!(lines[8..].iter().all(|line| line.len() == 36), "{text}");
        let row = |name: &str| {
            let line = lines.iter().find(|line| line.starts_with(name)).unwrap();
            line[name.len()..].split_whitespace().collect::<Vec<_>>()
        };
        assert_eq!(row("requested"), ["10", "-", "300", "290"]);
        assert_eq!(row("reserved"), ["2097152", "20", "300", "290"]);
        assert_eq!(
            (row("pending"), row("out of memory"), row("fragmentation")),
            (vec!["768"], vec!["3"], vec!["25.0%"])
        );
    }

    #[test]
    fn what_is_serialised_is_read_back() {
        let mut statistics = PoolStatistics { fragmentation: 0.5, waits: 7, ..PoolStatistics::default() };
        statistics.allocated = Flow::new(9, 4);
        statistics.active.add(5);
        let text = serde_json::to_string(&statistics).unwrap();
        assert!(text.contains("\"allocated\":{\"current\":5,\"total\":9,\"freed\":4}"), "{text}");
        assert_eq!(serde_json::from_str::<PoolStatistics>(&text).unwrap(), statistics);
        // Fractions too, to the last bit.
        let largest = if cfg!(miri) { 4 } else { 200u32 };
        for (part, whole) in (1..largest).flat_map(|whole| (0..whole).map(move |part| (part, whole))) {
            let fragmentation = 1.0 - f64::from(part) / f64::from(whole);
            let text = serde_json::to_string(&PoolStatistics { fragmentation, ..PoolStatistics::default() }).unwrap();
            assert_eq!(
                serde_json::from_str::<PoolStatistics>(&text).unwrap().fragmentation,
                fragmentation,
                "{part}/{whole}"
            );
        }
    }
}
