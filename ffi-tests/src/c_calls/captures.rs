//! Captures with random calls in them, which are given up: what they record may end before a launch could use it.

use super::Calls;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;
use cudamem::graph::*;
use cudamem::handles::*;
use cudamem::status::*;

impl Calls<'_> {
    /// Captures a stream while calls are made for it and for others: joins, home streams, copies, ends.
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

/// Makes calls that the bytes of `user`, which is a [`Calls`], say; then gives the recording up.
extern "C" fn record_calls(_stream: cudamem_stream, user: *mut c_void) -> cudamem_status {
    // SAFETY: `capture_calls` lends its own for the call, and does not use it meanwhile.
    let calls = unsafe { &mut *user.cast::<Calls<'_>>() };
    for _ in 0..calls.byte() % 8 {
        match calls.byte() % 8 {
            0..4 => calls.work(),
            4 | 5 => calls.copy(),
            6 => calls.ask(),
            _ => {
                let wanted = u64::from(calls.byte() % 24);
                let handle = calls.handle(wanted);
                calls.destroy(handle);
            }
        }
    }
    CUDAMEM_ERROR_INVALID_ARGUMENT
}
