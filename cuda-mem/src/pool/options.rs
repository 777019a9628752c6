//! Options of a pool.

use crate::adaptor::LeakReport;
use crate::{Error, Result};
use core::fmt;
use std::sync::Arc;

/// When a stream may use memory that another stream has freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reuse {
    /// Never while the pool can grow. The pool records no event and makes no stream wait.
    SameStreamOnly,
    /// When an event that the pool recorded after the free has passed.
    WhenPassed,
    /// As `WhenPassed`. Before the pool grows, it makes the stream wait for the event instead.
    #[default]
    Wait,
}

/// A request that a pool could not serve, for [`PoolOptions::on_out_of_memory`]. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfMemoryInfo {
    /// The requested size.
    pub requested: usize,
    /// The size of all regions.
    pub reserved: usize,
    /// The part of `reserved` that no block uses.
    pub free: usize,
    /// The largest free range.
    pub largest_free: usize,
    /// How often the pool has called the hook for this request before.
    pub attempt: u32,
}

/// A pool calls this hook when no memory is left. The hook may free memory, also of this pool. If it returns `true`,
/// the pool tries again.
///
/// The pool holds no lock meanwhile. A hook that owns memory of its pool and the pool keep each other alive until that
/// memory is freed.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// # let stream = cuda_mem::Stream::new(&context)?;
/// use cuda_mem::pool::{Pool, PoolOptions};
/// use cuda_mem::{Buffer, memory::DeviceMemory};
/// use std::sync::{Arc, Mutex};
/// // Memory that the program can do without.
/// let cache = Arc::new(Mutex::new(Vec::new()));
/// let theirs = Arc::clone(&cache);
/// let mut options = PoolOptions::default();
/// options.maximum = 4 << 20;
/// options.on_out_of_memory = Some(Arc::new(move |_| theirs.lock().is_ok_and(|mut cache| cache.pop().is_some())));
///
/// let pool = Pool::new(&DeviceMemory::new(&context), &options)?;
/// cache.lock().expect("nobody panicked").push(Buffer::<u8, _>::zeroed(&pool, 3 << 20, &stream)?);
/// let needed = Buffer::<u8, _>::zeroed(&pool, 2 << 20, &stream)?; // the hook has emptied the cache
/// # assert_eq!((needed.len(), cache.lock().expect("nobody panicked").len()), (2 << 20, 0));
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub type OutOfMemoryHook = Arc<dyn Fn(&OutOfMemoryInfo) -> bool + Send + Sync>;

/// What a pool records of its live blocks, for [`Pool::leak_report`](super::Pool::leak_report). Such a pool
/// refuses to free a block that is not live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tracked {
    /// Nothing.
    #[default]
    No,
    /// Sizes, ages, threads, and the [names](crate::adaptor::named) under which blocks were allocated. Takes some 60 ns
    /// for each allocation and free.
    Names,
    /// Also a backtrace of each allocation, which takes microseconds.
    Backtraces,
}

/// Receives the blocks that are live when the last handle of a pool is dropped.
pub type LeakHook = Arc<dyn Fn(&LeakReport) + Send + Sync>;

/// Options of a pool. Sizes are in bytes.
///
/// ```
/// use cuda_mem::pool::{PoolOptions, Reuse};
/// let mut options = PoolOptions::default();
/// options.reuse = Reuse::WhenPassed;
/// options.maximum = 4 << 30;
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct PoolOptions {
    /// The first region, which [`Pool::new`](super::Pool::new) allocates. 2 MiB by default, or the
    /// [`maximum`](Self::maximum) if that is less; other sizes beyond the maximum are refused.
    pub initial: usize,
    /// Each growth multiplies the pool's size by this factor, within the bounds of
    /// [`smallest_growth`](Self::smallest_growth) and [`largest_growth`](Self::largest_growth). 2 by default.
    pub growth_factor: f64,
    /// The smallest region to grow by. 2 MiB by default. A pool that grows in place adds at least so much new memory.
    pub smallest_growth: usize,
    /// The largest region to grow by, unless a block needs a larger region. 256 MiB by default.
    pub largest_growth: usize,
    /// The largest size of all regions together. No limit by default. A pool that grows in place takes whole chunks (2
    /// MiB on an H100), never more than this. A maximum below one chunk, or below the 256 bytes of the smallest region, is
    /// refused.
    pub maximum: usize,
    /// The pool grows in place if it can: over [`VirtualMemory`](crate::memory::VirtualMemory), and over
    /// [`DeviceMemory`](crate::memory::DeviceMemory) of a device with virtual memory if the [`maximum`](Self::maximum) is
    /// at least 64 MiB. True by default. Such a pool wastes little memory, whatever the sizes of its blocks, and grows
    /// by what a request needs, whatever the [`growth_factor`](Self::growth_factor). With `false`, the pool allocates
    /// regions from its source: for libraries that must find a block in memory of cuMemAlloc.
    pub in_place: bool,
    /// When streams may use each other's freed memory.
    pub reuse: Reuse,
    /// How much freed memory each thread cache keeps. Other threads cannot get it until memory runs short. Each
    /// of the first 64 threads that run uses its own; a machine of few processors has fewer thread caches. 64 MiB by
    /// default: some hundred blocks of half a MiB. 0 for no thread caches.
    pub cache_capacity: usize,
    /// Called when no memory is left. None by default.
    pub on_out_of_memory: Option<OutOfMemoryHook>,
    /// How many of the newest events [`Pool::trace`](super::Pool::trace) returns. Each event takes some 100 bytes and
    /// some 60 ns. 0 by default: the pool records no events, at no cost.
    pub trace_capacity: usize,
    /// What the pool records of its live blocks. Nothing by default.
    pub tracking: Tracked,
    /// Called when the last handle of the pool is dropped while blocks are live. The blocks stay valid: buffers and
    /// adaptors keep the pool's memory. A hook implies at least [`Tracked::Names`]. None by default.
    pub on_leak: Option<LeakHook>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            initial: INITIAL,
            growth_factor: 2.0,
            smallest_growth: 2 << 20,
            largest_growth: 256 << 20,
            maximum: usize::MAX,
            in_place: true,
            reuse: Reuse::default(),
            cache_capacity: 64 << 20,
            on_out_of_memory: None,
            trace_capacity: 0,
            tracking: Tracked::No,
            on_leak: None,
        }
    }
}

impl fmt::Debug for PoolOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolOptions")
            .field("initial", &self.initial)
            .field("growth_factor", &self.growth_factor)
            .field("smallest_growth", &self.smallest_growth)
            .field("largest_growth", &self.largest_growth)
            .field("maximum", &self.maximum)
            .field("in_place", &self.in_place)
            .field("reuse", &self.reuse)
            .field("cache_capacity", &self.cache_capacity)
            .field("trace_capacity", &self.trace_capacity)
            .field("tracking", &self.tracking)
            .finish_non_exhaustive()
    }
}

/// The default size of the first region.
const INITIAL: usize = 2 << 20;

impl PoolOptions {
    /// Refuses sizes that contradict each other. `smallest` is the least that the pool takes from its source.
    pub(super) fn check(&self, call: &'static str, smallest: usize) -> Result<()> {
        if self.maximum < smallest {
            let value = format_args!("{} bytes, and the smallest region {smallest}", self.maximum);
            let rule = "a pool needs room for one region: raise the maximum";
            return Err(Error::invalid(call, "maximum", value, rule));
        }
        if self.initial > self.maximum && self.initial != INITIAL {
            let value = format_args!("{} bytes, and the maximum {}", self.initial, self.maximum);
            let rule = "the first region must not exceed the maximum: lower it, or leave it out";
            return Err(Error::invalid(call, "initial", value, rule));
        }
        Ok(())
    }

    /// The size of the next region, for a block of `needed` bytes, in multiples of `unit`. `None` if the maximum
    /// forbids it.
    pub(super) fn growth(&self, needed: usize, reserved: usize, unit: usize) -> Option<usize> {
        let room = self.maximum.saturating_sub(reserved) / unit * unit;
        if needed > room {
            return None;
        }
        // The cast saturates: at `usize::MAX`, and at 0 for negative products.
        let more = (reserved as f64 * (self.growth_factor - 1.0)) as usize;
        let usual = more.min(self.largest_growth).max(self.smallest_growth).max(needed);
        Some(usual.checked_next_multiple_of(unit).map_or(room, |size| size.min(room)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_contradict_each_other_are_refused() {
        let refusal = |initial, maximum| {
            let options = PoolOptions { initial, maximum, ..PoolOptions::default() };
            options.check("Pool::new", 256).err().map(|error| error.to_string())
        };
        for (initial, maximum) in [(INITIAL, 256), (0, 256), (256, 256), (1 << 30, usize::MAX)] {
            assert_eq!(refusal(initial, maximum), None);
        }
        let text = refusal(0, 255).unwrap();
        assert!(text.contains("maximum is 255 bytes") && text.contains("256"), "{text}");
        let text = refusal(257, 256).unwrap();
        assert!(text.contains("initial is 257 bytes") && text.contains("the maximum 256"), "{text}");
    }

    #[test]
    fn growth_keeps_to_its_bounds_and_always_holds_the_block() {
        let options =
            PoolOptions { smallest_growth: 1000, largest_growth: 4000, maximum: 10_000, ..PoolOptions::default() };
        for (needed, reserved, expected) in [
            (256, 0, Some(1024)),
            (256, 2048, Some(2048)),
            (256, 5120, Some(4096)),
            (4608, 2048, Some(4608)),
            (256, 9216, Some(768)),
            (1024, 9216, None),
            (9984, 0, Some(9984)),
            (10_240, 0, None),
        ] {
            assert_eq!(options.growth(needed, reserved, 256), expected, "{needed} of {reserved}");
        }
        let wild = PoolOptions { growth_factor: f64::INFINITY, ..PoolOptions::default() };
        assert_eq!(wild.growth(256, 1 << 20, 256), Some(256 << 20));
        assert_eq!(PoolOptions { growth_factor: -1.0, ..wild }.growth(256, 1 << 20, 256), Some(2 << 20));
    }
}
