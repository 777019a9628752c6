//! How a pool of one size behaves, and what it says of itself.

use crate::pool::{Figure, Reuse};
use serde::Serialize;

/// How a [`FixedSizePool`](super::FixedSizePool) behaves.
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
    /// How many blocks the pool grows by: 1 to 4096. 1024 by default.
    pub blocks_per_slab: u32,
    /// What all slabs together may have, in bytes. No limit by default.
    pub maximum: usize,
    /// When streams may have each other's blocks.
    pub reuse: Reuse,
}

impl Default for FixedSizeOptions {
    fn default() -> Self {
        Self { blocks_per_slab: 1024, maximum: usize::MAX, reuse: Reuse::default() }
    }
}

/// What a [`FixedSizePool`](super::FixedSizePool) has and does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FixedSizeStatistics {
    /// The blocks that are in use: a count.
    pub blocks: Figure,
    /// What the pool has of its source, in bytes.
    pub reserved: Figure,
    /// How many freed blocks wait for the work of their stream, or are kept for it.
    pub pending: u64,
    /// How many events were recorded: a count.
    pub events_recorded: u64,
    /// How often streams were told to wait: a count.
    pub waits: u64,
    /// How often there was no memory: a count.
    pub out_of_memory: u64,
}
