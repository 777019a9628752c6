//! A pool over any source of memory. It allocates and frees in stream order, mostly without driver calls.
//!
//! A [`Pool`] allocates large regions from its source and divides them into blocks. A stream can reuse a block that it
//! freed at once. Another stream gets the block when an event recorded after the free has passed, or the pool makes the
//! stream wait for that event. The pool records no event until another stream wants the memory.
//!
//! ```
//! let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
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
//! **Thread caches** keep the blocks that threads freed last, by stream and size. Each thread uses one thread cache. An
//! allocation that a thread's own cache serves makes no locked operation. Thread caches are bounded; the heap takes
//! their blocks back when it runs short.
//!
//! **The heap** divides regions with a [`Suballocator`](stream_heap::suballocator::Suballocator), and records which
//! stream each free byte waits for. It joins free neighbours at once, whichever streams freed them, because the records
//! belong to bytes, not to blocks.
//!
//! **When memory runs short**, the pool tries these steps in turn: memory that the stream may use without a query;
//! memory whose events have passed; blocks in thread caches; with [`Reuse::Wait`], memory that it makes the stream wait
//! for; growth, by less if the source has less; a wait on the CPU for all freed memory, so that free ranges join; a
//! larger region in place of empty ones; the [hook](PoolOptions::on_out_of_memory). If all fail, it returns
//! [`Error::OutOfMemory`](crate::Error::OutOfMemory).
//!
//! **Over [`DeviceMemory`](crate::memory::DeviceMemory) and [`VirtualMemory`](crate::memory::VirtualMemory)** the pool
//! grows in place: it reserves addresses once, maps chunks of physical memory there as it needs them, and gives back
//! chunks from anywhere. For a request that no free range could hold, it maps its free chunks side by side at other
//! addresses, without a copy and without a wait. So it fails only if its wholly free chunks and the device's free memory
//! together do not suffice. [`PoolOptions::in_place`] says when it allocates regions from the source instead.
//!
//! ```
//! let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
//! # let stream = cuda_mem::Stream::new(&context)?;
//! use cuda_mem::{Buffer, Result, memory::DeviceMemory, pool::{Pool, PoolOptions}};
//! let mut options = PoolOptions::default();
//! options.maximum = 64 << 20;
//! let pool = Pool::new(&DeviceMemory::new(&context), &options)?;
//! let chunk = 2 << 20;
//! let mut blocks = (0..32).map(|_| Buffer::<u8, _>::zeroed(&pool, chunk, &stream)).collect::<Result<Vec<_>>>()?;
//! drop((blocks.remove(2), blocks.remove(0))); // two free chunks, with a block between them
//! let large = Buffer::<u8, _>::zeroed(&pool, 2 * chunk, &stream)?; // side by side
//! assert_eq!(pool.statistics().reserved.current, 64 << 20); // no new memory
//! # Ok::<(), cuda_mem::Error>(())
//! ```
//!
//! **Streams**: the pool keeps the streams that freed memory waits for, so that no other stream gets their handle. A
//! thread cache keeps up to 64. The heap keeps streams until it sees their work done. It looks once it has more than
//! 32. It uses a [borrowed](crate::Stream::borrow_raw) stream only while the program has a value for it.
//!
//! **Diagnostics**: [statistics](Pool::statistics), which print as a table; a [snapshot](Pool::snapshot) as JSON, which
//! `cuda-mem pool-map` draws; and, if the options request them, a [trace](Pool::trace) of the newest events, which can
//! be [replayed](crate::adaptor::trace), and a list of the live blocks with names and backtraces ([`Pool::leak_report`]).
//!
//! **Captures**: a [borrowed](crate::Stream::borrow_raw) stream that its owner captures gets memory that belongs to the
//! graph: a free within the capture returns it to that capture, and nobody else gets it until the graph and all
//! executables made of it are destroyed. The graph also keeps the pool. A stream that
//! [`Stream::capture`](crate::Stream::capture) captures gets no memory: use [`GraphMemory`](crate::GraphMemory). The
//! pool's own calls end no capture of other libraries.

mod addresses;
mod cache_lock;
mod graphs;
mod growth;
mod in_place;
mod locked;
#[cfg(all(test, not(miri)))]
mod loom;
mod names;
mod options;
mod pool_ref;
mod recorder;
mod resizing;
mod ring;
mod search;
mod shared;
mod sleep;
mod snapshot;
#[cfg(feature = "json")]
mod snapshot_json;
mod source;
mod statistics;
mod sync;
mod tally;
mod thread_cache;
#[cfg(test)]
mod thread_cache_tests;
mod threads;
mod watch;
mod work_order;

use crate::error::{check_not_forked, unless_forked};
use crate::memory::kind;
use crate::memory::resource::{Block, Kind, ResourceHandle, SharedResource};
use crate::pool::locked::Locked;
use crate::{Context, Result, Stream};
use core::fmt;
use core::marker::PhantomData;
use cuda_sys::CUdeviceptr;
use pool_ref::PoolRefs;
use shared::{PoolState, SharedPool};
use std::collections::HashMap;
use std::sync::Arc;
use stream_heap::HeapRange;
use work_order::{OrderSource, WorkOrder};

pub use crate::error::SleepError;
pub use addresses::{AddressPools, Addresses};
pub use options::{LeakHook, OutOfMemoryHook, OutOfMemoryInfo, PoolOptions, Reuse, Tracked};
pub use ring::{RingOptions, RingPool, RingStatistics, WhenFull};
pub use sleep::{Contents, SleepOptions, Slept};
pub use snapshot::{BlockSnapshot, BlockState, RegionSnapshot, Snapshot};
#[cfg(feature = "json")]
pub use snapshot_json::SnapshotError;
pub use statistics::{Flow, PendingBytes, PoolStatistics};
pub use stream_heap::Figure;

/// A pool over a source of memory of kind `K`. See the [module](self). A buffer keeps its pool alive. Cheap to clone.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// use cuda_mem::memory::{DeviceMemory, kind};
/// use cuda_mem::pool::{Pool, PoolOptions};
/// use cuda_mem::{Buffer, Stream};
///
/// let stream = Stream::new(&context)?;
/// let pool: Pool<kind::Device> = Pool::new(&DeviceMemory::new(&context), &PoolOptions::default())?;
/// let first = Buffer::<f32, _>::zeroed(&pool, 1000, &stream)?;
/// let address = first.device_pointer();
/// drop(first);
/// let second = Buffer::<f32, _>::zeroed(&pool, 1000, &stream)?; // the stream reuses the block
/// assert_eq!(second.device_pointer(), address);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct Pool<K = kind::Any> {
    refs: Arc<PoolRefs>,
    kind: PhantomData<fn() -> K>,
}

/// A block in a thread cache.
struct CachedBlock {
    /// The stream that freed the block.
    stream: OrderSource,
    size: u64,
    /// The stream may have work left.
    waits: bool,
}

impl<K: Kind> Pool<K> {
    /// Makes a pool over `upstream`, and takes the first region, or the first chunks if it
    /// [grows in place](PoolOptions::in_place).
    ///
    /// # Errors
    ///
    /// The source has no room; its memory has no device address.
    pub fn new<R>(upstream: &R, options: &PoolOptions) -> Result<Self>
    where
        R: ResourceHandle<Kind = K> + ?Sized,
    {
        Ok(Self { refs: Arc::new(PoolRefs::new(SharedPool::new(upstream.share(), options)?)), kind: PhantomData })
    }
}

impl<K> Pool<K> {
    /// The same pool, as one of any kind of memory.
    pub fn to_any(&self) -> Pool<kind::Any> {
        Pool { refs: self.refs.clone(), kind: PhantomData }
    }

    fn core(&self) -> &SharedPool {
        self.refs.core()
    }

    /// The context of the pool's memory.
    pub fn context(&self) -> &Context {
        self.core().context()
    }

    /// The source of the pool's regions.
    pub fn upstream(&self) -> &SharedResource {
        &self.core().source.upstream
    }

    /// The larger of 256 and the memory's atom, in bytes. Blocks begin and end at multiples of it.
    pub fn granularity(&self) -> usize {
        1 << self.core().unit_log2
    }

    /// Grows until the pool has at least `bytes` from its source, free and used together.
    ///
    /// # Errors
    ///
    /// The maximum forbids it; the source has no room.
    pub fn reserve(&self, bytes: usize) -> Result<()> {
        check_not_forked("Pool::reserve")?;
        self.core().reserve(bytes)
    }

    /// Gives back regions without blocks whose work is done, as long as at least `keep` bytes stay. Does not wait.
    ///
    /// # Errors
    ///
    /// Work failed; the source refuses to take a region back, and the pool keeps the region.
    #[doc(alias = "cuMemPoolTrimTo")]
    pub fn trim_to(&self, keep: usize) -> Result<()> {
        check_not_forked("Pool::trim_to")?;
        self.core().trim(keep, false)
    }

    /// Waits for the work on all freed memory, and gives back all regions that hold no blocks.
    ///
    /// # Errors
    ///
    /// As [`trim_to`](Self::trim_to).
    pub fn release_unused(&self) -> Result<()> {
        check_not_forked("Pool::release_unused")?;
        self.core().trim(0, true)
    }

    /// Puts the pool to sleep: its memory goes back to the device, and its addresses stay. Buffers, pointers and captured
    /// graphs are valid again after [`wake`](Self::wake). What sleeps together is a pool: a program that lets some of its
    /// memory sleep alone has a pool for it.
    ///
    /// Waits for the work of the pool's context, and of the primary contexts of other devices that copy from the memory or have
    /// access to it; not for that of contexts that [`Device::create_context`](crate::Device::create_context) has made. A
    /// capture of another library in these contexts ends.
    ///
    /// While the pool sleeps, allocations and work on its buffers are [`SleepError::Asleep`], and a kernel that uses its
    /// memory fails with an illegal address, which ends the context: launch none. Buffers may be dropped.
    /// `reserved.current` of the statistics is 0 meanwhile.
    ///
    /// No other thread may queue work on the memory during this call or [`wake`](Self::wake): the work could meet an illegal
    /// address, or its result could be lost.
    ///
    /// # Errors
    ///
    /// The state then is the one before the call. The pool does not grow in place, or lies in host memory:
    /// [`Error::Unsupported`](crate::Error::Unsupported). It is asleep, or another thread changes that; queued work waits for
    /// the CPU, and goes on to do so for [`SleepOptions::patience`]: [`Error::Sleep`](crate::Error::Sleep). A stream captures:
    /// [`Error::Capturing`](crate::Error::Capturing). The host has no memory for the contents, or the memory is not
    /// page-locked.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory, pool::{Pool, PoolOptions, SleepOptions}};
    /// # let stream = Stream::new(&context)?;
    /// let weights = Pool::new(&DeviceMemory::new(&context), &PoolOptions::default())?;
    /// let layer = Buffer::from_slice(&weights, &[1.0f32, 2.0, 3.0], &stream)?;
    /// let address = layer.device_pointer();
    /// let slept = weights.sleep(&SleepOptions::default())?;
    /// assert_eq!((slept.saved, slept.released), (256, 2 << 20));
    /// assert!(layer.to_vec().is_err()); // another program may have the memory now
    /// weights.wake()?;
    /// assert_eq!((layer.to_vec()?, layer.device_pointer()), (vec![1.0, 2.0, 3.0], address));
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn sleep(&self, options: &SleepOptions) -> Result<Slept> {
        check_not_forked("Pool::sleep")?;
        self.core().fall_asleep(options)
    }

    /// Gives a pool that [sleeps](Self::sleep) memory at its addresses again, and restores its contents.
    ///
    /// # Errors
    ///
    /// The pool then sleeps on, and may be woken later. It is awake, or another thread changes that:
    /// [`Error::Sleep`](crate::Error::Sleep). The device has no memory for it.
    pub fn wake(&self) -> Result<()> {
        check_not_forked("Pool::wake")?;
        self.core().wake()
    }

    /// Whether the pool [sleeps](Self::sleep). `false` while a thread puts it to sleep or wakes it.
    pub fn is_asleep(&self) -> bool {
        unless_forked(|| self.core().is_asleep())
    }

    /// Names a block. A [snapshot](Self::snapshot) shows the name until the block is freed. `false` if the pool has no
    /// such block in use, or if the process was forked. No other thread may free the block meanwhile.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory, pool::{Pool, PoolOptions}};
    /// # let stream = Stream::new(&context)?;
    /// let pool = Pool::new(&DeviceMemory::new(&context), &PoolOptions::default())?;
    /// let weights = Buffer::<f32, _>::zeroed(&pool, 1000, &stream)?;
    /// assert!(pool.set_name(weights.device_pointer(), "weights"));
    /// assert!(pool.snapshot().to_json().contains("\"weights\""));
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn set_name(&self, device_pointer: CUdeviceptr, name: &str) -> bool {
        unless_forked(|| self.core().set_name(device_pointer, name))
    }

    /// Waits for the work of a stream, and releases the stream.
    ///
    /// A pool keeps the streams that freed memory waits for. A stream of this crate lives as long as a pool keeps it. Of a
    /// stream of another library ([`Stream::borrow_raw`](crate::Stream::borrow_raw)), the drop of the last value marks the
    /// end of the work, so it need not be released.
    ///
    /// # Errors
    ///
    /// Work failed. The pool then keeps the stream.
    pub fn release_stream(&self, stream: &Stream) -> Result<()> {
        check_not_forked("Pool::release_stream")?;
        self.core().release_stream(stream)
    }

    /// The pool's figures. All are 0 in a forked process.
    pub fn statistics(&self) -> PoolStatistics {
        unless_forked(|| {
            let (state, in_caches) = self.look();
            self.figures(&state, &in_caches)
        })
    }

    /// Resets all peaks to the current values.
    pub fn reset_peaks(&self) {
        unless_forked(|| {
            let figures = &mut self.core().state().heap.figures;
            let all = [&mut figures.reserved, &mut figures.regions, &mut figures.active, &mut figures.inactive_split];
            all.into_iter().for_each(Figure::reset_peak);
        });
    }

    /// Queries which streams have work left. Returns the locked state, and the blocks in thread caches.
    fn look(&self) -> (Locked<'_, PoolState>, HashMap<u64, CachedBlock>) {
        let core = self.core();
        // If relaxed mode is refused, no stream is queried, and all count as busy.
        let relaxed = core.source.relaxed();
        let order_is_idle = |order: &WorkOrder| relaxed.is_ok() && order.is_idle();
        let mut state = core.state();
        state.heap.tags.note_idle(order_is_idle);
        let (mut kept, mut idle) = (HashMap::new(), HashMap::new());
        core.caches.each(|stream, block| {
            let order = WorkOrder::of(stream);
            let waits = !*idle.entry(order.source()).or_insert_with(|| order_is_idle(&order));
            let size = block.size() as u64;
            kept.insert(block.device_pointer(), CachedBlock { stream: order.source(), size, waits });
        });
        (state, kept)
    }

    /// All regions with their blocks. Other threads wait meanwhile. There are none in a forked process.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
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
        let (regions, statistics) = unless_forked(|| self.regions());
        Snapshot {
            format: snapshot::FORMAT,
            device: self.context().device().ordinal(),
            granularity: self.granularity() as u64,
            regions,
            statistics,
            trace: self.core().watch.as_ref().and_then(|watch| watch.trace()),
        }
    }

    fn regions(&self) -> (Vec<RegionSnapshot>, PoolStatistics) {
        let mut given: HashMap<u64, Arc<str>> = HashMap::new();
        for block in self.leak_report().into_iter().flat_map(|report| report.blocks) {
            given.extend(block.name.map(|name| (block.address, name)));
        }
        let (state, in_caches) = self.look();
        let statistics = self.figures(&state, &in_caches);
        let name_of = |address: u64| match state.names.get(address) {
            Some(name) => Some(name.to_owned()),
            None => given.get(&address).map(|name| name.to_string()),
        };
        let region = |(block, ranges): (Block, Vec<HeapRange<WorkOrder>>)| RegionSnapshot {
            address: block.device_pointer(),
            size: block.size() as u64,
            blocks: ranges
                .into_iter()
                .map(|range| {
                    let kept = in_caches.get(&range.bytes.start).map(|kept| kept.stream.handle);
                    let waits = range.stream.map(|order| order.source().handle);
                    BlockSnapshot {
                        offset: range.bytes.start - block.device_pointer(),
                        size: range.bytes.end - range.bytes.start,
                        state: match (range.used, kept, waits) {
                            (true, None, _) => BlockState::Allocated,
                            (true, Some(_), _) => BlockState::InCache,
                            (false, _, Some(_)) => BlockState::Pending,
                            (false, _, None) => BlockState::Free,
                        },
                        stream: waits.or(kept),
                        name: Some(range.bytes.start).filter(|_| range.used && kept.is_none()).and_then(name_of),
                    }
                })
                .collect(),
        };
        (state.heap.ranges().into_iter().map(region).collect(), statistics)
    }

    fn figures(&self, state: &PoolState, in_caches: &HashMap<u64, CachedBlock>) -> PoolStatistics {
        let mut pending = HashMap::new();
        let freed = state.heap.pending().into_iter().map(|(order, bytes)| (order.source(), bytes));
        let kept = in_caches.values().filter(|kept| kept.waits).map(|kept| (kept.stream, kept.size));
        for (stream, bytes) in freed.chain(kept) {
            *pending.entry(stream).or_insert(0) += bytes;
        }
        let pending = pending.into_iter().map(|(stream, bytes)| PendingBytes { stream: stream.handle, bytes });
        let mut pending: Vec<_> = pending.collect();
        pending.sort_unstable_by_key(|pending| pending.stream);
        let live = self.core().live(state);
        let (largest_free, fragmentation) = state.heap.pieces(|address| in_caches.contains_key(&address));
        let mut reserved = state.heap.figures.reserved;
        reserved.current = reserved.current.saturating_sub(state.asleep.unwrap_or(0));
        PoolStatistics {
            requested: live.requested,
            allocated: live.allocated,
            blocks: live.blocks,
            active: state.heap.figures.active,
            inactive_split: state.heap.figures.inactive_split,
            reserved,
            regions: state.heap.figures.regions,
            in_caches: in_caches.values().map(|kept| kept.size).sum(),
            pending,
            largest_free,
            fragmentation,
            events_recorded: state.recorder.0.recorded,
            waits: state.recorder.0.waits,
            retries: state.retries,
            out_of_memory: state.out_of_memory,
        }
    }
}

impl<K> Clone for Pool<K> {
    fn clone(&self) -> Self {
        Self { refs: self.refs.clone(), kind: PhantomData }
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

// SAFETY: the memory comes from the source, and `new` requires its kind to be `K`.
unsafe impl<K: Kind> ResourceHandle for Pool<K> {
    type Kind = K;

    fn share(&self) -> SharedResource {
        self.refs.own().clone()
    }

    #[inline]
    fn shared_resource(&self) -> Option<&SharedResource> {
        Some(self.refs.own())
    }
}
