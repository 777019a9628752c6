//! Growth in place, over virtual memory. The pool reserves addresses once, and maps chunks of physical memory there as it
//! needs them. So its memory has no seams, chunks without blocks can go back from anywhere, and they can be mapped anew
//! under one range of addresses, for a request that no free range could hold.

use super::growth::refused;
use super::options::{PoolOptions, Reuse};
use super::search::Request;
use super::shared::{PoolState, SharedPool};
use super::source::PoolSource;
use crate::adaptor::trace::Action;
use crate::memory::resource::{Block, SharedResource};
use crate::memory::{ChunkMap, PhysicalMemory, VirtualMemoryResource};
use crate::{Error, Result};
use core::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use stream_heap::{Claim, Effort};

/// Each growth may add this share of the pool's size to what a request needs.
const SPARE_SHARE: usize = 64;
/// Addresses are reserved for this many times the device's memory, because chunks move to free addresses.
const ADDRESSES: usize = 2;

/// The addresses of a pool, and the chunks that are mapped there.
#[derive(Debug)]
pub(super) struct Chunks {
    maps: Mutex<Vec<ChunkMap>>,
    /// The size of a chunk: a power of two times the granularity.
    pub size: usize,
}

impl Chunks {
    pub fn new(memory: &VirtualMemoryResource, options: &PoolOptions) -> Self {
        let granularity = memory.granularity();
        let units = options.smallest_growth.div_ceil(granularity).clamp(1, 1 << 20);
        Self { maps: Mutex::default(), size: granularity * units.next_power_of_two() }
    }

    fn maps(&self) -> MutexGuard<'_, Vec<ChunkMap>> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves addresses for at least `needed` bytes, and for more if there are as many.
    fn reserve(&self, memory: &VirtualMemoryResource, needed: usize, maximum: usize) -> Result<Block> {
        const CALL: &str = "Pool::new";
        let whole = |size: usize| size.checked_next_multiple_of(self.size).filter(|size| *size <= isize::MAX as usize);
        let Some(needed) = whole(needed) else {
            return Err(Error::invalid(CALL, "initial", needed, "the size must fit into isize"));
        };
        let usual = memory.context.device().total_memory()?.saturating_mul(ADDRESSES);
        let mut size = usual.min(maximum.saturating_mul(2 * ADDRESSES)).max(needed);
        loop {
            let rounded = whole(size).unwrap_or(needed);
            match memory.reserve_for_chunks(CALL, rounded, self.size) {
                Ok(map) => {
                    let block = memory.block_at(map.base(), map.size()).fresh();
                    self.maps().push(map);
                    return Ok(block);
                }
                Err(error) if rounded == needed => return Err(error),
                Err(_) => size = (size / 2).max(needed),
            }
        }
    }

    /// Maps chunks at addresses, and removes them from `physical`.
    fn map(
        &self,
        memory: &VirtualMemoryResource,
        addresses: &Range<u64>,
        physical: &mut Vec<PhysicalMemory>,
    ) -> Result<()> {
        let count = (addresses.end - addresses.start) as usize / self.size;
        let chunks = physical.split_off(physical.len() - count.min(physical.len()));
        let mut maps = self.maps();
        let map = maps.iter_mut().find(|map| map.contains(addresses.start));
        map.map_or(Ok(()), |map| map.map(addresses, chunks.into_iter(), memory.access()))
    }

    /// Unmaps the chunks of a block of whole chunks. No work may use them.
    pub fn unmap(&self, block: Block) -> Result<Vec<PhysicalMemory>> {
        let addresses = block.device_pointer..block.device_pointer + block.size() as u64;
        let mut maps = self.maps();
        let map = maps.iter_mut().find(|map| map.contains(addresses.start));
        map.map_or_else(|| Ok(Vec::new()), |map| map.unmap(&addresses))
    }
}

/// The chunks and the memory of a source that grows in place.
#[derive(Clone, Copy)]
struct InPlace<'source> {
    chunks: &'source Chunks,
    memory: &'source VirtualMemoryResource,
}

/// The source, if it is virtual memory.
pub(super) fn virtual_memory(source: &SharedResource) -> Option<&VirtualMemoryResource> {
    source.as_any()?.downcast_ref()
}

impl PoolSource {
    fn in_place(&self) -> Option<InPlace<'_>> {
        Some(InPlace { chunks: self.chunks.as_ref()?, memory: virtual_memory(&self.upstream)? })
    }
}

impl InPlace<'_> {
    /// Makes chunks until there are `count`. `false` if the device has no memory for them.
    fn create(self, physical: &mut Vec<PhysicalMemory>, count: usize, cause: &mut Option<Error>) -> Result<bool> {
        while physical.len() < count {
            match self.memory.create("Pool::allocate", self.chunks.size) {
                Ok(chunk) => physical.push(chunk),
                Err(error) if error.is_out_of_memory() => {
                    *cause = Some(error);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl SharedPool {
    /// Reserves the first addresses of a pool that grows in place, and maps its first chunks.
    pub fn begin_in_place(&self) -> Result<()> {
        let Some(source) = self.source.in_place() else { return Ok(()) };
        // Whole chunks, but not more than the maximum.
        let (size, maximum) = (source.chunks.size, self.options.maximum);
        let initial = self.options.initial.div_ceil(size).min(maximum / size) * size;
        let _relaxed = self.source.relaxed()?;
        self.add_addresses(source, initial)?;
        let _turn = self.resizing.enter();
        self.map_vacant(initial)
    }

    fn add_addresses(&self, source: InPlace<'_>, needed: usize) -> Result<()> {
        let addresses = source.chunks.reserve(source.memory, needed.max(1), self.options.maximum)?;
        let added = self.state().heap.add_addresses(addresses, source.chunks.size as u64);
        added.map_err(refused)
    }

    /// Gives memory to `size` bytes of addresses that have none: whole chunks, which the maximum allows. The caller holds
    /// the resizing lock.
    pub fn map_vacant(&self, size: usize) -> Result<()> {
        let Some(source) = self.source.in_place() else { return Ok(()) };
        if size == 0 {
            return Ok(());
        }
        let _relaxed = self.source.relaxed()?;
        let vacant = self.state().heap.vacant(size as u64);
        let addresses = match vacant {
            Some(addresses) => addresses,
            None => {
                self.add_addresses(source, size)?;
                let vacant = self.state().heap.vacant(size as u64);
                vacant.ok_or_else(|| self.no_room(size, None))?
            }
        };
        let (mut physical, mut cause) = (Vec::new(), None);
        if !source.create(&mut physical, size / source.chunks.size, &mut cause)? {
            return Err(self.no_room(size, cause));
        }
        source.chunks.map(source.memory, &addresses, &mut physical)?;
        let mut state = self.state();
        state.heap.present(addresses.clone());
        self.note_growth(&mut state, &addresses);
        Ok(())
    }

    /// Finds addresses for a request, gives them memory where they have none, and takes the block. The memory comes from
    /// chunks without blocks elsewhere in the pool, then from the device. `None` if there is not enough. The caller holds
    /// the resizing lock.
    pub fn grow_in_place(&self, request: Request<'_>, cause: &mut Option<Error>) -> Result<Option<Block>> {
        let Some(source) = self.source.in_place() else { return Ok(None) };
        let _relaxed = self.source.relaxed()?;
        let chunk = source.chunks.size;
        let reserved = self.state().heap.reserved() as usize;
        let spare = (reserved / SPARE_SHARE).min(self.options.largest_growth) / chunk * chunk;
        for spare in [spare, 0] {
            let Some(claim) = self.claim(source, request, spare)? else { return Ok(None) };
            let supplied = self.supply(source, claim.missing_bytes(), cause);
            let mut physical = match supplied {
                Ok(Some(physical)) => physical,
                failed => {
                    self.state().heap.cancel(claim);
                    if spare == 0 || failed.is_err() {
                        return failed.map(|_| None);
                    }
                    continue;
                }
            };
            for (done, addresses) in claim.missing().iter().enumerate() {
                if let Err(error) = source.chunks.map(source.memory, addresses, &mut physical) {
                    self.undo(source, &claim.missing()[..done]);
                    self.state().heap.cancel(claim);
                    return Err(error);
                }
            }
            let mut state = self.state();
            for addresses in claim.missing() {
                self.note_growth(&mut state, addresses);
            }
            let block = state.heap.finish(claim);
            if block.is_some() {
                state.tally.allocated(request.size, request.bytes);
            }
            return Ok(block.map(|block| state.noting_former_work(block)));
        }
        Ok(None)
    }

    /// Unmaps what a growth has mapped that failed later.
    fn undo(&self, source: InPlace<'_>, mapped: &[Range<u64>]) {
        for addresses in mapped {
            let block = source.memory.block_at(addresses.start, (addresses.end - addresses.start) as usize).fresh();
            if let Err(error) = source.chunks.unmap(block) {
                self.context().drop_errors().push("undoing a pool's growth", error);
            }
        }
    }

    fn note_growth(&self, state: &mut PoolState, addresses: &Range<u64>) {
        state.growths += 1;
        if let (Some(watch), Some(source)) = (&self.watch, self.source.in_place()) {
            let size = (addresses.end - addresses.start) as usize;
            watch.region(Action::Grow, source.memory.block_at(addresses.start, size));
        }
    }

    /// Claims addresses. Reserves more if none suffice.
    fn claim(&self, source: InPlace<'_>, request: Request<'_>, spare: usize) -> Result<Option<Claim>> {
        let effort = if self.options.reuse == Reuse::Wait { Effort::Wait } else { Effort::Ready };
        let claim = || {
            let PoolState { heap, recorder, .. } = &mut *self.state();
            heap.claim(request.bytes as u64, spare as u64, request.order, effort, recorder)
        };
        if let Some(claim) = claim()? {
            return Ok(Some(claim));
        }
        match self.add_addresses(source, request.bytes) {
            Ok(()) => claim(),
            Err(error) if error.is_out_of_memory() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Physical memory of `missing` bytes: chunks of this pool that hold no blocks and that no work uses, then new ones.
    /// `None` if the device or the maximum has no room; the pool then has given up its chunks without blocks.
    fn supply(
        &self,
        source: InPlace<'_>,
        missing: u64,
        cause: &mut Option<Error>,
    ) -> Result<Option<Vec<PhysicalMemory>>> {
        let gathered = {
            let PoolState { heap, recorder, .. } = &mut *self.state();
            if self.options.reuse != Reuse::SameStreamOnly {
                heap.tags.settle(recorder)?;
            }
            heap.take_chunks(missing)
        };
        let mut physical = Vec::new();
        let mut result = Ok(());
        for run in gathered {
            match if result.is_ok() { source.chunks.unmap(run) } else { Ok(Vec::new()) } {
                Ok(chunks) if result.is_ok() => {
                    physical.extend(chunks);
                    if let Some(watch) = &self.watch {
                        watch.region(Action::Release, run);
                    }
                }
                // The run is still mapped.
                other => {
                    let _ = self.state().heap.put_back(run);
                    result = result.and(other.map(drop));
                }
            }
        }
        result?;
        let reserved = self.state().heap.reserved() as usize;
        if missing as usize > self.options.maximum.saturating_sub(reserved) {
            return Ok(None);
        }
        let count = missing as usize / source.chunks.size;
        Ok(source.create(&mut physical, count, cause)?.then_some(physical))
    }
}
