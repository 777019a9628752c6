//! The plain data that a suballocator takes and returns.

#[cfg(doc)]
use super::{MAX_GRANULARITY, Suballocator};
use core::num::NonZeroU64;

/// Options of a [`Suballocator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuballocatorOptions {
    /// The unit in bytes: every block begins and ends at a multiple of it, so no two blocks share a unit. A power of
    /// two, at most [`MAX_GRANULARITY`]. For mapped memory it should be at least the atom.
    pub granularity: u64,
}

impl Default for SuballocatorOptions {
    /// 256 bytes, the alignment of the driver's own allocations.
    fn default() -> Self {
        Self { granularity: 256 }
    }
}

/// Identifies a block of a [`Suballocator`]. No other block of it ever gets the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId {
    pub(super) serial: NonZeroU64,
    pub(super) index: u32,
}

impl BlockId {
    /// The number of the block's node. A later block may get the same number.
    #[inline]
    pub(crate) fn node(self) -> u32 {
        self.index
    }
}

/// Identifies a region of a [`Suballocator`]. No other region of it ever gets the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId {
    pub(super) serial: NonZeroU64,
    pub(super) index: u32,
}

impl RegionId {
    /// A number below the most regions that existed at once. A later region may get the same number.
    #[inline]
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// Names a range of a [`Suballocator`] until the next allocation or free in that range or beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeId {
    pub(super) index: u32,
}

/// A block that was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Frees the block.
    pub id: BlockId,
    /// The region of the block.
    pub region: RegionId,
    /// The offset in the region, in bytes.
    pub offset: u64,
    /// The size in bytes: the requested size, rounded up to the granularity.
    pub size: u64,
}

/// A block, as [`Suballocator::block`] describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// The region of the block.
    pub region: RegionId,
    /// The offset in the region, in bytes.
    pub offset: u64,
    /// The size in bytes.
    pub size: u64,
    /// The requested size, in bytes.
    pub requested: u64,
}

/// The result of a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// The freed block.
    pub block: BlockInfo,
    /// The region has no blocks left, so it can be removed.
    pub region_is_empty: bool,
}

/// A range of a region, free or used. The ranges of a region leave no gap, and no two free ones are neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeInfo {
    /// Finds the range again.
    pub id: RangeId,
    /// The offset in the region, in bytes.
    pub offset: u64,
    /// The size in bytes.
    pub size: u64,
    /// The block that uses the range; `None` if the range is free.
    pub block: Option<BlockId>,
}

/// A region, as [`Suballocator::region`] describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// The size in bytes.
    pub size: u64,
    /// The region has no blocks.
    pub is_empty: bool,
}
