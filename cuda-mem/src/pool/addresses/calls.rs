//! Allocations and frees on streams that the caller names for one call only.
//!
//! The caller may destroy such a stream right after the call, and the driver may give its handle to a new stream. So the
//! pool passes the handle to the driver only during calls that name it. A thread cache serves most calls without a
//! value of the stream. It finds the stream by context, handle and driver's number, so that a new stream does not get
//! blocks that an older one of the same handle freed. Frees do not need the number: blocks that a thread cache lists
//! for an ended stream are only given to others after a wait for the context.
//!
//! Such a free records no event. The stream's last recorded work is then out of date, and the memory waits for the next
//! call that names the stream and passes the thread caches, or for the context. So that streams that have ended do not
//! pile up, a context has a limited number of them (`MOST_UNMARKED`); the frees on further streams make a value, whose
//! drop records an event.

use super::super::shared::{SharedPool, hint_of};
use super::super::thread_cache::{Freed, WholeBlock};
use crate::cpu::thread_slots::ThreadSlot;
use crate::memory::resource::{Block, PendingUse};
use crate::stream::NamedStream;
use crate::{Context, Error, Result, Stream, check_not_forked};
use cuda_sys::{CU_STREAM_PER_THREAD, CUstream};
use std::sync::Arc;
use stream_heap::{BlockSize, block_size};

impl SharedPool {
    /// Allocates for work of a stream.
    ///
    /// # Safety
    ///
    /// `raw` is a live stream during the call. No other thread begins or ends a capture of it meanwhile.
    #[inline]
    pub unsafe fn allocate_for(self: &Arc<Self>, call: &'static str, size: usize, raw: CUstream) -> Result<Block> {
        check_not_forked(call)?;
        if let Some(BlockSize { class: Some(class), .. }) = block_size(size, self.unit_log2)
            // SAFETY: this function's contract.
            && let Some(named) = unsafe { NamedStream::of_work(self.context(), raw) }
            && let Some(found) = self.caches.take_where(ThreadSlot::current(), (hint_of(raw), |kept| named.is(kept)), class, size)
        {
            return Ok(found.with_size(size).with_pending_use(PendingUse::InStreamOrder));
        }
        // SAFETY: this function's contract.
        let stream = unsafe { self.named(call, raw) }?;
        self.allocate(size, 1, &stream)
    }

    /// Frees a block that only work queued on a stream so far still uses. The process was not forked.
    ///
    /// # Safety
    ///
    /// As [`allocate_for`](Self::allocate_for).
    #[inline]
    pub unsafe fn deallocate_for(self: &Arc<Self>, call: &'static str, block: Block, raw: CUstream) -> Result<()> {
        if let Some(BlockSize { bytes, class: Some(class) }) = block_size(block.size(), self.unit_log2)
            && self.caches.keep_size(bytes)
            && raw != CU_STREAM_PER_THREAD
            && !self.noted.may_count(block.device_pointer())
        {
            let context = self.source.own.context();
            let is = (hint_of(raw), |kept: &Stream| kept.has_handle(context, raw));
            let thread = ThreadSlot::current();
            match self.caches.keep_where(thread, is, Stream::may_leave_unmarked, &block, WholeBlock { bytes, class }) {
                Freed::Kept => return Ok(()),
                Freed::Full => {
                    self.spill_cache(thread);
                    return Ok(());
                }
                Freed::NewStream | Freed::Busy => {}
            }
        }
        // SAFETY: this function's contract.
        let stream = unsafe { self.named(call, raw) }?;
        // The program may have another value for the stream, so that this one is not the last.
        stream.note_unmarked_work();
        self.deallocate(block, &stream)
    }

    /// # Safety
    ///
    /// As [`allocate_for`](Self::allocate_for).
    #[inline(never)]
    unsafe fn named(&self, call: &'static str, raw: CUstream) -> Result<Stream> {
        // SAFETY: this function's contract, which is that of `allocate_for`.
        unsafe { named(call, self.context(), raw) }
    }
}

/// A value of the stream for the rest of a call. Its drop records the stream's last work.
///
/// # Safety
///
/// As [`allocate_for`](SharedPool::allocate_for).
pub(super) unsafe fn named(call: &'static str, context: &Context, raw: CUstream) -> Result<Stream> {
    // SAFETY: the caller's stream lives during the call, and the value does not outlive the call.
    unsafe { Stream::borrow_named(context, raw) }?.ok_or_else(|| {
        let rule = "it must belong to the context of the memory";
        Error::invalid(call, "stream", format_args!("{raw:p}, of another context"), rule)
    })
}
