//! The driver's pool from which the pinned memory of a context comes.

use super::in_order::QueuedFrees;
use super::pool::{DriverPoolOptions, PinnedPool};
use crate::capture_errors::is_for_a_capture;
use crate::error::call;
use crate::resource::Block;
use crate::stream_reserve::{Spare, StreamClass};
use crate::waiting::{Target, watched};
use crate::{Context, Driver, Error, Result};
use core::ptr;
use cuda_sys::{CUdeviceptr, CUmemoryPool};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// How much unused memory the pool keeps, in bytes: two of the driver's units. A smaller pool would lock pages anew for
/// each allocation that follows a wait for a stream.
const KEPT: usize = 64 << 20;

/// What the sources of memory keep for a driver context.
#[derive(Debug, Default)]
pub(crate) struct MemoryState {
    pub frees: QueuedFrees,
    /// `None` if the driver has no such pools.
    host_pool: OnceLock<Option<HostPool>>,
}

/// A pool of host memory, and a stream for its allocations. Holds no context, which would keep that alive for ever.
#[derive(Debug)]
pub(crate) struct HostPool {
    raw: CUmemoryPool,
    /// No work is queued on it, so allocations are complete at once, whatever other streams wait for.
    service: Spare,
    /// The addresses of its blocks. What a failed free has left ends with the context, as memory of cuMemHostAlloc does.
    blocks: Mutex<BTreeSet<CUdeviceptr>>,
}

// SAFETY: a CUmemoryPool is a token that every thread may pass to the driver.
unsafe impl Send for HostPool {}
// SAFETY: as above.
unsafe impl Sync for HostPool {}

impl MemoryState {
    /// The pool, if an allocation has made it.
    pub fn host_pool(&self) -> Option<&HostPool> {
        self.host_pool.get()?.as_ref()
    }

    /// Destroys what is kept, before the end of a context that nobody uses any more. The streams of a context that is
    /// not `alive` have ended with it.
    pub fn end(&mut self, driver: &Driver, target: Target, alive: bool) {
        let (cuda, pool) = (driver.raw(), self.host_pool.take().flatten());
        let report = |doing: &'static str, destroyed: Result<()>| {
            if let Err(error) = destroyed
                && !error.is_teardown()
            {
                driver.drop_errors().push(doing, error);
            }
        };
        for event in self.frees.take_events().into_iter().filter(|_| alive) {
            // SAFETY: the event is ours, and nobody uses it any more.
            let destroyed = driver.ends().alone(|| unsafe { call!(cuda.cuEventDestroy_v2(event)) });
            report("destroying an event of queued frees", destroyed);
        }
        let Some(HostPool { raw, service, blocks }) = pool else { return };
        if alive {
            for address in blocks.into_inner().unwrap_or_else(PoisonError::into_inner) {
                // SAFETY: the block is the pool's, and no value knows it any more. The call waits for its work.
                let freed = unsafe { watched!(target, cuda.cuMemFree_v2(address)) };
                report("freeing what a failed free of pinned memory has left", freed);
            }
            // SAFETY: the stream is ours and idle.
            let destroyed = driver.ends().alone(|| unsafe { call!(cuda.cuStreamDestroy_v2(service.raw)) });
            report("destroying the stream of a pool of pinned memory", destroyed);
        }
        // SAFETY: the pool is ours, and no block of it is left: blocks hold their context. The driver waits for frees
        // under way.
        report("destroying a pool of pinned memory", unsafe { call!(cuda.cuMemPoolDestroy(raw)) });
    }
}

impl Context {
    /// The context's pool of host memory, which the first call makes. `None` if the driver has no such pools.
    pub(super) fn host_pool(&self) -> Result<Option<&HostPool>> {
        let kept = &self.state().memory.host_pool;
        if let Some(known) = kept.get() {
            return Ok(known.as_ref());
        }
        let mut options = DriverPoolOptions::default();
        options.release_threshold = KEPT;
        // An allocation takes only memory whose free is done.
        (options.reuse_follow_event_dependencies, options.reuse_allow_internal_dependencies) = (false, false);
        let pool = match PinnedPool::new(self, &options) {
            Err(error) if is_refusal(&error) => return Ok(kept.get_or_init(|| None).as_ref()),
            pool => pool?,
        };
        let service = Spare { raw: self.take_stream(StreamClass::USUAL)?, class: StreamClass::USUAL };
        let made = HostPool { raw: pool.raw(), service, blocks: Mutex::default() };
        match kept.set(Some(made)) {
            Ok(()) => pool.disown(),
            // Another thread was faster.
            Err(_) => self.end_spare(service),
        }
        Ok(self.state().memory.host_pool())
    }
}

/// Whether the driver has no pools of host memory, or makes none here. Then cuMemHostAlloc provides the memory.
fn is_refusal(error: &Error) -> bool {
    let passes = error.is_out_of_memory() || error.is_teardown() || is_for_a_capture(error);
    matches!(error, Error::Unsupported { .. }) || error.driver_code().is_some() && !passes
}

impl HostPool {
    fn blocks(&self) -> MutexGuard<'_, BTreeSet<CUdeviceptr>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees a block by `free`.
    pub fn free(&self, block: Block, free: impl FnOnce() -> Result<()>) -> Result<()> {
        // Before the free: afterwards another thread may get the address.
        self.blocks().remove(&block.device_pointer);
        free().inspect_err(|_| {
            self.blocks().insert(block.device_pointer);
        })
    }

    /// Allocates memory that the CPU and all streams may use at once.
    pub fn allocate(&self, context: &Context, size: usize, alignment: usize) -> Result<Block> {
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let mut address: CUdeviceptr = 0;
        // Whole pages, so that all blocks begin at one.
        let bytes = size.checked_next_multiple_of(super::pinned::PAGE).unwrap_or(size);
        // SAFETY: `address` is writable; pool and stream live.
        unsafe { call!(cuda.cuMemAllocFromPoolAsync(&mut address, bytes, self.raw, self.service.raw)) }?;
        // The stream is idle. This call only tells the driver that the CPU comes after the allocation.
        // SAFETY: the stream lives.
        let ready = unsafe { watched!(Target::context(context), cuda.cuStreamSynchronize(self.service.raw)) };
        let ready = ready.and_then(|()| {
            if address.is_multiple_of(alignment as u64) {
                return Ok(());
            }
            let rule = "the driver aligned its memory to less; allocate a larger block and use a part";
            Err(Error::invalid("PinnedMemory::allocate", "alignment", alignment, rule))
        });
        if let Err(error) = ready {
            // SAFETY: nobody else knows the memory.
            let _ = unsafe { call!(cuda.cuMemFreeAsync(address, self.service.raw)) };
            return Err(error);
        }
        self.blocks().insert(address);
        Ok(Block::unified(ptr::with_exposed_provenance_mut(address as usize), size).fresh())
    }
}
