//! Frees of plain memory in stream order.

use crate::driver::relaxed::RelaxedCalls;
use crate::error::call;
use crate::error::capture_errors::is_for_a_capture;
use crate::lifetime::waiting::{Target, watched};
use crate::memory::resource::{Block, BlockKind};
use crate::{Context, Result, Stream};
use core::sync::atomic::Ordering;
use cuda_sys::CU_STREAM_LEGACY;

/// Frees memory of cuMemAlloc or of a pool after the work queued on `home` so far. Does not wait for that work.
///
/// While `home` captures, the free is put off, as [`Context::free_by_waiting`] does.
///
/// # Safety
///
/// The block is such an allocation of `context`. It was not freed before, and only work queued on `home` so far uses it.
pub(super) unsafe fn free_in_order(context: &Context, doing: &'static str, block: Block, home: &Stream) -> Result<()> {
    let (address, size, target) = (block.device_pointer(), block.size(), Target::context(context));
    let of_pool = block.kind() != BlockKind::Device;
    let by_waiting = || {
        // Memory of a pool is not waited for by the call, but the work on `home` is done then.
        // SAFETY: this function's contract.
        let free = move |cuda: &cuda_sys::Driver| unsafe { watched!(target, cuda.cuMemFree_v2(address)) };
        context.free_by_waiting(doing, size, Some(home), free)
    };
    // All later work of blocking streams would wait for a free on the legacy default stream, which waits for theirs.
    let own = if home.raw().addr() <= CU_STREAM_LEGACY.addr() && context.waits_for_cpu() {
        if home.is_done() == Ok(true) { Stream::new(context).map(Some) } else { return by_waiting() }
    } else if home.context() == context {
        Ok(None)
    } else {
        follower(context, home).map(Some)
    };
    let Ok(own) = own else { return by_waiting() };
    let stream = own.as_ref().unwrap_or(home);
    let freed = stream.running(doing).and_then(|_running| {
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        // SAFETY: this function's contract, and the stream does its work.
        unsafe { call!(cuda.cuMemFreeAsync(address, stream.raw())) }?;
        if !of_pool {
            stream.core().has_plain_frees.store(true, Ordering::Relaxed);
            let _relaxed = RelaxedCalls::begin(context.driver());
            context.state().memory.frees.note(cuda, stream.raw(), size);
        }
        Ok(())
    });
    match freed {
        Err(error) if is_for_a_capture(&error) => by_waiting(),
        freed => freed,
    }
}

/// A stream of `context` whose work comes after the work queued on `home`, a stream of another context.
fn follower(context: &Context, home: &Stream) -> Result<Stream> {
    let stream = Stream::new(context)?;
    stream.order_after_or_wait(home)?;
    Ok(stream)
}
