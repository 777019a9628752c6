//! How a ring behaves, and what it says of itself.

use crate::pool::Figure;
use serde::Serialize;

/// What a [`RingPool`](super::RingPool) does when it is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFull {
    /// Waits on the CPU for the work of the oldest blocks, if they were freed. A block that was not freed is not waited
    /// for: nobody might ever free it.
    #[default]
    Wait,
    /// Refuses: [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    Refuse,
}

/// How a [`RingPool`](super::RingPool) behaves.
///
/// ```
/// use cuda_mem::pool::{RingOptions, WhenFull};
/// let mut options = RingOptions::default();
/// options.when_full = WhenFull::Refuse;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RingOptions {
    /// What it does when it is full.
    pub when_full: WhenFull,
}

/// What a [`RingPool`](super::RingPool) has and does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RingStatistics {
    /// The bytes of blocks that are in use, in whole units.
    pub used: Figure,
    /// How many blocks are in use.
    pub blocks: u64,
    /// How many freed blocks still take room: their work is not known to be done, or an older block is before them.
    pub pending: u64,
    /// The bytes that no block takes.
    pub free: u64,
    /// How many events were recorded: a count.
    pub events_recorded: u64,
    /// How often an allocation was refused: a count.
    pub full: u64,
}
