//! Growth, trimming and the end of the pool.

use super::resizing::ResizingGuard;
use super::search::{LONGEST_WAIT, Request};
use super::shared::{PoolState, SharedPool};
use super::work_order::{End, WorkOrder};
use crate::adaptor::trace::Action;
use crate::error::callback::or_undo;
use crate::error::forked;
use crate::error::told::told;
use crate::lifetime::waiting::{self, Target};
use crate::memory::resource::Block;
use crate::{Error, Result, Stream};
use core::time::Duration;
use std::thread;
use stream_heap::Effort;

const ENDING: &str = "ending a pool";

/// A growth that other threads wait for, until this is dropped.
pub(super) struct Announced<'pool>(&'pool SharedPool);

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.0.state().end_transit(0);
    }
}

impl SharedPool {
    /// Adds a region for the request, and takes the block. `None` if the source or the maximum has no room.
    pub fn grow(&self, request: Request<'_>, cause: &mut Option<Error>) -> Result<Option<Block>> {
        if self.source.chunks.is_some() {
            return self.grow_in_place(request, cause);
        }
        let (unit, bytes) = (1 << self.unit_log2, request.bytes);
        let size = |state: &PoolState| self.options.growth(bytes, state.committed(), unit);
        let Some(mut size) = self.begin_transit(size) else { return Ok(None) };
        loop {
            match self.add_region(size, Some(request)) {
                Ok(block) => return Ok(block),
                Err(error) if error.is_out_of_memory() => *cause = Some(error),
                Err(error) => return Err(error),
            }
            if size == bytes {
                return Ok(None);
            }
            let smaller = (size / 2 / unit * unit).max(bytes);
            let fits = |state: &PoolState| {
                (smaller <= self.options.maximum.saturating_sub(state.committed())).then_some(smaller)
            };
            let Some(begun) = self.begin_transit(fits) else { return Ok(None) };
            size = begun;
        }
    }

    /// Notes that this thread is about to get a region. `size` decides about it, or `None` if the pool has no room.
    fn begin_transit(&self, size: impl FnOnce(&PoolState) -> Option<usize>) -> Option<usize> {
        let mut state = self.state();
        let size = size(&state)?;
        state.in_transit.push((thread::current().id(), size));
        Some(size)
    }

    /// Waits for regions that other threads get or return now, until `enough`. `false` if there are none. A thread that
    /// holds what the program's source needs may wait here, so the wait has a limit.
    pub fn wait_for_others(&self, limit: Duration, enough: impl Fn(&PoolState) -> bool) -> bool {
        let thread = thread::current().id();
        let others = |state: &PoolState| state.in_transit.iter().any(|(its, _)| *its != thread);
        if !others(&self.state()) {
            return false;
        }
        let over = || {
            let state = self.state();
            Ok((!others(&state) || enough(&state)).then_some(()))
        };
        let _ = waiting::look(&"another thread's growth of the pool", Target::THREAD, limit, over);
        true
    }

    /// Announces that this thread grows a pool of regions next, unless another thread grows or returns a region. The others
    /// then wait for it.
    pub fn announce(&self, state: &mut PoolState) -> Option<Announced<'_>> {
        let thread = thread::current().id();
        let others = state.in_transit.iter().any(|(its, _)| *its != thread);
        (self.source.chunks.is_none() && !others).then(|| {
            state.in_transit.push((thread, 0));
            Announced(self)
        })
    }

    /// Begins a turn of a pool in place. Other pools have none: their sources may be the program's.
    pub fn turn(&self) -> Option<ResizingGuard<'_>> {
        self.source.chunks.is_some().then(|| self.resizing.enter())
    }

    /// Adds a region whose transit has begun, and takes a block of it before another thread does.
    fn add_region(&self, size: usize, request: Option<Request<'_>>) -> Result<Option<Block>> {
        // Nothing is held, because the source may run code of the program, which may use this pool.
        let region = or_undo(|| self.source.allocate(size), || self.state().end_transit(size))?;
        told!("cuda_mem::pool", DEBUG, bytes = region.size(), "a pool takes memory from its source");
        let mut state = self.state();
        state.end_transit(size);
        if let Err(error) = state.heap.add(region) {
            drop(state);
            return self.source.free(region).and(Err(refused(error)));
        }
        state.growths += 1;
        if let Some(watch) = &self.watch {
            watch.region(Action::Grow, region);
        }
        request.map_or(Ok(None), |request| self.take(&mut state, request, &[Effort::Thorough]))
    }

    /// Gives back regions that hold no blocks and that no work uses, as long as at least `keep` bytes stay. `true` if
    /// there were any.
    pub fn release(&self, keep: u64) -> Result<bool> {
        if self.state().asleep.is_some() {
            // It has no memory.
            return Ok(false);
        }
        self.unmap_stale()?;
        let empty = {
            let mut state = self.state();
            let empty = state.heap.take_empty(keep);
            state.in_transit.extend(empty.iter().map(|region| (thread::current().id(), region.size())));
            empty
        };
        let mut result = Ok(false);
        for region in empty {
            let freed = self.source.free(region);
            self.state().end_transit(region.size());
            match freed {
                Ok(()) => {
                    told!("cuda_mem::pool", DEBUG, bytes = region.size(), "a pool returns memory to its source");
                    self.state().heap.vacated(region);
                    if let Some(watch) = &self.watch {
                        watch.region(Action::Release, region);
                    }
                    result = result.map(|_| true);
                }
                // After a panic nobody knows whether the region is free. It stays until its context ends.
                Err(panic @ Error::Panicked { .. }) => result = Err(panic),
                // The source did not take it back, so the pool keeps it.
                Err(error) => result = self.state().heap.put_back(region).map_err(refused).and(Err(error)),
            }
        }
        result
    }

    /// Waits for the work of all freed memory. Other threads may allocate and free meanwhile. Of streams that have ended,
    /// sometimes only a wait for the context would tell; it is left out unless `may_wait_for_context`, because a capture
    /// of this thread would not survive it.
    pub fn wait_for_freed(&self, may_wait_for_context: bool) -> Result<()> {
        let ends = {
            let PoolState { heap, recorder, .. } = &mut *self.state();
            heap.tags.ends(recorder)?
        };
        ends.iter().try_for_each(End::reach)?;
        drop(ends);
        let streams: Vec<Stream> =
            self.state().heap.tags.streams().into_iter().flat_map(WorkOrder::streams).map(Stream::kept).collect();
        if may_wait_for_context {
            let graphs = self.state().graphs.living();
            Stream::wait_for_unmarked(&streams, |capture| graphs.contains(&capture))?;
        }
        drop(streams);
        let PoolState { heap, recorder, .. } = &mut *self.state();
        heap.tags.settle(recorder)
    }

    pub fn reserve(&self, bytes: usize) -> Result<()> {
        // What others add counts.
        self.wait_for_others(LONGEST_WAIT, |_| false);
        let _turn = self.turn();
        // The maximum limits what the pool really takes.
        let unit = self.source.chunks.as_ref().map_or(1 << self.unit_log2, |chunks| chunks.unit);
        let mut state = self.state();
        state.check_awake("Pool::reserve")?;
        let missing = bytes.saturating_sub(state.heap.reserved() as usize).checked_next_multiple_of(unit);
        match missing {
            Some(0) => Ok(()),
            Some(missing) if missing <= self.options.maximum.saturating_sub(state.committed()) => {
                if self.source.chunks.is_some() {
                    drop(state);
                    return self.map_vacant("Pool::reserve", missing);
                }
                state.in_transit.push((thread::current().id(), missing));
                drop(state);
                self.add_region(missing, None).map(drop)
            }
            _ => {
                let rule = "the pool must not grow beyond PoolOptions::maximum";
                Err(Error::invalid("Pool::reserve", "bytes", bytes, rule))
            }
        }
    }

    pub fn trim(&self, keep: usize, wait: bool) -> Result<()> {
        self.take_caches_back()?;
        if wait {
            // Outside of the turn: the work may wait for a thread that is about to grow the pool.
            self.wait_for_freed(true)?;
        }
        let _turn = self.turn();
        self.release(keep as u64).map(drop)
    }

    /// Waits for a stream's work, and releases the stream.
    pub fn release_stream(&self, stream: &Stream) -> Result<()> {
        stream.wait_for_work()?;
        self.take_caches_back()
    }

    /// Returns all blocks in thread caches to the heap, and queries the streams' events.
    fn take_caches_back(&self) -> Result<()> {
        let mut state = self.state();
        self.drain_caches(&mut state);
        let PoolState { heap, recorder, .. } = &mut *state;
        heap.tags.settle(recorder)
    }
}

impl Drop for SharedPool {
    fn drop(&mut self) {
        if forked() {
            return;
        }
        drop(self.end_sleep());
        self.drain_caches(&mut self.state());
        let synchronize = |pool: &mut &Self| {
            let waited = pool.wait_for_freed(true);
            (waited, pool.state().heap.tags.streams().into_iter().cloned().collect())
        };
        let regions = |pool: &mut &Self| {
            let heap = &pool.state().heap;
            heap.regions().chain(heap.all_stale()).collect()
        };
        let settled = |pool: &mut &Self| {
            let heap = &mut pool.state().heap;
            let stale = heap.stale();
            heap.take_empty(0).into_iter().chain(stale).collect()
        };
        self.source.end(ENDING, &mut &*self, synchronize, regions, settled);
    }
}

pub(super) fn refused(error: stream_heap::suballocator::SuballocatorError) -> Error {
    let rule = "the pool must be able to divide it; change the sizes in PoolOptions";
    Error::invalid("Pool::new", "a region", error, rule)
}
