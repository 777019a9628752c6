//! Captures with random calls in them. Each recording is discarded, so the objects that it uses need not live until a
//! launch.

use super::Calls;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;
use cudamem::graph::*;
use cudamem::handles::*;
use cudamem::status::*;

impl Calls<'_> {
    /// Captures a stream while calls use that stream and others: joins, home streams, copies, ends.
    pub(super) fn capture_calls(&mut self) {
        let stream = self.stream();
        let mode = [CUDAMEM_CAPTURE_THREAD_LOCAL, CUDAMEM_CAPTURE_RELAXED][usize::from(self.byte() % 2)];
        let mut graph = MaybeUninit::new(cudamem_graph { id: 0 });
        let calls = ptr::from_mut(self).cast();
        let status = cudamem_graph_capture(stream, mode, Some(record_calls), calls, Some(&mut graph));
        assert_ne!(status, CUDAMEM_SUCCESS, "a recording that was given up made a graph");
        self.count(status);
    }
}

/// Makes calls chosen by the bytes of `user`, which is a [`Calls`]. Then makes the capture fail, which discards the
/// recording.
extern "C" fn record_calls(stream: cudamem_stream, user: *mut c_void) -> cudamem_status {
    // SAFETY: `capture_calls` lends its own `Calls` for the call and does not use it meanwhile.
    let calls = unsafe { &mut *user.cast::<Calls<'_>>() };
    for _ in 0..calls.byte() % 8 {
        match calls.byte() % 9 {
            0..4 => calls.work(),
            4 | 5 => calls.copy(),
            6 => calls.ask(),
            7 => calls.join_from_another_thread(stream),
            _ => {
                let wanted = u64::from(calls.byte()) % (Kind::ALL.len() as u64 + 1);
                let handle = calls.handle(wanted);
                calls.destroy(handle);
            }
        }
    }
    CUDAMEM_ERROR_INVALID_ARGUMENT
}
