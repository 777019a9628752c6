//! What all handles of a pool share: fronts before the heap, and the figures.

use super::classes::{BlockSize, block_size};
use super::front::{Freed, Fronts, Spill, Sum, Tally};
use super::heap::Heap;
use super::names::{NameCounts, Names};
use super::options::{OutOfMemoryInfo, PoolOptions};
use super::recorder::{Ended, Recorder};
use super::resizing::Resizing;
use super::room::{first_region, refused, usable};
use super::statistics::Flow;
use super::strays::Strays;
use super::threads::{front_count, thread_number};
use super::watch::Watch;
use crate::beside_captures::captures_under_way;
use crate::locked::{Ending, Locked};
use crate::resource::{Block, SharedResource, check_alignment};
use crate::trace::Action;
use crate::{Context, Error, Result, Stream};
use cuda_sys::CU_STREAM_PER_THREAD;
use std::sync::Mutex;

pub(super) const ALLOCATE: &str = "Pool::allocate";

/// What blocks are aligned to and a multiple of, in bytes, where the memory's atom is not larger.
pub(super) const GRANULARITY: usize = 256;
/// How many streams the heap holds before it looks whether some can be let go.
pub(super) const MOST_STREAMS: usize = 32;

/// What all handles of a pool share.
#[derive(Debug)]
pub(super) struct Core {
    pub upstream: SharedResource,
    pub options: PoolOptions,
    /// Regions are allocated and freed in order of this stream, which has no other work.
    pub own: Stream,
    pub unit_log2: u32,
    /// What the source aligns regions to, so far as it matters.
    pub alignment: usize,
    pub atom: usize,
    pub is_coherent: bool,
    pub fronts: Fronts<Stream>,
    /// No call that may run hooks, or wait, is made while it is held: hooks may use this pool.
    pub(super) state: Mutex<State>,
    pub resizing: Resizing,
    pub strays: Option<Strays>,
    /// What is noted of the blocks, if anything is.
    pub watch: Option<Box<Watch>>,
    named: NameCounts,
}

/// What the central lock guards.
#[derive(Debug)]
pub(super) struct State {
    pub heap: Heap<Recorder>,
    pub clock: Recorder,
    /// What did not go through a front.
    pub tally: Tally,
    pub names: Names,
    /// How many streams the heap holds before it looks whether some can be let go.
    pub most_streams: usize,
    /// How many bytes the source is being asked for.
    pub incoming: usize,
    /// How often a region was added.
    pub growths: u64,
    pub retries: u64,
    pub out_of_memory: u64,
}

/// The figures of the blocks that were given out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live {
    pub requested: Flow,
    pub allocated: Flow,
    pub blocks: Flow,
}

impl Ending for State {
    type Ended = Ended;

    #[inline]
    fn ended(&mut self) -> &mut Vec<Ended> {
        &mut self.clock.ended
    }
}

impl Core {
    pub fn new(upstream: SharedResource, fallback: Option<SharedResource>, options: &PoolOptions) -> Result<Self> {
        let own = Stream::new(upstream.context())?;
        let (alignment, first) = first_region(&upstream, options, &own)?;
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
            names: Names::default(),
            most_streams: MOST_STREAMS,
            incoming: 0,
            growths: 0,
            retries: 0,
            out_of_memory: 0,
        };
        let watch = Watch::new(options);
        if let Some(watch) = &watch {
            watch.region(Action::Grow, first);
        }
        Ok(Self {
            is_coherent: upstream.is_coherent(first),
            upstream,
            options: options.clone(),
            own,
            unit_log2: unit.trailing_zeros(),
            alignment,
            atom,
            fronts: Fronts::new(front_count(), options.front_capacity),
            state: Mutex::new(state),
            resizing: Resizing::default(),
            strays: fallback.map(Strays::new),
            watch,
            named: NameCounts::new(),
        })
    }

    pub fn context(&self) -> &Context {
        self.upstream.context()
    }

    pub fn state(&self) -> Locked<'_, State> {
        Locked::new(&self.state)
    }

    #[inline]
    pub fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        check_alignment(ALLOCATE, alignment, self.alignment)?;
        if captures_under_way() {
            stream.check_not_capturing(ALLOCATE)?;
        }
        let Some(block) = block_size(size, self.unit_log2) else { return Err(self.too_large(size)) };
        if let Some(class) = block.class
            && let Some(found) = self.fronts.take(thread_number(), stream, class, size)
        {
            return Ok(Block { size, ..found });
        }
        self.allocate_from_heap(size, alignment, block.bytes, stream)
    }

    /// Frees a block when the work given to `stream` so far is done. No call of the driver is made.
    #[inline]
    pub fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        if self.named.may_name(block.device_pointer) {
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
        if let Some(class) = class
            && self.fronts.keep_size(bytes)
            && stream.raw() != CU_STREAM_PER_THREAD
        {
            let whole = Block { size: bytes, ..block };
            match self.fronts.keep(thread_number(), stream, class, block.size, whole) {
                Freed::Kept => return Ok(()),
                Freed::Spilled(spill) => {
                    self.state().take_back(spill);
                    return Ok(());
                }
                Freed::Busy => {}
            }
        }
        self.deallocate_to_heap(block, bytes, stream)
    }

    #[inline(never)]
    fn allocate_from_heap(&self, size: usize, alignment: usize, bytes: usize, stream: &Stream) -> Result<Block> {
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
            // No lock is held: it may free what is the pool's.
            if self.options.on_out_of_memory.as_ref().is_some_and(|hook| hook(&info)) {
                self.state().retries += 1;
                attempt += 1;
                continue;
            }
            let mut cause = refusal.cause;
            if let Some(strays) = &self.strays {
                match strays.allocate(size, alignment, stream) {
                    Err(error) if error.is_out_of_memory() => cause = Some(error),
                    other => return other,
                }
            }
            self.state().out_of_memory += 1;
            return Err(self.out_of_memory(info, cause));
        }
    }

    #[inline(never)]
    fn deallocate_to_heap(&self, block: Block, bytes: usize, stream: &Stream) -> Result<()> {
        let mut stream = stream;
        if stream.raw() == CU_STREAM_PER_THREAD {
            // The work of a context that has ended has ended.
            stream.drain().or_else(|error| if error.is_teardown() { Ok(()) } else { Err(error) })?;
            stream = &self.own;
        }
        let mut state = self.state();
        if !state.heap.free(block.device_pointer, stream) {
            return Err(unknown(block));
        }
        state.tally.freed(block.size, bytes);
        Ok(())
    }

    /// Takes everything back that fronts keep. Whether that was something.
    pub fn drain_fronts(&self, state: &mut State) -> bool {
        let mut some = false;
        for spill in self.fronts.drain() {
            some |= spill.iter().any(|(_, blocks)| !blocks.is_empty());
            state.take_back(spill);
        }
        some
    }

    /// What was given out, by the heap and by all fronts.
    pub fn live(&self, state: &State) -> Live {
        let (mut allocated, mut freed) = (Sum::default(), Sum::default());
        for (one, other) in self.fronts.tallies().chain([&state.tally]).map(Tally::sums) {
            allocated.add(one);
            freed.add(other);
        }
        Live {
            requested: Flow::new(allocated.requested, freed.requested),
            allocated: Flow::new(allocated.bytes, freed.bytes),
            blocks: Flow::new(allocated.blocks, freed.blocks),
        }
    }

    pub fn set_name(&self, device_pointer: u64, name: &str) -> bool {
        let mut state = self.state();
        let known = state.heap.has(device_pointer);
        if known {
            state.names.set(device_pointer, name, &self.named);
        }
        known
    }

    #[cold]
    fn forget_name(&self, device_pointer: u64) {
        self.state().names.forget(device_pointer, &self.named);
    }

    /// Forgets a block: its context has ended.
    ///
    /// # Safety
    ///
    /// As of [`MemoryResource::abandon`](crate::memory::MemoryResource::abandon).
    pub unsafe fn abandon(&self, block: Block) {
        // SAFETY: the caller's contract.
        if self.strays.as_ref().is_some_and(|strays| unsafe { strays.abandon(block) }) {
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
            None => format!("the pool may grow to {} bytes", self.options.maximum),
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
    /// Takes back what a front has given up.
    fn take_back(&mut self, spill: Spill<Stream>) {
        for (stream, blocks) in spill {
            for block in blocks {
                // A block that was freed twice is there no more the second time.
                let known = self.heap.free(block.device_pointer, &stream);
                debug_assert!(known, "a front had a block that is none: {block:?}");
            }
            self.clock.ended.push(Ended::Stream(stream));
        }
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
