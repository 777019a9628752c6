//! Divides large regions of memory into blocks: offsets only, without CUDA and without `unsafe`.
//!
//! An allocation of a driver takes microseconds to milliseconds, so programs allocate large regions and divide them.
//! This module divides any memory: it knows offsets, never addresses, and keeps its records in host memory.
//!
//! | type | use | allocate, free | records |
//! |---|---|---|---|
//! | [`Suballocator`] | blocks of any size and alignment, freed in any order | O(1) | 40 to 43 bytes for each range, free or used |
//! | [`Ring`] | staging: blocks freed in the order of their allocation | O(1) | 8 bytes for each block |
//!
//! ```
//! use stream_heap::suballocator::{Suballocator, SuballocatorOptions};
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
//! # Ok::<(), stream_heap::suballocator::SuballocatorError>(())
//! ```
//!
//! # How the suballocator works
//!
//! Two-level segregated fit: 1920 lists keep the free ranges by size, 32 lists for each power of two. Two levels of
//! bits show which lists are not empty. Ranges are also linked in address order, so a freed range is joined with its
//! free neighbours at once. No step depends on the number of blocks or regions.
//!
//! **A request is refused only if no range fits.** The usual search considers only lists whose ranges all fit. So it
//! misses fitting ranges in the list of the request's own class, and smaller ranges that happen to hold an aligned
//! block. This suballocator tries such ranges first, one from each of up to four lists. If no list is left whose ranges
//! all fit, it searches all ranges that may fit. Only this last search is not O(1), and it runs only when all larger
//! ranges are used up. It visits the free ranges of the request's class and, for an alignment above the granularity,
//! the ranges that are smaller than size and alignment together. The suballocator remembers a refused request until a
//! range that holds it becomes free, so the next refusal is O(1).
//!
//! **Records** grow as a `Vec` does: an allocation that makes them grow takes longer, unless [`Suballocator::reserve`]
//! was called before. The number of ranges is at most twice the number of blocks, plus one for each region: 1 million
//! blocks take 48 MB, and up to 96 MB with holes between all of them. The lists take 8 KiB.
//!
//! **Ids** contain a number that no other allocation of the suballocator gets, so the id of a freed block matches no
//! later block in its place.

mod allocator;
mod classes;
mod error;
mod free_lists;
mod neighbours;
mod nodes;
mod records;
mod ring;
#[cfg(test)]
mod tests;

pub use allocator::{MAX_GRANULARITY, MAX_SIZE, Suballocator};
pub use error::SuballocatorError;
pub use records::{Block, BlockId, BlockInfo, Freed, RangeId, RangeInfo, RegionId, RegionInfo, SuballocatorOptions};
pub use ring::{Ring, RingBlock, RingError};
