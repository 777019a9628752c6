//! What a pool looks like at one moment.

use serde::Serialize;

/// What a pool looks like at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// The ordinal of the context's device.
    pub device: i32,
    /// The unit that all blocks begin and end at, in bytes.
    pub granularity: u64,
    /// What the pool has of its source, in order of the addresses.
    pub regions: Vec<RegionSnapshot>,
    /// The pool's figures.
    pub statistics: super::Statistics,
}

/// Memory of the pool's source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RegionSnapshot {
    /// The address for devices.
    pub address: u64,
    /// In bytes.
    pub size: u64,
    /// What it is divided into, in order of the offsets, without gaps.
    pub blocks: Vec<BlockSnapshot>,
}

/// A part of a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BlockSnapshot {
    /// Where it begins in the region, in bytes.
    pub offset: u64,
    /// In bytes.
    pub size: u64,
    /// What it is used for.
    pub state: BlockState,
    /// The driver's handle of the stream that the memory waits for, or is kept for.
    pub stream: Option<u64>,
    /// The name that it was given.
    pub name: Option<String>,
}

/// What a part of a region is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BlockState {
    /// A block that was given out.
    Allocated,
    /// A freed block that a front keeps for its stream.
    InFront,
    /// Free memory that other streams than its own have to wait for.
    Pending,
    /// Free memory that every stream may have.
    Free,
}

impl Snapshot {
    /// The snapshot as JSON text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| unreachable!("the snapshot has string keys and finite numbers"))
    }
}
