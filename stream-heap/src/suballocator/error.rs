//! Errors of suballocators. A call that returns an error changes nothing.

use super::allocator::{MAX_GRANULARITY, MAX_SIZE};

/// Why a suballocator refused a call. A request that does not fit gives `None`, not an error.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuballocatorError {
    /// The granularity is not a power of two, or too large.
    #[error("granularity {0} must be a power of two and at most {MAX_GRANULARITY}")]
    Granularity(u64),

    /// The size of the region is invalid.
    #[error("region size {size} must be a multiple of the granularity {granularity}, above 0 and at most {MAX_SIZE}")]
    RegionSize {
        /// The requested size, in bytes.
        size: u64,
        /// The granularity, in bytes.
        granularity: u64,
    },

    /// The size of all regions together would exceed 64 bits.
    #[error("a region of {size} bytes and {capacity} bytes of other regions exceed 64 bits: add a smaller region")]
    Capacity {
        /// The requested size, in bytes.
        size: u64,
        /// The size of the other regions, in bytes.
        capacity: u64,
    },

    /// There are 2^32 - 1 ranges, the limit of their 32-bit numbers.
    #[error("the suballocator has 2^32 - 1 ranges, which is its limit: free some blocks")]
    Numbers,

    /// The region does not exist, or was removed.
    #[error("this region has been removed, or belongs to another suballocator")]
    UnknownRegion,

    /// The region holds blocks.
    #[error("the region still holds blocks: free them before the region is removed")]
    RegionInUse,

    /// The block does not exist, or was freed.
    #[error("this block has been freed already, or belongs to another suballocator")]
    UnknownBlock,
}

/// `main` prints its error by `Debug`, so `Debug` prints the message too.
macro_rules! debug_as_display {
    ($($error:ty),*) => {
        $(impl core::fmt::Debug for $error {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        })*
    };
}
debug_as_display!(SuballocatorError, super::RingError);
