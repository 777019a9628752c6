//! What the sources of memory keep for a driver context, and its end.

use super::Handle;
use crate::driver::stream_reserve::Spare;
use crate::error::call;
use crate::lifetime::QueuedFrees;
use crate::lifetime::waiting::{Target, watched};
use crate::locks::{Mutex, MutexGuard};
use crate::{Driver, Result};
use cuda_sys::{CUdeviceptr, CUmemPool_attribute, CUmemoryPool};
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// What the sources of memory keep for a driver context.
#[derive(Debug, Default)]
pub(crate) struct KeptMemory {
    pub frees: QueuedFrees,
    /// `None` if the driver has no such pools.
    pub host_pool: OnceLock<Option<HostPool>>,
}

/// A pool of host memory, and a stream for its allocations. Holds no context, which would keep that alive for ever.
#[derive(Debug)]
pub(crate) struct HostPool {
    pub raw: CUmemoryPool,
    /// No work is queued on it, so allocations are complete at once, whatever other streams wait for.
    pub service: Spare,
    /// The addresses of its blocks. What a failed free has left ends with the context, as memory of cuMemHostAlloc does.
    blocks: Mutex<BTreeSet<CUdeviceptr>>,
}

// SAFETY: a CUmemoryPool is a token that every thread may pass to the driver.
unsafe impl Send for HostPool {}
// SAFETY: as above.
unsafe impl Sync for HostPool {}

impl KeptMemory {
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
            unsafe { Handle::Event(event).destroy_now(driver, "destroying an event of queued frees") };
        }
        let Some(HostPool { raw, service, blocks }) = pool else { return };
        if alive {
            for address in blocks.into_inner() {
                // SAFETY: the block is the pool's, and no value knows it any more.
                let freed = unsafe { free_after_all_work(cuda, target, address) };
                report("freeing what a failed free of pinned memory has left", freed);
            }
            // SAFETY: the stream is ours and idle.
            unsafe {
                Handle::Stream(service.raw).destroy_now(driver, "destroying the stream of a pool of pinned memory")
            };
        }
        if alive && !is_unused(cuda, raw) {
            // As in `memory/pool/end.rs`: frees may be under way.
            // SAFETY: the call takes nothing, and the context is current.
            report("waiting for frees of pinned memory", unsafe { watched!(target, cuda.cuCtxSynchronize()) });
        }
        // SAFETY: the pool is ours, and no block of it is left: blocks hold their context.
        report("destroying a pool of pinned memory", unsafe { call!(cuda.cuMemPoolDestroy(raw)) });
    }
}

/// Whether a pool without blocks certainly has no free under way: then the driver returns all of its memory.
fn is_unused(cuda: &cuda_sys::Driver, pool: CUmemoryPool) -> bool {
    const RESERVED: CUmemPool_attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
    let mut reserved = u64::MAX;
    // SAFETY: the pool is the caller's, and `reserved` is writable and of the attribute's type.
    let asked = unsafe {
        call!(cuda.cuMemPoolTrimTo(pool, 0))
            .and_then(|()| call!(cuda.cuMemPoolGetAttribute(pool, RESERVED, (&raw mut reserved).cast())))
    };
    asked.is_ok() && reserved == 0
}

/// Frees a block of a pool that work of the current context may still use: cuMemFree does not wait for the work on memory
/// of pools.
///
/// # Safety
///
/// The block is of a pool of the context. No later work uses it, and it is freed once.
unsafe fn free_after_all_work(cuda: &cuda_sys::Driver, target: Target, block: CUdeviceptr) -> Result<()> {
    // SAFETY: the call takes nothing.
    unsafe { watched!(target, cuda.cuCtxSynchronize()) }?;
    // SAFETY: this function's contract, and the work is done.
    unsafe { watched!(target, cuda.cuMemFree_v2(block)) }
}

impl HostPool {
    pub fn new(raw: CUmemoryPool, service: Spare) -> Self {
        Self { raw, service, blocks: Mutex::default() }
    }

    pub fn blocks(&self) -> MutexGuard<'_, BTreeSet<CUdeviceptr>> {
        self.blocks.lock()
    }

    /// Frees a block by `free`. `None` if the block is not the pool's: it was allocated before there was a pool.
    pub fn free(&self, address: CUdeviceptr, free: impl FnOnce() -> Result<()>) -> Option<Result<()>> {
        // Before the free: afterwards another thread may get the address.
        let is_here = self.blocks().remove(&address);
        is_here.then(|| {
            free().inspect_err(|_| {
                self.blocks().insert(address);
            })
        })
    }
}
