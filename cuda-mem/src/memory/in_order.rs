//! Frees of plain memory in stream order, and allocations that need what such frees have not returned yet.

use crate::capture_errors::is_for_a_capture;
use crate::error::call;
use crate::relaxed::relaxed;
use crate::resource::{Block, BlockKind};
use crate::stream::{Running, done};
use crate::waiting::{self, Target, watched};
use crate::{Context, Driver, Result, Stream};
use core::ptr;
use core::time::Duration;
use cuda_sys::{CU_STREAM_LEGACY, CUevent, CUevent_flags};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Frees memory of cuMemAlloc or of a pool after the work queued on `home` so far. Does not wait for that work.
///
/// While `home` captures, the free is put off, as [`Context::free_by_waiting`] does.
///
/// # Safety
///
/// The block is such an allocation of `context`. It was not freed before, and only work queued on `home` so far uses it.
pub(super) unsafe fn free_in_order(context: &Context, doing: &'static str, block: Block, home: &Stream) -> Result<()> {
    let (address, size, target) = (block.device_pointer, block.size(), Target::context(context));
    let by_waiting = || {
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
    let freed = stream.running(doing).and_then(|running| {
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        // SAFETY: this function's contract, and the stream does its work.
        unsafe { call!(cuda.cuMemFreeAsync(address, stream.raw())) }?;
        if block.kind() == BlockKind::Device {
            context.state().memory.frees.note(context.driver(), &running, size);
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
    stream.follow_or_wait(home)?;
    Ok(stream)
}

/// The frees that a context's streams may not have reached yet.
#[derive(Debug, Default)]
pub(crate) struct QueuedFrees(Mutex<Vec<QueuedFree>>);

/// The frees queued on one stream.
#[derive(Debug)]
struct QueuedFree {
    /// The driver's handle.
    stream: usize,
    /// Comes after the last of them. Not an [`Event`](crate::Event), which would keep the context alive for ever.
    event: CUevent,
    bytes: usize,
}

// SAFETY: a CUevent is a token that every thread may pass to the driver.
unsafe impl Send for QueuedFree {}

impl QueuedFree {
    /// Whether the frees are done, or will never be because the context is broken.
    fn is_over(&self, cuda: &cuda_sys::Driver) -> bool {
        // SAFETY: the event is ours.
        done(unsafe { call!(cuda.cuEventQuery(self.event)) }) != Ok(false)
    }
}

impl QueuedFrees {
    fn list(&self) -> MutexGuard<'_, Vec<QueuedFree>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a free that was just queued on a stream, whose context is current. If the driver makes no event, no
    /// allocation will wait for the free.
    fn note(&self, driver: &Driver, running: &Running<'_>, bytes: usize) {
        let (cuda, _relaxed) = (driver.raw(), relaxed(driver));
        let stream = running.stream().raw();
        let noted = {
            let mut list = self.list();
            let same = list.iter().position(|free| free.stream == stream.addr());
            // Streams come and go, so the events of others serve again.
            let place = same.or_else(|| list.iter().position(|free| free.is_over(cuda)));
            place.map(|place| list.swap_remove(place))
        };
        let before = noted.as_ref().filter(|free| free.stream == stream.addr()).map_or(0, |free| free.bytes);
        let event = noted.map_or_else(|| make_event(cuda), |free| Ok(free.event));
        let Ok(event) = event else { return };
        // SAFETY: the event is ours and the stream lives. An event that marks nothing counts as over.
        let _ = unsafe { call!(cuda.cuEventRecord(event, stream)) };
        self.list().push(QueuedFree { stream: stream.addr(), event, bytes: before.saturating_add(bytes) });
    }

    /// Bytes whose free is queued, at most.
    fn bytes(&self) -> usize {
        self.list().iter().fold(0, |sum, free| sum.saturating_add(free.bytes))
    }

    /// Removes frees that are done. Whether there were any, or there are none.
    fn settle(&self, cuda: &cuda_sys::Driver) -> bool {
        let mut list = self.list();
        let over = |free: &&mut QueuedFree| free.bytes > 0 && free.is_over(cuda);
        let ended = list.iter_mut().filter(over).map(|free| free.bytes = 0).count();
        ended > 0 || list.iter().all(|free| free.bytes == 0)
    }

    /// Takes all events, to be destroyed.
    pub fn take_events(&self) -> Vec<CUevent> {
        self.list().drain(..).map(|free| free.event).collect()
    }
}

fn make_event(cuda: &cuda_sys::Driver) -> Result<CUevent> {
    let mut event = ptr::null_mut();
    // SAFETY: `event` is writable, and the caller has made the context current.
    unsafe { call!(cuda.cuEventCreate(&mut event, CUevent_flags::CU_EVENT_DISABLE_TIMING.0)) }?;
    Ok(event)
}

impl Context {
    /// After an allocation of `size` bytes has found too little memory: waits at most `limit` until a queued free is
    /// done. `false` if all of them together would not suffice, or if none was done in that time.
    pub(crate) fn await_free(&self, size: usize, limit: Duration) -> bool {
        let frees = &self.state().memory.frees;
        let queued = frees.bytes();
        if queued == 0 || self.memory_info().is_ok_and(|info| info.free.saturating_add(queued) < size) {
            return false;
        }
        let settle = || {
            let (cuda, _current, _relaxed) = (self.driver().raw(), self.bind()?, relaxed(self.driver())?);
            Ok(frees.settle(cuda))
        };
        waiting::poll(&"an allocation that waits for queued frees", Target::context(self), limit, settle).is_ok()
    }
}
