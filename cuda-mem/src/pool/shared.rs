//! What all handles of a pool share: the thread caches, the heap behind them, and the counts.

use super::graphs::{CapturedGraph, Graphs};
use super::growth::refused;
use super::names::{Names, NotedCounts};
use super::options::{OutOfMemoryInfo, PoolOptions};
use super::recorder::Ended;
use super::resizing::ResizingLock;
use super::sleep::SleepState;
use super::source::{PoolSource, UNKNOWN_TO_POOL, unknown_block};
use super::statistics::Flow;
use super::tally::{Sum, Tally};
use super::thread_cache::{Freed, Keep, Spill, ThreadCaches, WholeBlock};
use super::threads::cache_count;
use super::watch::Watch;
use super::work_order::{OrderRecorder, OtherWork, WorkOrder};
use crate::adaptor::trace::Action;
use crate::cpu::presence::Inside;
use crate::cpu::thread_slots::ThreadSlot;
use crate::error::callback::call_through;
use crate::error::check_not_forked;
use crate::locks::Mutex;
use crate::memory::resource::{Block, BlockKind, Held, Keeping, PendingUse, SharedResource, check_driver, check_shape};
use crate::pool::locked::{Ending, Locked};
use crate::{Context, Error, Result, Stream};
use core::ptr;
use cuda_sys::{CU_STREAM_PER_THREAD, CUstream};
use std::sync::Arc;
use std::thread::{self, ThreadId};
use stream_heap::{BlockSize, Heap, block_size};

pub(super) const ALLOCATE: &str = "Pool::allocate";

/// The alignment of blocks in bytes, if the memory's atom is not larger.
pub(super) const GRANULARITY: usize = 256;
/// How many streams the heap keeps before it looks for streams to release.
pub(super) const MOST_STREAMS: usize = 32;

#[derive(Debug)]
pub(super) struct SharedPool {
    pub source: Arc<PoolSource>,
    pub options: PoolOptions,
    /// Blocks begin and end at multiples of 2 to this power.
    pub unit_log2: u32,
    pub caches: ThreadCaches<Stream>,
    /// The holder makes no call that may wait or run a hook, because hooks may use this pool.
    pub(super) state: Mutex<PoolState>,
    pub resizing: ResizingLock,
    pub(super) sleep: Mutex<SleepState>,
    /// The trace and the account of blocks, if the options ask for one.
    pub watch: Option<Box<Watch>>,
    /// Counts the blocks that have a name or belong to a graph.
    pub(super) noted: NotedCounts,
}

/// The heap and its counts, behind one lock.
#[derive(Debug)]
pub(super) struct PoolState {
    pub heap: Heap<OrderRecorder, Block>,
    pub recorder: OrderRecorder,
    /// Counts the blocks that did not pass through a thread cache.
    pub tally: Tally,
    pub names: Names,
    pub graphs: Graphs,
    /// How many streams the heap keeps before it looks for streams to release.
    pub most_streams: usize,
    /// The bytes of regions that threads get from the source or return to it now.
    pub in_transit: Vec<(ThreadId, usize)>,
    /// How many regions were ever added.
    pub growths: u64,
    pub retries: u64,
    pub out_of_memory: u64,
    /// While the pool sleeps, or another thread changes that: the bytes of its chunks that have no memory.
    pub asleep: Option<u64>,
}

/// Counts of the blocks in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveCounts {
    pub requested: Flow,
    pub allocated: Flow,
    pub blocks: Flow,
}

/// [`Keep::hint`] of a driver's handle.
#[inline]
pub(super) fn hint_of(raw: CUstream) -> usize {
    // The high bits of the product depend on all bits of the handle.
    ((raw.addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57) as usize
}

impl Keep for Stream {
    type Held = Held;

    fn keep(&self) -> Self {
        self.kept()
    }

    #[inline]
    fn hint(&self) -> usize {
        hint_of(self.raw())
    }

    #[inline]
    fn is_same_value(&self, other: &Self) -> bool {
        self.is_clone_of(other)
    }
}

impl Ending for PoolState {
    type Ended = Ended;

    #[inline]
    fn ended(&mut self) -> &mut Vec<Ended> {
        &mut self.recorder.0.ended
    }
}

impl SharedPool {
    pub fn new(upstream: SharedResource, options: &PoolOptions) -> Result<Self> {
        options.check("Pool::new", GRANULARITY)?;
        let size = options.initial.min(options.maximum).max(GRANULARITY);
        let (source, first) = match PoolSource::of_chunks(&upstream, options)? {
            Some(source) => (source, None),
            None => PoolSource::open("Pool::new", upstream, size).map(|(source, first)| (source, Some(first)))?,
        };
        let unit = GRANULARITY.max(source.atom);
        let heap = Heap::new(unit as u64).and_then(|mut heap| {
            first.map_or(Ok(()), |first| heap.add(first))?;
            Ok(heap)
        });
        let heap = match (heap, first) {
            (Ok(heap), _) => heap,
            (Err(error), Some(first)) => return source.free(first).and(Err(refused(error))),
            (Err(error), None) => return Err(refused(error)),
        };
        let state = PoolState {
            heap,
            recorder: OrderRecorder::default(),
            tally: Tally::default(),
            names: Names::default(),
            graphs: Graphs::default(),
            most_streams: MOST_STREAMS,
            in_transit: Vec::new(),
            growths: 0,
            retries: 0,
            out_of_memory: 0,
            asleep: None,
        };
        let watch = Watch::new(options);
        if let (Some(watch), Some(first)) = (&watch, first) {
            watch.region(Action::Grow, first);
        }
        let pool = Self {
            source: Arc::new(source),
            options: options.clone(),
            unit_log2: unit.trailing_zeros(),
            caches: ThreadCaches::new(cache_count(), cache_count(), options.cache_capacity),
            state: Mutex::new(state),
            resizing: ResizingLock::default(),
            sleep: Mutex::default(),
            watch,
            noted: NotedCounts::new(),
        };
        pool.begin_in_place()?;
        Ok(pool)
    }

    /// The error of a growth for which the device has no memory, or the maximum no room.
    pub(super) fn no_room(&self, call: &'static str, requested: usize, cause: Option<Error>) -> Error {
        let info = {
            let mut state = self.state();
            // As the statistics do, the text counts blocks in thread caches as free.
            self.empty_caches(&mut state);
            state.lack(requested)
        };
        self.out_of_memory(call, info, cause)
    }

    pub fn context(&self) -> &Context {
        self.source.upstream.context()
    }

    pub fn state(&self) -> Locked<'_, PoolState> {
        Locked::new(&self.state)
    }

    #[inline]
    pub fn allocate(self: &Arc<Self>, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        self.allocate_by(size, alignment, stream, |class| self.caches.take(ThreadSlot::current(), stream, class, size))
    }

    /// Allocates a block for a buffer, and passes references for the buffer if a thread cache has kept some.
    #[inline]
    pub fn allocate_held(
        self: &Arc<Self>,
        size: usize,
        alignment: usize,
        stream: &Stream,
        held: &mut Option<Held>,
    ) -> Result<Block> {
        self.allocate_by(size, alignment, stream, |class| {
            self.caches.take_held(ThreadSlot::current(), stream, class, size, held)
        })
    }

    /// Allocates a block. `from_cache` takes one of a class from the thread's cache.
    #[inline]
    fn allocate_by(
        self: &Arc<Self>,
        size: usize,
        alignment: usize,
        stream: &Stream,
        from_cache: impl FnOnce(usize) -> Option<Block>,
    ) -> Result<Block> {
        check_shape(ALLOCATE, size, alignment, self.source.alignment)?;
        let is_recorded = stream.is_recorded_by_others(ALLOCATE)?;
        let Some(block) = block_size(size, self.unit_log2) else { return Err(self.too_large(size)) };
        if is_recorded {
            return self.allocate_for_graph(size, block.bytes, stream);
        }
        // The stream freed it last.
        if let Some(found) = block.class.and_then(from_cache) {
            return Ok(found.with_size(size).with_pending_use(PendingUse::InStreamOrder));
        }
        self.allocate_from_heap(size, block.bytes, WorkOrder::of(stream))
    }

    /// Frees a block as [`deallocate`](Self::deallocate) does, if the thread's cache takes it at once. The thread cache
    /// may take the references of its buffer too.
    ///
    /// # Safety
    ///
    /// As [`MemoryResource::keep`](crate::memory::resource::MemoryResource::keep).
    #[inline]
    pub unsafe fn keep(
        &self,
        inside: &Inside<'_>,
        block: &Block,
        (resource, home): (*const SharedResource, *const Stream),
    ) -> Keeping {
        match block_size(block.size(), self.unit_log2) {
            Some(BlockSize { bytes, class: Some(class) }) if !self.noted.may_count(block.device_pointer()) => {
                // SAFETY: this function's contract.
                let held = || unsafe { Held { resource: ptr::read(resource), home: ptr::read(home) } };
                // SAFETY: this function's contract.
                unsafe { self.caches.keep_held(inside, &*home, block, WholeBlock { bytes, class }, held) }
            }
            _ => Keeping::Nothing,
        }
    }

    /// Frees a block that only work queued on `stream` so far still uses. Makes no driver call.
    #[inline]
    pub fn deallocate(self: &Arc<Self>, block: Block, stream: &Stream) -> Result<()> {
        check_not_forked("Pool::deallocate")?;
        let Some(BlockSize { bytes, class }) = block_size(block.size(), self.unit_log2) else {
            return Err(unknown_block("Pool::deallocate", block, UNKNOWN_TO_POOL));
        };
        if self.noted.may_count(block.device_pointer())
            && let Some(graph) = self.forget_noted(block)
        {
            return self.free_of_graph(block, bytes, graph, stream, Vec::new());
        }
        if let Some(class) = class
            && self.caches.keep_size(bytes)
            && stream.raw() != CU_STREAM_PER_THREAD
        {
            let (thread, whole) = (ThreadSlot::current(), WholeBlock { bytes, class });
            let freed = self.caches.keep(thread, stream, &block, whole);
            if freed == Freed::Kept || self.keep_otherwise(freed, thread, stream, &block, whole) {
                return Ok(());
            }
        }
        self.deallocate_to_heap(block, bytes, WorkOrder::of(stream))
    }

    /// Frees a block that work of `stream` and of further streams uses, all of it queued before.
    #[cold]
    pub fn deallocate_used(self: &Arc<Self>, block: Block, stream: &Stream, uses: Vec<OtherWork>) -> Result<()> {
        const CALL: &str = "Pool::deallocate";
        check_not_forked(CALL)?;
        let Some(BlockSize { bytes, .. }) = block_size(block.size(), self.unit_log2) else {
            return Err(unknown_block(CALL, block, UNKNOWN_TO_POOL));
        };
        match self.forget_noted(block) {
            Some(graph) => self.free_of_graph(block, bytes, graph, stream, uses),
            None => {
                let order = WorkOrder::with_others(self.source.stream_of_free(stream)?, uses);
                self.deallocate_to_heap(block, bytes, order)
            }
        }
    }

    #[inline(never)]
    pub fn allocate_from_heap(&self, size: usize, bytes: usize, order: WorkOrder) -> Result<Block> {
        // A stream with blocks in a thread cache has been here before.
        check_driver(ALLOCATE, self.context(), &order.stream)?;
        // Otherwise the pool would give regions back and try in vain.
        if bytes > self.options.maximum {
            return Err(self.too_large(size));
        }
        let mut attempt = 0;
        loop {
            let refusal = match self.find(size, bytes, &order)? {
                Ok(block) => return Ok(block.with_size(size)),
                Err(refusal) => refusal,
            };
            let info = OutOfMemoryInfo { attempt, ..refusal.info };
            // No lock is held, because the hook may free blocks of this pool.
            if self.options.on_out_of_memory.as_ref().is_some_and(|hook| call_through(|| hook(&info))) {
                self.state().retries += 1;
                attempt += 1;
                continue;
            }
            self.state().out_of_memory += 1;
            return Err(self.out_of_memory(ALLOCATE, info, refusal.cause));
        }
    }

    #[inline(never)]
    fn deallocate_to_heap(&self, block: Block, bytes: usize, order: WorkOrder) -> Result<()> {
        let mut state = self.state();
        if !state.heap.free(block.device_pointer(), &order) {
            return Err(unknown_block("Pool::deallocate", block, UNKNOWN_TO_POOL));
        }
        state.tally.freed(block.size(), bytes);
        if order.is_of_this_thread() {
            let PoolState { heap, recorder, .. } = &mut *state;
            // Other threads cannot record it. If this fails, the thread's next free serves this one too.
            let _ = heap.tags.mark(&order, recorder);
        }
        Ok(())
    }

    /// What a free does if the thread cache did not simply keep the block. `false` if the block must go to the heap.
    #[cold]
    fn keep_otherwise(
        &self,
        freed: Freed,
        thread: ThreadSlot,
        stream: &Stream,
        block: &Block,
        whole: WholeBlock,
    ) -> bool {
        match freed {
            Freed::Kept => {}
            Freed::Full => self.spill_cache(thread),
            Freed::NewStream => match self.caches.keep_first(thread, stream, block, whole) {
                Some(spill) => self.take_back(spill),
                None => return false,
            },
            Freed::Busy => return false,
        }
        true
    }

    /// Gives to the heap what the thread's cache has too much.
    #[cold]
    pub fn spill_cache(&self, thread: ThreadSlot) {
        self.take_back(self.caches.spill(thread));
    }

    fn take_back(&self, spill: Spill<Stream>) {
        if !spill.is_empty() {
            self.state().take_back_all(spill);
        }
    }

    /// Returns all blocks in thread caches to the heap. `true` if there were any.
    pub fn empty_caches(&self, state: &mut PoolState) -> bool {
        let mut some = false;
        self.caches.empty(|stream, blocks| {
            state.take_back(stream, blocks);
            some = true;
        });
        some
    }

    /// Returns all blocks in thread caches to the heap, and releases the streams that thread caches keep.
    pub fn drain_caches(&self, state: &mut PoolState) {
        state.take_back_all(self.caches.drain());
    }

    /// Counts of the blocks that the heap and all thread caches have handed out.
    pub fn live(&self, state: &PoolState) -> LiveCounts {
        let (mut allocated, mut freed) = (Sum::default(), Sum::default());
        for (one, other) in self.caches.tallies().chain([&state.tally]).map(Tally::sums) {
            allocated.add(one);
            freed.add(other);
        }
        LiveCounts {
            requested: Flow::new(allocated.requested, freed.requested),
            allocated: Flow::new(allocated.bytes, freed.bytes),
            blocks: Flow::new(allocated.blocks, freed.blocks),
        }
    }

    pub fn set_name(&self, device_pointer: u64, name: &str) -> bool {
        let mut state = self.state();
        // The heap counts blocks in thread caches as used.
        let known = state.heap.has(device_pointer) && self.caches.has_not(device_pointer);
        if known {
            state.names.set(device_pointer, name, &self.noted);
        }
        known
    }

    /// Forgets the name of a block. Returns the graph that it belongs to.
    #[cold]
    fn forget_noted(&self, block: Block) -> Option<Arc<CapturedGraph>> {
        let mut state = self.state();
        state.names.forget(block.device_pointer(), &self.noted);
        state.graphs.owner(block.device_pointer())
    }

    /// Frees a block whose context has ended.
    pub fn abandon(self: &Arc<Self>, block: Block) {
        // Makes no call of the driver. Nobody could handle the error of an unknown block.
        let _ = self.deallocate(block, &self.source.own);
    }

    #[cold]
    fn too_large(&self, size: usize) -> Error {
        self.state().out_of_memory += 1;
        self.no_room(ALLOCATE, size, None)
    }

    fn out_of_memory(&self, call: &'static str, info: OutOfMemoryInfo, cause: Option<Error>) -> Error {
        let OutOfMemoryInfo { requested, reserved, free, largest_free, .. } = info;
        let why = match cause {
            // The rest of its text stands in this error too.
            Some(Error::OutOfMemory { message, .. }) => message.into(),
            Some(cause) => cause.to_string(),
            None if requested > self.options.maximum => {
                format!(
                    "the request is larger than the pool's maximum of {} bytes: raise `PoolOptions::maximum`",
                    self.options.maximum
                )
            }
            None => format!("the pool may grow to {} bytes (`PoolOptions::maximum`)", self.options.maximum),
        };
        let message = format!(
            "the pool has {reserved} bytes reserved, {free} of them free, the largest free range {largest_free}; {why}"
        );
        self.source.out_of_memory(call, requested, message)
    }
}

impl PoolState {
    /// The bytes that the pool has or may have of its source.
    pub fn committed(&self) -> usize {
        self.heap.reserved() as usize + self.in_transit.iter().map(|(_, bytes)| bytes).sum::<usize>()
    }

    /// What the pool has, for a request that it cannot serve.
    pub fn lack(&self, requested: usize) -> OutOfMemoryInfo {
        let (reserved, used) = (self.heap.reserved(), self.heap.used());
        OutOfMemoryInfo {
            requested,
            reserved: reserved as usize,
            free: (reserved - used) as usize,
            largest_free: self.heap.largest_free() as usize,
            attempt: 0,
        }
    }

    /// Ends what this thread has begun with a region of this size.
    pub fn end_transit(&mut self, bytes: usize) {
        let ended = (thread::current().id(), bytes);
        if let Some(at) = self.in_transit.iter().position(|one| *one == ended) {
            self.in_transit.swap_remove(at);
        }
    }

    /// Notes whether queued work may still use a block of the heap. Only accesses of the CPU depend on it.
    pub fn noting_former_work(&self, block: Block) -> Block {
        if block.kind() == BlockKind::Device || self.heap.tags.is_settled(&block.bytes()) {
            return block;
        }
        block.with_pending_use(PendingUse::InStreamOrder)
    }

    /// Takes back what has left thread caches, with its streams.
    pub fn take_back_all(&mut self, spill: Spill<Stream>) {
        for (stream, blocks) in spill {
            self.take_back(&stream, &mut blocks.into_iter());
            self.recorder.0.ended.push(Ended::Stream(stream));
        }
    }

    /// Takes back blocks of a thread cache, which a stream has freed.
    fn take_back(&mut self, stream: &Stream, blocks: &mut dyn Iterator<Item = Block>) {
        let order = WorkOrder::of(stream);
        for block in blocks {
            let known = self.heap.free(block.device_pointer(), &order);
            debug_assert!(known, "a thread cache kept a block that the heap does not know: {block:?}");
        }
    }
}
