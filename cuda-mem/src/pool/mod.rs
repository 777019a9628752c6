//! A pool over any source of memory: allocations and frees in stream order, most of them without a call of the driver.
//!
//! A [`Pool`] takes large regions from its source and divides them. A block that is freed on a stream serves the same
//! stream again at once. Another stream gets it when an event that was recorded after the free has passed, or is told to
//! wait for that event; no event exists until another stream wants the memory.
//!
//! ```
//! # let driver = cuda_mem::Driver::software()?;
//! # let context = driver.device(0)?.primary_context()?;
//! use cuda_mem::memory::PinnedMemory;
//! use cuda_mem::pool::{Pool, PoolOptions};
//! use cuda_mem::{Buffer, Stream};
//!
//! let stream = Stream::new(&context)?;
//! let pool = Pool::new(&PinnedMemory::new(&context), &PoolOptions::default())?;
//! let buffer = Buffer::from_slice(&pool, &[1u32, 2, 3], &stream)?;
//! assert_eq!(buffer.to_vec()?, [1, 2, 3]);
//! assert_eq!(pool.statistics().requested.current, 12);
//! # Ok::<(), cuda_mem::Error>(())
//! ```
//!
//! # How it works
//!
//! **Fronts** keep what threads have freed last, by stream and size. A thread works with one front, so that an allocation
//! that a front serves takes no lock that others want. What fronts keep is bounded, and the heap takes it back when it
//! runs short.
//!
//! **The heap** divides regions with a [`Suballocator`](crate::suballocator::Suballocator), and knows of every free byte
//! which stream it waits for. Free ranges are joined at once, whoever freed them: what bytes wait for belongs to the
//! bytes, so that nothing is lost when ranges are joined and divided again.
//!
//! **When memory runs short**, this is tried in turn: what is free for the stream as things are known; events of other
//! streams; what fronts keep; with [`Reuse::Wait`], telling the stream to wait; growing, by less where the source has less; waiting for all freed memory on
//! the CPU, so that it lies together; giving empty regions back to make room for a larger one; the
//! [hook](PoolOptions::on_out_of_memory); the [fallback](Pool::with_fallback). Then it is
//! [`Error::OutOfMemory`].
//!
//! **Streams** are held while freed memory waits for them, so that no other stream gets their handle meanwhile: 8 by each
//! front, and by the heap those whose work was not seen to be done, which it looks at as soon as it holds more than 32.
//!
//! **What can be seen**: [statistics](Pool::statistics), which print as a table; a [snapshot](Pool::snapshot) as JSON, which
//! `cuda-mem pool-map` draws; and, where the options ask for it, the newest events as a [trace](Pool::trace), which can be
//! [replayed](crate::trace), and an account of the blocks that are there, with names and backtraces
//! ([`Pool::leak_report`]).
//!
//! **Captures**: memory is not given to a stream that captures a graph ([`Stream::capture`](crate::Stream::capture)).

mod central;
mod classes;
mod fixed;
mod front;
#[cfg(test)]
mod front_tests;
mod gate;
mod heap;
#[cfg(all(test, not(miri)))]
mod loom;
mod names;
mod options;
mod order;
mod recorder;
mod resizing;
mod ring;
mod room;
mod share;
mod snapshot;
mod source;
mod statistics;
mod strays;
mod sync;
mod threads;
mod tickets;
mod watch;

use crate::beside_captures::relaxed;
use crate::locked::Locked;
use crate::resource::{Block, Kind, ResourceHandle, SharedResource};
use crate::{Context, Error, Result, Stream};
use central::{Core, State};
use core::fmt;
use core::marker::PhantomData;
use cuda_sys::CUdeviceptr;
use heap::HeapRange;
use recorder::is_idle;
use share::Shares;
use std::collections::HashMap;
use std::sync::Arc;

pub use fixed::{FixedSizeOptions, FixedSizePool, FixedSizeStatistics};
#[cfg(fuzzing)]
pub use heap::model::history;
pub use options::{LeakHook, OutOfMemoryHook, OutOfMemoryInfo, PoolOptions, Reuse, Tracked};
pub use ring::{RingOptions, RingPool, RingStatistics, WhenFull};
pub use snapshot::{BlockSnapshot, BlockState, RegionSnapshot, Snapshot, SnapshotError};
pub use statistics::{Figure, Flow, PendingBytes, PoolStatistics};

/// A pool over a source of memory of kind `K`. See the [module](self). Buffers keep their pool. Cheap to clone.
///
/// ```
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// use cuda_mem::memory::{DeviceMemory, kind};
/// use cuda_mem::pool::{Pool, PoolOptions};
/// use cuda_mem::{Buffer, Stream};
///
/// let stream = Stream::new(&context)?;
/// let pool: Pool<kind::Device> = Pool::new(&DeviceMemory::new(&context), &PoolOptions::default())?;
/// let first = Buffer::<f32, _>::zeroed(&pool, 1000, &stream)?;
/// let address = first.device_pointer();
/// drop(first);
/// let second = Buffer::<f32, _>::zeroed(&pool, 1000, &stream)?; // in order of the stream
/// assert_eq!(second.device_pointer(), address);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct Pool<K> {
    shares: Arc<Shares>,
    kind: PhantomData<fn() -> K>,
}

/// A block that a front keeps.
struct Kept {
    /// The driver's handle of its stream.
    stream: u64,
    size: u64,
    /// Whether the stream has work left.
    waits: bool,
}

impl<K: Kind> Pool<K> {
    /// A pool that draws on `upstream`. The first region is allocated now.
    ///
    /// # Errors
    ///
    /// The source has no room, or no memory that can be divided: it needs an address for devices; the driver refuses.
    pub fn new<R>(upstream: &R, options: &PoolOptions) -> Result<Self>
    where
        R: ResourceHandle<Kind = K> + ?Sized,
    {
        Ok(Self::of(Core::new(upstream.share(), None, options)?))
    }

    /// A pool that asks `fallback` for single blocks, where it has no memory and cannot grow.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory, pool::{Pool, PoolOptions}};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// use cuda_mem::memory::{DevicePool, DriverPoolOptions};
    /// let mut options = PoolOptions::default();
    /// options.maximum = 4 << 20;
    /// let fallback = DevicePool::new(&context, &DriverPoolOptions::default())?;
    /// let pool = Pool::with_fallback(&memory, &fallback, &options)?;
    /// let large = Buffer::<u8, _>::zeroed(&pool, 16 << 20, &stream)?; // more than the pool may have
    /// assert!(pool.statistics().reserved.current <= 4 << 20);
    /// # drop(large);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); or the fallback is of another device or driver, or its memory may be addressed by others.
    pub fn with_fallback<R, F>(upstream: &R, fallback: &F, options: &PoolOptions) -> Result<Self>
    where
        R: ResourceHandle<Kind = K> + ?Sized,
        F: ResourceHandle<Kind = K> + ?Sized,
    {
        let (upstream, fallback) = (upstream.share(), fallback.share());
        let alike = upstream.accessibility() == fallback.accessibility()
            && upstream.is_on_device() == fallback.is_on_device()
            && upstream.context() == fallback.context();
        if !alike {
            return Err(Error::InvalidArgument {
                call: "Pool::with_fallback",
                argument: "fallback",
                value: format!("{:?} in {:?}", fallback.accessibility(), fallback.context()).into(),
                rule: "it has to be of the same context and addressable by the same as the pool's source",
            });
        }
        Ok(Self::of(Core::new(upstream, Some(fallback), options)?))
    }

    fn of(core: Core) -> Self {
        Self { shares: Arc::new(Shares::new(core)), kind: PhantomData }
    }
}

impl<K> Pool<K> {
    fn core(&self) -> &Core {
        self.shares.core()
    }

    /// The context that the pool works in.
    pub fn context(&self) -> &Context {
        self.core().context()
    }

    /// What the pool draws on.
    pub fn upstream(&self) -> &SharedResource {
        &self.core().upstream
    }

    /// The unit in bytes that blocks begin and end at: the larger of 256 and the memory's atom.
    pub fn granularity(&self) -> usize {
        1 << self.core().unit_log2
    }

    /// Grows until the pool has `bytes` of its source, free and used together.
    ///
    /// # Errors
    ///
    /// The maximum forbids it; the source has no room.
    pub fn reserve(&self, bytes: usize) -> Result<()> {
        self.core().reserve(bytes)
    }

    /// Gives regions back that hold no blocks and whose work is done, as long as at least `keep` bytes stay. Does not wait.
    ///
    /// # Errors
    ///
    /// Work failed; the source does not take a region back, which stays the pool's.
    #[doc(alias = "cuMemPoolTrimTo")]
    pub fn trim_to(&self, keep: usize) -> Result<()> {
        self.core().trim(keep, false)
    }

    /// Waits for the work that freed memory waits for, and gives all regions back that hold no blocks.
    ///
    /// # Errors
    ///
    /// As [`trim_to`](Self::trim_to).
    pub fn release_unused(&self) -> Result<()> {
        self.core().trim(0, true)
    }

    /// Gives a block a name, which a [snapshot](Self::snapshot) shows until the block is freed. Whether the pool has such a
    /// block: one of the fallback gets no name.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory, pool::{Pool, PoolOptions}};
    /// # let stream = Stream::new(&context)?;
    /// let pool = Pool::new(&DeviceMemory::new(&context), &PoolOptions::default())?;
    /// let weights = Buffer::<f32, _>::zeroed(&pool, 1000, &stream)?;
    /// assert!(pool.set_name(weights.device_pointer(), "weights"));
    /// assert!(pool.snapshot().to_json().contains("\"weights\""));
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn set_name(&self, device_pointer: CUdeviceptr, name: &str) -> bool {
        self.core().set_name(device_pointer, name)
    }

    /// Waits for the work of a stream, and lets go of the stream.
    ///
    /// A pool holds the streams that freed memory waits for. Streams of this crate live as long as they are held; a
    /// stream of another library ([`Stream::borrow_raw`](crate::Stream::borrow_raw)) must be let go before it is
    /// destroyed, and no buffer may have it as its home any more.
    ///
    /// # Errors
    ///
    /// Work failed, or the driver refuses; the stream is still held.
    pub fn release_stream(&self, stream: &Stream) -> Result<()> {
        self.core().release_stream(stream)
    }

    /// What the pool has and does.
    pub fn statistics(&self) -> PoolStatistics {
        let (state, in_fronts) = self.look();
        self.figures(&state, &in_fronts)
    }

    /// Lets all peaks begin anew.
    pub fn reset_peaks(&self) {
        let figures = &mut self.core().state().heap.figures;
        let all = [&mut figures.reserved, &mut figures.regions, &mut figures.active, &mut figures.inactive_split];
        all.into_iter().for_each(Figure::reset_peak);
    }

    /// The pool's state, and the blocks in fronts by address, after a look at which streams have work left.
    fn look(&self) -> (Locked<'_, State>, HashMap<u64, Kept>) {
        let core = self.core();
        // Where this fails, streams are not asked, and count as busy.
        let relaxed = relaxed(core.context().driver());
        let is_idle = |stream: &Stream| relaxed.is_ok() && is_idle(stream);
        let mut state = core.state();
        state.heap.order.note_idle(is_idle);
        let (mut kept, mut idle) = (HashMap::new(), HashMap::new());
        core.fronts.each(|stream, block| {
            let handle = stream.raw().addr() as u64;
            let waits = !*idle.entry(handle).or_insert_with(|| is_idle(stream));
            kept.insert(block.device_pointer, Kept { stream: handle, size: block.size as u64, waits });
        });
        (state, kept)
    }

    /// What the pool looks like now: every region with its blocks. Other threads wait meanwhile.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// # use cuda_mem::{Buffer, memory::DeviceMemory, pool::{BlockState, Pool, PoolOptions}};
    /// let pool = Pool::new(&DeviceMemory::new(&context), &PoolOptions::default())?;
    /// let weights = Buffer::<f32, _>::zeroed(&pool, 1000, &stream)?;
    /// let snapshot = pool.snapshot();
    /// let used = snapshot.regions.iter().flat_map(|region| &region.blocks).filter(|block| block.state == BlockState::Allocated);
    /// assert_eq!(used.map(|block| block.size).collect::<Vec<_>>(), [4096]);
    /// let text = snapshot.to_json(); // for `cuda-mem pool-map`
    /// # assert!(text.contains("regions"));
    /// # drop(weights);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn snapshot(&self) -> Snapshot {
        let mut given: HashMap<u64, Arc<str>> = HashMap::new();
        for block in self.leak_report().into_iter().flat_map(|report| report.blocks) {
            given.extend(block.name.map(|name| (block.address, name)));
        }
        let watch = self.core().watch.as_ref();
        let (state, in_fronts) = self.look();
        let statistics = self.figures(&state, &in_fronts);
        let name_of = |address: u64| match state.names.get(address) {
            Some(name) => Some(name.to_owned()),
            None => given.get(&address).map(|name| name.to_string()),
        };
        let region = |(block, ranges): (Block, Vec<HeapRange<Stream>>)| RegionSnapshot {
            address: block.device_pointer,
            size: block.size as u64,
            blocks: ranges
                .into_iter()
                .map(|range| {
                    let kept = in_fronts.get(&range.bytes.start).map(|kept| kept.stream);
                    let waits = range.stream.map(|stream| stream.raw().addr() as u64);
                    BlockSnapshot {
                        offset: range.bytes.start - block.device_pointer,
                        size: range.bytes.end - range.bytes.start,
                        state: match (range.used, kept, waits) {
                            (true, None, _) => BlockState::Allocated,
                            (true, Some(_), _) => BlockState::InFront,
                            (false, _, Some(_)) => BlockState::Pending,
                            (false, _, None) => BlockState::Free,
                        },
                        stream: waits.or(kept),
                        name: Some(range.bytes.start).filter(|_| range.used && kept.is_none()).and_then(name_of),
                    }
                })
                .collect(),
        };
        Snapshot {
            format: snapshot::FORMAT,
            device: self.context().device().ordinal(),
            granularity: self.granularity() as u64,
            regions: state.heap.ranges().into_iter().map(region).collect(),
            statistics,
            trace: watch.and_then(|watch| watch.trace()),
        }
    }

    fn figures(&self, state: &State, in_fronts: &HashMap<u64, Kept>) -> PoolStatistics {
        let mut pending = HashMap::new();
        let freed = state.heap.pending().into_iter().map(|(stream, bytes)| (stream.raw().addr() as u64, bytes));
        let kept = in_fronts.values().filter(|kept| kept.waits).map(|kept| (kept.stream, kept.size));
        for (stream, bytes) in freed.chain(kept) {
            *pending.entry(stream).or_insert(0) += bytes;
        }
        let mut pending: Vec<_> = pending.into_iter().map(|(stream, bytes)| PendingBytes { stream, bytes }).collect();
        pending.sort_unstable_by_key(|pending| pending.stream);
        let live = self.core().live(state);
        let (largest_free, fragmentation) = state.heap.pieces(|address| in_fronts.contains_key(&address));
        PoolStatistics {
            requested: live.requested,
            allocated: live.allocated,
            blocks: live.blocks,
            active: state.heap.figures.active,
            inactive_split: state.heap.figures.inactive_split,
            reserved: state.heap.figures.reserved,
            regions: state.heap.figures.regions,
            in_fronts: in_fronts.values().map(|kept| kept.size).sum(),
            pending,
            largest_free,
            fragmentation,
            events_recorded: state.clock.recorded,
            waits: state.clock.waits,
            retries: state.retries,
            out_of_memory: state.out_of_memory,
        }
    }
}

impl<K> Clone for Pool<K> {
    fn clone(&self) -> Self {
        Self { shares: self.shares.clone(), kind: PhantomData }
    }
}

impl<K> fmt::Debug for Pool<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("upstream", self.upstream())
            .field("options", &self.core().options)
            .finish_non_exhaustive()
    }
}

// SAFETY: the memory is the source's, which is of kind `K`, and the fallback's, which is too.
unsafe impl<K: Kind> ResourceHandle for Pool<K> {
    type Kind = K;

    fn share(&self) -> SharedResource {
        self.shares.share()
    }
}
