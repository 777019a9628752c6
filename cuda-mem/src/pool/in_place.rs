//! Growth in place, over virtual memory. The pool reserves addresses once, and maps chunks of physical memory there as it
//! needs them. So its memory has no seams, chunks without blocks can go back from anywhere, and they can be mapped at
//! other addresses, side by side, for a request that no free range could hold.

use super::growth::refused;
use super::options::{PoolOptions, Reuse};
use super::search::Request;
use super::shared::{ALLOCATE, PoolState, SharedPool};
use crate::adaptor::trace::Action;
use crate::error::told::told;
use crate::locks::{Mutex, MutexGuard};
use crate::memory::peers::PeerSource;
use crate::memory::resource::{Block, SharedResource, kind};
use crate::memory::{ChunkMap, PhysicalMemory, VirtualMemory};
use crate::{Error, Result};
use core::ops::Range;
use std::collections::BTreeMap;
use stream_heap::{ChunkSizes, Claim, Effort, Gather};

/// The largest chunk of a run of addresses that is not long. Larger ones are rarely free as a whole: with up to 32 MiB, a
/// training job reserved 3.1% more than it asked for, with these sizes 1.8%.
const USUAL_CHUNK: usize = 16 << 20;
/// The largest chunk. A long run gets fewer chunks by it: each takes some 50 us to make and to map on an H100, whatever
/// its size.
const LARGEST_CHUNK: usize = 64 << 20;
/// Chunks move out of free ranges of at least this size while the device has memory. Smaller ranges serve later requests
/// where they are: without them a job with caches that grow reserved 6% more than it asked for, with them 1%.
const LARGE_RANGE: u64 = 16 << 20;
/// Addresses are reserved for this many times the device's memory, because chunks move to free addresses.
const ADDRESSES: usize = 2;
/// A pool over memory that is not virtual grows in place only if its maximum holds so many of the smallest chunks.
const FEWEST_CHUNKS: usize = 32;

/// The addresses of a pool, and the chunks that are mapped there.
#[derive(Debug)]
pub(super) struct Chunks {
    memory: VirtualMemory<kind::Any>,
    maps: Mutex<Vec<ChunkMap>>,
    /// The size of the smallest chunk. All chunks are multiples of it.
    pub unit: usize,
}

/// A chunk to map at an address.
pub(super) type Placed = (u64, PhysicalMemory);

impl Chunks {
    /// The chunks of a pool over this source. `None` if the pool must allocate regions.
    pub fn of(upstream: &SharedResource, options: &PoolOptions) -> Option<Self> {
        let source = if options.in_place { upstream.chunks()? } else { return None };
        let unit = source.memory.granularity();
        let is_large = options.maximum / unit >= FEWEST_CHUNKS;
        (is_large || !source.stands_in).then(|| Self { memory: source.memory, maps: Mutex::default(), unit })
    }

    fn maps(&self) -> MutexGuard<'_, Vec<ChunkMap>> {
        self.maps.lock()
    }

    /// Reserves addresses for at least `needed` bytes, and for more if there are as many.
    fn reserve(&self, needed: usize, maximum: usize) -> Result<Block> {
        const CALL: &str = "Pool::new";
        let whole = |size: usize| size.checked_next_multiple_of(self.unit).filter(|size| *size <= isize::MAX as usize);
        let Some(needed) = whole(needed) else {
            return Err(Error::invalid(CALL, "initial", needed, "the size must fit into isize"));
        };
        let usual = self.memory.context().device().total_memory()?.saturating_mul(ADDRESSES);
        let mut size = usual.min(maximum.saturating_mul(2 * ADDRESSES)).max(needed);
        loop {
            let rounded = whole(size).unwrap_or(needed);
            match self.memory.inner.reserve_for_chunks(CALL, rounded) {
                Ok(map) => {
                    let block = self.memory.inner.block_at(map.base(), map.size()).fresh();
                    self.maps().push(map);
                    return Ok(block);
                }
                Err(error) if rounded == needed => return Err(error),
                Err(_) => size = (size / 2).max(needed),
            }
        }
    }

    /// All chunks, in runs that lie side by side: the first address of each run, and its chunks.
    pub fn runs(&self) -> Vec<(u64, Vec<PhysicalMemory>)> {
        self.maps().iter().flat_map(ChunkMap::runs).collect()
    }

    /// The virtual memory that the chunks are of.
    pub fn memory(&self) -> &VirtualMemory<kind::Any> {
        &self.memory
    }

    /// Maps chunks, each at its address. An error leaves none of them mapped, unless the undoing fails too.
    pub fn map(&self, mut placed: Vec<Placed>) -> Result<()> {
        placed.sort_unstable_by_key(|(start, _)| *start);
        let end = |(start, chunk): &Placed| start + chunk.size() as u64;
        let mut maps = self.maps();
        let mut done = Vec::new();
        for run in placed.chunk_by(|one, other| end(one) == other.0) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let Some(map) = maps.iter_mut().find(|map| map.contains(first.0)) else { continue };
            let chunks = run.iter().map(|(_, chunk)| chunk.clone());
            if let Err(error) = map.map(first.0, chunks) {
                for run in done {
                    undo(&mut maps, &run, &self.memory);
                }
                return Err(error);
            }
            done.push(first.0..end(last));
        }
        Ok(())
    }

    /// What gives other devices access to the chunks.
    pub fn peer_source(&self) -> PeerSource<'_> {
        PeerSource::virtual_memory(&self.memory.inner)
    }

    /// Unmaps a block of whole chunks. No work may use them.
    pub fn unmap(&self, block: Block) -> Result<()> {
        self.unmap_at(&(block.device_pointer()..block.device_pointer() + block.size() as u64))
    }

    /// Unmaps whole chunks at these addresses. No work may use them.
    pub fn unmap_at(&self, addresses: &Range<u64>) -> Result<()> {
        let mut maps = self.maps();
        let map = maps.iter_mut().find(|map| map.contains(addresses.start));
        map.map_or(Ok(()), |map| map.unmap(addresses))
    }

    /// The chunk that is mapped at this address.
    pub fn at(&self, address: u64) -> Option<PhysicalMemory> {
        self.maps().iter().find_map(|map| map.at(address)).cloned()
    }

    /// Makes a chunk. `None` if the device has no memory for it.
    fn create(&self, size: usize, cause: &mut Option<Error>) -> Result<Option<PhysicalMemory>> {
        match self.memory.inner.create("Pool::allocate", size) {
            Ok(chunk) => {
                told!("cuda_mem::pool", DEBUG, bytes = size, "a pool takes memory from its source");
                Ok(Some(chunk))
            }
            Err(error) if error.is_out_of_memory() => {
                *cause = Some(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Unmaps what a growth has mapped that failed later.
fn undo(maps: &mut [ChunkMap], addresses: &Range<u64>, memory: &VirtualMemory<kind::Any>) {
    let map = maps.iter_mut().find(|map| map.contains(addresses.start));
    if let Some(Err(error)) = map.map(|map| map.unmap(addresses)) {
        memory.context().drop_errors().push("undoing a pool's growth", error);
    }
}

pub(super) fn size_of(addresses: &Range<u64>) -> usize {
    (addresses.end - addresses.start) as usize
}

/// The ways to find memory for a request, the cheapest first: the fewest bytes, with chunks of large free ranges; then
/// with all chunks; then with chunks of any size in one hole.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Usual,
    AllChunks,
    OneHole,
}

impl SharedPool {
    /// Reserves the first addresses of a pool that grows in place, and maps its first chunks.
    pub fn begin_in_place(&self) -> Result<()> {
        let Some(chunks) = &self.source.chunks else { return Ok(()) };
        // Whole chunks, but not more than the maximum.
        let initial = self.options.initial.div_ceil(chunks.unit).min(self.options.maximum / chunks.unit) * chunks.unit;
        let _relaxed = self.source.relaxed()?;
        self.add_addresses(chunks, initial)?;
        let _resizing = self.resizing.enter();
        self.map_vacant("Pool::new", initial)
    }

    fn add_addresses(&self, chunks: &Chunks, needed: usize) -> Result<()> {
        let addresses = chunks.reserve(needed.max(1), self.options.maximum)?;
        let whole = |size: usize| size.next_multiple_of(chunks.unit) as u64;
        let sizes = ChunkSizes { unit: whole(1), usual: whole(USUAL_CHUNK), largest: whole(LARGEST_CHUNK) };
        self.state().heap.add_addresses(addresses, sizes).map_err(refused)
    }

    /// Gives memory to `size` bytes of addresses that have none: whole chunks, which the maximum allows. The caller has
    /// the turn, in which the pool was awake.
    pub fn map_vacant(&self, call: &'static str, size: usize) -> Result<()> {
        let Some(chunks) = self.source.chunks.as_ref().filter(|_| size != 0) else { return Ok(()) };
        let _relaxed = self.source.relaxed()?;
        let vacant = self.state().heap.vacant(size as u64);
        let pieces = match vacant {
            Some(pieces) => pieces,
            None => {
                self.add_addresses(chunks, size)?;
                let vacant = self.state().heap.vacant(size as u64);
                vacant.ok_or_else(|| self.no_room(call, size, None))?
            }
        };
        let (mut placed, mut cause) = (Vec::new(), None);
        for piece in &pieces {
            let Some(chunk) = chunks.create(size_of(piece), &mut cause)? else {
                return Err(self.no_room(call, size, cause));
            };
            placed.push((piece.start, chunk));
        }
        let outcome = chunks.map(placed);
        if outcome.is_err() {
            self.note_spoiled(chunks, pieces);
            return outcome;
        }
        let mut state = self.state();
        state.heap.present(&pieces);
        pieces.iter().for_each(|piece| self.note_growth(&mut state, piece));
        Ok(())
    }

    /// Finds addresses for a request, gives them memory where they have none, and takes the block. The memory comes from
    /// chunks without blocks elsewhere in the pool, then from the device. `None` if there is not enough. The caller has
    /// the turn.
    pub fn grow_in_place(&self, request: Request<'_>, cause: &mut Option<Error>) -> Result<Option<Block>> {
        let Some(chunks) = &self.source.chunks else { return Ok(None) };
        // Virtual memory does not need the context, but its users do.
        self.context().check_alive()?;
        self.state().check_awake(ALLOCATE)?;
        let _relaxed = self.source.relaxed()?;
        self.unmap_stale()?;
        // Chunks of an attempt that failed serve the next one.
        let mut made = Vec::new();
        for way in [Way::Usual, Way::AllChunks, Way::OneHole] {
            let Some(mut claim) = self.claim(chunks, request, way)? else { continue };
            match self.supply(chunks, &mut claim, &mut made, cause) {
                Ok(Some(placed)) => {
                    if let Err(error) = chunks.map(placed) {
                        let moved = claim.moves().iter().map(|moved| moved.to());
                        let addresses = moved.chain(claim.new_chunks().iter().cloned()).collect();
                        self.state().heap.cancel(claim);
                        self.note_spoiled(chunks, addresses);
                        return Err(error);
                    }
                    return Ok(self.finish(claim, request));
                }
                Ok(None) => self.state().heap.cancel(claim),
                Err(error) => {
                    self.state().heap.cancel(claim);
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    fn finish(&self, claim: Claim, request: Request<'_>) -> Option<Block> {
        let mut state = self.state();
        for moved in claim.moves() {
            self.note_growth(&mut state, &moved.to());
            self.note_release(&moved.from);
        }
        claim.new_chunks().iter().for_each(|addresses| self.note_growth(&mut state, addresses));
        let has_moved = !claim.moves().is_empty();
        let block = state.heap.finish(claim, request.order)?;
        if has_moved && request.order.is_of_this_thread() {
            let PoolState { heap, recorder, .. } = &mut *state;
            // What lies beside the block waits for this thread's stream, on which other threads cannot record.
            let _ = heap.tags.mark(request.order, recorder);
        }
        state.tally.allocated(request.size, request.bytes);
        Some(state.noting_former_work(block))
    }

    /// Claims addresses, with chunks that may move there. Reserves more addresses if none suffice.
    fn claim(&self, chunks: &Chunks, request: Request<'_>, way: Way) -> Result<Option<Claim>> {
        let effort = if self.options.reuse == Reuse::Wait { Effort::Wait } else { Effort::Ready };
        let claim = || {
            let PoolState { heap, recorder, .. } = &mut *self.state();
            let claim = match way {
                Way::OneHole => heap.claim_hole(request.bytes as u64),
                _ => heap.claim(request.bytes as u64, request.order, effort, recorder)?,
            };
            let Some(mut claim) = claim else { return Ok(None) };
            let which = if way == Way::Usual { Gather::From(LARGE_RANGE) } else { Gather::All };
            let least = if way == Way::Usual { self.options.smallest_growth as u64 } else { 0 };
            match heap.gather(&mut claim, which, least, request.order, effort, recorder) {
                Ok(()) => Ok(Some(claim)),
                Err(error) => {
                    heap.cancel(claim);
                    Err(error)
                }
            }
        };
        if let Some(claim) = claim()? {
            return Ok(Some(claim));
        }
        if way == Way::AllChunks {
            return Ok(None);
        }
        match self.add_addresses(chunks, request.bytes) {
            Ok(()) => claim(),
            Err(error) if error.is_out_of_memory() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The chunks of a claim: those that move, and new ones, smaller ones if the device has no large ones. `None` if the
    /// device or the maximum has no room.
    fn supply(
        &self,
        chunks: &Chunks,
        claim: &mut Claim,
        made: &mut Vec<PhysicalMemory>,
        cause: &mut Option<Error>,
    ) -> Result<Option<Vec<Placed>>> {
        let reserved = self.state().heap.reserved() as usize;
        if claim.added_bytes() as usize > self.options.maximum.saturating_sub(reserved) {
            return Ok(None);
        }
        let mut sizes: BTreeMap<usize, Vec<PhysicalMemory>> = BTreeMap::new();
        made.drain(..).for_each(|chunk| sizes.entry(chunk.size()).or_default().push(chunk));
        let (mut placed, mut number) = (Vec::new(), 0);
        while let Some(addresses) = claim.new_chunks().get(number) {
            let (start, size) = (addresses.start, size_of(addresses));
            let kept = sizes.get_mut(&size).and_then(Vec::pop);
            let chunk = match kept {
                Some(chunk) => Some(chunk),
                None => chunks.create(size, cause)?,
            };
            match chunk {
                Some(chunk) => {
                    placed.push((start, chunk));
                    number += 1;
                }
                // Those that an earlier attempt has made may have what is missing.
                None if !sizes.is_empty() => sizes.clear(),
                None if claim.halve(number, chunks.unit as u64) => {}
                None => {
                    let all = placed.into_iter().map(|(_, chunk)| chunk);
                    made.extend(all.chain(sizes.into_values().flatten()));
                    return Ok(None);
                }
            }
        }
        for moved in claim.moves() {
            placed.extend(chunks.at(moved.from.start).map(|chunk| (moved.start, chunk)));
        }
        Ok(Some(placed))
    }

    /// Unmaps chunks at the addresses that they have left, if no work uses these any more.
    pub fn unmap_stale(&self) -> Result<()> {
        let Some(chunks) = &self.source.chunks else { return Ok(()) };
        let stale = {
            let PoolState { heap, recorder, .. } = &mut *self.state();
            let stale: usize = heap.all_stale().iter().map(Block::size).sum();
            if stale == 0 {
                return Ok(());
            }
            if self.options.reuse != Reuse::SameStreamOnly || stale as u64 > heap.reserved() {
                heap.tags.settle(recorder)?;
            }
            heap.stale()
        };
        for block in stale {
            match chunks.unmap(block) {
                Ok(()) => self.state().heap.vacated(block),
                // The next growth tries again.
                Err(error) => self.context().drop_errors().push("unmapping a chunk that has moved", error),
            }
        }
        Ok(())
    }

    /// Keeps addresses from later requests at which an undoing has left chunks.
    fn note_spoiled(&self, chunks: &Chunks, addresses: Vec<Range<u64>>) {
        for range in addresses {
            if chunks.at(range.start).is_some() {
                self.state().heap.spoiled(range);
            }
        }
    }

    fn note_growth(&self, state: &mut PoolState, addresses: &Range<u64>) {
        state.growths += 1;
        self.note_region(Action::Grow, addresses);
    }

    fn note_release(&self, addresses: &Range<u64>) {
        self.note_region(Action::Release, addresses);
    }

    fn note_region(&self, action: Action, addresses: &Range<u64>) {
        if let (Some(watch), Some(chunks)) = (&self.watch, &self.source.chunks) {
            watch.region(action, chunks.memory.inner.block_at(addresses.start, size_of(addresses)));
        }
    }
}
