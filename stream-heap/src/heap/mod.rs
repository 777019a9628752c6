//! Blocks of any size, for many streams, in memory that grows and shrinks: by regions, or by chunks within a region.

mod by_address;
mod chunks;

use crate::figure::Figure;
use crate::region::Region;
use crate::suballocator::{BlockId, RegionId, Suballocator, SuballocatorError, SuballocatorOptions};
use crate::tags::Tags;
use crate::timeline::StreamDriver;
use core::ops::Range;

use by_address::ByAddress;
use chunks::Chunks;
pub use chunks::{ChunkSizes, Claim, Gather, Move};

/// How many free ranges a search tries before it gives up, unless it is thorough.
const USUAL_TRIES: usize = 64;

/// What a search for memory may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Takes memory that the stream is known to be allowed to use. Makes no call of the driver.
    Ready,
    /// As `Ready`, and tries every free range.
    Thorough,
    /// Records and queries events to learn what the stream may use now.
    Passed,
    /// Takes any free memory, and makes the stream wait for the work that used it.
    Wait,
}

#[derive(Debug)]
struct DividedRegion<R> {
    id: RegionId,
    region: R,
    /// The size of the region's whole units, in bytes.
    size: u64,
    blocks: usize,
    /// In a region whose chunks come and go.
    chunks: Option<Chunks>,
}

impl<R: Region> DividedRegion<R> {
    fn bytes(&self) -> Range<u64> {
        self.region.address()..self.region.address() + self.size
    }

    /// The bytes that have memory.
    fn present(&self) -> u64 {
        self.size - self.chunks.as_ref().map_or(0, |chunks| chunks.absent)
    }
}

/// A range of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapRange<S> {
    /// Its addresses.
    pub bytes: Range<u64>,
    /// A block uses it.
    pub used: bool,
    /// The stream whose work free bytes wait for.
    pub stream: Option<S>,
}

/// Figures of a heap.
#[derive(Clone, Debug, Default)]
pub struct HeapFigures {
    /// Bytes of all regions that have memory.
    pub reserved: Figure,
    /// The number of regions. Of regions whose chunks come and go, the parts that have memory count.
    pub regions: Figure,
    /// Bytes of all blocks.
    pub active: Figure,
    /// Free bytes of regions that hold blocks.
    pub inactive_split: Figure,
}

/// Regions divided into blocks, and the work that freed bytes wait for.
#[derive(Debug)]
pub struct Heap<D: StreamDriver, R> {
    memory: Suballocator,
    /// The work that freed bytes wait for.
    pub tags: Tags<D::Stream, D::Event>,
    /// By the index of the region's id.
    regions: Vec<Option<DividedRegion<R>>>,
    blocks: ByAddress,
    /// The size of all regions without blocks.
    empty: u64,
    /// The bytes of all addresses without memory. To the suballocator they are used.
    absent: u64,
    /// The heap's figures.
    pub figures: HeapFigures,
}

impl<D: StreamDriver, R: Region> Heap<D, R> {
    /// A heap whose blocks begin and end at multiples of `granularity` bytes: a power of two.
    ///
    /// # Errors
    ///
    /// The granularity is no power of two, or too large.
    pub fn new(granularity: u64) -> Result<Self, SuballocatorError> {
        Ok(Self {
            memory: Suballocator::new(SuballocatorOptions { granularity })?,
            tags: Tags::new(),
            regions: Vec::new(),
            blocks: ByAddress::default(),
            empty: 0,
            absent: 0,
            figures: HeapFigures::default(),
        })
    }

    /// Adds a region that no work uses. A rest that is smaller than the granularity stays unused.
    ///
    /// # Errors
    ///
    /// The region has no whole unit, or there are too many regions.
    pub fn add(&mut self, region: R) -> Result<(), SuballocatorError> {
        let granularity = self.memory.granularity();
        let size = region.size() / granularity * granularity;
        let id = self.memory.add_region(size)?;
        let index = id.index();
        self.regions.resize_with(self.regions.len().max(index + 1), || None);
        self.regions[index] = Some(DividedRegion { id, region, size, blocks: 0, chunks: None });
        self.empty += size;
        self.figures.reserved.add(size);
        self.figures.regions.add(1);
        Ok(())
    }

    /// Allocates `size` bytes, a multiple of the granularity, for work queued on `stream` from now on. `None` if the
    /// effort finds none.
    ///
    /// # Errors
    ///
    /// The driver's. A failed call allocates nothing.
    pub fn allocate(
        &mut self,
        size: u64,
        stream: &D::Stream,
        effort: Effort,
        driver: &mut D,
    ) -> Result<Option<R>, D::Error> {
        let id = self.tags.id(stream);
        let Some(block) = self.memory.allocate(size, 1) else { return Ok(None) };
        let bytes = self.bytes_of(block.region, block.offset, size);
        let mut ready = self.tags.is_ready(&bytes, id);
        if !ready {
            let found = match effort {
                Effort::Ready | Effort::Thorough => Ok(false),
                Effort::Passed => self.tags.query(&bytes, id, driver).map(|()| self.tags.is_ready(&bytes, id)),
                Effort::Wait => self.tags.wait(&bytes, id, driver),
            };
            if found.is_err() {
                // The block was allocated just now, so the free succeeds.
                let _ = self.memory.free(block.id);
            }
            ready = found?;
        }
        if ready {
            return Ok(self.hand_out(block.region, block.id, bytes));
        }
        let _ = self.memory.free(block.id);
        let limit = if effort == Effort::Thorough { usize::MAX } else { USUAL_TRIES };
        let (regions, tags) = (&self.regions, &self.tags);
        let found = self.memory.allocate_where(size, limit, |region, offset, length| {
            let base = regions[region.index()].as_ref()?.region.address();
            tags.place(&(base + offset..base + offset + length), size, id).map(|start| start - base)
        });
        Ok(found.and_then(|block| {
            let bytes = self.bytes_of(block.region, block.offset, size);
            self.hand_out(block.region, block.id, bytes)
        }))
    }

    /// Frees a block that only work queued on `stream` so far still uses. `false` if there is no such block.
    pub fn free(&mut self, address: u64, stream: &D::Stream) -> bool {
        let (unit, mut block) = (self.unit(address), None);
        self.blocks.remove(unit, |node| {
            block = block_at(&self.memory, &self.regions, node, address);
            block.is_some()
        });
        let Some(freed) = block.and_then(|id| self.memory.free(id).ok()) else { return false };
        let id = self.tags.id(stream);
        self.tags.freed(address..address + freed.block.size, id);
        self.figures.active.subtract(freed.block.size);
        self.leave(freed.block.region);
        self.note_split();
        true
    }

    /// Removes regions that hold no blocks and that no work uses, largest first, as long as at least `keep` bytes stay.
    /// Of regions whose chunks come and go, takes such chunks: each result is then to be [vacated](Self::vacated) or
    /// [put back](Self::put_back).
    pub fn take_empty(&mut self, keep: u64) -> Vec<R> {
        let (tags, regions) = (&self.tags, &self.regions);
        let is_empty =
            |held: &DividedRegion<R>| held.chunks.is_none() && held.blocks == 0 && tags.is_settled(&held.bytes());
        let empty = regions.iter().flatten().filter(|held| is_empty(held));
        let mut empty: Vec<_> = empty.map(|held| (held.size, held.region, held.id)).collect();
        empty.sort_unstable_by_key(|(size, region, _)| core::cmp::Reverse((*size, region.address())));
        let mut taken = Vec::new();
        for (size, region, id) in empty {
            if self.reserved() - size >= keep && self.memory.remove_region(id).is_ok() {
                self.tags.clear(region.address()..region.address() + size);
                self.regions[id.index()] = None;
                self.empty -= size;
                self.figures.reserved.subtract(size);
                self.figures.regions.subtract(1);
                taken.push(region);
            }
        }
        taken.extend(self.take_chunks(self.reserved().saturating_sub(keep)));
        taken
    }

    /// All regions. Of regions whose chunks come and go, the parts that have memory.
    pub fn regions(&self) -> impl Iterator<Item = R> {
        self.regions.iter().flatten().flat_map(DividedRegion::parts)
    }

    /// The regions in order of their addresses, each with its ranges.
    pub fn ranges(&self) -> Vec<(R, Vec<HeapRange<D::Stream>>)> {
        let mut all = Vec::new();
        for held in self.regions.iter().flatten() {
            let mut ranges = self.ranges_of(held).into_iter().peekable();
            all.extend(held.parts().map(|part| {
                let end = part.address() + part.size();
                let mut its = Vec::new();
                while let Some(range) = ranges.next_if(|range| range.bytes.start < end) {
                    its.push(range);
                }
                (part, its)
            }));
        }
        all.sort_unstable_by_key(|(region, _)| region.address());
        all
    }

    fn ranges_of(&self, held: &DividedRegion<R>) -> Vec<HeapRange<D::Stream>> {
        let (mut ranges, base) = (Vec::new(), held.region.address());
        for range in self.memory.ranges(held.id) {
            let bytes = base + range.offset..base + range.offset + range.size;
            if held.chunks.as_ref().is_some_and(|chunks| chunks.is_absent(bytes.start)) {
                continue;
            }
            if range.block.is_some() {
                ranges.push(HeapRange { bytes, used: true, stream: None });
                continue;
            }
            let mut start = bytes.start;
            let mut free = |until: u64, next: u64, stream: Option<D::Stream>| {
                if start < until {
                    ranges.push(HeapRange { bytes: start..until, used: false, stream: None });
                }
                if until < next {
                    ranges.push(HeapRange { bytes: until..next, used: false, stream });
                }
                start = next;
            };
            for (pending, stream) in self.tags.pending(&bytes) {
                free(pending.start, pending.end, Some(stream.clone()));
            }
            free(bytes.end, bytes.end, None);
        }
        ranges
    }

    /// Whether a block begins at this address.
    pub fn has(&self, address: u64) -> bool {
        let is = |node| block_at(&self.memory, &self.regions, node, address).is_some();
        self.blocks.find(self.unit(address), is).is_some()
    }

    /// The number of free bytes that wait for each stream. Visits all ranges.
    pub fn pending(&self) -> Vec<(D::Stream, u64)> {
        let mut pending: Vec<(D::Stream, u64)> = Vec::new();
        for range in self.ranges().into_iter().flat_map(|(_, ranges)| ranges) {
            let (size, Some(stream)) = (range.bytes.end - range.bytes.start, range.stream) else { continue };
            match pending.iter_mut().find(|(other, _)| *other == stream) {
                Some((_, bytes)) => *bytes += size,
                None => pending.push((stream, size)),
            }
        }
        pending
    }

    /// The bytes of all regions that have memory.
    pub fn reserved(&self) -> u64 {
        self.memory.capacity() - self.absent
    }

    /// The bytes of all blocks.
    pub fn used(&self) -> u64 {
        self.memory.used_bytes() - self.absent
    }

    /// The largest free range, in bytes.
    pub fn largest_free(&self) -> u64 {
        self.memory.largest_free()
    }

    /// The largest free range, and the fragmentation: the share of free memory that lies in regions with blocks,
    /// outside of their largest free range. Blocks count as free if `is_free` accepts their address. Visits all ranges.
    pub fn pieces(&self, is_free: impl Fn(u64) -> bool) -> (u64, f64) {
        let (mut free, mut largest, mut split, mut largest_split) = (0, 0, 0, 0);
        for (region, ranges) in self.ranges() {
            let (mut run, mut longest, mut sum, mut end) = (0, 0, 0, region.address());
            for range in ranges.iter().filter(|range| !range.used || is_free(range.bytes.start)) {
                let size = range.bytes.end - range.bytes.start;
                run = if range.bytes.start == end { run + size } else { size };
                (longest, sum, end) = (run.max(longest), sum + size, range.bytes.end);
            }
            let whole = ranges.last().map_or(0, |range| range.bytes.end - region.address());
            (free, largest) = (free + sum, longest.max(largest));
            if sum < whole {
                (split, largest_split) = (split + sum, longest.max(largest_split));
            }
        }
        (largest, if free == 0 { 0.0 } else { (split - largest_split) as f64 / free as f64 })
    }

    /// An address in units of the granularity.
    #[inline]
    fn unit(&self, address: u64) -> u64 {
        address >> self.memory.granularity().trailing_zeros()
    }

    fn bytes_of(&self, region: RegionId, offset: u64, size: u64) -> Range<u64> {
        let start = self.regions[region.index()].as_ref().map_or(0, |held| held.region.address()) + offset;
        start..start + size
    }

    fn hand_out(&mut self, region: RegionId, id: BlockId, bytes: Range<u64>) -> Option<R> {
        let size = bytes.end - bytes.start;
        self.enter(region);
        let block = self.regions[region.index()].as_ref()?.region.part(bytes.start, size);
        self.blocks.insert(self.unit(bytes.start), id.node());
        self.figures.active.add(size);
        self.note_split();
        Some(block)
    }

    /// Counts a further block in a region.
    fn enter(&mut self, region: RegionId) {
        let Some(held) = &mut self.regions[region.index()] else { return };
        if held.blocks == 0 {
            self.empty -= held.present();
        }
        held.blocks += 1;
    }

    /// Counts one block less in a region.
    fn leave(&mut self, region: RegionId) {
        let Some(held) = &mut self.regions[region.index()] else { return };
        held.blocks -= 1;
        if held.blocks == 0 {
            self.empty += held.present();
        }
    }

    fn note_split(&mut self) {
        let split = self.memory.free_bytes() - self.empty;
        self.figures.inactive_split.set(split);
    }
}

/// The block of a node, if it begins at this address.
#[inline]
fn block_at<R: Region>(
    memory: &Suballocator,
    regions: &[Option<DividedRegion<R>>],
    node: u32,
    address: u64,
) -> Option<BlockId> {
    let (id, block) = memory.block_of_node(node)?;
    let held = regions.get(block.region.index())?.as_ref()?;
    (held.region.address() + block.offset == address).then_some(id)
}

#[cfg(any(test, fuzzing))]
pub mod model;
#[cfg(test)]
mod tests;
