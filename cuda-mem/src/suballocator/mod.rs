//! Dividing large memory into blocks: offsets only, without CUDA and without `unsafe`.
//!
//! A driver's allocation takes microseconds to milliseconds, so that programs allocate large regions and divide them.
//! This module does the dividing for any memory: it knows offsets, never addresses, and keeps its records in vectors of
//! the host.
//!
//! | type | for | allocate, free | record |
//! |---|---|---|---|
//! | [`Suballocator`] | blocks of any size and alignment, freed in any order | O(1) | 48 bytes for each range, free or used |
//! | [`Slabs`] | very many blocks of a few small sizes | O(1) | 8 bytes and 1 bit for each slot |
//! | [`Ring`] | staging: blocks freed in the order in which they were allocated | O(1) | 8 bytes for each block |
//!
//! ```
//! use cuda_mem::suballocator::{Suballocator, SuballocatorOptions};
//!
//! let mut memory = Suballocator::new(SuballocatorOptions { granularity: 256 })?;
//! let region = memory.add_region(1 << 20)?;
//!
//! let block = memory.allocate(1000, 512).expect("the region is empty");
//! assert_eq!((block.region, block.offset, block.size), (region, 0, 1024));
//! assert_eq!(memory.used_bytes(), 1024);
//!
//! memory.free(block.id)?;
//! assert!(memory.free(block.id).is_err(), "a second free is an error and changes nothing");
//! assert_eq!(memory.largest_free(), 1 << 20);
//! memory.remove_region(region)?;
//! # Ok::<(), cuda_mem::suballocator::SuballocatorError>(())
//! ```
//!
//! # How the suballocator works
//!
//! Two-level segregated fit: free ranges are kept in 1920 lists by size, 32 for each power of two, and two levels of bits
//! tell which lists are not empty. Ranges are also linked in address order, so that a freed range is joined with its
//! free neighbours at once. Neither the number of blocks nor that of regions counts.
//!
//! **It never answers "full" while a range fits.** The usual search asks only lists of which every range fits, and so
//! passes over ranges of the request's own class, and those that hold an aligned block by luck. Here such ranges are
//! tried first, one of each of up to four lists; where no range is left that fits for certain, all that may fit are
//! looked at. That search alone is not O(1). It looks at the free ranges of the request's own class, with an alignment
//! above the granularity at those smaller than size and alignment together, and it is needed only where everything
//! larger is used up. What it refuses is remembered until a range becomes free that holds it, so that refusing again is
//! O(1).
//!
//! **Records** grow as a `Vec` does: an allocation that makes them grow takes longer, unless [`Suballocator::reserve`] was
//! called before. There are at most twice as many ranges as blocks, and one for each region: 1 million blocks take 48 MB,
//! and up to 96 MB with holes between all of them. The lists take 8 KiB.
//!
//! **Ids** carry a number that no other allocation of the same suballocator gets. An id that was freed is never taken
//! for a later block in the same place.
#![forbid(unsafe_code)]

mod allocator;
mod classes;
mod error;
mod free_lists;
mod nodes;
mod records;
mod ring;
mod slab;
#[cfg(test)]
mod tests;

pub use allocator::{MAX_GRANULARITY, MAX_SIZE, Suballocator};
pub use error::SuballocatorError;
pub use records::{Block, BlockId, BlockInfo, Freed, RangeInfo, RegionId, RegionInfo, SuballocatorOptions};
pub use ring::{Ring, RingBlock, RingError};
pub use slab::{ChunkId, FreedSlot, Slabs, SlabsError, Slot, SlotClass, SlotId};
