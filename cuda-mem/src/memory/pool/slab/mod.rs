//! Page-locked memory in stream order, for drivers that have no pools of it: chunks of cuMemHostAlloc, cut into blocks.
//!
//! What is freed on a stream serves the same stream again at once, without a call of the driver. Another stream has it when
//! an event that was recorded at the free has passed, or waits for that event.

mod policy;

use super::{DriverPoolOptions, PoolAttributes};
use crate::locked::{Ending, Locked};
use crate::memory::pinned::{PinnedOptions, allocate_pinned, free_pinned};
use crate::resource::{
    Block,
    host::{no_room, physical_memory},
};
use crate::waiting::{self, Target};
use crate::{Context, Error, Event, Result, Stream};
use core::fmt;
use core::ptr;
use core::time::Duration;
use cuda_sys::CU_STREAM_PER_THREAD;
use policy::{Reuse, Slabs, Taken};
use std::sync::{Mutex, PoisonError};

const CALL: &str = "PinnedPool::allocate";

/// How many events are kept to be recorded again.
const SPARE_EVENTS: usize = 64;

/// The pool.
pub(super) struct SlabPool {
    context: Context,
    max_size: usize,
    state: Mutex<State>,
    /// Held while a chunk is allocated, which takes long; blocks are freed meanwhile.
    growing: Mutex<()>,
}

struct State {
    slabs: Slabs<StreamKey, Mark>,
    release_threshold: usize,
    reuse: Reuse,
    spare: Vec<Event>,
    /// What is to be dropped where no lock is held: it calls the driver, and maybe a hook.
    ended: Vec<Ended>,
    /// Tells per-thread default streams apart, which all have one handle.
    next_serial: u64,
}

/// What is left of marks.
#[derive(Debug)]
enum Ended {
    Stream(#[expect(dead_code, reason = "held for its drop")] Stream),
    Event(#[expect(dead_code, reason = "held for its drop")] Event),
}

impl Ending for State {
    type Ended = Ended;

    fn ended(&mut self) -> &mut Vec<Ended> {
        &mut self.ended
    }
}

/// Tells streams apart while a mark of them is kept, which holds the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StreamKey {
    context: usize,
    stream: usize,
    serial: u64,
}

/// The point in a stream up to which a freed block was used.
struct Mark {
    event: Event,
    key: StreamKey,
    /// Held so that no other stream gets its handle.
    stream: Stream,
}

impl Mark {
    /// Work of a context that has ended has ended.
    fn has_passed(&self) -> bool {
        self.is_over().unwrap_or(false)
    }

    fn is_over(&self) -> Result<bool> {
        self.event.is_done().or_else(|error| if error.is_teardown() { Ok(true) } else { Err(error) })
    }

    fn wait(&self) -> Result<()> {
        match self.event.synchronize() {
            Err(error) if !error.is_teardown() => Err(error),
            _ => Ok(()),
        }
    }
}

impl SlabPool {
    pub fn new(context: &Context, options: &DriverPoolOptions) -> Self {
        let state = State {
            slabs: Slabs::new(),
            release_threshold: options.release_threshold,
            reuse: Reuse {
                opportunistic: options.reuse_allow_opportunistic,
                with_wait: options.reuse_allow_internal_dependencies,
            },
            spare: Vec::new(),
            ended: Vec::new(),
            next_serial: 1,
        };
        let max_size = options.max_size.unwrap_or_else(physical_memory);
        Self { context: context.clone(), max_size, state: Mutex::new(state), growing: Mutex::default() }
    }

    /// Allocates for work of `stream` from now on.
    pub fn allocate(&self, size: usize, stream: &Stream) -> Result<Block> {
        let key = self.state().key(stream);
        let taken = match self.take(size, key) {
            // What is free but in use still, or cut to other sizes, may be enough.
            Err(Error::OutOfMemory { .. }) => {
                self.reclaim()?;
                self.take(size, key)?
            }
            other => other?,
        };
        let mut state = self.state();
        let address = taken.address;
        if let Some(mark) = taken.mark {
            if taken.must_wait
                && let Err(error) = stream.wait(&mark.event)
            {
                let key = mark.key;
                if let Err(mark) = state.slabs.give(address, key, mark) {
                    state.keep(mark);
                }
                return Err(error);
            }
            state.keep(mark);
        }
        // With unified addresses, devices use the CPU's address of memory of cuMemHostAlloc.
        Ok(Block::unified(ptr::with_exposed_provenance_mut(address as usize), size))
    }

    /// Frees a block when the work given to `stream` so far is done.
    pub fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        let mut state = self.state();
        let event = state.event(stream.context())?;
        if let Err(error) = event.mark(stream) {
            state.ended.push(Ended::Event(event));
            return Err(error);
        }
        let key = state.key(stream);
        let mark = Mark { event, key, stream: stream.clone() };
        if let Err(mark) = state.slabs.give(block.device_pointer, key, mark) {
            state.keep(mark);
            return Err(Error::InvalidArgument {
                call: "PinnedPool::deallocate",
                argument: "block",
                value: format!("{:#x}", block.device_pointer).into(),
                rule: "it must be allocated from this pool, and not be freed before",
            });
        }
        let threshold = state.release_threshold;
        let released = match state.slabs.account().reserved > threshold {
            true => self.release(state, threshold),
            false => Ok(()),
        };
        // The block is freed all the same: an error would say that it is not.
        if let Err(error) = released
            && !error.is_teardown()
        {
            self.context.drop_errors().push("giving memory of a pool back to the system", error);
        }
        Ok(())
    }

    pub fn attributes(&self) -> Result<PoolAttributes> {
        let threshold = self.state().release_threshold;
        self.release(self.state(), threshold)?;
        let state = self.state();
        let account = state.slabs.account();
        Ok(PoolAttributes {
            reserved: account.reserved,
            reserved_high: account.reserved_high,
            used: account.used,
            used_high: account.used_high,
            release_threshold: state.release_threshold,
            reuse_follow_event_dependencies: false,
            reuse_allow_opportunistic: state.reuse.opportunistic,
            reuse_allow_internal_dependencies: state.reuse.with_wait,
        })
    }

    pub fn set_release_threshold(&self, bytes: usize) {
        self.state().release_threshold = bytes;
    }

    /// Which events a stream waits for is not known here.
    pub fn set_reuse_follow_event_dependencies(&self, allowed: bool) -> Result<()> {
        if !allowed {
            return Ok(());
        }
        Err(Error::Unsupported {
            feature: "reuse of memory that follows the program's own events",
            needs: "a driver with pools of host memory (CUDA 12.6)".into(),
        })
    }

    pub fn set_reuse_allow_opportunistic(&self, allowed: bool) {
        self.state().reuse.opportunistic = allowed;
    }

    pub fn set_reuse_allow_internal_dependencies(&self, allowed: bool) {
        self.state().reuse.with_wait = allowed;
    }

    pub fn reset_high_marks(&self) {
        self.state().slabs.reset_high_marks();
    }

    /// Frees empty chunks as long as at least `keep` bytes stay.
    pub fn trim_to(&self, keep: usize) -> Result<()> {
        self.release(self.state(), keep)
    }

    fn take(&self, size: usize, key: StreamKey) -> Result<Taken<Mark>> {
        if let Some(taken) = self.state().take(size, key) {
            return Ok(taken);
        }
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread's growth, or a free, may have been enough.
        if let Some(taken) = self.state().take(size, key) {
            return Ok(taken);
        }
        let full = || no_room(CALL, size, format!("the pool may hold {} bytes", self.max_size));
        let chunk_size = self.state().slabs.growth(size, self.max_size).ok_or_else(full)?;
        let chunk = allocate_pinned(CALL, &self.context, PinnedOptions::default(), chunk_size)?;
        let mut state = self.state();
        state.slabs.add(chunk.host_pointer.expose_provenance() as u64, chunk_size, size);
        state.take(size, key).ok_or_else(|| no_room(CALL, size, "a new chunk has no block of this size".into()))
    }

    /// Waits for what freed blocks wait for, and frees all empty chunks. Blocks are freed meanwhile: the work may wait for
    /// a thread that does so.
    fn reclaim(&self) -> Result<()> {
        let passed = || {
            let state = self.state();
            state.slabs.marks().try_fold(true, |passed, mark| Ok(passed && mark.is_over()?))
        };
        waiting::poll(&CALL, Target::context(&self.context), Duration::MAX, passed)?;
        self.release(self.state(), 0)
    }

    fn release(&self, mut state: Locked<'_, State>, keep: usize) -> Result<()> {
        let settled = state.slabs.settle(Mark::has_passed);
        settled.into_iter().for_each(|mark| state.keep(mark));
        let chunks = state.slabs.release(keep);
        // The free may wait for the device.
        drop(state);
        // SAFETY: no block of the chunk is allocated, and what used them is done; the policy has forgotten it.
        let free =
            |base: u64| unsafe { free_pinned(&self.context, ptr::with_exposed_provenance_mut(base as usize), None) };
        // Each is tried, and the first error told.
        chunks.into_iter().map(free).fold(Ok(()), Result::and)
    }

    fn state(&self) -> Locked<'_, State> {
        Locked::new(&self.state)
    }
}

impl State {
    /// A block of what is free, if there is one.
    fn take(&mut self, size: usize, key: StreamKey) -> Option<Taken<Mark>> {
        let reuse = self.reuse;
        let taken = self.slabs.take(size, key, reuse, Mark::has_passed);
        taken.or_else(|| self.slabs.recut(size).then(|| self.slabs.take(size, key, reuse, Mark::has_passed)).flatten())
    }

    fn key(&mut self, stream: &Stream) -> StreamKey {
        let serial = if stream.raw() == CU_STREAM_PER_THREAD {
            self.next_serial += 1;
            self.next_serial
        } else {
            0
        };
        StreamKey { context: stream.context().raw().addr(), stream: stream.raw().addr(), serial }
    }

    /// An event of a context.
    fn event(&mut self, context: &Context) -> Result<Event> {
        match self.spare.iter().position(|event| event.context() == context) {
            Some(place) => Ok(self.spare.swap_remove(place)),
            None => Event::new(context),
        }
    }

    /// Keeps a mark's event. Work that was told to wait for it waits for what it had recorded then.
    fn keep(&mut self, mark: Mark) {
        if self.spare.len() < SPARE_EVENTS {
            self.spare.push(mark.event);
        } else {
            self.ended.push(Ended::Event(mark.event));
        }
        self.ended.push(Ended::Stream(mark.stream));
    }
}

impl fmt::Debug for SlabPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlabPool").field("max_size", &self.max_size).finish_non_exhaustive()
    }
}

impl Drop for SlabPool {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.context.end("ending a pool of page-locked memory", |_| {
            let waited = state.slabs.marks().map(Mark::wait).fold(Ok(()), Result::and);
            // SAFETY: the pool's memory is all freed, since each block holds the pool, and what used it is done or broken.
            let free =
                |base| unsafe { free_pinned(&self.context, ptr::with_exposed_provenance_mut(base as usize), None) };
            state.slabs.chunks().map(free).fold(waited, Result::and)
        });
    }
}
