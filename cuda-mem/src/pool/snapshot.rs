//! The regions and blocks of a pool at one moment.

use super::PoolStatistics;
use crate::adaptor::trace::Trace;

/// The version that this release writes. It also reads version 1, which had more peaks.
pub(super) const FORMAT: u32 = 2;

/// The regions and blocks of a pool at one moment.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Snapshot {
    /// The version of the JSON, 2. Later releases may add fields to it.
    pub format: u32,
    /// The ordinal of the context's device.
    pub device: i32,
    /// The unit in bytes: blocks begin and end at its multiples.
    pub granularity: u64,
    /// The pool's regions, in order of their addresses.
    pub regions: Vec<RegionSnapshot>,
    /// The pool's figures.
    pub statistics: PoolStatistics,
    /// The newest events, if the pool records a trace.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub trace: Option<Trace>,
}

/// A region of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct RegionSnapshot {
    /// The device address.
    pub address: u64,
    /// The size in bytes.
    pub size: u64,
    /// The parts of the region, in order of their offsets, without gaps.
    pub blocks: Vec<BlockSnapshot>,
}

/// A part of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct BlockSnapshot {
    /// The offset in the region, in bytes.
    pub offset: u64,
    /// The size in bytes.
    pub size: u64,
    /// The state of the part.
    pub state: BlockState,
    /// The driver's handle of the stream that the memory waits for, or is kept for.
    pub stream: Option<u64>,
    /// The name of the block, if it has one.
    pub name: Option<String>,
}

/// The state of a part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "json", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum BlockState {
    /// A live block.
    Allocated,
    /// A freed block that a thread cache keeps for the stream that freed it.
    InCache,
    /// Free memory that waits for the stream that freed it.
    Pending,
    /// Free memory that every stream may use.
    Free,
}
