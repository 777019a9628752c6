//! What suballocators refuse. Nothing is changed where an error is returned.

use super::allocator::{MAX_GRANULARITY, MAX_SIZE};

/// Why a suballocator refused a call. A request that does not fit is no error but `None`.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuballocatorError {
    /// The granularity cannot be.
    #[error("granularity {0} must be a power of two and at most {MAX_GRANULARITY}")]
    Granularity(u64),

    /// A region of that size cannot be.
    #[error("region size {size} must be a multiple of the granularity {granularity}, above 0 and at most {MAX_SIZE}")]
    RegionSize {
        /// What was asked for, in bytes.
        size: u64,
        /// What it must be a multiple of, in bytes.
        granularity: u64,
    },

    /// All regions together would be larger than 64 bits can count.
    #[error("a region of {size} bytes beside {capacity} bytes of other regions is more than 64 bits count")]
    Capacity {
        /// What was asked for, in bytes.
        size: u64,
        /// What there is, in bytes.
        capacity: u64,
    },

    /// There are 2^32 - 1 ranges, and that is as many as can be numbered.
    #[error("all 2^32 - 1 numbers are in use: free some blocks")]
    Numbers,

    /// The region does not exist, or does no more.
    #[error("this region has been removed, or belongs to another suballocator")]
    UnknownRegion,

    /// The region holds blocks: free them first.
    #[error("the region still holds blocks: free them before it is removed")]
    RegionInUse,

    /// The block does not exist, or does no more.
    #[error("this block has been freed already, or belongs to another suballocator")]
    UnknownBlock,
}
