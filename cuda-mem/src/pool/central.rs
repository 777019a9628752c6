//! The pool itself: fronts before the heap, and what is tried in turn where memory runs short.

use super::classes::{BlockSize, block_size};
use super::front::{Front, Spill, Sum, Tally, front_count, thread_number};
use super::heap::{Effort, Heap};
use super::recorder::Recorder;
use super::settings::{OutOfMemoryInfo, PoolSettings, Reuse};
use super::statistics::Figure;
use super::strays::Strays;
use super::watch::Watch;
use crate::context::Liveness;
use crate::graph::{RelaxedCalls, captures_under_way};
use crate::memory::{Block, SharedResource, check_alignment, check_not_capturing};
use crate::trace::Action;
use crate::{Context, Error, Result, Stream};
use core::sync::atomic::{AtomicUsize, Ordering};
use cuda_sys::CU_STREAM_PER_THREAD;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

const ALLOCATE: &str = "Pool::allocate";

/// What blocks are aligned to and a multiple of, in bytes, where the memory's atom is not larger.
const GRANULARITY: usize = 256;
/// How many streams the heap holds before it looks whether some can be let go.
const MOST_STREAMS: usize = 32;

/// What all handles of a pool share.
#[derive(Debug)]
pub(super) struct Core {
    pub upstream: SharedResource,
    pub settings: PoolSettings,
    /// Regions are allocated and freed in order of this stream, which has no other work.
    own: Stream,
    pub unit_log2: u32,
    /// What the source aligns regions to, so far as it matters.
    alignment: usize,
    pub atom: usize,
    pub is_coherent: bool,
    pub fronts: Box<[Front<Stream>]>,
    state: Mutex<State>,
    pub strays: Option<Strays>,
    /// What is noted of the blocks, if anything is.
    pub watch: Option<Box<Watch>>,
    /// How many blocks have names.
    named: AtomicUsize,
}

/// What the central lock guards.
#[derive(Debug)]
pub(super) struct State {
    pub heap: Heap<Recorder>,
    pub clock: Recorder,
    /// What did not go through a front.
    tally: Tally,
    pub live: Live,
    pub active: Figure,
    pub names: HashMap<u64, Box<str>>,
    pub retries: u64,
    pub out_of_memory: u64,
}

/// The figures of the blocks that were given out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Live {
    pub requested: Figure,
    pub allocated: Figure,
    pub blocks: Figure,
}

/// Why the pool itself has no memory for a request.
struct Refusal {
    info: OutOfMemoryInfo,
    /// The source's words, if it was asked.
    cause: Option<Error>,
}

impl Core {
    pub fn new(upstream: SharedResource, fallback: Option<SharedResource>, settings: &PoolSettings) -> Result<Self> {
        let own = Stream::new(upstream.context())?;
        let (alignment, first) = first_region(&upstream, settings, &own)?;
        let atom = upstream.atom(first);
        let unit = GRANULARITY.max(atom);
        let heap = usable(first, unit).and_then(|()| Heap::new(unit as u64).map_err(refused));
        let heap = heap.and_then(|mut heap| heap.add(first).map_err(refused).map(|()| heap));
        let heap = match heap {
            Ok(heap) => heap,
            Err(error) => {
                // SAFETY: just allocated, and used by nobody.
                unsafe { upstream.deallocate(first, &own) }?;
                return Err(error);
            }
        };
        let state = State {
            heap,
            clock: Recorder::default(),
            tally: Tally::default(),
            live: Live::default(),
            active: Figure::default(),
            names: HashMap::new(),
            retries: 0,
            out_of_memory: 0,
        };
        let fronts = (0..front_count()).map(|_| Front::new(settings.front_capacity)).collect();
        let watch = Watch::new(settings);
        if let Some(watch) = &watch {
            watch.region(Action::Grow, first);
        }
        Ok(Self {
            is_coherent: upstream.is_coherent(first),
            upstream,
            settings: settings.clone(),
            own,
            unit_log2: unit.trailing_zeros(),
            alignment,
            atom,
            fronts,
            state: Mutex::new(state),
            strays: fallback.map(Strays::new),
            watch,
            named: AtomicUsize::new(0),
        })
    }

    pub fn context(&self) -> &Context {
        self.upstream.context()
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn front(&self) -> &Front<Stream> {
        &self.fronts[thread_number() % self.fronts.len()]
    }

    #[inline]
    pub fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        check_alignment(ALLOCATE, alignment, self.alignment)?;
        if captures_under_way() {
            check_not_capturing(ALLOCATE, stream)?;
        }
        let Some(block) = block_size(size, self.unit_log2) else { return Err(self.too_large(size)) };
        if let Some(class) = block.class {
            let front = self.front();
            if let Some(mut cache) = front.cache.try_enter()
                && let Some(found) = cache.take(stream, class)
            {
                front.tally.allocated(size, block.bytes);
                return Ok(Block { size, ..found });
            }
        }
        self.allocate_from_heap(size, block.bytes, stream)
    }

    /// Frees a block when the work given to `stream` so far is done. No call of the driver is made.
    #[inline]
    pub fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        if self.named.load(Ordering::Relaxed) != 0 {
            self.forget_name(block.device_pointer);
        }
        if let Some(strays) = &self.strays
            && let Some(freed) = strays.deallocate(block, stream)
        {
            return freed;
        }
        let Some(BlockSize { bytes, class }) = block_size(block.size, self.unit_log2) else {
            return Err(unknown(block));
        };
        let kept = class.filter(|_| bytes <= self.settings.front_capacity && stream.raw() != CU_STREAM_PER_THREAD);
        if let Some(class) = kept {
            let front = self.front();
            if let Some(mut cache) = front.cache.try_enter() {
                let spill = cache.keep(stream, class, Block { size: bytes, ..block });
                front.tally.freed(block.size, bytes);
                // Streams end outside of the gate.
                drop(cache);
                return spill.map_or(Ok(()), |spill| self.take_back(spill));
            }
        }
        self.deallocate_to_heap(block, bytes, stream)
    }

    #[cold]
    fn allocate_from_heap(&self, size: usize, bytes: usize, stream: &Stream) -> Result<Block> {
        if stream.raw() == CU_STREAM_PER_THREAD {
            return Err(Error::InvalidArgument {
                call: ALLOCATE,
                argument: "stream",
                value: "the per-thread default stream".into(),
                rule: "a pool has to tell streams apart; make one with Stream::new",
            });
        }
        let mut attempt = 0;
        loop {
            let refusal = match self.find(size, bytes, stream)? {
                Ok(block) => return Ok(Block { size, ..block }),
                Err(refusal) => refusal,
            };
            let info = OutOfMemoryInfo { attempt, ..refusal.info };
            // Outside of the lock: it may free what is the pool's.
            if self.settings.on_out_of_memory.as_ref().is_some_and(|hook| hook(&info)) {
                self.state().retries += 1;
                attempt += 1;
                continue;
            }
            if let Some(strays) = &self.strays {
                return strays.allocate(size, self.alignment, stream);
            }
            self.state().out_of_memory += 1;
            return Err(self.out_of_memory(info, refusal.cause));
        }
    }

    /// Tries everything of the pool's own, what costs least first.
    fn find(&self, size: usize, bytes: usize, stream: &Stream) -> Result<core::result::Result<Block, Refusal>> {
        // Events and regions are no part of what is captured.
        let _relaxed = if captures_under_way() { Some(RelaxedCalls::begin(self.context().driver())?) } else { None };
        let mut state = self.state();
        let mut cause = None;
        let waits = state.clock.waits;
        let found = self.search(&mut state, bytes, stream, &mut cause);
        let Some(block) = found? else {
            let (reserved, used) = (state.heap.reserved(), state.heap.used());
            let info = OutOfMemoryInfo {
                requested: size,
                reserved: reserved as usize,
                free: (reserved - used) as usize,
                largest_free: state.heap.largest_free() as usize,
                attempt: 0,
            };
            return Ok(Err(Refusal { info, cause }));
        };
        if state.clock.waits != waits
            && let Some(watch) = &self.watch
        {
            watch.waited(block, stream);
        }
        state.tally.allocated(size, bytes);
        self.sample(&mut state);
        Ok(Ok(block))
    }

    fn search(
        &self,
        state: &mut State,
        bytes: usize,
        stream: &Stream,
        cause: &mut Option<Error>,
    ) -> Result<Option<Block>> {
        if state.heap.order.stream_count() > MOST_STREAMS {
            state.heap.order.settle(&mut state.clock)?;
        }
        let reuse = self.settings.reuse;
        let known: &[Effort] =
            if reuse == Reuse::SameStreamOnly { &[Effort::Ready] } else { &[Effort::Ready, Effort::Passed] };
        if let Some(block) = state.try_each(bytes, stream, known)? {
            return Ok(Some(block));
        }
        let drained = self.drain_fronts(state);
        if drained && let Some(block) = state.try_each(bytes, stream, known)? {
            return Ok(Some(block));
        }
        if reuse != Reuse::SameStreamOnly {
            state.heap.order.settle(&mut state.clock)?;
            let last = if reuse == Reuse::Wait { Effort::Wait } else { Effort::Ready };
            if let Some(block) = state.try_each(bytes, stream, &[Effort::Ready, last])? {
                return Ok(Some(block));
            }
        }
        if self.grow(state, bytes, cause)? {
            return state.try_each(bytes, stream, &[Effort::Thorough]);
        }
        // What is free shall be no stream's, and lie together.
        state.heap.order.synchronize(&mut state.clock)?;
        if let Some(block) = state.try_each(bytes, stream, &[Effort::Thorough])? {
            return Ok(Some(block));
        }
        if self.release(state, 0)? && self.grow(state, bytes, cause)? {
            return state.try_each(bytes, stream, &[Effort::Thorough]);
        }
        Ok(None)
    }

    /// Adds a region that holds `bytes`; `false` if there is no room for one.
    fn grow(&self, state: &mut State, bytes: usize, cause: &mut Option<Error>) -> Result<bool> {
        let unit = 1 << self.unit_log2;
        let reserved = state.heap.reserved() as usize;
        let Some(mut size) = self.settings.growth(bytes, reserved, unit) else { return Ok(false) };
        loop {
            match self.add_region(state, size) {
                Ok(()) => return Ok(true),
                Err(error @ Error::OutOfMemory { .. }) => *cause = Some(error),
                Err(error) => return Err(error),
            }
            if size == bytes {
                return Ok(false);
            }
            size = (size / 2 / unit * unit).max(bytes);
        }
    }

    fn add_region(&self, state: &mut State, size: usize) -> Result<()> {
        let block = allocate_region(&self.upstream, size, self.alignment, &self.own)?;
        let added = usable(block, 1 << self.unit_log2).and_then(|()| state.heap.add(block).map_err(refused));
        if added.is_err() {
            // SAFETY: just allocated, and used by nobody.
            unsafe { self.upstream.deallocate(block, &self.own) }?;
        } else if let Some(watch) = &self.watch {
            watch.region(Action::Grow, block);
        }
        added
    }

    /// Gives regions back that hold no blocks and wait for nothing, as long as at least `keep` bytes stay. Whether there
    /// were any.
    fn release(&self, state: &mut State, keep: u64) -> Result<bool> {
        let mut result = Ok(false);
        for block in state.heap.take_empty(keep) {
            // SAFETY: the heap has forgotten the region; it held no blocks, and what used it is done.
            match unsafe { self.upstream.deallocate(block, &self.own) } {
                Ok(()) => {
                    if let Some(watch) = &self.watch {
                        watch.region(Action::Release, block);
                    }
                    result = result.map(|_| true);
                }
                // It is not freed: it stays ours.
                Err(error) => result = state.heap.add(block).map_err(refused).and(Err(error)),
            }
        }
        result
    }

    #[cold]
    fn deallocate_to_heap(&self, block: Block, bytes: usize, stream: &Stream) -> Result<()> {
        let per_thread = stream.raw() == CU_STREAM_PER_THREAD;
        if per_thread {
            stream.synchronize()?;
        }
        let mut state = self.state();
        if !state.heap.free(block.device_pointer, if per_thread { &self.own } else { stream }) {
            return Err(unknown(block));
        }
        state.tally.freed(block.size, bytes);
        Ok(())
    }

    /// Takes back what a front has given up.
    #[cold]
    fn take_back(&self, spill: Spill<Stream>) -> Result<()> {
        let mut state = self.state();
        state.take_back(&spill);
        drop(state);
        // The streams end outside of the lock.
        drop(spill);
        Ok(())
    }

    /// Takes everything back that fronts keep. Whether that was something.
    pub fn drain_fronts(&self, state: &mut State) -> bool {
        let mut some = false;
        for front in &self.fronts {
            let spill = front.cache.enter().drain();
            some |= spill.iter().any(|(_, blocks)| !blocks.is_empty());
            state.take_back(&spill);
        }
        some
    }

    pub fn reserve(&self, bytes: usize) -> Result<()> {
        let mut state = self.state();
        let unit = 1usize << self.unit_log2;
        let reserved = state.heap.reserved() as usize;
        let missing = bytes.saturating_sub(reserved).checked_next_multiple_of(unit);
        match missing {
            Some(0) => Ok(()),
            Some(missing) if missing <= self.settings.maximum.saturating_sub(reserved) => {
                self.add_region(&mut state, missing)
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
        let mut state = self.state();
        self.drain_fronts(&mut state);
        let State { heap, clock, .. } = &mut *state;
        if wait { heap.order.synchronize(clock) } else { heap.order.settle(clock) }?;
        self.release(&mut state, keep as u64).map(drop)
    }

    /// Takes the figures over that are counted elsewhere.
    pub fn sample(&self, state: &mut State) {
        let (mut allocated, mut freed) = (Sum::default(), Sum::default());
        for (one, other) in self.fronts.iter().map(|front| &front.tally).chain([&state.tally]).map(Tally::sums) {
            allocated.add(one);
            freed.add(other);
        }
        state.live.requested.note(allocated.requested, freed.requested);
        state.live.allocated.note(allocated.bytes, freed.bytes);
        state.live.blocks.note(allocated.blocks, freed.blocks);
        let pending: u64 = state.heap.order.streams().map(|(_, bytes)| bytes).sum();
        state.active.set(state.heap.used() + pending);
    }

    pub fn set_name(&self, device_pointer: u64, name: &str) {
        let before = self.state().names.insert(device_pointer, name.into());
        if before.is_none() {
            self.named.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[cold]
    fn forget_name(&self, device_pointer: u64) {
        if self.state().names.remove(&device_pointer).is_some() {
            self.named.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Forgets a block: its context has ended.
    pub fn abandon(&self, block: Block) {
        if self.strays.as_ref().is_some_and(|strays| strays.abandon(block)) {
            return;
        }
        // No call of the driver is made; that the block is unknown has no one to tell.
        let _ = self.deallocate(block, &self.own);
    }

    #[cold]
    fn too_large(&self, size: usize) -> Error {
        let info = OutOfMemoryInfo {
            requested: size,
            reserved: self.state().heap.reserved() as usize,
            free: 0,
            largest_free: 0,
            attempt: 0,
        };
        self.out_of_memory(info, None)
    }

    fn out_of_memory(&self, info: OutOfMemoryInfo, cause: Option<Error>) -> Error {
        let OutOfMemoryInfo { requested, reserved, free, largest_free, .. } = info;
        let why = match cause {
            Some(cause) => cause.to_string(),
            None => format!("the pool may grow to {} bytes", self.settings.maximum),
        };
        let context = self.context();
        Error::OutOfMemory {
            call: ALLOCATE,
            requested,
            device: context.device().name().unwrap_or_default().into(),
            free: context.memory_info().ok().map(|info| info.free),
            message: format!(
                "the pool has {reserved} bytes reserved, {free} of them free, the largest free range {largest_free}; {why}"
            )
            .into(),
        }
    }
}

impl State {
    fn try_each(&mut self, bytes: usize, stream: &Stream, efforts: &[Effort]) -> Result<Option<Block>> {
        for effort in efforts {
            if let Some(block) = self.heap.allocate(bytes as u64, stream, *effort, &mut self.clock)? {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    fn take_back(&mut self, spill: &Spill<Stream>) {
        for (stream, blocks) in spill {
            for block in blocks {
                // A block that was freed twice is there no more the second time.
                let known = self.heap.free(block.device_pointer, stream);
                debug_assert!(known, "a front had a block that is none: {block:?}");
            }
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let fronts = core::mem::take(&mut self.fronts);
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for front in &fronts {
            state.take_back(&front.cache.enter().drain());
        }
        let context = self.upstream.context();
        match context.liveness() {
            Liveness::DriverGone => {}
            Liveness::Gone => state.heap.regions().for_each(|block| self.upstream.abandon(block)),
            Liveness::Alive => {
                let _relaxed = RelaxedCalls::begin(context.driver());
                let mut result = state.heap.order.synchronize(&mut state.clock);
                for block in state.heap.regions() {
                    // SAFETY: every block holds the pool, so that none is left; what used them is done, or broken.
                    result = unsafe { self.upstream.deallocate(block, &self.own) }.and(result);
                }
                if let Err(error) = result
                    && !error.is_teardown()
                {
                    context.drop_errors().push("ending a pool", error);
                }
            }
        }
    }
}

/// Allocates a region that every stream may use at once.
fn allocate_region(upstream: &SharedResource, size: usize, alignment: usize, own: &Stream) -> Result<Block> {
    let block = upstream.allocate(size, alignment, own)?;
    match own.synchronize() {
        Ok(()) => Ok(block),
        Err(error) => {
            // SAFETY: just allocated, and used by nobody.
            unsafe { upstream.deallocate(block, own) }.and(Err(error))
        }
    }
}

/// Allocates the first region, and finds out how far the source aligns.
fn first_region(upstream: &SharedResource, settings: &PoolSettings, own: &Stream) -> Result<(usize, Block)> {
    let size = settings.initial.min(settings.maximum).max(GRANULARITY);
    for alignment in [GRANULARITY, 128, 64, 32] {
        match allocate_region(upstream, size, alignment, own) {
            Err(Error::InvalidArgument { argument: "alignment", .. }) => {}
            other => return other.map(|block| (alignment, block)),
        }
    }
    allocate_region(upstream, size, 16, own).map(|block| (16, block))
}

/// Checks that a region can be divided.
fn usable(block: Block, unit: usize) -> Result<()> {
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

fn refused(error: crate::suballocator::SuballocatorError) -> Error {
    Error::InvalidArgument {
        call: "Pool::new",
        argument: "a region",
        value: error.to_string().into(),
        rule: "the sizes of the settings have to be possible",
    }
}

#[cold]
fn unknown(block: Block) -> Error {
    Error::InvalidArgument {
        call: "Pool::deallocate",
        argument: "block",
        value: format!("{} bytes at {:#x}", block.size, block.device_pointer).into(),
        rule: "it must be allocated from this pool, and not be freed before",
    }
}
