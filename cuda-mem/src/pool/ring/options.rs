//! Options and figures of a ring.

use crate::pool::Figure;
use core::time::Duration;

/// What a [`RingPool`](super::RingPool) does when it is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFull {
    /// Waits on the CPU for the work of the oldest blocks, if they were freed. Does not wait for a block that was not
    /// freed: the waiting thread may be the one that must free it.
    #[default]
    Wait,
    /// As `Wait`, and also waits for blocks that were not freed yet, for at most this time. So threads that share the
    /// ring go only as fast as it empties.
    WaitAtMost(Duration),
    /// Refuses the request with [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    Refuse,
}

/// Options of a [`RingPool`](super::RingPool).
///
/// ```
/// use cuda_mem::pool::{RingOptions, WhenFull};
/// let mut options = RingOptions::default();
/// options.when_full = WhenFull::Refuse;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RingOptions {
    /// What the ring does when it is full.
    pub when_full: WhenFull,
}

/// Figures of a [`RingPool`](super::RingPool).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RingStatistics {
    /// The bytes of the blocks in use, rounded up to whole units.
    pub used: Figure,
    /// How many blocks are in use.
    pub blocks: u64,
    /// How many freed blocks still occupy the ring: their work is not known to be done, or an older block precedes
    /// them.
    pub pending: u64,
    /// The bytes that no block occupies.
    pub free: u64,
    /// How many events the ring has recorded.
    pub events_recorded: u64,
    /// How many allocations the ring refused.
    pub full: u64,
}
