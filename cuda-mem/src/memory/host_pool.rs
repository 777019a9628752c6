//! The driver's pool from which the pinned memory of a context comes.

use super::pool::{DriverPoolOptions, PinnedPool};
use crate::driver::context::HostPool;
use crate::driver::stream_reserve::StreamClass;
use crate::error::call;
use crate::error::capture_errors::is_for_a_capture;
use crate::lifetime::waiting::{Target, watched};
use crate::memory::resource::Block;
use crate::{Context, Error, Result};
use core::ptr;
use cuda_sys::CUdeviceptr;

/// How much unused memory the pool keeps, in bytes: two of the driver's units. A smaller pool would lock pages anew for
/// each allocation that follows a wait for a stream.
const KEPT: usize = 64 << 20;

impl Context {
    /// The context's pool of host memory, which the first call makes. `None` if the driver has no such pools, or makes
    /// none now.
    pub(super) fn host_pool(&self) -> Result<Option<&HostPool>> {
        let kept = &self.state().memory.host_pool;
        if let Some(known) = kept.get() {
            return Ok(known.as_ref());
        }
        let options = DriverPoolOptions {
            release_threshold: KEPT,
            // An allocation takes only memory whose free is done.
            reuse_follow_event_dependencies: false,
            reuse_allow_internal_dependencies: false,
            ..DriverPoolOptions::default()
        };
        let pool = match PinnedPool::new(self, &options) {
            // Only this answer lasts.
            Err(Error::Unsupported { .. }) => return Ok(kept.get_or_init(|| None).as_ref()),
            Err(error) if is_refusal(&error) => return Ok(None),
            pool => pool?,
        };
        let service = self.take_stream(StreamClass::USUAL)?;
        let made = HostPool::new(pool.raw(), service);
        match kept.set(Some(made)) {
            Ok(()) => pool.disown(),
            // Another thread was faster.
            Err(_) => self.end_spare(service),
        }
        Ok(self.state().memory.host_pool())
    }
}

/// Whether the driver does not have this kind of memory now. Then another call of it may provide the memory.
pub(super) fn is_refusal(error: &Error) -> bool {
    let passes = error.is_out_of_memory() || error.is_teardown() || is_for_a_capture(error);
    error.driver_code().is_some() && !passes
}

/// Allocates memory that the CPU and all streams may use at once.
pub(super) fn allocate(pool: &HostPool, context: &Context, size: usize, alignment: usize) -> Result<Block> {
    let (cuda, _current) = (context.driver().raw(), context.bind()?);
    let mut address: CUdeviceptr = 0;
    // Whole pages, so that all blocks begin at one.
    let bytes = size.checked_next_multiple_of(super::pinned::PAGE).unwrap_or(size);
    // SAFETY: `address` is writable; pool and stream live.
    unsafe { call!(cuda.cuMemAllocFromPoolAsync(&mut address, bytes, pool.raw, pool.service.raw)) }?;
    // The stream is idle. This call only tells the driver that the CPU comes after the allocation.
    // SAFETY: the stream lives.
    let ready = unsafe { watched!(Target::context(context), cuda.cuStreamSynchronize(pool.service.raw)) };
    let ready = ready.and_then(|()| {
        if address.is_multiple_of(alignment as u64) {
            return Ok(());
        }
        let largest = 1 << address.trailing_zeros();
        Err(Error::Alignment { call: "PinnedMemory::allocate", alignment, largest })
    });
    if let Err(error) = ready {
        // SAFETY: nobody else knows the memory.
        let _ = unsafe { call!(cuda.cuMemFreeAsync(address, pool.service.raw)) };
        return Err(error);
    }
    pool.blocks().insert(address);
    Ok(Block::unified(ptr::with_exposed_provenance_mut(address as usize), size).fresh())
}
