//! Growth, trimming and the end of the pool.

use super::recorder::reach;
use super::search::Request;
use super::shared::{PoolState, SharedPool};
use super::work_order::WorkOrder;
use crate::adaptor::trace::Action;
use crate::error::callback::{call_back, or_undo};
use crate::error::forked;
use crate::error::told::told;
use crate::memory::resource::Block;
use crate::{Error, Result, Stream};
use stream_heap::Effort;

const ENDING: &str = "ending a pool";

impl SharedPool {
    /// Adds a region for the request, and takes the block. `None` if the source or the maximum has no room.
    pub fn grow(&self, request: Request<'_>, cause: &mut Option<Error>) -> Result<Option<Block>> {
        if self.source.chunks.is_some() {
            return self.grow_in_place(request, cause);
        }
        let (unit, bytes) = (1 << self.unit_log2, request.bytes);
        let (reserved, incoming) = self.reserved();
        let Some(mut size) = self.options.growth(bytes, reserved + incoming, unit) else { return Ok(None) };
        loop {
            match self.add_region(size, Some(request)) {
                Ok(block) => return Ok(block),
                Err(error) if error.is_out_of_memory() => *cause = Some(error),
                Err(error) => return Err(error),
            }
            if size == bytes {
                return Ok(None);
            }
            size = (size / 2 / unit * unit).max(bytes);
        }
    }

    /// The bytes of all regions, and of regions that are being allocated.
    fn reserved(&self) -> (usize, usize) {
        let state = self.state();
        (state.heap.reserved() as usize, state.incoming)
    }

    /// Adds a region, and takes a block of it before another thread does.
    fn add_region(&self, size: usize, request: Option<Request<'_>>) -> Result<Option<Block>> {
        self.state().incoming += size;
        let over = || self.state().incoming -= size;
        // No lock is held, because the source may have hooks that use this pool.
        let region = or_undo(|| self.source.allocate(size), over)?;
        told!("cuda_mem::pool", DEBUG, bytes = region.size(), "a pool takes memory from its source");
        let mut state = self.state();
        state.incoming -= size;
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
        self.unmap_stale()?;
        let empty = self.state().heap.take_empty(keep);
        let mut result = Ok(false);
        for region in empty {
            match call_back(|| self.source.free(region)) {
                Ok(Ok(())) => {
                    told!("cuda_mem::pool", DEBUG, bytes = region.size(), "a pool returns memory to its source");
                    self.state().heap.vacated(region);
                    if let Some(watch) = &self.watch {
                        watch.region(Action::Release, region);
                    }
                    result = result.map(|_| true);
                }
                // The source did not take it back, so the pool keeps it.
                Ok(Err(error)) => result = self.state().heap.put_back(region).map_err(refused).and(Err(error)),
                // After a panic nobody knows whether the region is free. It stays until its context ends.
                Err(panic) => result = Err(panic.of("the source of a pool")),
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
        ends.iter().try_for_each(|end| reach(end))?;
        drop(ends);
        let streams: Vec<Stream> =
            self.state().heap.tags.streams().into_iter().map(|order| order.stream.kept()).collect();
        if may_wait_for_context {
            let graphs = self.state().graphs.living();
            Stream::wait_for_unmarked(&streams, |capture| graphs.contains(&capture))?;
        }
        drop(streams);
        let PoolState { heap, recorder, .. } = &mut *self.state();
        heap.tags.settle(recorder)
    }

    pub fn reserve(&self, bytes: usize) -> Result<()> {
        let _resizing = self.resizing.enter();
        // The maximum limits what the pool really takes.
        let unit = self.source.chunks.as_ref().map_or(1 << self.unit_log2, |chunks| chunks.unit);
        let (reserved, incoming) = self.reserved();
        let missing = bytes.saturating_sub(reserved).checked_next_multiple_of(unit);
        match missing {
            Some(0) => Ok(()),
            Some(missing) if missing <= self.options.maximum.saturating_sub(reserved + incoming) => {
                if self.source.chunks.is_some() {
                    return self.map_vacant(missing);
                }
                self.add_region(missing, None).map(drop)
            }
            _ => {
                let rule = "the pool must not grow beyond PoolOptions::maximum";
                Err(Error::invalid("Pool::reserve", "bytes", bytes, rule))
            }
        }
    }

    pub fn trim(&self, keep: usize, wait: bool) -> Result<()> {
        let _resizing = self.resizing.enter();
        self.take_fronts_back()?;
        if wait {
            self.wait_for_freed(true)?;
        }
        self.release(keep as u64).map(drop)
    }

    /// Waits for a stream's work, and releases the stream.
    pub fn release_stream(&self, stream: &Stream) -> Result<()> {
        stream.wait_for_work()?;
        self.take_fronts_back()
    }

    /// Returns all blocks in fronts to the heap, and queries the streams' events.
    fn take_fronts_back(&self) -> Result<()> {
        let mut state = self.state();
        self.drain_fronts(&mut state);
        let PoolState { heap, recorder, .. } = &mut *state;
        heap.tags.settle(recorder)
    }
}

impl Drop for SharedPool {
    fn drop(&mut self) {
        if forked() {
            return;
        }
        self.drain_fronts(&mut self.state());
        let synchronize = |pool: &mut &Self| {
            let waited = pool.wait_for_freed(true);
            let orders: Vec<WorkOrder> = pool.state().heap.tags.streams().into_iter().cloned().collect();
            (waited, orders.iter().try_for_each(|order| order.drain(ENDING)))
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
