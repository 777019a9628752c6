//! What all handles of a pool share: its blocks, and the steps that it tries in turn when they run short.

use super::options::{FixedSizeOptions, FixedSizeStatistics};
use crate::error::callback::call_back;
use crate::error::forked;
use crate::memory::resource::{Block, FormerWork, MemoryResource, SharedResource, check_request};
use crate::pool::locked::{Ending, Locked};
use crate::pool::recorder::{Ended, Recorder, drain};
use crate::pool::resizing::ResizingLock;
use crate::pool::source::{Source, UNKNOWN_TO_POOL, check_same_on_every_thread, memory_of_source, unknown_block};
use crate::pool::{Figure, Reuse};
use crate::{Error, Result, Stream};
use std::sync::{Mutex, PoisonError};
use stream_heap::{Slots, suballocator::SlabsError};

const NEW: &str = "FixedSizePool::new";
const ENDING: &str = "ending a fixed-size pool";
const ALLOCATE: &str = "FixedSizePool::allocate";

/// Block sizes are multiples of this, in bytes, as those of `malloc`.
const GRANULARITY: usize = 16;

#[derive(Debug)]
pub(super) struct SharedFixedPool {
    pub source: Source,
    pub options: FixedSizeOptions,
    /// The size of a block, in bytes.
    pub size: usize,
    pub alignment: usize,
    state: Mutex<FixedPoolState>,
    /// Held to add and return slabs, with `state` unlocked: the source may run hooks that use this pool.
    resizing: ResizingLock,
}

/// The data behind the lock.
#[derive(Debug)]
struct FixedPoolState {
    slots: Slots<Recorder, Block>,
    clock: Recorder,
    blocks: Figure,
    reserved: Figure,
    out_of_memory: u64,
}

impl Ending for FixedPoolState {
    type Ended = Ended;

    fn ended(&mut self) -> &mut Vec<Ended> {
        &mut self.clock.ended
    }
}

impl FixedPoolState {
    /// Takes a block that the stream may use at once.
    #[inline]
    fn take(&mut self, stream: &Stream) -> Option<Block> {
        let block = self.slots.take(stream)?;
        self.counted(block)
    }

    #[inline]
    fn counted(&mut self, block: Block) -> Option<Block> {
        self.blocks.add(1);
        Some(block)
    }
}

impl SharedFixedPool {
    pub fn new(upstream: SharedResource, size: usize, options: &FixedSizeOptions) -> Result<Self> {
        let mut size = block_size(size, GRANULARITY)?;
        let slab = slab_size(size, options)?;
        let (source, mut first) = Source::open(NEW, upstream, slab)?;
        // The atom is known only after the first allocation.
        if !size.is_multiple_of(source.atom) {
            source.free(first)?;
            size = block_size(size, source.atom)?;
            first = source.allocate(slab_size(size, options)?)?;
        }
        let slots = Slots::new(size as u64, options.blocks_per_slab).map_err(refused);
        let slots = slots.and_then(|mut slots| slots.add(first).map_err(refused).map(|()| slots));
        let slots = match slots {
            Ok(slots) => slots,
            Err(error) => {
                source.free(first)?;
                return Err(error);
            }
        };
        let mut reserved = Figure::default();
        reserved.add(slots.slab_size());
        let alignment = 1 << size.trailing_zeros().min(source.alignment.trailing_zeros());
        let state =
            FixedPoolState { slots, clock: Recorder::default(), blocks: Figure::default(), reserved, out_of_memory: 0 };
        let (state, resizing) = (Mutex::new(state), ResizingLock::default());
        Ok(Self { source, options: options.clone(), size, alignment, state, resizing })
    }

    fn state(&self) -> Locked<'_, FixedPoolState> {
        Locked::new(&self.state)
    }

    #[cold]
    fn allocate_slowly(&self, stream: &Stream) -> Result<Block> {
        if let Some(block) = self.search(&mut self.state(), stream)? {
            return Ok(block);
        }
        let mut cause = None;
        if let Some(block) = self.grow(stream, &mut cause)? {
            return Ok(block);
        }
        let mut state = self.state();
        let FixedPoolState { slots, clock, .. } = &mut *state;
        slots.synchronize(clock)?;
        if let Some(block) = state.take(stream) {
            return Ok(block);
        }
        state.out_of_memory += 1;
        let (slabs, used) = (state.slots.slab_count(), state.slots.live_count());
        drop(state);
        Err(self.out_of_memory(slabs, used, cause))
    }

    /// Looks for a block in the pool's slabs, without waiting, the cheapest way first.
    fn search(&self, state: &mut FixedPoolState, stream: &Stream) -> Result<Option<Block>> {
        let FixedPoolState { slots, clock, .. } = state;
        if self.options.reuse != Reuse::SameStreamOnly
            && let Some(block) = slots.take_passed(stream, clock)?
        {
            return Ok(state.counted(block));
        }
        if self.options.reuse == Reuse::Wait
            && let Some(block) = slots.take_waiting(stream, clock)?
        {
            return Ok(state.counted(block));
        }
        Ok(state.take(stream))
    }

    /// Adds a slab and takes a block. `None` if the source or the maximum has no room.
    fn grow(&self, stream: &Stream, cause: &mut Option<Error>) -> Result<Option<Block>> {
        let _turn = self.resizing.enter();
        // Another thread may have added a slab or freed a block meanwhile.
        let mut state = self.state();
        if let Some(block) = state.take(stream) {
            return Ok(Some(block));
        }
        if !self.has_room(&state) {
            return Ok(None);
        }
        let slab = state.slots.slab_size() as usize;
        drop(state);
        match self.source.allocate(slab) {
            Ok(region) => {
                let mut state = self.add(region)?;
                Ok(state.take(stream))
            }
            Err(error @ Error::OutOfMemory { .. }) => {
                *cause = Some(error);
                // A hook of the source may have freed blocks.
                Ok(self.state().take(stream))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the maximum allows one more slab.
    fn has_room(&self, state: &FixedPoolState) -> bool {
        let slab = state.slots.slab_size() as usize;
        slab <= self.options.maximum.saturating_sub(state.slots.slab_count() * slab)
    }

    /// Adds a slab. Returns the lock, so that the caller can take a block before others do. If a hook of the source has
    /// added slabs up to the maximum meanwhile, this slab goes back.
    fn add(&self, region: Block) -> Result<Locked<'_, FixedPoolState>> {
        let mut state = self.state();
        if !self.has_room(&state) {
            drop(state);
            self.source.free(region)?;
            return Ok(self.state());
        }
        match state.slots.add(region) {
            Ok(()) => {
                let slab = state.slots.slab_size();
                state.reserved.add(slab);
                Ok(state)
            }
            Err(error) => {
                drop(state);
                self.source.free(region).and(Err(refused(error)))
            }
        }
    }

    pub fn free(&self, block: Block, stream: &Stream) -> Result<()> {
        let stream = self.source.stream_of_free(stream)?;
        let mut state = self.state();
        let FixedPoolState { slots, clock, blocks, .. } = &mut *state;
        if !slots.free(block.device_pointer, stream, clock) {
            return Err(unknown_block("FixedSizePool::deallocate", block, UNKNOWN_TO_POOL));
        }
        blocks.subtract(1);
        Ok(())
    }

    pub fn reserve(&self, blocks: usize) -> Result<()> {
        let _turn = self.resizing.enter();
        let slab = self.state().slots.slab_size() as usize;
        let wanted = blocks.div_ceil(self.options.blocks_per_slab as usize);
        if wanted > self.options.maximum / slab {
            let rule = "their slabs must not exceed FixedSizeOptions::maximum";
            return Err(Error::invalid("FixedSizePool::reserve", "blocks", blocks, rule));
        }
        while self.state().slots.slab_count() < wanted {
            let region = self.source.allocate(slab)?;
            drop(self.add(region)?);
        }
        Ok(())
    }

    pub fn trim(&self, keep: usize, wait: bool) -> Result<()> {
        let _turn = self.resizing.enter();
        let empty = {
            let mut state = self.state();
            let FixedPoolState { slots, clock, .. } = &mut *state;
            if wait { slots.synchronize(clock) } else { slots.collect(clock) }?;
            slots.take_empty(keep as u64)
        };
        let mut result = Ok(());
        for region in empty {
            let freed = call_back(|| self.source.free(region));
            let mut state = self.state();
            match freed {
                // The source did not take it back, so the pool keeps it.
                Ok(Err(error)) => result = state.slots.add(region).map_err(refused).and(Err(error)),
                gone => {
                    let slab = state.slots.slab_size();
                    state.reserved.subtract(slab);
                    // After a panic nobody knows whether the slab is free. It stays until its context ends.
                    if let Err(panic) = gone {
                        result = Err(panic.of("the source of a pool"));
                    }
                }
            }
        }
        result
    }

    pub fn statistics(&self) -> FixedSizeStatistics {
        let state = self.state();
        FixedSizeStatistics {
            blocks: state.blocks,
            reserved: state.reserved,
            pending: state.slots.queued() as u64,
            events_recorded: state.clock.recorded,
            waits: state.clock.waits,
            out_of_memory: state.out_of_memory,
        }
    }

    fn out_of_memory(&self, slabs: usize, used: usize, cause: Option<Error>) -> Error {
        let (blocks, maximum) = (slabs * self.options.blocks_per_slab as usize, self.options.maximum);
        let why = cause.map_or_else(|| format!("it may grow to {maximum} bytes"), |cause| cause.to_string());
        let message = format!("the pool has {blocks} blocks of {} bytes, {used} of them in use; {why}", self.size);
        self.source.out_of_memory(ALLOCATE, self.size, message)
    }
}

// SAFETY: blocks do not overlap, and lie in memory of the source. `Slots` gives a stream only blocks whose former work
// is done, or runs before the stream's next work.
unsafe impl MemoryResource for SharedFixedPool {
    #[inline]
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        check_request(ALLOCATE, (size, alignment), self.alignment, self.source.upstream.context(), stream)?;
        stream.check_may_allocate(ALLOCATE)?;
        if size > self.size {
            let message = format!("blocks of this pool have {} bytes; let a Fallback serve larger requests", self.size);
            return Err(self.source.out_of_memory(ALLOCATE, size, message));
        }
        check_same_on_every_thread(ALLOCATE, stream)?;
        let block = self.state().take(stream);
        let block = block.map_or_else(|| self.allocate_slowly(stream), Ok)?;
        // The stream's own work may still use a block that it freed.
        Ok(block.with_former_work(FormerWork::InStreamOrder))
    }

    #[inline]
    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        self.free(block, stream)
    }

    fn frees_without_context(&self) -> bool {
        true
    }

    unsafe fn abandon(&self, block: Block) {
        // Makes no driver call. Nobody could handle the error of an unknown block.
        let _ = self.free(block, &self.source.own);
    }

    memory_of_source!(self => self.source);
}

impl Drop for SharedFixedPool {
    fn drop(&mut self) {
        if forked() {
            return;
        }
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let synchronize = |FixedPoolState { slots, clock, .. }: &mut FixedPoolState| {
            let waited = slots.synchronize(clock);
            (waited, drain(ENDING, slots.streams()))
        };
        let regions = |state: &mut FixedPoolState| state.slots.regions().collect();
        let settled = |state: &mut FixedPoolState| state.slots.take_empty(0);
        self.source.end(ENDING, state, synchronize, regions, settled);
    }
}

/// The smallest multiple of `unit` that holds `size` bytes.
fn block_size(size: usize, unit: usize) -> Result<usize> {
    let rounded = size.checked_next_multiple_of(unit).filter(|_| size > 0);
    rounded.ok_or_else(|| {
        Error::invalid(NEW, "block_size", size, "it must be at least 1, and a block must fit into the address space")
    })
}

fn slab_size(size: usize, options: &FixedSizeOptions) -> Result<usize> {
    let FixedSizeOptions { blocks_per_slab, maximum, .. } = *options;
    if !(1..=4096).contains(&blocks_per_slab) {
        return Err(Error::invalid(NEW, "blocks_per_slab", blocks_per_slab, "a slab must have 1 to 4096 blocks"));
    }
    let slab = size.checked_mul(blocks_per_slab as usize).filter(|slab| *slab <= maximum.min(isize::MAX as usize));
    slab.ok_or_else(|| {
        let value = format!("{maximum} bytes, with slabs of {blocks_per_slab} blocks of {size} bytes");
        let rule = "it must be large enough for one slab";
        Error::invalid(NEW, "maximum", value, rule)
    })
}

fn refused(error: SlabsError) -> Error {
    Error::invalid(NEW, "a slab", error, "the pool must be able to divide it; change the sizes in FixedSizeOptions")
}
