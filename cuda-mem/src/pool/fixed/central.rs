//! The pool itself: the blocks, and what is tried in turn where they run short.

use super::options::{FixedSizeOptions, FixedSizeStatistics};
use super::slots::Slots;
use crate::beside_captures::{captures_under_way, relaxed};
use crate::callback::call_back;
use crate::locked::{Ending, Locked};
use crate::pool::recorder::{Ended, Recorder};
use crate::pool::resizing::Resizing;
use crate::pool::source::{Source, memory_of_source};
use crate::pool::{Figure, Reuse};
use crate::resource::{Block, MemoryResource, SharedResource, check_alignment};
use crate::suballocator::SlabsError;
use crate::{Error, Result, Stream};
use cuda_sys::CU_STREAM_PER_THREAD;
use std::sync::{Mutex, PoisonError};

const NEW: &str = "FixedSizePool::new";
const ALLOCATE: &str = "FixedSizePool::allocate";

/// What block sizes are a multiple of, in bytes: as far as the heap aligns.
const GRANULARITY: usize = 16;

/// What all handles of a pool share.
#[derive(Debug)]
pub(super) struct Core {
    pub source: Source,
    pub options: FixedSizeOptions,
    /// The size of a block, in bytes.
    pub size: usize,
    /// What every block is aligned to.
    pub alignment: usize,
    state: Mutex<State>,
    /// Who adds slabs and gives them back. The source is called without the lock: it may run hooks that use this pool.
    resizing: Resizing,
}

/// What the lock guards.
#[derive(Debug)]
struct State {
    slots: Slots<Recorder>,
    clock: Recorder,
    blocks: Figure,
    reserved: Figure,
    out_of_memory: u64,
}

impl Ending for State {
    type Ended = Ended;

    fn ended(&mut self) -> &mut Vec<Ended> {
        &mut self.clock.ended
    }
}

impl State {
    /// A block that the stream may have at once.
    #[inline]
    fn take(&mut self, stream: &Stream) -> Option<Block> {
        let block = self.slots.take(stream)?;
        self.counted(block)
    }

    /// Counts a block that is handed out.
    #[inline]
    fn counted(&mut self, block: Block) -> Option<Block> {
        self.blocks.add(1);
        Some(block)
    }
}

impl Core {
    pub fn new(upstream: SharedResource, size: usize, options: &FixedSizeOptions) -> Result<Self> {
        let mut size = block_size(size, GRANULARITY)?;
        let slab = slab_size(size, options)?;
        let (source, mut first) = Source::open(NEW, upstream, slab)?;
        // Only memory itself tells its atom.
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
        let state = State { slots, clock: Recorder::default(), blocks: Figure::default(), reserved, out_of_memory: 0 };
        let (state, resizing) = (Mutex::new(state), Resizing::default());
        Ok(Self { source, options: options.clone(), size, alignment, state, resizing })
    }

    fn state(&self) -> Locked<'_, State> {
        Locked::new(&self.state)
    }

    #[cold]
    fn allocate_slowly(&self, stream: &Stream) -> Result<Block> {
        // Events and slabs are no part of what is captured.
        let _relaxed = relaxed(self.context().driver())?;
        if let Some(block) = self.search(&mut self.state(), stream)? {
            return Ok(block);
        }
        let mut cause = None;
        if let Some(block) = self.grow(stream, &mut cause)? {
            return Ok(block);
        }
        let mut state = self.state();
        let State { slots, clock, .. } = &mut *state;
        slots.synchronize(clock)?;
        if let Some(block) = state.take(stream) {
            return Ok(block);
        }
        state.out_of_memory += 1;
        let (slabs, used) = (state.slots.slab_count(), state.slots.live_count());
        drop(state);
        Err(self.out_of_memory(slabs, used, cause))
    }

    /// Looks for a block among what the pool has, without waiting; what costs least first.
    fn search(&self, state: &mut State, stream: &Stream) -> Result<Option<Block>> {
        let State { slots, clock, .. } = state;
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

    /// A block of a new slab; none if there is no room for one.
    fn grow(&self, stream: &Stream, cause: &mut Option<Error>) -> Result<Option<Block>> {
        let _turn = self.resizing.enter();
        // What another thread has added or freed meanwhile is looked at first.
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
                // A hook of the source's may have freed blocks.
                Ok(self.state().take(stream))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether one slab more is within the maximum.
    fn has_room(&self, state: &State) -> bool {
        let slab = state.slots.slab_size() as usize;
        slab <= self.options.maximum.saturating_sub(state.slots.slab_count() * slab)
    }

    /// Adds a slab; the lock is given back, so that the caller may have a block of it. A hook of the source's may have
    /// added slabs meanwhile: then this one goes back.
    fn add(&self, region: Block) -> Result<Locked<'_, State>> {
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
        let per_thread = stream.raw() == CU_STREAM_PER_THREAD;
        if per_thread {
            stream.drain()?;
        }
        let mut state = self.state();
        let State { slots, clock, blocks, .. } = &mut *state;
        if !slots.free(block.device_pointer, if per_thread { &self.source.own } else { stream }, clock) {
            return Err(unknown(block));
        }
        blocks.subtract(1);
        Ok(())
    }

    pub fn reserve(&self, blocks: usize) -> Result<()> {
        let _turn = self.resizing.enter();
        let slab = self.state().slots.slab_size() as usize;
        let wanted = blocks.div_ceil(self.options.blocks_per_slab as usize);
        if wanted > self.options.maximum / slab {
            return Err(Error::InvalidArgument {
                call: "FixedSizePool::reserve",
                argument: "blocks",
                value: blocks.to_string().into(),
                rule: "their slabs must not be above the pool's maximum",
            });
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
            let State { slots, clock, .. } = &mut *state;
            if wait { slots.synchronize(clock) } else { slots.collect(clock) }?;
            slots.take_empty(keep as u64)
        };
        let mut result = Ok(());
        for region in empty {
            let freed = call_back(|| self.source.free(region));
            let mut state = self.state();
            match freed {
                // It is not freed: it stays ours.
                Ok(Err(error)) => result = state.slots.add(region).map_err(refused).and(Err(error)),
                gone => {
                    let slab = state.slots.slab_size();
                    state.reserved.subtract(slab);
                    // After a panic nobody knows whether it is freed: it is left to its context.
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

// SAFETY: blocks do not overlap, and lie in memory of the source; a stream gets a block when the work of its former users
// is done, or comes before in order of the stream.
unsafe impl MemoryResource for Core {
    #[inline]
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        check_alignment(ALLOCATE, alignment, self.alignment)?;
        if captures_under_way() {
            stream.check_not_capturing(ALLOCATE)?;
        }
        if size > self.size {
            let message = format!("blocks of this pool have {} bytes; let a Fallback serve larger ones", self.size);
            return Err(self.source.out_of_memory(ALLOCATE, size, message));
        }
        if stream.raw() == CU_STREAM_PER_THREAD {
            return Err(Error::InvalidArgument {
                call: ALLOCATE,
                argument: "stream",
                value: "the per-thread default stream".into(),
                rule: "a pool has to tell streams apart; make one with Stream::new",
            });
        }
        let block = self.state().take(stream);
        match block {
            Some(block) => Ok(block),
            None => self.allocate_slowly(stream),
        }
    }

    #[inline]
    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        self.free(block, stream)
    }

    fn frees_without_context(&self) -> bool {
        true
    }

    unsafe fn abandon(&self, block: Block) {
        // No call of the driver is made; that the block is unknown has no one to tell.
        let _ = self.free(block, &self.source.own);
    }

    memory_of_source!();
}

impl Drop for Core {
    fn drop(&mut self) {
        let State { slots, clock, .. } = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let regions: Vec<Block> = slots.regions().collect();
        self.source.end("ending a pool of blocks of one size", regions.into_iter(), || {
            let waited = slots.synchronize(clock);
            (waited, slots.streams().cloned().collect())
        });
    }
}

/// The size of a block that holds `size` bytes and is a multiple of `unit`.
fn block_size(size: usize, unit: usize) -> Result<usize> {
    let rounded = size.checked_next_multiple_of(unit).filter(|_| size > 0);
    rounded.ok_or_else(|| Error::InvalidArgument {
        call: NEW,
        argument: "block_size",
        value: size.to_string().into(),
        rule: "a block has at least one byte, and fits into memory",
    })
}

fn slab_size(size: usize, options: &FixedSizeOptions) -> Result<usize> {
    let FixedSizeOptions { blocks_per_slab, maximum, .. } = *options;
    if !(1..=4096).contains(&blocks_per_slab) {
        return Err(Error::InvalidArgument {
            call: NEW,
            argument: "blocks_per_slab",
            value: blocks_per_slab.to_string().into(),
            rule: "a slab has 1 to 4096 blocks",
        });
    }
    let slab = size.checked_mul(blocks_per_slab as usize).filter(|slab| *slab <= maximum.min(isize::MAX as usize));
    slab.ok_or_else(|| Error::InvalidArgument {
        call: NEW,
        argument: "maximum",
        value: format!("{maximum} bytes, with slabs of {blocks_per_slab} blocks of {size} bytes").into(),
        rule: "the pool has to hold at least one slab",
    })
}

fn refused(error: SlabsError) -> Error {
    Error::InvalidArgument {
        call: NEW,
        argument: "a slab",
        value: error.to_string().into(),
        rule: "the sizes of the options have to be possible",
    }
}

#[cold]
fn unknown(block: Block) -> Error {
    Error::InvalidArgument {
        call: "FixedSizePool::deallocate",
        argument: "block",
        value: format!("{} bytes at {:#x}", block.size, block.device_pointer).into(),
        rule: "it must be allocated from this pool, and not be freed before",
    }
}
