//! Regions of addresses whose memory comes and goes in chunks, at any place.
//!
//! Addresses without memory are holes. To the suballocator a hole is a block in use, so no search finds it, and the
//! usual paths know nothing of holes. A hole begins and ends at a multiple of the chunk's size.
//!
//! A request for which no free range is large enough gets a [`Claim`]: addresses that consist of free memory and of
//! holes. The program gives the holes memory, with chunks that hold no blocks ([`Heap::take_chunks`]) or with new ones,
//! and then [finishes](Heap::finish) the claim. Meanwhile nobody else gets these addresses.

use super::{DividedRegion, Effort, Heap, Holes};
use crate::region::Region;
use crate::suballocator::{BlockId, RegionId, SuballocatorError};
use crate::timeline::{StreamDriver, StreamId};
use core::ops::Range;
use std::collections::BTreeMap;

/// Addresses for a request.
#[derive(Debug)]
#[must_use = "a claim keeps its addresses from others until it is finished or cancelled"]
pub struct Claim {
    region: RegionId,
    /// The addresses of the future block.
    bytes: Range<u64>,
    /// Blocks that keep the free memory in it from others.
    pieces: Vec<BlockId>,
    /// The addresses that need memory: whole chunks, ascending. They may reach beyond the block.
    missing: Vec<Range<u64>>,
}

impl Claim {
    /// The addresses that need memory before the claim is finished: whole chunks, in ascending order. They may begin
    /// before the block and end behind it.
    pub fn missing(&self) -> &[Range<u64>] {
        &self.missing
    }

    /// The bytes of [`missing`](Self::missing).
    pub fn missing_bytes(&self) -> u64 {
        self.missing.iter().map(length).sum()
    }
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

impl Holes {
    pub fn begin_at(&self, address: u64) -> bool {
        self.ranges.contains_key(&address)
    }
}

impl<R: Region> DividedRegion<R> {
    /// The parts that have memory, in order of their addresses.
    pub fn parts(&self) -> impl Iterator<Item = R> + '_ {
        let holes = self.holes.as_ref().map(|holes| holes.ranges.iter().map(|(start, (end, _))| *start..*end));
        let end = self.bytes().end;
        let mut start = self.bytes().start;
        let whole = self.holes.is_none().then_some(self.region);
        let between = holes.into_iter().flatten().chain(core::iter::once(end..end)).filter_map(move |hole| {
            let part = start..hole.start;
            start = hole.end;
            (part.start < part.end).then_some(part)
        });
        let parts = between.filter(|_| self.holes.is_some()).map(|part| self.region.part(part.start, length(&part)));
        whole.into_iter().chain(parts)
    }
}

/// More ranges than a change of one hole needs.
const RANGES: usize = 8;

/// Neighbouring addresses that a claim may use.
struct Segment {
    bytes: Range<u64>,
    is_hole: bool,
}

impl<D: StreamDriver, R: Region> Heap<D, R> {
    /// Adds a region of addresses without memory, which get memory in chunks of `chunk` bytes.
    ///
    /// # Errors
    ///
    /// The address, the size and the chunk are not multiples of the chunk and of the granularity; or as
    /// [`add`](Self::add).
    pub fn add_addresses(&mut self, region: R, chunk: u64) -> Result<(), SuballocatorError> {
        let granularity = self.memory.granularity();
        let size = region.size();
        if chunk == 0
            || !chunk.is_multiple_of(granularity)
            || !size.is_multiple_of(chunk)
            || !region.address().is_multiple_of(chunk)
        {
            return Err(SuballocatorError::RegionSize { size, granularity: chunk.max(granularity) });
        }
        let id = self.memory.add_region(size)?;
        let Some(hole) = self.memory.allocate_at(id, 0, size) else {
            self.memory.remove_region(id)?;
            return Err(SuballocatorError::Numbers);
        };
        let start = region.address();
        let ranges = BTreeMap::from([(start, (start + size, hole.id))]);
        let holes = Some(Holes { chunk, ranges, bytes: size });
        let index = id.index();
        self.regions.resize_with(self.regions.len().max(index + 1), || None);
        self.regions[index] = Some(DividedRegion { id, region, size, blocks: 0, holes });
        self.absent += size;
        Ok(())
    }

    /// Finds addresses for `size` bytes, a multiple of the granularity, of which the fewest need new memory. Keeps them
    /// from others until the claim is [finished](Self::finish) or [cancelled](Self::cancel). With `Effort::Wait`, makes
    /// the stream wait for the work on free memory among them; otherwise takes only free memory that the stream may use
    /// now. If there are holes behind the addresses, up to `spare` bytes of them are among the missing chunks.
    ///
    /// `None` if there are no such addresses.
    ///
    /// # Errors
    ///
    /// The driver's. A failed call claims nothing.
    pub fn claim(
        &mut self,
        size: u64,
        spare: u64,
        stream: &D::Stream,
        effort: Effort,
        driver: &mut D,
    ) -> Result<Option<Claim>, D::Error> {
        let id = self.tags.id(stream);
        let places = self.regions.iter().flatten().filter_map(|held| {
            let (start, cost) = self.best_place(held, size, |bytes| self.is_usable(bytes, id, effort))?;
            Some((cost, start, held.id))
        });
        let Some((_, start, region)) = places.min_by_key(|(cost, start, _)| (*cost, *start)) else { return Ok(None) };
        let bytes = start..start + size;
        let Some(claim) = self.keep(region, bytes.clone(), spare) else { return Ok(None) };
        let ready = match effort {
            Effort::Wait => self.tags.wait(&bytes, id, driver),
            _ => Ok(true),
        };
        match ready {
            Ok(true) => Ok(Some(claim)),
            Ok(false) => {
                self.cancel(claim);
                Ok(None)
            }
            Err(error) => {
                self.cancel(claim);
                Err(error)
            }
        }
    }

    /// Finds `size` bytes, whole chunks, that have no memory, and that lie behind memory if possible. Keeps nothing.
    pub fn vacant(&self, size: u64) -> Option<Range<u64>> {
        let holes = self.regions.iter().flatten().filter_map(|held| held.holes.as_ref());
        let holes = holes.flat_map(|holes| holes.ranges.iter());
        let fitting = holes.filter(|(start, (end, _))| end - *start >= size);
        fitting.min_by_key(|(start, (end, _))| (end - *start, **start)).map(|(start, _)| *start..*start + size)
    }

    /// Hands out a claim's block. The program has given memory to all [missing](Claim::missing) chunks.
    pub fn finish(&mut self, claim: Claim) -> Option<R> {
        let Claim { region, bytes, pieces, missing } = claim;
        for range in missing {
            self.fill(region, range);
        }
        self.release(region, pieces);
        let offset = bytes.start - self.regions[region.index()].as_ref()?.region.address();
        let block = self.memory.allocate_at(region, offset, length(&bytes))?;
        self.hand_out(region, block.id, bytes)
    }

    /// Gives up a claim. Its missing chunks have no memory.
    pub fn cancel(&mut self, claim: Claim) {
        self.release(claim.region, claim.pieces);
        self.note_split();
    }

    /// Frees the memory that a claim has kept.
    fn release(&mut self, region: RegionId, pieces: Vec<BlockId>) {
        for piece in pieces {
            // The claim has allocated it.
            let _ = self.memory.free(piece);
        }
        self.leave(region);
    }

    /// Adds a region again that [`take_empty`](Self::take_empty) has removed.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub fn put_back(&mut self, region: R) -> Result<(), SuballocatorError> {
        let addresses = region.address()..region.address() + region.size();
        if self.present(addresses) { Ok(()) } else { self.add(region) }
    }

    /// Notes that addresses, whole chunks of a hole, have memory. `false` if they are no part of a hole.
    pub fn present(&mut self, addresses: Range<u64>) -> bool {
        let region = self.regions.iter().flatten().find(|held| {
            let whole = held.bytes();
            held.holes.is_some() && whole.start <= addresses.start && addresses.end <= whole.end
        });
        let Some(region) = region.map(|held| held.id) else { return false };
        self.fill(region, addresses)
    }

    /// Takes the memory of chunks that hold no blocks and that no work uses, up to `most` bytes, from the highest
    /// addresses down. The chunks become holes.
    pub fn take_chunks(&mut self, most: u64) -> Vec<R> {
        let (mut left, mut taken) = (most, Vec::new());
        for index in 0..self.regions.len() {
            let Some(held) = &self.regions[index] else { continue };
            let Some(chunk) = held.holes.as_ref().map(|holes| holes.chunk) else { continue };
            let (id, base) = (held.id, held.region.address());
            let free: Vec<_> = self.memory.ranges(id).filter(|range| range.block.is_none()).collect();
            for range in free.into_iter().rev() {
                let bytes = base + range.offset..base + range.offset + range.size;
                for run in self.idle_chunks(&bytes, chunk, left / chunk) {
                    if self.dig(id, run.clone()) {
                        left -= length(&run);
                        taken
                            .extend(self.regions[index].as_ref().map(|held| held.region.part(run.start, length(&run))));
                    }
                }
            }
        }
        taken
    }

    /// The whole chunks within free bytes that no work uses, the highest first, as runs.
    fn idle_chunks(&self, bytes: &Range<u64>, chunk: u64, most: u64) -> Vec<Range<u64>> {
        let (mut runs, mut left) = (Vec::<Range<u64>>::new(), most);
        let mut end = bytes.end / chunk * chunk;
        while left > 0 && end >= bytes.start + chunk {
            let start = end - chunk;
            if self.tags.is_settled(&(start..end)) {
                match runs.last_mut() {
                    Some(run) if run.start == end => run.start = start,
                    _ => runs.push(start..end),
                }
                left -= 1;
            }
            end = start;
        }
        runs
    }

    /// Whether a claim may use free bytes.
    fn is_usable(&self, bytes: &Range<u64>, id: StreamId, effort: Effort) -> bool {
        effort == Effort::Wait || self.tags.is_ready(bytes, id)
    }

    /// The addresses in a region at which `size` bytes need the least memory, and how much.
    fn best_place(
        &self,
        held: &DividedRegion<R>,
        size: u64,
        is_usable: impl Fn(&Range<u64>) -> bool,
    ) -> Option<(u64, u64)> {
        let holes = held.holes.as_ref()?;
        let base = held.region.address();
        let (mut best, mut run) = (None, Vec::<Segment>::new());
        let mut look = |run: &mut Vec<Segment>| {
            if let Some(found) = best_in(run, size, holes.chunk) {
                best = Some(best.map_or(found, |best: (u64, u64)| if found.1 < best.1 { found } else { best }));
            }
            run.clear();
        };
        for range in self.memory.ranges(held.id) {
            let bytes = base + range.offset..base + range.offset + range.size;
            let is_hole = holes.begin_at(bytes.start);
            if is_hole || range.block.is_none() && is_usable(&bytes) {
                run.push(Segment { bytes, is_hole });
            } else {
                look(&mut run);
            }
        }
        look(&mut run);
        best
    }

    /// Keeps the free memory at a claim's addresses from others, and lists its missing chunks.
    fn keep(&mut self, region: RegionId, bytes: Range<u64>, spare: u64) -> Option<Claim> {
        let held = self.regions[region.index()].as_ref()?;
        let (holes, base) = (held.holes.as_ref()?, held.region.address());
        let (mut missing, mut free) = (Vec::new(), Vec::new());
        let mut next = bytes.start;
        // The hole that contains the first byte may begin before it.
        let first = holes.ranges.range(..=bytes.start).next_back().filter(|(_, (end, _))| *end > bytes.start);
        let first = first.map_or(bytes.start, |(start, _)| *start);
        for (&start, &(end, _)) in holes.ranges.range(first..bytes.end) {
            if next < start {
                free.push(next..start);
            }
            let from = bytes.start.max(start) / holes.chunk * holes.chunk;
            let until = bytes.end.min(end).next_multiple_of(holes.chunk);
            // Only the last hole can reach beyond the block.
            let more = if end >= bytes.end { (end - until).min(spare / holes.chunk * holes.chunk) } else { 0 };
            missing.push(from..until + more);
            next = end;
        }
        if next < bytes.end {
            free.push(next..bytes.end);
            // Behind free memory, a hole may follow at once.
            if spare >= holes.chunk
                && let Some((end, _)) = holes.ranges.get(&bytes.end)
            {
                missing.push(bytes.end..bytes.end + (end - bytes.end).min(spare / holes.chunk * holes.chunk));
            }
        }
        let mut claim = Claim { region, bytes, pieces: Vec::new(), missing };
        // As a block, so that the region does not count as empty.
        self.enter(region);
        for range in free {
            match self.memory.allocate_at(region, range.start - base, length(&range)) {
                Some(piece) => claim.pieces.push(piece.id),
                None => {
                    self.cancel(claim);
                    return None;
                }
            }
        }
        self.note_split();
        Some(claim)
    }

    /// Makes addresses of a hole free memory.
    fn fill(&mut self, region: RegionId, addresses: Range<u64>) -> bool {
        if self.memory.room() < RANGES {
            return false;
        }
        let Some(held) = self.regions[region.index()].as_mut() else { return false };
        let (base, Some(holes)) = (held.region.address(), held.holes.as_mut()) else { return false };
        let found = holes.ranges.range(..=addresses.start).next_back().map(|(start, (end, id))| (*start, *end, *id));
        let Some((start, end, id)) = found.filter(|(_, end, _)| addresses.end <= *end) else { return false };
        holes.ranges.remove(&start);
        let _ = self.memory.free(id);
        for rest in [start..addresses.start, addresses.end..end] {
            if rest.start < rest.end
                && let Some(hole) = self.memory.allocate_at(region, rest.start - base, length(&rest))
            {
                holes.ranges.insert(rest.start, (rest.end, hole.id));
            }
        }
        self.resized(region, -(length(&addresses) as i64));
        true
    }

    /// Makes a hole of free memory that no work uses.
    fn dig(&mut self, region: RegionId, addresses: Range<u64>) -> bool {
        if self.memory.room() < RANGES {
            return false;
        }
        let Some(held) = self.regions[region.index()].as_mut() else { return false };
        let (base, Some(holes)) = (held.region.address(), held.holes.as_mut()) else { return false };
        let Some(hole) = self.memory.allocate_at(region, addresses.start - base, length(&addresses)) else {
            return false;
        };
        let (mut whole, mut id) = (addresses.clone(), hole.id);
        let before = holes.ranges.range(..addresses.start).next_back().map(|(start, (end, id))| (*start, *end, *id));
        let before = before.filter(|(_, end, _)| *end == addresses.start);
        let after = holes.ranges.get(&addresses.end).map(|(end, id)| (addresses.end, *end, *id));
        let neighbours = [before, after].into_iter().flatten();
        let joined = neighbours.fold(None, |_, (start, end, neighbour)| {
            whole = whole.start.min(start)..whole.end.max(end);
            holes.ranges.remove(&start);
            self.memory.free(neighbour).ok()
        });
        if joined.is_some() {
            let _ = self.memory.free(id);
            // All of it is free now.
            if let Some(hole) = self.memory.allocate_at(region, whole.start - base, length(&whole)) {
                id = hole.id;
            }
        }
        holes.ranges.insert(whole.start, (whole.end, id));
        self.tags.clear(addresses.clone());
        self.resized(region, length(&addresses) as i64);
        true
    }

    /// Counts `more` bytes of holes in a region.
    fn resized(&mut self, region: RegionId, more: i64) {
        let Some(held) = self.regions[region.index()].as_mut() else { return };
        if let Some(holes) = &mut held.holes {
            holes.bytes = holes.bytes.wrapping_add_signed(more);
        }
        if held.blocks == 0 {
            self.empty = self.empty.wrapping_add_signed(-more);
        }
        self.absent = self.absent.wrapping_add_signed(more);
        self.figures.reserved.set(self.memory.capacity() - self.absent);
        let parts = self.regions.iter().flatten().map(|held| held.parts().count() as u64).sum();
        self.figures.regions.set(parts);
        self.note_split();
    }
}

/// The addresses in neighbouring segments at which `size` bytes need the least memory, and how much.
fn best_in(run: &[Segment], size: u64, chunk: u64) -> Option<(u64, u64)> {
    let (first, last) = (run.first()?.bytes.start, run.last()?.bytes.end);
    if last - first < size {
        return None;
    }
    let latest = last - size;
    // Some best place begins or ends with a segment, or as late or as early as possible.
    let starts = run.iter().flat_map(|segment| [segment.bytes.start, segment.bytes.end.saturating_sub(size)]);
    let starts = starts.chain([first, latest]).filter(|start| (first..=latest).contains(start));
    let cost = |start: u64| {
        let cost_of = |segment: &Segment| {
            let (from, until) = (segment.bytes.start.max(start), segment.bytes.end.min(start + size));
            if !segment.is_hole || from >= until {
                return 0;
            }
            until.next_multiple_of(chunk) - from / chunk * chunk
        };
        run.iter().map(cost_of).sum::<u64>()
    };
    starts.map(|start| (start, cost(start))).min_by_key(|(start, cost)| (*cost, *start))
}

#[cfg(test)]
mod tests;
