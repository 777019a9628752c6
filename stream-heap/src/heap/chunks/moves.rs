//! Chunks that move to other addresses, or go.

use super::{Claim, length};
use crate::heap::{Effort, Heap};
use crate::region::Region;
use crate::suballocator::{RangeId, RegionId};
use crate::timeline::StreamDriver;
use core::cmp::Reverse;
use core::ops::Range;

/// A chunk that gets further addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Its addresses, at which it stays mapped.
    pub from: Range<u64>,
    /// The first of its new addresses.
    pub start: u64,
}

impl Move {
    /// Its new addresses.
    pub fn to(&self) -> Range<u64> {
        self.start..self.start + length(&self.from)
    }
}

/// Which chunks without blocks a claim may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gather {
    /// Only those in free ranges of at least so many bytes. Small ranges are left whole: they serve later requests
    /// where they are.
    From(u64),
    /// All, also if the claim then gets more memory than it needs.
    All,
}

/// A chunk that holds no blocks.
struct Idle {
    region: RegionId,
    range: RangeId,
    bytes: Range<u64>,
    /// Other streams' work uses it.
    is_blocked: bool,
}

impl<D: StreamDriver, R: Region> Heap<D, R> {
    /// Finds chunks without blocks for a claim, and lists the new chunks that it needs beside them: of at least `least`
    /// bytes, if it needs any and if the addresses behind are free. With `Effort::Wait`, makes the stream wait for the work on the chunks; otherwise takes
    /// only those that the stream may use now.
    ///
    /// # Errors
    ///
    /// The driver's. A failed call takes no chunk.
    pub fn gather(
        &mut self,
        claim: &mut Claim,
        which: Gather,
        least: u64,
        stream: &D::Stream,
        effort: Effort,
        driver: &mut D,
    ) -> Result<(), D::Error> {
        let id = self.tags.id(stream);
        let mut idle = self.idle_chunks(match which {
            Gather::From(least) => least,
            Gather::All => 1,
        });
        for chunk in &mut idle {
            chunk.is_blocked = !self.tags.is_ready(&chunk.bytes, id);
        }
        // The highest addresses first, so that the lowest stay whole.
        idle.sort_unstable_by_key(|chunk| (chunk.is_blocked, Reverse(chunk.bytes.start)));
        let mut starts: Vec<u64> = claim.missing.iter().map(|run| run.start).collect();
        let last = starts.len().saturating_sub(1);
        let mut taken = Vec::new();
        for chunk in idle {
            let size = length(&chunk.bytes);
            let fits = |run: usize| {
                let (start, end) = (starts[run], claim.missing[run].end);
                let limit = if run == last && which == Gather::All && start < end { claim.limit } else { end };
                start + size <= limit
            };
            let Some(run) = (0..starts.len()).find(|run| fits(*run)) else {
                if starts.iter().zip(&claim.missing).all(|(start, run)| *start >= run.end) {
                    break;
                }
                continue;
            };
            if chunk.is_blocked && (effort != Effort::Wait || !self.tags.wait(&chunk.bytes, id, driver)?) {
                continue;
            }
            taken.push((chunk, starts[run]));
            starts[run] += size;
        }
        // A range keeps its id if chunks are taken from it in ascending order.
        taken.sort_unstable_by_key(|(chunk, _)| chunk.bytes.start);
        for (chunk, start) in taken {
            match self.take_chunk(&chunk) {
                true => claim.moves.push(Move { from: chunk.bytes, start }),
                // There is no room for its record.
                false => claim.new.push(start..start + length(&chunk.bytes)),
            }
        }
        let Some(chunks) = self.regions[claim.region.index()].as_ref().and_then(|held| held.chunks.as_ref()) else {
            return Ok(());
        };
        let new: u64 = claim.missing.iter().zip(&starts).map(|(run, start)| run.end.saturating_sub(*start)).sum();
        for (number, (run, start)) in claim.missing.iter_mut().zip(starts).enumerate() {
            if new > 0 && number == last {
                let more = least.saturating_sub(new) / chunks.sizes.unit * chunks.sizes.unit;
                run.end = run.end.max(start);
                run.end += (claim.limit - run.end).min(more);
            }
            run.end = run.end.max(start);
            claim.new.extend(chunks.sizes.cut(start..run.end));
        }
        self.recount();
        Ok(())
    }

    /// Takes chunks that hold no blocks and that no work uses, up to `most` bytes, from the highest addresses down.
    /// Their addresses are stale until they are [vacated](Self::vacated) or [put back](Self::put_back).
    pub(in crate::heap) fn take_chunks(&mut self, most: u64) -> Vec<R> {
        let mut left = most;
        let mut idle = self.idle_chunks(1);
        idle.sort_unstable_by_key(|chunk| Reverse(chunk.bytes.start));
        idle.retain(|chunk| {
            let size = length(&chunk.bytes);
            let is_taken = size <= left && self.tags.is_settled(&chunk.bytes);
            left -= if is_taken { size } else { 0 };
            is_taken
        });
        idle.reverse();
        idle.retain(|chunk| self.take_chunk(chunk));
        self.recount();
        let parts = idle.iter().rev();
        parts.filter_map(|chunk| self.part(chunk.region, &chunk.bytes)).collect()
    }

    /// Chunks that hold no blocks, in free ranges of at least `least` bytes.
    fn idle_chunks(&self, least: u64) -> Vec<Idle> {
        let units = self.regions.iter().flatten().filter_map(|held| held.chunks.as_ref());
        let Some(unit) = units.map(|chunks| chunks.sizes.unit).min() else { return Vec::new() };
        let ranges = self.memory.free_ranges(least.max(unit));
        let chunks = ranges.filter_map(|(region, range)| {
            let held = self.regions[region.index()].as_ref()?;
            let start = held.region.address() + range.offset;
            let within = held.chunks.as_ref()?.within(start..start + range.size);
            Some(within.map(move |bytes| Idle { region, range: range.id, bytes, is_blocked: false }))
        });
        chunks.flatten().collect()
    }

    /// Makes the addresses of an idle chunk stale. Their tags stay. `false` if there is no room for the record.
    fn take_chunk(&mut self, chunk: &Idle) -> bool {
        let Idle { region, range, bytes, .. } = chunk;
        let Some(held) = self.regions[region.index()].as_mut() else { return false };
        let (base, Some(chunks)) = (held.region.address(), held.chunks.as_mut()) else { return false };
        let Some(block) = self.memory.allocate_in(*region, *range, bytes.start - base, length(bytes)) else {
            return false;
        };
        chunks.present.remove(&bytes.start);
        chunks.stale.insert(bytes.start, (bytes.end, block.id));
        self.resized(*region, length(bytes) as i64);
        true
    }

    /// Stale addresses that no work uses: the chunk has moved away, so the program can unmap it there.
    pub fn stale(&self) -> Vec<R> {
        self.stale_ranges()
            .filter(|(_, bytes)| self.tags.is_settled(bytes))
            .filter_map(|(id, bytes)| self.part(id, &bytes))
            .collect()
    }

    /// All stale addresses, also those that work may use.
    pub fn all_stale(&self) -> Vec<R> {
        self.stale_ranges().filter_map(|(id, bytes)| self.part(id, &bytes)).collect()
    }

    fn stale_ranges(&self) -> impl Iterator<Item = (RegionId, Range<u64>)> + '_ {
        let held = self.regions.iter().flatten().filter_map(|held| Some((held.id, held.chunks.as_ref()?)));
        held.flat_map(|(id, chunks)| chunks.stale.iter().map(move |(start, (end, _))| (id, *start..*end)))
    }

    fn part(&self, region: RegionId, bytes: &Range<u64>) -> Option<R> {
        Some(self.regions[region.index()].as_ref()?.region.part(bytes.start, length(bytes)))
    }

    /// Notes that nothing is mapped any more at stale addresses, or where a region was that [`take_empty`](Self::take_empty)
    /// returned.
    pub fn vacated(&mut self, region: R) {
        let start = region.address();
        let Some(id) = self.region_of(start) else { return };
        let Some((end, block)) = self.chunks_of(id).and_then(|chunks| chunks.stale.remove(&start)) else { return };
        self.tags.clear(start..end);
        self.dig(id, start..end, block);
    }

    /// Notes that something is mapped at addresses of a hole, which is no memory of the heap: an undoing has failed. They
    /// are stale from now on.
    pub fn spoiled(&mut self, addresses: Range<u64>) {
        let Some(id) = self.region_of(addresses.start) else { return };
        if let Some(block) = self.isolate(id, addresses.clone())
            && let Some(chunks) = self.chunks_of(id)
        {
            chunks.stale.insert(addresses.start, (addresses.end, block));
        }
    }

    /// Adds a region or a chunk again that [`take_empty`](Self::take_empty) has removed.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub fn put_back(&mut self, region: R) -> Result<(), crate::suballocator::SuballocatorError> {
        let bytes = region.address()..region.address() + region.size();
        if self.region_of(bytes.start).is_none() {
            return self.add(region);
        }
        self.stay(&bytes);
        self.recount();
        Ok(())
    }

    /// Makes stale addresses memory again.
    pub(super) fn stay(&mut self, bytes: &Range<u64>) {
        let Some(id) = self.region_of(bytes.start) else { return };
        let Some(chunks) = self.chunks_of(id) else { return };
        let Some((end, block)) = chunks.stale.remove(&bytes.start) else { return };
        chunks.present.insert(bytes.start, end);
        let _ = self.memory.free(block);
        self.resized(id, -(length(bytes) as i64));
    }
}
