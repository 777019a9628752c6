//! The heap: regions of a source, divided into blocks, with the order in which streams may have them. Without CUDA and
//! without `unsafe`.

use super::order::{Clock, Order};
use super::statistics::Figure;
use crate::resource::Block;
use crate::suballocator::{BlockId, RegionId, Suballocator, SuballocatorError, SuballocatorOptions};
use core::hash::{BuildHasherDefault, Hasher};
use core::ops::Range;
use std::collections::HashMap;

/// How many free ranges are looked at where some memory has to be found that a stream may have.
const USUAL_TRIES: usize = 64;

/// How hard memory is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// What the stream may have as things are known.
    Ready,
    /// As `Ready`, and no free range is left out.
    Thorough,
    /// What the stream may have now: events are recorded and asked.
    Passed,
    /// Whatever is free: the stream is told to wait.
    Wait,
}

/// Memory of the source.
#[derive(Debug)]
struct Region {
    id: RegionId,
    /// What the source gave.
    block: Block,
    /// The whole units of it, in bytes.
    size: u64,
    /// How many blocks lie in it, those in fronts too.
    blocks: usize,
}

impl Region {
    fn bytes(&self) -> Range<u64> {
        self.block.device_pointer..self.block.device_pointer + self.size
    }
}

/// A range of a region as the heap sees it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HeapRange<S> {
    pub bytes: Range<u64>,
    /// A block, which may lie in a front.
    pub used: bool,
    /// The stream that free bytes wait for.
    pub stream: Option<S>,
}

/// The figures that the heap keeps.
#[derive(Clone, Debug, Default)]
pub(super) struct HeapFigures {
    pub reserved: Figure,
    pub regions: Figure,
    /// What blocks use.
    pub active: Figure,
    /// Free bytes of regions that hold blocks.
    pub inactive_split: Figure,
}

/// Hashes addresses, which programs do not choose.
#[derive(Debug, Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        // The golden ratio brings the middle bits, which differ, into the upper ones, and the turn into all.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Regions, blocks, and what freed bytes wait for.
#[derive(Debug)]
pub(super) struct Heap<C: Clock> {
    memory: Suballocator,
    pub order: Order<C::Stream, C::Event>,
    /// By the index of the region's id.
    regions: Vec<Option<Region>>,
    /// The blocks by address.
    blocks: HashMap<u64, BlockId, BuildHasherDefault<AddressHasher>>,
    /// The size of all regions without blocks.
    empty: u64,
    pub figures: HeapFigures,
}

impl<C: Clock> Heap<C> {
    pub fn new(granularity: u64) -> Result<Self, SuballocatorError> {
        Ok(Self {
            memory: Suballocator::new(SuballocatorOptions { granularity })?,
            order: Order::new(),
            regions: Vec::new(),
            blocks: HashMap::default(),
            empty: 0,
            figures: HeapFigures::default(),
        })
    }

    /// Adds memory that waits for nothing.
    pub fn add(&mut self, block: Block) -> Result<(), SuballocatorError> {
        let granularity = self.memory.granularity();
        let size = block.size as u64 / granularity * granularity;
        let id = self.memory.add_region(size)?;
        let index = id.index();
        self.regions.resize_with(self.regions.len().max(index + 1), || None);
        self.regions[index] = Some(Region { id, block, size, blocks: 0 });
        self.empty += size;
        self.figures.reserved.add(size);
        self.figures.regions.add(1);
        Ok(())
    }

    /// Allocates `size` bytes, which are whole units, for work of `stream` from now on. `None` where no such effort finds
    /// them; nothing is changed then, nor where the clock gives an error.
    pub fn allocate(
        &mut self,
        size: u64,
        stream: &C::Stream,
        effort: Effort,
        clock: &mut C,
    ) -> Result<Option<Block>, C::Error> {
        let id = self.order.id(stream);
        let Some(block) = self.memory.allocate(size, 1) else { return Ok(None) };
        let bytes = self.bytes_of(block.region, block.offset, size);
        let mut ready = self.order.is_ready(&bytes, id);
        if !ready {
            let found = match effort {
                Effort::Ready | Effort::Thorough => Ok(false),
                Effort::Passed => self.order.look(&bytes, id, clock).map(|()| self.order.is_ready(&bytes, id)),
                Effort::Wait => self.order.wait(&bytes, id, clock),
            };
            if found.is_err() {
                // Just allocated, so it is there.
                let _ = self.memory.free(block.id);
            }
            ready = found?;
        }
        if ready {
            return Ok(Some(self.hand_out(block.region, block.id, bytes)));
        }
        let _ = self.memory.free(block.id);
        let limit = if effort == Effort::Thorough { usize::MAX } else { USUAL_TRIES };
        let (regions, order) = (&self.regions, &self.order);
        let found = self.memory.allocate_where(size, limit, |region, offset, length| {
            let base = regions[region.index()].as_ref()?.block.device_pointer;
            order.place(&(base + offset..base + offset + length), size, id).map(|start| start - base)
        });
        Ok(found.map(|block| {
            let bytes = self.bytes_of(block.region, block.offset, size);
            self.hand_out(block.region, block.id, bytes)
        }))
    }

    /// Frees a block whose last work was given to `stream`. `false` if there is no such block.
    pub fn free(&mut self, device_pointer: u64, stream: &C::Stream) -> bool {
        let Some(freed) = self.blocks.remove(&device_pointer).and_then(|id| self.memory.free(id).ok()) else {
            return false;
        };
        let id = self.order.id(stream);
        self.order.freed(device_pointer..device_pointer + freed.block.size, id);
        self.figures.active.subtract(freed.block.size);
        if let Some(region) = &mut self.regions[freed.block.region.index()] {
            region.blocks -= 1;
            if region.blocks == 0 {
                self.empty += region.size;
            }
        }
        self.note_split();
        true
    }

    /// Takes regions out that hold no blocks and wait for nothing, largest first, as long as at least `keep` bytes stay.
    pub fn take_empty(&mut self, keep: u64) -> Vec<Block> {
        let (order, regions) = (&self.order, &self.regions);
        let is_empty = |region: &Region| region.blocks == 0 && order.is_settled(&region.bytes());
        let empty = regions.iter().flatten().filter(|region| is_empty(region));
        let mut empty: Vec<_> = empty.map(|region| (region.size, region.block, region.id)).collect();
        empty.sort_unstable_by_key(|(size, block, _)| core::cmp::Reverse((*size, block.device_pointer)));
        let mut taken = Vec::new();
        for (size, block, id) in empty {
            if self.memory.capacity() - size >= keep && self.memory.remove_region(id).is_ok() {
                self.order.clear(block.device_pointer..block.device_pointer + size);
                self.regions[id.index()] = None;
                self.empty -= size;
                self.figures.reserved.subtract(size);
                self.figures.regions.subtract(1);
                taken.push(block);
            }
        }
        taken
    }

    /// What the source gave, also where it holds blocks.
    pub fn regions(&self) -> impl Iterator<Item = Block> {
        self.regions.iter().flatten().map(|region| region.block)
    }

    /// The regions in order of their addresses, each with its ranges.
    pub fn ranges(&self) -> Vec<(Block, Vec<HeapRange<C::Stream>>)> {
        let mut regions: Vec<_> = self.regions.iter().flatten().map(|region| (region.block, region.id)).collect();
        regions.sort_unstable_by_key(|(block, _)| block.device_pointer);
        regions.into_iter().map(|(block, id)| (block, self.ranges_of(block.device_pointer, id))).collect()
    }

    fn ranges_of(&self, base: u64, id: RegionId) -> Vec<HeapRange<C::Stream>> {
        let mut ranges = Vec::new();
        for range in self.memory.ranges(id) {
            let bytes = base + range.offset..base + range.offset + range.size;
            if range.block.is_some() {
                ranges.push(HeapRange { bytes, used: true, stream: None });
                continue;
            }
            let mut start = bytes.start;
            let mut free = |until: u64, next: u64, stream: Option<C::Stream>| {
                if start < until {
                    ranges.push(HeapRange { bytes: start..until, used: false, stream: None });
                }
                if until < next {
                    ranges.push(HeapRange { bytes: until..next, used: false, stream });
                }
                start = next;
            };
            for (pending, stream) in self.order.pending(&bytes) {
                free(pending.start, pending.end, Some(stream.clone()));
            }
            free(bytes.end, bytes.end, None);
        }
        ranges
    }

    /// Whether a block begins there, which may lie in a front.
    pub fn has(&self, device_pointer: u64) -> bool {
        self.blocks.contains_key(&device_pointer)
    }

    /// How many free bytes wait for each stream. Goes through all ranges.
    pub fn pending(&self) -> Vec<(C::Stream, u64)> {
        let mut pending: Vec<(C::Stream, u64)> = Vec::new();
        for range in self.ranges().into_iter().flat_map(|(_, ranges)| ranges) {
            let (size, Some(stream)) = (range.bytes.end - range.bytes.start, range.stream) else { continue };
            match pending.iter_mut().find(|(other, _)| *other == stream) {
                Some((_, bytes)) => *bytes += size,
                None => pending.push((stream, size)),
            }
        }
        pending
    }

    pub fn reserved(&self) -> u64 {
        self.memory.capacity()
    }

    /// What blocks use, those in fronts too.
    pub fn used(&self) -> u64 {
        self.memory.used_bytes()
    }

    pub fn largest_free(&self) -> u64 {
        self.memory.largest_free()
    }

    /// The largest free range, and which part of the free memory is in pieces, if the blocks that `is_free` names by their
    /// addresses were free too. Goes through all ranges.
    pub fn pieces(&self, is_free: impl Fn(u64) -> bool) -> (u64, f64) {
        let (mut free, mut largest, mut split, mut largest_split) = (0, 0, 0, 0);
        for (block, ranges) in self.ranges() {
            let (mut run, mut longest, mut sum, mut end) = (0, 0, 0, block.device_pointer);
            for range in ranges.iter().filter(|range| !range.used || is_free(range.bytes.start)) {
                let size = range.bytes.end - range.bytes.start;
                run = if range.bytes.start == end { run + size } else { size };
                (longest, sum, end) = (run.max(longest), sum + size, range.bytes.end);
            }
            let whole = ranges.last().map_or(0, |range| range.bytes.end - block.device_pointer);
            (free, largest) = (free + sum, longest.max(largest));
            if sum < whole {
                (split, largest_split) = (split + sum, longest.max(largest_split));
            }
        }
        (largest, if free == 0 { 0.0 } else { (split - largest_split) as f64 / free as f64 })
    }

    fn bytes_of(&self, region: RegionId, offset: u64, size: u64) -> Range<u64> {
        let start = self.regions[region.index()].as_ref().map_or(0, |region| region.block.device_pointer) + offset;
        start..start + size
    }

    fn hand_out(&mut self, region: RegionId, id: BlockId, bytes: Range<u64>) -> Block {
        let (device_pointer, size) = (bytes.start, (bytes.end - bytes.start) as usize);
        self.blocks.insert(device_pointer, id);
        self.figures.active.add(size as u64);
        let mut host_pointer = core::ptr::null_mut();
        if let Some(region) = &mut self.regions[region.index()] {
            if region.blocks == 0 {
                self.empty -= region.size;
            }
            region.blocks += 1;
            if !region.block.host_pointer.is_null() {
                let offset = (device_pointer - region.block.device_pointer) as usize;
                host_pointer = region.block.host_pointer.wrapping_add(offset);
            }
        }
        self.note_split();
        Block { device_pointer, host_pointer, size }
    }

    fn note_split(&mut self) {
        let split = self.memory.free_bytes() - self.empty;
        self.figures.inactive_split.set(split);
    }
}

#[cfg(any(test, fuzzing))]
pub(super) mod model;
#[cfg(test)]
mod tests;
