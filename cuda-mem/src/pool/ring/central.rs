//! The ring itself: one region of a source, and the queue of its blocks.

use super::options::{RingOptions, RingStatistics, WhenFull};
use super::queue::{Full, Oldest, Queue};
use crate::beside_captures::{RelaxedCalls, captures_under_way, relaxed};
use crate::locked::{Ending, Locked};
use crate::pool::Figure;
use crate::pool::recorder::{Ended, Recorder};
use crate::pool::source::{Source, memory_of_source};
use crate::resource::{Block, MemoryResource, SharedResource, check_alignment};
use crate::{Error, Result, Stream};
use core::ops::DerefMut;
use cuda_sys::CU_STREAM_PER_THREAD;
use std::sync::{Mutex, PoisonError};

const NEW: &str = "RingPool::new";
const ALLOCATE: &str = "RingPool::allocate";

/// What blocks begin and end at, in bytes: a line of the CPU's cache, so that threads which write neighbours do not share
/// one.
const GRANULARITY: usize = 64;
/// What the size of a ring is a multiple of, in bytes: no atom is larger.
const WHOLE: usize = 256;

/// What all handles of a ring share.
#[derive(Debug)]
pub(super) struct Core {
    pub source: Source,
    pub options: RingOptions,
    region: Block,
    /// The size of the ring, in bytes.
    pub capacity: usize,
    /// What blocks begin and end at: the larger of a cache line and the atom.
    unit: usize,
    state: Mutex<State>,
}

/// What the lock guards.
#[derive(Debug)]
struct State {
    queue: Queue<Recorder>,
    clock: Recorder,
    used: Figure,
    full: u64,
}

impl Ending for State {
    type Ended = Ended;

    fn ended(&mut self) -> &mut Vec<Ended> {
        &mut self.clock.ended
    }
}

impl Core {
    pub fn new(upstream: SharedResource, capacity: usize, options: RingOptions) -> Result<Self> {
        let size = capacity.checked_next_multiple_of(WHOLE).filter(|size| (1..=isize::MAX as usize).contains(size));
        let impossible = |value: usize| Error::InvalidArgument {
            call: NEW,
            argument: "capacity",
            value: value.to_string().into(),
            rule: "a ring has at least one byte and one atom, and fits into memory",
        };
        let size = size.ok_or_else(|| impossible(capacity))?;
        let (source, region) = Source::open(NEW, upstream, size)?;
        let unit = GRANULARITY.max(source.atom);
        let capacity = size / unit * unit;
        let queue = match Queue::new(capacity as u64) {
            Ok(queue) => queue,
            // The one thing that it refuses is the size.
            Err(_) => return source.free(region).and(Err(impossible(size))),
        };
        let state = State { queue, clock: Recorder::default(), used: Figure::default(), full: 0 };
        Ok(Self { source, options, region, capacity, unit, state: Mutex::new(state) })
    }

    fn state(&self) -> Locked<'_, State> {
        Locked::new(&self.state)
    }

    /// Events are no part of what others capture.
    fn relaxed(&self) -> Result<Option<RelaxedCalls<'_>>> {
        relaxed(self.context().driver())
    }

    /// What a block of `size` bytes takes of the ring; `None` where that is no number.
    fn length(&self, size: usize) -> Option<usize> {
        size.max(1).checked_next_multiple_of(self.unit)
    }

    fn free(&self, block: Block, stream: &Stream) -> Result<()> {
        let per_thread = stream.raw() == CU_STREAM_PER_THREAD;
        if per_thread {
            stream.drain()?;
        }
        let _relaxed = self.relaxed()?;
        let mut state = self.state();
        let State { queue, clock, used, .. } = state.deref_mut();
        let stream = if per_thread { &self.source.own } else { stream };
        let offset = block.device_pointer.checked_sub(self.region.device_pointer);
        match offset.and_then(|offset| queue.free(offset, stream, clock)) {
            Some(length) => used.subtract(length),
            None => return Err(unknown(block)),
        }
        Ok(())
    }

    pub fn synchronize(&self) -> Result<()> {
        let _relaxed = self.relaxed()?;
        let mut state = self.state();
        let State { queue, clock, .. } = state.deref_mut();
        queue.synchronize(clock)
    }

    pub fn statistics(&self) -> RingStatistics {
        let state = self.state();
        RingStatistics {
            used: state.used,
            blocks: state.queue.live_count() as u64,
            pending: state.queue.pending_count() as u64,
            free: state.queue.free_bytes(),
            events_recorded: state.clock.recorded,
            full: state.full,
        }
    }

    #[cold]
    fn full(&self, requested: usize, free: u64, why: Full) -> Error {
        let capacity = self.capacity;
        let message = match why {
            Full::Never => format!("the ring has {capacity} bytes, and no larger block; let a Fallback serve it"),
            Full::Behind(Oldest { offset, size, freed }) => {
                let address = self.region.device_pointer + offset;
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

// SAFETY: the blocks of a ring do not overlap, and lie in its one region; all work of their former users is done.
unsafe impl MemoryResource for Core {
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        check_alignment(ALLOCATE, alignment, self.source.alignment)?;
        if captures_under_way() {
            stream.check_not_capturing(ALLOCATE)?;
        }
        let Some(length) = self.length(size) else { return Err(self.full(size, 0, Full::Never)) };
        let _relaxed = self.relaxed()?;
        let mut state = self.state();
        let State { queue, clock, used, full } = state.deref_mut();
        let wait = self.options.when_full == WhenFull::Wait;
        let alignment = alignment.max(self.unit) as u64;
        match queue.allocate(length as u64, alignment, wait, clock)? {
            Ok(block) => {
                used.add(length as u64);
                let mut host_pointer = self.region.host_pointer;
                if !host_pointer.is_null() {
                    host_pointer = host_pointer.wrapping_add(block.offset as usize);
                }
                Ok(Block { device_pointer: self.region.device_pointer + block.offset, host_pointer, size })
            }
            Err(why) => {
                *full += 1;
                let free = queue.free_bytes();
                drop(state);
                Err(self.full(size, free, why))
            }
        }
    }

    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        self.free(block, stream)
    }

    unsafe fn abandon(&self, block: Block) {
        // That the block is unknown has no one to tell.
        let _ = self.free(block, &self.source.own);
    }

    memory_of_source!();
}

impl Drop for Core {
    fn drop(&mut self) {
        let State { queue, clock, .. } = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.source.end("ending a ring", [self.region].into_iter(), || {
            let waited = queue.synchronize(clock);
            (waited, queue.streams().cloned().collect())
        });
    }
}

#[cold]
fn unknown(block: Block) -> Error {
    Error::InvalidArgument {
        call: "RingPool::deallocate",
        argument: "block",
        value: format!("{} bytes at {:#x}", block.size, block.device_pointer).into(),
        rule: "it must be allocated from this ring, and not be freed before",
    }
}
