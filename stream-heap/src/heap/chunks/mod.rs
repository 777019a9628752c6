//! Regions of addresses whose memory comes, moves and goes in chunks.
//!
//! Addresses without memory are holes. To the suballocator a hole is a block in use, so no search finds it, and the
//! usual paths know nothing of holes. Holes and chunks begin and end at multiples of a unit.
//!
//! A request for which no free range is large enough gets a [`Claim`]: addresses that consist of free memory and of
//! holes. The holes get chunks that hold no blocks elsewhere ([`Heap::gather`]), then new ones.
//!
//! A chunk that moves is mapped at both addresses until the work on the old ones is over, so nobody waits for that
//! work: the new owner's work runs after it anyway. Meanwhile the old addresses are *stale*: neither memory nor a hole.
//! The program unmaps stale addresses without work, and says so ([`Heap::vacated`]).

mod claim;
mod moves;

use super::{DividedRegion, Heap};
use crate::region::Region;
use crate::suballocator::{BlockId, RegionId, SuballocatorError};
use crate::timeline::StreamDriver;
use core::ops::Range;
use std::collections::BTreeMap;

pub use claim::Claim;
pub use moves::{Gather, Move};

/// The sizes of the chunks that a region gets, in bytes. Each is a multiple of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSizes {
    /// Chunks and holes begin and end at multiples of it.
    pub unit: u64,
    /// The largest chunk of a run of addresses that is not long.
    pub usual: u64,
    /// The largest chunk.
    pub largest: u64,
}

/// A run of addresses is long if its usual chunks would be more than about so many. Its chunks are then larger. A chunk
/// costs the same to map whatever its size, but a large one is seldom free as a whole.
const MOST_CHUNKS: u64 = 64;

impl ChunkSizes {
    /// Divides addresses, whole units, into chunks: all but the last of equal size.
    fn cut(self, addresses: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let part = length(&addresses) / MOST_CHUNKS / self.unit * self.unit;
        let (size, mut start) = (part.clamp(self.usual, self.largest), addresses.start);
        core::iter::from_fn(move || {
            let chunk = start..addresses.end.min(start + size);
            start = chunk.end;
            (!chunk.is_empty()).then_some(chunk)
        })
    }

    /// Whether they divide a region of this address and size, whose granularity this is.
    fn fit(self, (address, size): (u64, u64), granularity: u64) -> bool {
        let Self { unit, usual, largest } = self;
        let is_whole = |bytes: u64| bytes.is_multiple_of(unit);
        unit > 0
            && unit.is_multiple_of(granularity)
            && [address, size, usual, largest].into_iter().all(is_whole)
            && (unit..=largest).contains(&usual)
    }
}

/// The addresses of a region, as far as they are not memory, and the chunks of its memory.
#[derive(Debug)]
pub(super) struct Chunks {
    sizes: ChunkSizes,
    /// Holes by first address: the end, and the suballocator's block that keeps the addresses from others. No two holes
    /// are neighbours.
    holes: BTreeMap<u64, (u64, BlockId)>,
    /// Stale addresses, in the same form: each range was one chunk.
    stale: BTreeMap<u64, (u64, BlockId)>,
    /// The end of each chunk of memory, by its first address.
    present: BTreeMap<u64, u64>,
    /// The bytes of all holes and of all stale addresses.
    pub(super) absent: u64,
}

pub(super) fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

impl Chunks {
    /// Whether a range of the suballocator that begins here is no memory.
    pub fn is_absent(&self, address: u64) -> bool {
        self.holes.contains_key(&address) || self.stale.contains_key(&address)
    }

    /// The chunks that lie within these bytes.
    fn within(&self, bytes: Range<u64>) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        let begun = self.present.range(bytes.start..bytes.end).map(|(start, end)| *start..*end);
        begun.filter(move |chunk| chunk.end <= bytes.end)
    }
}

impl<R: Region> DividedRegion<R> {
    /// The parts that have memory, in order of their addresses.
    pub fn parts(&self) -> impl Iterator<Item = R> + '_ {
        let whole = self.chunks.is_none().then_some(self.region);
        let mut chunks = self.chunks.iter().flat_map(|chunks| &chunks.present).peekable();
        let parts = core::iter::from_fn(move || {
            let (&start, &first) = chunks.next()?;
            let mut end = first;
            while let Some((_, next)) = chunks.next_if(|(start, _)| **start == end) {
                end = *next;
            }
            Some(self.region.part(start, end - start))
        });
        whole.into_iter().chain(parts)
    }
}

impl<D: StreamDriver, R: Region> Heap<D, R> {
    /// Adds a region of addresses without memory, which they get in chunks of these sizes.
    ///
    /// # Errors
    ///
    /// The unit is no multiple of the granularity; the address, the size or a size of chunks is no multiple of the unit;
    /// the usual chunk is smaller than the unit or larger than the largest; or as [`add`](Self::add).
    pub fn add_addresses(&mut self, region: R, sizes: ChunkSizes) -> Result<(), SuballocatorError> {
        let granularity = self.memory.granularity();
        let size = region.size();
        if !sizes.fit((region.address(), size), granularity) {
            return Err(SuballocatorError::RegionSize { size, granularity: sizes.unit.max(granularity) });
        }
        let id = self.memory.add_region(size)?;
        let range = self.memory.ranges(id).next();
        let Some(hole) = range.and_then(|range| self.memory.allocate_in(id, range.id, 0, size)) else {
            self.memory.remove_region(id)?;
            return Err(SuballocatorError::Numbers);
        };
        let start = region.address();
        let chunks = Chunks {
            sizes,
            holes: BTreeMap::from([(start, (start + size, hole.id))]),
            stale: BTreeMap::new(),
            present: BTreeMap::new(),
            absent: size,
        };
        let index = id.index();
        self.regions.resize_with(self.regions.len().max(index + 1), || None);
        self.regions[index] = Some(DividedRegion { id, region, size, blocks: 0, chunks: Some(chunks) });
        self.absent += size;
        Ok(())
    }

    /// Finds `size` bytes, whole units, that have no memory, and that lie behind memory if possible. Returns them as
    /// the chunks that they should get. Keeps nothing.
    pub fn vacant(&self, size: u64) -> Option<Vec<Range<u64>>> {
        let all = self.regions.iter().flatten().filter_map(|held| held.chunks.as_ref());
        let holes = all.flat_map(|chunks| chunks.holes.iter().map(move |(start, (end, _))| (chunks, *start, *end)));
        let fitting = holes.filter(|(_, start, end)| end - start >= size);
        let (chunks, start, _) = fitting.min_by_key(|(_, start, end)| (end - start, *start))?;
        Some(chunks.sizes.cut(start..start + size).collect())
    }

    /// Notes that addresses of one hole, which follow each other, have these chunks. `false` if they are no part of a
    /// hole.
    pub fn present(&mut self, pieces: &[Range<u64>]) -> bool {
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return true };
        let Some(region) = self.region_of(first.start) else { return false };
        let Some(block) = self.isolate(region, first.start..last.end) else { return false };
        let _ = self.memory.free(block);
        if let Some(chunks) = self.chunks_of(region) {
            chunks.present.extend(pieces.iter().map(|piece| (piece.start, piece.end)));
        }
        self.resized(region, -((last.end - first.start) as i64));
        self.recount();
        true
    }

    fn region_of(&self, address: u64) -> Option<RegionId> {
        let mut regions = self.regions.iter().flatten();
        regions.find(|held| held.chunks.is_some() && held.bytes().contains(&address)).map(|held| held.id)
    }

    fn chunks_of(&mut self, region: RegionId) -> Option<&mut Chunks> {
        self.regions[region.index()].as_mut()?.chunks.as_mut()
    }

    /// Takes addresses out of the hole that contains them. The block of the suballocator still keeps them from others.
    fn isolate(&mut self, region: RegionId, addresses: Range<u64>) -> Option<BlockId> {
        let chunks = self.regions[region.index()].as_mut()?.chunks.as_mut()?;
        let (&start, &(end, id)) = chunks.holes.range(..=addresses.start).next_back()?;
        if addresses.is_empty() || addresses.end > end {
            return None;
        }
        // Divides nothing if it cannot divide twice.
        if self.memory.room() < 2 {
            return None;
        }
        chunks.holes.remove(&start);
        if start < addresses.start {
            let lower = self.memory.divide(id, addresses.start - start)?;
            chunks.holes.insert(start, (addresses.start, lower));
        }
        if addresses.end == end {
            return Some(id);
        }
        let taken = self.memory.divide(id, length(&addresses))?;
        chunks.holes.insert(addresses.end, (end, id));
        Some(taken)
    }

    /// Makes a hole of addresses without memory, which a block keeps from others.
    fn dig(&mut self, region: RegionId, addresses: Range<u64>, block: BlockId) {
        let Some(held) = self.regions[region.index()].as_mut() else { return };
        let Some(chunks) = held.chunks.as_mut() else { return };
        let (mut whole, mut id) = (addresses.clone(), block);
        let before = chunks.holes.range(..addresses.start).next_back().map(|(start, hole)| (*start, *hole));
        if let Some((start, (_, lower))) = before.filter(|(_, (end, _))| *end == addresses.start)
            && self.memory.join(lower, id)
        {
            (whole.start, id) = (start, lower);
        }
        if let Some(&(end, upper)) = chunks.holes.get(&addresses.end)
            && self.memory.join(id, upper)
        {
            chunks.holes.remove(&addresses.end);
            whole.end = end;
        }
        chunks.holes.insert(whole.start, (whole.end, id));
    }

    /// Counts `more` bytes without memory in a region.
    fn resized(&mut self, region: RegionId, more: i64) {
        let Some(held) = self.regions[region.index()].as_mut() else { return };
        if let Some(chunks) = &mut held.chunks {
            chunks.absent = chunks.absent.wrapping_add_signed(more);
        }
        if held.blocks == 0 {
            self.empty = self.empty.wrapping_add_signed(-more);
        }
        self.absent = self.absent.wrapping_add_signed(more);
    }

    /// Updates the figures after changes of chunks.
    fn recount(&mut self) {
        self.figures.reserved.set(self.memory.capacity() - self.absent);
        let parts = self.regions.iter().flatten().map(|held| held.parts().count() as u64).sum();
        self.figures.regions.set(parts);
        self.note_split();
    }
}

#[cfg(test)]
mod tests;
