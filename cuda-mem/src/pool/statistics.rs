//! Figures of a pool.

use crate::error::size::Size;
use core::fmt;
use stream_heap::Figure;

/// A quantity over the life of a pool. Threads count separately, so the pool does not know its peak:
/// [`adaptor::Statistics`](crate::adaptor::Statistics) in front of the pool does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Flow {
    /// The quantity now.
    pub current: u64,
    /// The sum of all allocations.
    pub total: u64,
    /// The sum of all frees.
    pub freed: u64,
}

impl Flow {
    pub(super) fn new(total: u64, freed: u64) -> Self {
        // Saturates, because other threads may count between the reads of the two numbers.
        Self { current: total.saturating_sub(freed), total, freed }
    }
}

/// The freed memory that waits for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct PendingBytes {
    /// The driver's handle of the stream.
    pub stream: u64,
    /// How many freed bytes wait for its work, including blocks in thread caches.
    pub bytes: u64,
}

/// Figures of a pool, in bytes if not called a count. Prints as a table; serialises as JSON, with the
/// names of the fields.
///
/// The figures are those of PyTorch's `memory_stats`, under shorter names:
///
/// | here | PyTorch |
/// |---|---|
/// | `requested`, `allocated`, `active`, `inactive_split`, `reserved` | `requested_bytes.all`, `allocated_bytes.all` and so on |
/// | `blocks`, `regions` | `allocation.all`, `segment.all` |
/// | `regions.total`, `regions.freed` | `num_device_alloc`, `num_device_free` |
/// | `retries`, `out_of_memory` | `num_alloc_retries`, `num_ooms` |
///
/// `requested`, `allocated` and `blocks` have no peak. The peak of `active`, which includes the blocks in thread
/// caches, is an upper bound. For exact peaks, put [`adaptor::Statistics`](crate::adaptor::Statistics) in front of the
/// pool.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct PoolStatistics {
    /// The requested sizes of the live blocks.
    pub requested: Flow,
    /// The sizes of the live blocks.
    pub allocated: Flow,
    /// The number of live blocks, a count.
    pub blocks: Flow,
    /// The sizes of the live blocks and of the blocks in thread caches.
    pub active: Figure,
    /// Free memory in regions that hold blocks.
    pub inactive_split: Figure,
    /// The size of all regions.
    pub reserved: Figure,
    /// The number of regions, a count.
    pub regions: Figure,
    /// The size of the blocks in thread caches.
    pub in_caches: u64,
    /// The freed memory that waits for streams, by stream. Default streams of several contexts or threads have one handle,
    /// but each has its own entry. The pool queries the streams now, and omits idle streams.
    pub pending: Vec<PendingBytes>,
    /// The largest free range. Blocks in thread caches count as free.
    pub largest_free: u64,
    /// The share of free memory that lies in regions with blocks, outside of the largest free range of these regions.
    /// Blocks in thread caches count as free. 0 to 1.
    pub fragmentation: f64,
    /// The events recorded, a count.
    pub events_recorded: u64,
    /// How often the pool made a stream wait, a count.
    pub waits: u64,
    /// How often the hook made the pool try again, a count.
    pub retries: u64,
    /// The requests refused for lack of memory, a count.
    pub out_of_memory: u64,
}

impl fmt::Display for PoolStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<16}{:>20}{:>20}{:>20}{:>20}", "", "current", "peak", "total", "freed")?;
        for (name, Flow { current, total, freed }) in [("requested", self.requested), ("allocated", self.allocated)] {
            let [current, total, freed] = [current, total, freed].map(Size);
            writeln!(f, "{name:<16}{current:>20}{:>20}{total:>20}{freed:>20}", "-")?;
        }
        let Flow { current, total, freed } = self.blocks;
        writeln!(f, "{:<16}{current:>20}{:>20}{total:>20}{freed:>20}", "blocks", "-")?;
        for (name, Figure { current, peak, total, freed }) in
            [("active", self.active), ("inactive split", self.inactive_split), ("reserved", self.reserved)]
        {
            let [current, peak, total, freed] = [current, peak, total, freed].map(Size);
            writeln!(f, "{name:<16}{current:>20}{peak:>20}{total:>20}{freed:>20}")?;
        }
        let Figure { current, peak, total, freed } = self.regions;
        writeln!(f, "{:<16}{current:>20}{peak:>20}{total:>20}{freed:>20}", "regions")?;
        let pending: u64 = self.pending.iter().map(|pending| pending.bytes).sum();
        for (name, bytes) in [("in caches", self.in_caches), ("pending", pending), ("largest free", self.largest_free)]
        {
            writeln!(f, "{name:<16}{:>20}", Size(bytes))?;
        }
        for (name, count) in [
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
    fn a_flow_is_never_negative() {
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
        assert_eq!(row("requested"), ["10", "bytes", "-", "300", "bytes", "290", "bytes"]);
        assert_eq!(row("reserved"), ["2", "MiB", "20", "bytes", "300", "bytes", "290", "bytes"]);
        assert_eq!(
            (row("pending"), row("out of memory"), row("fragmentation")),
            (vec!["768", "bytes"], vec!["3"], vec!["25.0%"])
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
        // Fractions keep every bit.
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
