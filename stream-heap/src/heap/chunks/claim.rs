//! Addresses for a request that no free range holds.

use super::moves::Move;
use super::{Chunks, length};
use crate::heap::{DividedRegion, Effort, Heap};
use crate::region::Region;
use crate::suballocator::{BlockId, RangeId, RangeInfo, RegionId};
use crate::timeline::{StreamDriver, StreamId};
use core::ops::Range;

/// Addresses for a request.
#[derive(Debug)]
#[must_use = "a claim keeps its addresses from others until it is finished or cancelled"]
pub struct Claim {
    pub(super) region: RegionId,
    /// The addresses of the future block.
    pub(super) bytes: Range<u64>,
    /// Blocks that keep the free memory in it from others, by first address.
    pieces: Vec<(u64, BlockId)>,
    /// The addresses that need memory: whole units, ascending. They may reach beyond the block.
    pub(super) missing: Vec<Range<u64>>,
    /// How far the last of them may reach.
    pub(super) limit: u64,
    pub(super) moves: Vec<Move>,
    pub(super) new: Vec<Range<u64>>,
}

impl Claim {
    /// The bytes that need memory before the claim is finished.
    pub fn missing_bytes(&self) -> u64 {
        self.missing.iter().map(length).sum()
    }

    /// The chunks that [`gather`](Heap::gather) has found. They must be mapped at their new addresses too.
    pub fn moves(&self) -> &[Move] {
        &self.moves
    }

    /// The addresses that need new chunks, one for each range.
    pub fn new_chunks(&self) -> &[Range<u64>] {
        &self.new
    }

    /// Replaces a new chunk by two of half its size: the next two. `false` if it has only one unit.
    pub fn halve(&mut self, number: usize, unit: u64) -> bool {
        let Some(chunk) = self.new.get_mut(number).filter(|chunk| length(chunk) >= 2 * unit) else { return false };
        let end = chunk.end;
        chunk.end = chunk.start + length(chunk) / 2 / unit * unit;
        let upper = chunk.end..end;
        self.new.insert(number + 1, upper);
        true
    }

    /// The bytes of all moved and all new chunks.
    pub fn added_bytes(&self) -> u64 {
        self.moves.iter().map(|moved| length(&moved.from)).chain(self.new.iter().map(length)).sum()
    }
}

/// Neighbouring addresses that a claim may use.
struct Segment {
    bytes: Range<u64>,
    is_hole: bool,
}

/// The start of a claim, and the memory that is missing there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    cost: u64,
    start: u64,
}

impl<D: StreamDriver, R: Region> Heap<D, R> {
    /// Finds addresses for `size` bytes, a multiple of the granularity, of which the fewest need memory. Keeps them
    /// from others until the claim is [finished](Self::finish) or [cancelled](Self::cancel). With `Effort::Wait`, makes
    /// the stream wait for the work on free memory among them; otherwise takes only free memory that the stream may use
    /// now.
    ///
    /// `None` if there are no such addresses.
    ///
    /// # Errors
    ///
    /// The driver's. A failed call claims nothing.
    pub fn claim(
        &mut self,
        size: u64,
        stream: &D::Stream,
        effort: Effort,
        driver: &mut D,
    ) -> Result<Option<Claim>, D::Error> {
        let id = self.tags.id(stream);
        let places = self.regions.iter().flatten().filter_map(|held| {
            let place = self.best_place(held, size, |bytes| self.is_usable(bytes, id, effort))?;
            Some((place, held.id))
        });
        let Some((Place { start, .. }, region)) = places.min_by_key(|(place, _)| *place) else { return Ok(None) };
        let bytes = start..start + size;
        let Some(claim) = self.keep(region, bytes.clone()) else { return Ok(None) };
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

    /// Finds addresses for `size` bytes that all need memory, at the start of the largest hole, so that chunks of any
    /// size fit there. As [`claim`](Self::claim) otherwise.
    pub fn claim_hole(&mut self, size: u64) -> Option<Claim> {
        let holes = self.regions.iter().flatten().filter_map(|held| Some((held.id, held.chunks.as_ref()?)));
        let holes =
            holes.flat_map(|(id, chunks)| chunks.holes.iter().map(move |(start, (end, _))| (end - start, *start, id)));
        let (_, start, region) =
            holes.max_by_key(|(size, start, _)| (*size, *start)).filter(|(most, ..)| *most >= size)?;
        self.keep(region, start..start + size)
    }

    /// Hands out a claim's block. The program has mapped all chunks of the claim.
    pub fn finish(&mut self, claim: Claim, stream: &D::Stream) -> Option<R> {
        let Claim { region, bytes, pieces: mut parts, missing, moves, new, .. } = claim;
        let id = self.tags.id(stream);
        for moved in &moves {
            if !self.tags.is_settled(&moved.from) {
                // The stream's work comes after the work on the old addresses: what lies beside the block waits for the
                // stream.
                self.tags.freed(moved.to(), id);
            }
        }
        let mut added = 0;
        for run in missing {
            added += length(&run);
            let mut part = self.isolate(region, run.clone())?;
            let mut start = run.start;
            if start < bytes.start {
                let lower = self.memory.divide(part, bytes.start - start)?;
                let _ = self.memory.free(lower);
                start = bytes.start;
            }
            if bytes.end < run.end {
                let upper = part;
                part = self.memory.divide(upper, bytes.end - start)?;
                let _ = self.memory.free(upper);
            }
            parts.push((start, part));
        }
        parts.sort_unstable_by_key(|(start, _)| *start);
        let (_, block) = *parts.first()?;
        if !parts[1..].iter().all(|(_, part)| self.memory.join(block, *part)) {
            return None;
        }
        let all = moves.iter().map(Move::to).chain(new);
        if let Some(chunks) = self.chunks_of(region) {
            chunks.present.extend(all.map(|chunk| (chunk.start, chunk.end)));
        }
        self.resized(region, -(added as i64));
        let block = self.hand_out(region, block, bytes);
        self.leave(region);
        self.recount();
        block
    }

    /// Gives up a claim. Its new addresses have no memory, and the chunks that it would have moved stay where they are.
    pub fn cancel(&mut self, claim: Claim) {
        for (_, piece) in claim.pieces {
            // The claim has allocated it.
            let _ = self.memory.free(piece);
        }
        claim.moves.iter().for_each(|moved| self.stay(&moved.from));
        self.leave(claim.region);
        self.recount();
    }

    /// Whether a claim may use free bytes.
    fn is_usable(&self, bytes: &Range<u64>, id: StreamId, effort: Effort) -> bool {
        effort == Effort::Wait || self.tags.is_ready(bytes, id)
    }

    /// The addresses in a region at which `size` bytes need the least memory. Looks only around holes: without a hole,
    /// the suballocator would have found them.
    fn best_place(&self, held: &DividedRegion<R>, size: u64, is_usable: impl Fn(&Range<u64>) -> bool) -> Option<Place> {
        let chunks = held.chunks.as_ref()?;
        let base = held.region.address();
        let segment = |range: RangeInfo| {
            let bytes = base + range.offset..base + range.offset + range.size;
            let is_hole = chunks.holes.contains_key(&bytes.start);
            (is_hole || range.block.is_none() && is_usable(&bytes)).then_some(Segment { bytes, is_hole })
        };
        let (mut best, mut seen) = (None::<Place>, base);
        for (&start, &(end, id)) in &chunks.holes {
            if start < seen {
                continue;
            }
            let mut run: Vec<Segment> = self.memory.below(id).map_while(segment).collect();
            run.reverse();
            run.push(Segment { bytes: start..end, is_hole: true });
            run.extend(self.memory.above(id).map_while(segment));
            seen = run.last().map_or(end, |last| last.bytes.end);
            best = best.into_iter().chain(best_in(&run, size, chunks.sizes.unit)).min();
        }
        best
    }

    /// Keeps the free memory at a claim's addresses from others, and lists its missing units.
    fn keep(&mut self, region: RegionId, bytes: Range<u64>) -> Option<Claim> {
        let held = self.regions[region.index()].as_ref()?;
        let (chunks, base) = (held.chunks.as_ref()?, held.region.address());
        let (missing, limit) = missing(chunks, &bytes);
        let (below, above) = (chunks.holes.range(..bytes.end).next_back(), chunks.holes.range(bytes.end..).next());
        let (_, (_, nearest)) = below.or(above)?;
        // The free ranges at both sides of a hole among the addresses, or beside them.
        let found = |range: RangeInfo| (range.block.is_none(), base + range.offset, range.size, range.id);
        let below = self.memory.below(*nearest).map(found).take_while(|(_, start, size, _)| start + size > bytes.start);
        let above = self.memory.above(*nearest).map(found).take_while(|(_, start, ..)| *start < bytes.end);
        let free: Vec<(u64, u64, RangeId)> = below
            .chain(above)
            .map(|(is_free, start, size, id)| (is_free, start.max(bytes.start), (start + size).min(bytes.end), id))
            .filter(|(is_free, start, end, _)| *is_free && start < end)
            .map(|(_, start, end, id)| (start, end, id))
            .collect();
        let mut claim = Claim { region, bytes, pieces: Vec::new(), missing, limit, moves: Vec::new(), new: Vec::new() };
        // As a block, so that the region does not count as empty.
        self.enter(region);
        for (start, end, range) in free {
            match self.memory.allocate_in(region, range, start - base, end - start) {
                Some(piece) => claim.pieces.push((start, piece.id)),
                None => {
                    self.cancel(claim);
                    return None;
                }
            }
        }
        self.note_split();
        Some(claim)
    }
}

/// The units of holes among these addresses, and how far the hole reaches in which the last ones lie.
fn missing(chunks: &Chunks, bytes: &Range<u64>) -> (Vec<Range<u64>>, u64) {
    let (mut missing, mut limit) = (Vec::new(), 0);
    let first = chunks.holes.range(..=bytes.start).next_back().filter(|(_, (end, _))| *end > bytes.start);
    let first = first.map_or(bytes.start, |(start, _)| *start);
    for (&start, &(end, _)) in chunks.holes.range(first..bytes.end) {
        let from = bytes.start.max(start) / chunks.sizes.unit * chunks.sizes.unit;
        let until = bytes.end.min(end).next_multiple_of(chunks.sizes.unit);
        missing.push(from..until);
        limit = end;
    }
    (missing, limit)
}

/// The addresses in neighbouring segments at which `size` bytes need the least memory.
fn best_in(run: &[Segment], size: u64, unit: u64) -> Option<Place> {
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
            until.next_multiple_of(unit) - from / unit * unit
        };
        run.iter().map(cost_of).sum::<u64>()
    };
    starts.map(|start| Place { cost: cost(start), start }).min()
}
