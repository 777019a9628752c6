//! Pools.

use crate::error::{Outcome, refused};
use crate::resource::MemoryResource;
use crate::signals;
use core::time::Duration;
use cuda_mem::memory::kind::Any;
use cuda_mem::pool::{Contents, PoolOptions, Reuse, RingOptions, SleepOptions, WhenFull};
use cuda_mem_dynamic::ResourceType;
use pyo3::prelude::*;

/// A stream-ordered pool over any source of memory. A pair of allocation and free on one stream makes no driver call.
///
/// >>> pool = cuda_mem.Pool(cuda_mem.DeviceMemory(), maximum=1 << 30)
/// >>> with pool.allocate(4096) as buffer:
/// ...     pool.statistics().blocks
/// 1
#[pyclass(frozen, extends = MemoryResource, module = "cuda_mem")]
pub struct Pool;

/// Figures of a pool. Sizes are in bytes.
#[pyclass(frozen, get_all, module = "cuda_mem")]
pub struct PoolStatistics {
    /// The memory that the pool has from its source, now.
    reserved: u64,
    /// The same, at most since the start or the last `Pool.reset_peaks`.
    reserved_peak: u64,
    /// The sizes of allocated blocks.
    allocated: u64,
    /// The sizes of allocated blocks and of blocks in threads' caches.
    active: u64,
    /// The same, at most since the start or the last `Pool.reset_peaks`.
    active_peak: u64,
    /// The sizes that were asked for, of allocated blocks.
    requested: u64,
    /// Allocated blocks.
    blocks: u64,
    /// All allocations since the start.
    allocations: u64,
    /// The free memory in blocks that threads keep at hand.
    in_caches: u64,
    /// The largest free range.
    largest_free: u64,
    /// From 0, all free memory in one range, to 1.
    fragmentation: f64,
    /// Requests without room.
    out_of_memory: u64,
    /// How often the pool made a stream wait.
    waits: u64,
    /// Events that the pool recorded.
    events_recorded: u64,
}

#[pymethods]
impl PoolStatistics {
    fn __repr__(&self) -> String {
        format!(
            "PoolStatistics(reserved={}, allocated={}, blocks={}, allocations={}, fragmentation={:.3})",
            self.reserved, self.allocated, self.blocks, self.allocations, self.fragmentation
        )
    }
}

/// What a pool did when it fell asleep. Sizes are in bytes.
#[pyclass(frozen, get_all, module = "cuda_mem")]
pub struct Slept {
    /// The contents in host memory.
    saved: usize,
    /// The memory that the device got back.
    released: usize,
}

#[pymethods]
impl Slept {
    #[new]
    fn new(saved: usize, released: usize) -> Self {
        Self { saved, released }
    }

    fn __repr__(&self) -> String {
        format!("Slept(saved={}, released={})", self.saved, self.released)
    }
}

fn of(resource: &MemoryResource) -> Outcome<&cuda_mem::pool::Pool<Any>> {
    // Some calls return no error in Rust.
    cuda_mem::check_not_forked("use of a Pool")?;
    cuda_mem::pool::Pool::of(&resource.source.resource).ok_or_else(|| refused("this object is not a pool"))
}

#[pymethods]
impl Pool {
    /// A pool over `source`. Sizes are in bytes: `initial` is reserved at once, 2 MiB by default, `smallest_growth` and
    /// `largest_growth` bound what is reserved at a time, and `maximum` bounds all. Raises ArgumentError if `initial`
    /// exceeds the maximum, or if the maximum is below what the pool takes at least: 256 bytes, or over VirtualMemory
    /// one chunk (2 MiB on an H100). `reuse` is "when_passed", "same_stream_only" or "wait":
    /// whether memory that another stream freed is reused once its work is done, never, or after a wait. With a
    /// `trace_capacity`, snapshots contain that many of the newest events.
    #[new]
    #[pyo3(signature = (
        source, *, initial = None, smallest_growth = None, largest_growth = None, maximum = None,
        reuse = "when_passed", trace_capacity = 0
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, MemoryResource>,
        initial: Option<usize>,
        smallest_growth: Option<usize>,
        largest_growth: Option<usize>,
        maximum: Option<usize>,
        reuse: &str,
        trace_capacity: usize,
    ) -> Outcome<PyClassInitializer<Self>> {
        let mut options = PoolOptions::default();
        for (place, chosen) in [
            (&mut options.initial, initial),
            (&mut options.smallest_growth, smallest_growth),
            (&mut options.largest_growth, largest_growth),
            (&mut options.maximum, maximum),
        ] {
            *place = chosen.unwrap_or(*place);
        }
        options.trace_capacity = trace_capacity;
        options.reuse = match reuse {
            "when_passed" => Reuse::WhenPassed,
            "same_stream_only" => Reuse::SameStreamOnly,
            "wait" => Reuse::Wait,
            other => {
                let text =
                    format!("reuse is {other:?}, but it must be \"when_passed\", \"same_stream_only\" or \"wait\"");
                return Err(refused(text));
            }
        };
        let source = source.get();
        let pool = py.detach(|| cuda_mem::pool::Pool::<Any>::new(&source.source.share(), &options))?;
        Ok(MemoryResource::init(Self, pool, source.stream.context()))
    }

    /// The figures of the pool.
    fn statistics(slf: PyRef<'_, Self>, py: Python<'_>) -> Outcome<PoolStatistics> {
        let pool = of(slf.as_super())?;
        let found = py.detach(|| pool.statistics());
        Ok(PoolStatistics {
            reserved: found.reserved.current,
            reserved_peak: found.reserved.peak,
            allocated: found.allocated.current,
            active: found.active.current,
            active_peak: found.active.peak,
            requested: found.requested.current,
            blocks: found.blocks.current,
            allocations: found.blocks.total,
            in_caches: found.in_caches,
            largest_free: found.largest_free,
            fragmentation: found.fragmentation,
            out_of_memory: found.out_of_memory,
            waits: found.waits,
            events_recorded: found.events_recorded,
        })
    }

    /// All regions and blocks: a PoolSnapshot, which a notebook shows as a picture.
    fn snapshot<'py>(slf: PyRef<'py, Self>, py: Python<'py>) -> Outcome<Bound<'py, PyAny>> {
        let pool = of(slf.as_super())?;
        let text = py.detach(|| pool.snapshot().to_json());
        Ok(py.import("cuda_mem._snapshot")?.getattr("PoolSnapshot")?.call_method1("from_json", (text,))?)
    }

    /// Gives a name to the block that contains the address; snapshots show it. Returns whether there is such a block.
    fn set_name(slf: PyRef<'_, Self>, address: u64, name: &str) -> Outcome<bool> {
        Ok(of(slf.as_super())?.set_name(address, name))
    }

    /// Reserves memory so that the pool has `size` bytes.
    fn reserve(slf: PyRef<'_, Self>, py: Python<'_>, size: usize) -> Outcome {
        let pool = of(slf.as_super())?;
        Ok(py.detach(|| pool.reserve(size))?)
    }

    /// Returns unused memory to the source, but keeps `keep` bytes. Does not wait for work.
    #[pyo3(signature = (keep = 0))]
    fn trim_to(slf: PyRef<'_, Self>, py: Python<'_>, keep: usize) -> Outcome {
        let pool = of(slf.as_super())?;
        Ok(py.detach(|| pool.trim_to(keep))?)
    }

    /// Waits for the work on freed memory, and returns all unused memory to the source.
    fn release_unused(slf: PyRef<'_, Self>, py: Python<'_>) -> Outcome {
        let pool = of(slf.as_super())?;
        Ok(signals::detach(py, || pool.release_unused())??)
    }

    /// Puts the pool to sleep: its memory goes back to the device, and its addresses stay. After `wake`, buffers, pointers
    /// and captured graphs are valid again. While it sleeps, allocations and work on its buffers raise AsleepError, and a
    /// kernel that uses its memory ends the context: launch none. Buffers may be closed. `contents` is "save", which
    /// copies them to host memory and back, or "discard". `host` is where they are saved: PinnedMemory, or a pool over it,
    /// which is faster if it has room already. By default the call allocates page-locked memory.
    ///
    /// Waits for queued work, and at most `patience` seconds for work that waits for the CPU: WaitTimeoutError, and
    /// the pool stays awake. Raises SleepError if the pool sleeps already, and UnsupportedError if it does not grow in
    /// place: over DeviceMemory with a maximum of at least 64 MiB, or VirtualMemory of the device.
    ///
    /// >>> pool = cuda_mem.Pool(cuda_mem.DeviceMemory())
    /// >>> weights = pool.copy_of(b"weights")
    /// >>> pool.sleep()
    /// Slept(saved=256, released=2097152)
    /// >>> pool.wake()
    /// >>> weights.to_bytes()
    /// b'weights'
    #[pyo3(signature = (*, contents = "save", host = None, patience = 10.0))]
    fn sleep(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        contents: &str,
        host: Option<&Bound<'_, MemoryResource>>,
        patience: f64,
    ) -> Outcome<Slept> {
        let mut options = SleepOptions::default();
        options.contents = match contents {
            "save" => Contents::Save,
            "discard" => Contents::Discard,
            other => return Err(refused(format!("contents is {other:?}, but it must be \"save\" or \"discard\""))),
        };
        options.patience = Duration::try_from_secs_f64(patience).map_err(|_| {
            refused(format!("patience is {patience:?}, but it must be a finite number of seconds, 0 or more"))
        })?;
        options.host = host.map(|host| host.get().source.share());
        let pool = of(slf.as_super())?;
        let slept = signals::detach(py, || pool.sleep(&options))??;
        Ok(Slept { saved: slept.saved, released: slept.released })
    }

    /// Gives a pool that sleeps memory at its addresses again, and restores its contents. Raises SleepError if it is
    /// awake, and OutOfMemoryError if the device has no room: it then sleeps on, and may be woken later.
    fn wake(slf: PyRef<'_, Self>, py: Python<'_>) -> Outcome {
        let pool = of(slf.as_super())?;
        Ok(signals::detach(py, || pool.wake())??)
    }

    /// Whether the pool sleeps.
    #[getter]
    fn is_asleep(slf: PyRef<'_, Self>, py: Python<'_>) -> Outcome<bool> {
        let pool = of(slf.as_super())?;
        Ok(py.detach(|| pool.is_asleep()))
    }

    /// Sets the peaks of the figures to the present values.
    fn reset_peaks(slf: PyRef<'_, Self>, py: Python<'_>) -> Outcome {
        let pool = of(slf.as_super())?;
        py.detach(|| pool.reset_peaks());
        Ok(())
    }
}

/// A ring of memory for blocks that are freed in the order of their allocation, such as staging of uploads.
#[pyclass(frozen, extends = MemoryResource, module = "cuda_mem")]
pub struct RingPool;

#[pymethods]
impl RingPool {
    /// A ring of `capacity` bytes over `source`. If it is full, an allocation waits for the work on blocks that were closed.
    /// If the oldest block is still open, None refuses the allocation with OutOfMemoryError, because this thread may be the
    /// one that must close it, and a `timeout` waits for other threads to do so, at most that many seconds. 0 waits for
    /// nothing.
    #[new]
    #[pyo3(signature = (source, capacity, *, timeout = None))]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, MemoryResource>,
        capacity: usize,
        timeout: Option<f64>,
    ) -> Outcome<PyClassInitializer<Self>> {
        let mut options = RingOptions::default();
        options.when_full = match timeout.map(crate::stream::limit).transpose()? {
            None => WhenFull::Wait,
            Some(Duration::ZERO) => WhenFull::Refuse,
            Some(limit) => WhenFull::WaitAtMost(limit),
        };
        let source = source.get();
        let ring = py.detach(|| cuda_mem::pool::RingPool::<Any>::new(&source.source.share(), capacity, &options))?;
        Ok(MemoryResource::init(Self, ring, source.stream.context()))
    }
}
