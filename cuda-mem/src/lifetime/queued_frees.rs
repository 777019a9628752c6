//! Frees in stream order that the streams may not have reached yet.

use crate::Result;
use crate::error::call;
use crate::locks::{Mutex, MutexGuard};
use core::ptr;
use cuda_sys::{CUevent, CUevent_flags, CUstream};

/// The frees that a context's streams may not have reached yet.
#[derive(Debug, Default)]
pub(crate) struct QueuedFrees(Mutex<Vec<QueuedFree>>);

/// The frees queued on one stream.
#[derive(Debug)]
struct QueuedFree {
    /// The driver's handle.
    stream: usize,
    /// Comes after the last of them. Not an `Event`, which would keep the context alive for ever.
    event: CUevent,
    bytes: usize,
}

// SAFETY: a CUevent is a token that every thread may pass to the driver.
unsafe impl Send for QueuedFree {}

impl QueuedFree {
    /// Whether the frees are done. A failed question says nothing.
    fn is_over(&self, cuda: &cuda_sys::Driver) -> bool {
        // SAFETY: the event is ours.
        unsafe { call!(cuda.cuEventQuery(self.event)) }.is_ok()
    }
}

impl QueuedFrees {
    fn list(&self) -> MutexGuard<'_, Vec<QueuedFree>> {
        self.0.lock()
    }

    /// Notes a free that was just queued on a stream, whose context is current, in relaxed mode. If the driver makes no
    /// event, no allocation will wait for the free.
    pub fn note(&self, cuda: &cuda_sys::Driver, stream: CUstream, bytes: usize) {
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
        // SAFETY: the event is ours and the stream lives.
        let marked = unsafe { call!(cuda.cuEventRecord(event, stream)) };
        // Without a mark, no allocation waits for this free.
        let bytes = if marked.is_ok() { before.saturating_add(bytes) } else { before };
        self.list().push(QueuedFree { stream: stream.addr(), event, bytes });
    }

    /// Bytes whose free is queued, at most.
    pub fn bytes(&self) -> usize {
        self.list().iter().fold(0, |sum, free| sum.saturating_add(free.bytes))
    }

    /// Removes frees that are done. Whether there were any, or there are none.
    pub fn settle(&self, cuda: &cuda_sys::Driver) -> bool {
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
