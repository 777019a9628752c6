//! The end of a stream: when, and how, the last of its values ends it.

use crate::driver::context::{ForeignOwner, Handle};
use crate::driver::stream_core::{Abandoned, StreamCore};
use crate::driver::stream_reserve::{Spare, StreamClass};
use crate::error::forked;
use crate::lifetime::{drop_after_captures, drop_after_host_function, drop_outside, inside_host_function};
use crate::locks::Mutex;
use crate::{Context, Event};
use core::sync::atomic::Ordering;
use cuda_sys::CUstream;
use std::sync::{Arc, OnceLock};

/// What the clones of a stream share. Its drop ends the stream.
pub(super) struct StreamOwner {
    pub context: Context,
    pub raw: CUstream,
    pub ownership: StreamOwnership,
    pub core: Arc<StreamCore>,
    /// Safe code of another library may end a capture of the stream and launch the graph when memory that it names is
    /// another owner's. So no capture records calls of this crate on the stream.
    pub records_nothing: bool,
    /// Whether the stream waits for the legacy default stream. None if nobody has asked the driver.
    pub blocking: OnceLock<bool>,
    /// An event for the next wait beside captures.
    pub spare: Mutex<Option<Event>>,
}

/// Who ends a stream.
pub(super) enum StreamOwnership {
    Owned(StreamClass),
    /// A default stream of the driver, or another library's stream.
    Borrowed(Option<ForeignOwner>),
    /// As `Borrowed`, in the records of a pool: the stream may have ended.
    Kept,
}

// SAFETY: a CUstream is a token that every thread may pass to the driver.
unsafe impl Send for StreamOwner {}
// SAFETY: as above.
unsafe impl Sync for StreamOwner {}

impl StreamOwner {
    /// An owner of the same stream, during the drop of this one.
    #[cold]
    fn take(&self, ownership: StreamOwnership) -> Self {
        self.core.add_value();
        Self {
            context: self.context.clone(),
            raw: self.raw,
            ownership,
            core: self.core.clone(),
            records_nothing: self.records_nothing,
            blocking: OnceLock::new(),
            spare: Mutex::default(),
        }
    }
}

impl StreamOwner {
    /// For the drop of a value for another library's stream. In a host function, the owner waits for its end: it may be
    /// the last one, and then it calls the driver.
    fn end_borrowed_outside(&mut self) {
        if let StreamOwnership::Borrowed(owner @ Some(_)) = &mut self.ownership
            && inside_host_function()
        {
            let owner = owner.take();
            drop_after_host_function(self.take(StreamOwnership::Borrowed(owner)));
        }
        self.end_borrowed();
        if let StreamOwnership::Borrowed(owner) = &mut self.ownership
            && let Some(owner) = owner.take()
        {
            drop_outside(owner);
        }
    }
}

impl Drop for StreamOwner {
    fn drop(&mut self) {
        // Of several values for one stream, the last one reports it.
        if !forked() && Arc::strong_count(&self.core) == 1 {
            Abandoned::tell_if_last(&self.core.abandoned, self.context.drop_errors());
        }
        if matches!(self.ownership, StreamOwnership::Kept) {
            return self.end_kept();
        }
        let StreamOwnership::Owned(class) = self.ownership else { return self.end_borrowed_outside() };
        // A pool may keep a value of another library for this stream too, whose last work is not noted here.
        self.core.note_unmarked();
        self.core.end_value();
        if inside_host_function() {
            return drop_after_host_function(self.take(StreamOwnership::Owned(class)));
        }
        // The end of the stream would end the capture. On another thread it could meet the end of the capture, and crash
        // the driver (580.159).
        if self.core.gate.membership().is_captured() {
            return drop_after_captures(self.take(StreamOwnership::Owned(class)));
        }
        let has_plain_frees = self.core.has_plain_frees.load(Ordering::Relaxed);
        let spare = Spare { raw: self.raw, class, has_plain_frees };
        let is_idle = || self.context.is_idle(self.raw).unwrap_or_else(|error| self.context.is_ended_by(&error));
        if has_plain_frees && !is_idle() {
            // The driver (580.159) would wait for the work, which may wait for this thread. A failed question is no answer.
            return self.context.end_when_idle(spare);
        }
        if !self.context.give_stream_back(spare, &self.core) {
            // SAFETY: the stream is ours, and nobody uses it any more; the driver finishes its work.
            unsafe { self.context.destroy(Handle::Stream(self.raw)) };
        }
    }
}
