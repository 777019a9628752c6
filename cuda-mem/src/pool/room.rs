//! Where the memory for a block comes from when no front has it: what is tried in turn, and how the pool grows, shrinks and
//! ends.

use super::central::{Core, GRANULARITY, MOST_STREAMS, State};
use super::heap::Effort;
use super::options::{OutOfMemoryInfo, PoolOptions, Reuse};
use super::recorder::{drain, reach};
use super::source::check_alike;
use crate::beside_captures::{RelaxedCalls, relaxed};
use crate::callback::{call_back, or_undo};
use crate::context::Liveness;
use crate::resource::{Block, SharedResource};
use crate::trace::Action;
use crate::{Error, Result, Stream};

/// Why the pool itself has no memory for a request.
pub(super) struct Refusal {
    pub info: OutOfMemoryInfo,
    /// The source's words, if it was asked.
    pub cause: Option<Error>,
}

/// A request that no front could serve.
#[derive(Clone, Copy)]
struct Request<'request> {
    size: usize,
    /// The size of the block.
    bytes: usize,
    stream: &'request Stream,
}

impl Core {
    /// Tries everything of the pool's own, what costs least first.
    pub fn find(&self, size: usize, bytes: usize, stream: &Stream) -> Result<core::result::Result<Block, Refusal>> {
        // Events and regions are no part of what is captured.
        let _relaxed = relaxed(self.context().driver())?;
        let request = Request { size, bytes, stream };
        loop {
            let mut state = self.state();
            if let Some(block) = self.search(&mut state, request)? {
                return Ok(Ok(block));
            }
            let growths = state.growths;
            drop(state);
            let _turn = self.resizing.enter();
            // What another thread has added meanwhile is looked at first.
            if self.state().growths == growths {
                return self.make_room(request);
            }
        }
    }

    /// Looks for memory among what the pool has, without waiting.
    fn search(&self, state: &mut State, request: Request<'_>) -> Result<Option<Block>> {
        let reuse = self.options.reuse;
        let known: &[Effort] =
            if reuse == Reuse::SameStreamOnly { &[Effort::Ready] } else { &[Effort::Ready, Effort::Passed] };
        if let Some(block) = self.take(state, request, known)? {
            return Ok(Some(block));
        }
        if self.drain_fronts(state)
            && let Some(block) = self.take(state, request, known)?
        {
            return Ok(Some(block));
        }
        if reuse == Reuse::SameStreamOnly {
            return Ok(None);
        }
        let State { heap, clock, .. } = state;
        heap.order.settle(clock)?;
        let last = if reuse == Reuse::Wait { Effort::Wait } else { Effort::Ready };
        self.take(state, request, &[Effort::Ready, last])
    }

    fn take(&self, state: &mut State, request: Request<'_>, efforts: &[Effort]) -> Result<Option<Block>> {
        let Request { size, bytes, stream } = request;
        for effort in efforts {
            let State { heap, clock, .. } = state;
            if heap.order.stream_count() > state.most_streams {
                heap.order.settle(clock)?;
                // Not again before as many more have come, so that it costs each of them little.
                state.most_streams = MOST_STREAMS.max(2 * heap.order.stream_count());
            }
            let waits = clock.waits;
            if let Some(block) = heap.allocate(bytes as u64, stream, *effort, clock)? {
                if clock.waits != waits
                    && let Some(watch) = &self.watch
                {
                    watch.waited(block, stream);
                }
                state.tally.allocated(size, bytes);
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// Changes what the pool has so that there is room, if that can be. It is this thread's turn to do so.
    fn make_room(&self, request: Request<'_>) -> Result<core::result::Result<Block, Refusal>> {
        let mut cause = None;
        if let Some(block) = self.grow(request, &mut cause)? {
            return Ok(Ok(block));
        }
        // What is free shall be no stream's, and lie together.
        self.wait_for_freed()?;
        if let Some(block) = self.take(&mut self.state(), request, &[Effort::Thorough])? {
            return Ok(Ok(block));
        }
        if self.release(0)?
            && let Some(block) = self.grow(request, &mut cause)?
        {
            return Ok(Ok(block));
        }
        // What others have freed meanwhile counts.
        let mut state = self.state();
        let found = match self.search(&mut state, request)? {
            None => self.take(&mut state, request, &[Effort::Thorough])?,
            found => found,
        };
        if let Some(block) = found {
            return Ok(Ok(block));
        }
        let (reserved, used) = (state.heap.reserved(), state.heap.used());
        let info = OutOfMemoryInfo {
            requested: request.size,
            reserved: reserved as usize,
            free: (reserved - used) as usize,
            largest_free: state.heap.largest_free() as usize,
            attempt: 0,
        };
        Ok(Err(Refusal { info, cause }))
    }

    /// Adds a region that holds the request, and takes the block; `None` if there is no room for one.
    fn grow(&self, request: Request<'_>, cause: &mut Option<Error>) -> Result<Option<Block>> {
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

    /// What the pool has of its source, and what it is asking for, in bytes.
    fn reserved(&self) -> (usize, usize) {
        let state = self.state();
        (state.heap.reserved() as usize, state.incoming)
    }

    /// Adds a region, and takes a block at once, before another thread does.
    fn add_region(&self, size: usize, request: Option<Request<'_>>) -> Result<Option<Block>> {
        self.state().incoming += size;
        let over = || self.state().incoming -= size;
        // No lock is held: the source may have hooks that use this pool.
        let region = or_undo(|| allocate_region(&self.upstream, size, self.alignment, &self.own), over)?;
        let mut state = self.state();
        state.incoming -= size;
        let added = usable(region, 1 << self.unit_log2)
            .and_then(|()| check_alike(&self.upstream, region, (self.atom, self.is_coherent)))
            .and_then(|()| state.heap.add(region).map_err(refused));
        if let Err(error) = added {
            drop(state);
            // SAFETY: just allocated, and used by nobody.
            unsafe { self.upstream.deallocate(region, &self.own) }?;
            return Err(error);
        }
        state.growths += 1;
        if let Some(watch) = &self.watch {
            watch.region(Action::Grow, region);
        }
        request.map_or(Ok(None), |request| self.take(&mut state, request, &[Effort::Thorough]))
    }

    /// Gives regions back that hold no blocks and wait for nothing, as long as at least `keep` bytes stay. Whether there
    /// were any.
    fn release(&self, keep: u64) -> Result<bool> {
        let empty = self.state().heap.take_empty(keep);
        let mut result = Ok(false);
        for region in empty {
            // SAFETY: the heap has forgotten the region; it held no blocks, and what used it is done.
            match call_back(|| unsafe { self.upstream.deallocate(region, &self.own) }) {
                Ok(Ok(())) => {
                    if let Some(watch) = &self.watch {
                        watch.region(Action::Release, region);
                    }
                    result = result.map(|_| true);
                }
                // It is not freed: it stays ours.
                Ok(Err(error)) => result = self.state().heap.add(region).map_err(refused).and(Err(error)),
                // Nobody knows whether it is freed: it is left to its context.
                Err(panic) => result = Err(panic.of("the source of a pool")),
            }
        }
        result
    }

    /// Waits for the work that freed memory waits for. Others may allocate and free meanwhile.
    fn wait_for_freed(&self) -> Result<()> {
        let ends = {
            let State { heap, clock, .. } = &mut *self.state();
            heap.order.ends(clock)?
        };
        ends.iter().try_for_each(|end| reach(end))?;
        drop(ends);
        let State { heap, clock, .. } = &mut *self.state();
        heap.order.settle(clock)
    }

    pub fn reserve(&self, bytes: usize) -> Result<()> {
        let _turn = self.resizing.enter();
        let unit = 1usize << self.unit_log2;
        let (reserved, incoming) = self.reserved();
        let missing = bytes.saturating_sub(reserved).checked_next_multiple_of(unit);
        match missing {
            Some(0) => Ok(()),
            Some(missing) if missing <= self.options.maximum.saturating_sub(reserved + incoming) => {
                self.add_region(missing, None).map(drop)
            }
            _ => Err(Error::InvalidArgument {
                call: "Pool::reserve",
                argument: "bytes",
                value: bytes.to_string().into(),
                rule: "it must not be above the pool's maximum",
            }),
        }
    }

    pub fn trim(&self, keep: usize, wait: bool) -> Result<()> {
        let _relaxed = relaxed(self.context().driver())?;
        let _turn = self.resizing.enter();
        self.take_fronts_back()?;
        if wait {
            self.wait_for_freed()?;
        }
        self.release(keep as u64).map(drop)
    }

    /// Lets go of a stream, whose work is waited for.
    pub fn release_stream(&self, stream: &Stream) -> Result<()> {
        stream.drain()?;
        self.take_fronts_back()
    }

    /// Takes everything back that fronts keep, and looks at what has passed.
    fn take_fronts_back(&self) -> Result<()> {
        let mut state = self.state();
        self.drain_fronts(&mut state);
        let State { heap, clock, .. } = &mut *state;
        heap.order.settle(clock)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.drain_fronts(&mut self.state());
        let context = self.context();
        match context.liveness() {
            Liveness::DriverGone => {}
            // SAFETY: the pool ends, and its regions were neither freed nor abandoned before; the context has ended.
            Liveness::Gone => self.state().heap.regions().for_each(|region| unsafe { self.upstream.abandon(region) }),
            Liveness::Alive => {
                let _relaxed = RelaxedCalls::begin(context.driver());
                let result = self.end();
                if let Err(error) = result
                    && !error.is_teardown()
                {
                    context.drop_errors().push("ending a pool", error);
                }
            }
        }
    }
}

impl Core {
    /// Frees all regions when the work on them is done. A region of which that is not known is left to its context.
    fn end(&self) -> Result<()> {
        let mut result = self.wait_for_freed();
        let pending: Vec<Stream> = self.state().heap.order.streams().into_iter().cloned().collect();
        let settled = match drain("Pool::drop", &pending) {
            Err(error) if !error.is_teardown() => {
                result = result.and(Err(error));
                self.state().heap.take_empty(0)
            }
            _ => self.state().heap.regions().collect(),
        };
        for region in settled {
            // SAFETY: every block holds the pool, so that none is left; what used them is done.
            let freed = call_back(|| unsafe { self.upstream.deallocate(region, &self.own) });
            result = freed.unwrap_or_else(|panic| Err(panic.of("the source of a pool"))).and(result);
        }
        result
    }
}

/// Allocates a region that every stream may use at once.
fn allocate_region(upstream: &SharedResource, size: usize, alignment: usize, own: &Stream) -> Result<Block> {
    let block = upstream.allocate(size, alignment, own)?;
    match own.drain() {
        Ok(()) => Ok(block),
        Err(error) => {
            // SAFETY: just allocated, and used by nobody.
            unsafe { upstream.deallocate(block, own) }.and(Err(error))
        }
    }
}

/// Allocates the first region, and finds out how far the source aligns.
pub(super) fn first_region(upstream: &SharedResource, options: &PoolOptions, own: &Stream) -> Result<(usize, Block)> {
    let size = options.initial.min(options.maximum).max(GRANULARITY);
    for alignment in [GRANULARITY, 128, 64, 32] {
        match allocate_region(upstream, size, alignment, own) {
            Err(Error::InvalidArgument { argument: "alignment", .. }) => {}
            other => return other.map(|block| (alignment, block)),
        }
    }
    allocate_region(upstream, size, 16, own).map(|block| (16, block))
}

/// Checks that a region can be divided.
pub(super) fn usable(block: Block, unit: usize) -> Result<()> {
    if block.device_pointer != 0 && block.size >= unit {
        return Ok(());
    }
    Err(Error::InvalidArgument {
        call: "Pool::new",
        argument: "the source's memory",
        value: format!("{} bytes at {:#x}", block.size, block.device_pointer).into(),
        rule: "a region has an address for devices, and holds at least one unit: the larger of 256 bytes and the atom",
    })
}

pub(super) fn refused(error: crate::suballocator::SuballocatorError) -> Error {
    Error::InvalidArgument {
        call: "Pool::new",
        argument: "a region",
        value: error.to_string().into(),
        rule: "the sizes of the options have to be possible",
    }
}
