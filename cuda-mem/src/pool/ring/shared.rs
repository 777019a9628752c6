//! What all handles of a ring share: one region of a source, and the queue of its blocks.

use super::options::{RingOptions, RingStatistics, WhenFull};
use crate::error::{check_not_forked, forked};
use crate::lifetime::waiting::{self, Target};
use crate::locks::Mutex;
use crate::memory::resource::{Block, MemoryResource, SharedResource, check_request};
use crate::pool::Figure;
use crate::pool::locked::{Ending, Locked};
use crate::pool::recorder::Ended;
use crate::pool::source::{PoolSource, memory_of_source, unknown_block};
use crate::pool::work_order::{End, OrderRecorder, WorkOrder};
use crate::{Error, Result, Stream};
use core::ops::DerefMut;
use core::time::Duration;
use std::sync::Arc;
use stream_heap::{Full, Oldest, RingQueue};

const NEW: &str = "RingPool::new";
const ENDING: &str = "ending a ring";
const ALLOCATE: &str = "RingPool::allocate";
/// The rule for blocks that a ring frees.
const UNKNOWN_TO_RING: &str = "it must be a live block of this ring: this one was freed before, or came from elsewhere";

/// Blocks begin and end at multiples of this, in bytes. A CPU cache line, so that writers of neighbouring blocks share
/// no line.
const GRANULARITY: usize = 64;
/// The size of a ring is a multiple of this, in bytes. No atom is larger.
const WHOLE: usize = 256;

#[derive(Debug)]
pub(super) struct SharedRing {
    pub source: Arc<PoolSource>,
    pub options: RingOptions,
    region: Block,
    pub capacity: usize,
    /// Blocks begin and end at multiples of this, the larger of a cache line and the atom.
    unit: usize,
    state: Mutex<RingState>,
}

/// The data behind the lock.
#[derive(Debug)]
struct RingState {
    queue: RingQueue<OrderRecorder>,
    recorder: OrderRecorder,
    used: Figure,
    full: u64,
}

impl Ending for RingState {
    type Ended = Ended;

    fn ended(&mut self) -> &mut Vec<Ended> {
        &mut self.recorder.0.ended
    }
}

impl SharedRing {
    pub fn new(upstream: SharedResource, capacity: usize, options: RingOptions) -> Result<Self> {
        let size = capacity.checked_next_multiple_of(WHOLE).filter(|size| (1..=isize::MAX as usize).contains(size));
        let impossible = |value: usize| {
            let rule = "a ring must have at least one byte and one atom, and fit into the address space";
            Error::invalid(NEW, "capacity", value, rule)
        };
        let size = size.ok_or_else(|| impossible(capacity))?;
        let (source, region) = PoolSource::open(NEW, upstream, size)?;
        let unit = GRANULARITY.max(source.atom);
        let capacity = size / unit * unit;
        let queue = match RingQueue::new(capacity as u64) {
            Ok(queue) => queue,
            // It refuses only sizes.
            Err(_) => return source.free(region).and(Err(impossible(size))),
        };
        let state = RingState { queue, recorder: OrderRecorder::default(), used: Figure::default(), full: 0 };
        Ok(Self { source: Arc::new(source), options, region, capacity, unit, state: Mutex::new(state) })
    }

    fn state(&self) -> Locked<'_, RingState> {
        Locked::new(&self.state)
    }

    /// How many bytes of the ring a block of `size` bytes takes. `None` if the number overflows.
    fn length(&self, size: usize) -> Option<usize> {
        size.checked_next_multiple_of(self.unit)
    }

    /// The offset of a new block, or why there is no room. `end` gets an event behind the work of the oldest block, if the
    /// ring may wait for it.
    #[inline]
    fn place(&self, length: u64, alignment: u64, end: &mut Option<End>) -> Result<Result<usize, Full>> {
        let mut state = self.state();
        let RingState { queue, recorder, used, .. } = state.deref_mut();
        let placed = queue.allocate(length, alignment, recorder)?;
        if placed.is_err() && self.options.when_full != WhenFull::Refuse {
            *end = queue.end_of_oldest(recorder)?;
        }
        Ok(placed.map(|block| {
            used.add(length);
            block.offset as usize
        }))
    }

    /// The offset of a new block, after waits for the work of the oldest blocks, or why there is no room. Other threads
    /// use the ring during the waits.
    #[inline]
    fn place_after_work(&self, length: u64, alignment: u64) -> Result<Result<usize, Full>> {
        loop {
            let mut end = None;
            let placed = self.place(length, alignment, &mut end)?;
            match end {
                Some(end) => end.reach()?,
                None => return Ok(placed),
            }
        }
    }

    /// Waits for other threads to free blocks.
    #[cold]
    fn wait_for_threads(
        &self,
        first: Full,
        limit: Duration,
        stream: &Stream,
        place: impl Fn() -> Result<Result<usize, Full>>,
    ) -> Result<Result<usize, Full>> {
        let (mut last, target) = (first, Target::stream(stream));
        let interruption = waiting::Interruption::begin(ALLOCATE, target);
        let placed = waiting::look(&ALLOCATE, target, limit, || match last {
            Full::Never => Ok(Some(Err(Full::Never))),
            Full::Behind(_) => {
                interruption.check()?;
                Ok(match place()? {
                    Ok(offset) => Some(Ok(offset)),
                    Err(why) => {
                        last = why;
                        None
                    }
                })
            }
        })?;
        Ok(placed.unwrap_or(Err(last)))
    }

    fn free(&self, block: Block, stream: &Stream) -> Result<()> {
        check_not_forked("RingPool::deallocate")?;
        let order = WorkOrder::of(self.source.stream_of_free(stream)?);
        let mut state = self.state();
        let RingState { queue, recorder, used, .. } = state.deref_mut();
        let offset = block.device_pointer().checked_sub(self.region.device_pointer());
        match offset.and_then(|offset| queue.free(offset, &order, recorder)) {
            Some(length) => used.subtract(length),
            None => return Err(unknown_block("RingPool::deallocate", block, UNKNOWN_TO_RING)),
        }
        Ok(())
    }

    pub fn synchronize(&self) -> Result<()> {
        check_not_forked("RingPool::synchronize")?;
        let ends = {
            let mut state = self.state();
            let RingState { queue, recorder, .. } = state.deref_mut();
            queue.ends(recorder)?
        };
        ends.iter().try_for_each(End::reach)?;
        drop(ends);
        let mut state = self.state();
        let RingState { queue, recorder, .. } = state.deref_mut();
        queue.collect(recorder)
    }

    pub fn statistics(&self) -> RingStatistics {
        let state = self.state();
        RingStatistics {
            used: state.used,
            blocks: state.queue.live_count() as u64,
            pending: state.queue.pending_count() as u64,
            free: state.queue.free_bytes(),
            events_recorded: state.recorder.0.recorded,
            full: state.full,
        }
    }

    #[cold]
    fn full(&self, requested: usize, free: u64, why: Full) -> Error {
        let capacity = self.capacity;
        let message = match why {
            Full::Never => format!("the ring has only {capacity} bytes; let a Fallback serve larger requests"),
            Full::Behind(Oldest { offset, size, freed }) => {
                let address = self.region.device_pointer() + offset;
                let state =
                    if freed { "was freed, but its stream's work is not done" } else { "was not freed: free it first" };
                format!(
                    "the ring of {capacity} bytes has {free} free; the oldest block in the way, {size} bytes at \
                     {address:#x}, {state}"
                )
            }
        };
        self.source.out_of_memory(ALLOCATE, requested, message)
    }
}

// SAFETY: `RingQueue` hands out blocks that lie in the one region, do not overlap, and have no former work left.
unsafe impl MemoryResource for SharedRing {
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        check_request(ALLOCATE, (size, alignment), self.source.alignment, self.source.upstream.context(), stream)?;
        stream.check_may_allocate(ALLOCATE)?;
        let Some(length) = self.length(size) else {
            self.state().full += 1;
            return Err(self.full(size, 0, Full::Never));
        };
        let place = || self.place_after_work(length as u64, alignment.max(self.unit) as u64);
        let offset = match (place()?, self.options.when_full) {
            (Err(why), WhenFull::WaitAtMost(limit)) if length <= self.capacity => {
                self.wait_for_threads(why, limit, stream, place)?
            }
            (placed, _) => placed,
        };
        let refused = |why| {
            let mut state = self.state();
            state.full += 1;
            let free = state.queue.free_bytes();
            drop(state);
            self.full(size, free, why)
        };
        offset.map(|offset| self.region.part(offset, size)).map_err(refused)
    }

    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        self.free(block, stream)
    }

    unsafe fn abandon(&self, block: Block) {
        // Nobody could handle the error of an unknown block.
        let _ = self.free(block, &self.source.own);
    }

    memory_of_source!(self => self.source);
}

impl Drop for SharedRing {
    fn drop(&mut self) {
        if forked() {
            return;
        }
        let (region, state) = (self.region, self.state.get_mut());
        let synchronize = |RingState { queue, recorder, .. }: &mut RingState| {
            let ends = queue.ends(recorder);
            let waited = ends.and_then(|ends| ends.iter().try_for_each(End::reach));
            let waited = waited.and_then(|()| queue.collect(recorder));
            (waited, queue.streams().cloned().collect())
        };
        self.source.end(ENDING, state, synchronize, |_| vec![region], |_| vec![]);
    }
}
