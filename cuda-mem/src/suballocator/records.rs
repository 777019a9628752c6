//! What a suballocator gives and tells: plain data.

#[cfg(doc)]
use super::{MAX_GRANULARITY, Suballocator};
use core::num::NonZeroU64;

/// How a [`Suballocator`] divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuballocatorOptions {
    /// Every block begins and ends at a multiple of this, in bytes, so that no two blocks share such a unit. A power of
    /// two, at most [`MAX_GRANULARITY`]. For mapped memory it should be at least the atom.
    pub granularity: u64,
}

impl Default for SuballocatorOptions {
    /// 256 bytes, to which the driver aligns its own allocations.
    fn default() -> Self {
        Self { granularity: 256 }
    }
}

/// Names a block of a [`Suballocator`], also after it was freed: no other block of it ever has the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId {
    pub(super) serial: NonZeroU64,
    pub(super) index: u32,
}

/// Names a region of a [`Suballocator`], also after it was removed: no other region of it ever has the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId {
    pub(super) serial: NonZeroU64,
    pub(super) index: u32,
}

impl RegionId {
    /// A number below the most regions that there ever were at once. A later region may get it again.
    #[inline]
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// A block that was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Frees the block.
    pub id: BlockId,
    /// The region that it lies in.
    pub region: RegionId,
    /// Where it begins in the region, in bytes.
    pub offset: u64,
    /// How long it is, in bytes: what was asked for, rounded up to the granularity.
    pub size: u64,
}

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// The region that it lies in.
    pub region: RegionId,
    /// Where it begins in the region, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub size: u64,
    /// How much was asked for, in bytes.
    pub requested: u64,
}

/// What was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// The block as it was.
    pub block: BlockInfo,
    /// No block is left in the region, so that it can be removed.
    pub region_is_empty: bool,
}

/// A range of a region, free or used. The ranges of a region leave no gap, and no two free ones are neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeInfo {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub size: u64,
    /// The block that uses it; `None` where it is free.
    pub block: Option<BlockId>,
}

/// What is known of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// How long it is, in bytes.
    pub size: u64,
    /// No block lies in it.
    pub is_empty: bool,
}
