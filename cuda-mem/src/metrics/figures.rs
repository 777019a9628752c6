//! The names and the meaning of all figures.

use super::samples::Samples;
use crate::MemoryInfo;
use crate::adaptor::{Count, Counts};
use crate::frames::FrameRingStatistics;
use crate::memory::PoolAttributes;
use crate::pool::{Figure, Flow, PoolStatistics, RingStatistics};

/// Figures whose samples have names.
pub trait Listed {
    /// The beginning of all names.
    const PREFIX: &'static str;

    /// Gives all samples.
    fn list(&self, to: &mut Samples<'_>);
}

impl Listed for PoolStatistics {
    const PREFIX: &'static str = "cuda_mem_pool";

    fn list(&self, to: &mut Samples<'_>) {
        let Flow { current, total, freed } = self.requested;
        to.gauge("requested_bytes", "The requested sizes of the live blocks.", current);
        to.counter("requested_added_bytes_total", "The requested sizes of all blocks.", total);
        to.counter("requested_freed_bytes_total", "The requested sizes of the freed blocks.", freed);
        let Flow { current, total, freed } = self.allocated;
        to.gauge("allocated_bytes", "The sizes of the live blocks.", current);
        to.counter("allocated_added_bytes_total", "The sizes of all blocks.", total);
        to.counter("allocated_freed_bytes_total", "The sizes of the freed blocks.", freed);
        let Flow { current, total, freed } = self.blocks;
        to.gauge("blocks", "The live blocks.", current);
        to.counter("blocks_added_total", "All blocks.", total);
        to.counter("blocks_freed_total", "The freed blocks.", freed);
        let Figure { current, peak, .. } = self.active;
        to.gauge("active_bytes", "The sizes of the live blocks and of the blocks in thread caches.", current);
        to.gauge("active_peak_bytes", "The maximum of the active bytes.", peak);
        let Figure { current, peak, .. } = self.inactive_split;
        to.gauge("inactive_split_bytes", "Free memory in regions that hold blocks.", current);
        to.gauge("inactive_split_peak_bytes", "The maximum of the inactive split bytes.", peak);
        let Figure { current, peak, total, freed } = self.reserved;
        to.gauge("reserved_bytes", "The size of all regions.", current);
        to.gauge("reserved_peak_bytes", "The maximum of the reserved bytes.", peak);
        to.counter("reserved_added_bytes_total", "Memory that came from the source.", total);
        to.counter("reserved_freed_bytes_total", "Memory that was returned to the source.", freed);
        let Figure { current, peak, total, freed } = self.regions;
        to.gauge("regions", "The regions.", current);
        to.gauge("regions_peak", "The maximum of the regions.", peak);
        to.counter("regions_added_total", "The regions that came from the source.", total);
        to.counter("regions_freed_total", "The regions that were returned to the source.", freed);
        to.gauge("caches_bytes", "The sizes of the blocks in thread caches.", self.in_caches);
        let pending: u64 = self.pending.iter().map(|pending| pending.bytes).sum();
        to.gauge("pending_bytes", "Freed memory that waits for streams.", pending);
        to.gauge("largest_free_bytes", "The largest free range.", self.largest_free);
        to.gauge("fragmentation_ratio", "The share of free memory outside of the largest range.", self.fragmentation);
        to.counter("events_recorded_total", "The events recorded.", self.events_recorded);
        to.counter("waits_total", "How often the pool made a stream wait.", self.waits);
        to.counter("retries_total", "How often the hook made the pool try again.", self.retries);
        to.counter("out_of_memory_total", "The requests refused for lack of memory.", self.out_of_memory);
    }
}

impl Listed for RingStatistics {
    const PREFIX: &'static str = "cuda_mem_ring";

    fn list(&self, to: &mut Samples<'_>) {
        let Figure { current, peak, total, freed } = self.used;
        to.gauge("used_bytes", "The sizes of the blocks in use.", current);
        to.gauge("used_peak_bytes", "The maximum of the used bytes.", peak);
        to.counter("used_added_bytes_total", "The sizes of all blocks.", total);
        to.counter("used_freed_bytes_total", "The sizes of the freed blocks.", freed);
        to.gauge("blocks", "The blocks in use.", self.blocks);
        to.gauge("pending_blocks", "The freed blocks that still occupy the ring.", self.pending);
        to.gauge("free_bytes", "Memory that no block occupies.", self.free);
        to.counter("events_recorded_total", "The events recorded.", self.events_recorded);
        to.counter("refused_total", "The allocations that the ring refused.", self.full);
    }
}

impl Listed for FrameRingStatistics {
    const PREFIX: &'static str = "cuda_mem_frames";

    fn list(&self, to: &mut Samples<'_>) {
        to.counter("taken_total", "The taken frames.", self.taken);
        to.counter("published_total", "The published frames.", self.published);
        to.counter("abandoned_total", "The frames that were dropped without being published.", self.abandoned);
        to.gauge("open", "The open frames.", self.open);
        to.gauge("captured_slots", "The slots no longer used, because a graph may read them.", self.captured);
        to.counter("overruns_total", "The frames asked for while the device still read the oldest.", self.overruns);
    }
}

impl Listed for Counts {
    const PREFIX: &'static str = "cuda_mem_resource";

    fn list(&self, to: &mut Samples<'_>) {
        let Count { current, peak, total } = self.bytes;
        to.gauge("allocated_bytes", "The sizes of the live blocks.", current);
        to.gauge("allocated_peak_bytes", "The maximum of the allocated bytes.", peak);
        to.gauge("blocks", "The live blocks.", self.blocks.current);
        to.gauge("blocks_peak", "The maximum of the live blocks.", self.blocks.peak);
        to.counter("failed_allocations_total", "The allocations that failed.", self.failed_allocations);
        to.counter("failed_frees_total", "The frees that failed.", self.failed_frees);
        // The same bounds each time, because Prometheus compares histograms bound by bound.
        let bounds = (8..=36).step_by(2).map(|power| 1_usize << power);
        let upto = |bound| self.sizes.iter().filter(|(sizes, _)| *sizes.end() < bound).map(|(_, count)| count).sum();
        let buckets: Vec<(usize, u64)> = bounds.map(|bound| (bound - 1, upto(bound))).collect();
        to.histogram("block_size_bytes", "The sizes of all blocks.", &buckets, self.blocks.total, total);
    }
}

impl Listed for PoolAttributes {
    const PREFIX: &'static str = "cuda_mem_driver_pool";

    fn list(&self, to: &mut Samples<'_>) {
        to.gauge("used_bytes", "The allocated memory.", self.used);
        to.gauge("used_peak_bytes", "The maximum of the used bytes.", self.used_high);
        to.gauge("reserved_bytes", "The memory that the pool has taken from the system.", self.reserved);
        to.gauge("reserved_peak_bytes", "The maximum of the reserved bytes.", self.reserved_high);
        to.gauge("release_threshold_bytes", "How much unused memory the pool keeps.", self.release_threshold);
    }
}

impl Listed for MemoryInfo {
    const PREFIX: &'static str = "cuda_mem_device";

    fn list(&self, to: &mut Samples<'_>) {
        to.gauge("free_bytes", "The free memory of the device.", self.free);
        to.gauge("memory_bytes", "The memory of the device.", self.total);
    }
}
