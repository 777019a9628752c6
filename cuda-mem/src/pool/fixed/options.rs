//! Options and figures of a pool of blocks of one size.

use crate::pool::{Figure, Reuse};

/// Options of a [`FixedSizePool`](super::FixedSizePool).
///
/// ```
/// use cuda_mem::pool::FixedSizeOptions;
/// let mut options = FixedSizeOptions::default();
/// options.blocks_per_slab = 64;
/// options.maximum = 16 << 20;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FixedSizeOptions {
    /// How many blocks the pool adds at once: 1 to 4096. 1024 by default.
    pub blocks_per_slab: u32,
    /// The largest size of all slabs together, in bytes. No limit by default.
    pub maximum: usize,
    /// When streams may use each other's freed blocks.
    pub reuse: Reuse,
}

impl Default for FixedSizeOptions {
    fn default() -> Self {
        Self { blocks_per_slab: 1024, maximum: usize::MAX, reuse: Reuse::default() }
    }
}

/// Figures of a [`FixedSizePool`](super::FixedSizePool).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize))]
#[non_exhaustive]
pub struct FixedSizeStatistics {
    /// The number of blocks in use.
    pub blocks: Figure,
    /// The size of all slabs, in bytes.
    pub reserved: Figure,
    /// How many freed blocks the pool keeps for the streams that freed them.
    pub pending: u64,
    /// The number of recorded events.
    pub events_recorded: u64,
    /// How often the pool made a stream wait.
    pub waits: u64,
    /// The number of requests refused for lack of memory.
    pub out_of_memory: u64,
}
