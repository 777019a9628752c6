//! The graph that a stream records now, whoever captures it, and the end of that graph.

use crate::error::callback::call_back;
use crate::error::capture_errors::capturing;
use crate::error::{CaptureRefusal, call, check_not_forked};
use crate::lifetime::Inside;
use crate::lifetime::capture_numbers::Membership;
use crate::lifetime::captures::captures_under_way;
use crate::lifetime::submission::{Submission, Submitted};
use crate::{Context, Result, Stream};
use core::ffi::c_void;
use core::ptr;
use cuda_sys::{CUgraph, CUstream, CUstreamCaptureStatus, CUuserObject_flags, CUuserObjectRetain_flags};

/// The capture of a stream. It does not begin or end while this lives, except on a stream of another library.
pub(crate) struct Recording<'stream> {
    stream: &'stream Stream,
    _submission: Submission<'stream>,
    /// No other capture of the process ever has it.
    pub id: u64,
    graph: CUgraph,
}

impl Stream {
    /// Whether another library captures the stream. Asks the driver only if this crate has begun a capture, or if the
    /// stream may have another owner's capture.
    ///
    /// # Errors
    ///
    /// This crate captures the stream.
    #[inline]
    pub(crate) fn is_recorded_by_others(&self, call: &'static str) -> Result<bool> {
        check_not_forked(call)?;
        if captures_under_way() || self.may_be_captured_by_others() { self.ask_who_records(call) } else { Ok(false) }
    }

    fn ask_who_records(&self, call: &'static str) -> Result<bool> {
        self.context().check_alive()?;
        let submission = self.enter_gate(call)?;
        match (self.submitted(&submission)?, submission.membership()) {
            (Submitted::WillRun, _) => Ok(false),
            (Submitted::RecordedOnly, Membership::Here(_)) => Err(capturing(call)),
            (Submitted::RecordedOnly, _) => Ok(true),
        }
    }

    /// The capture that records the stream's work; `None` if the stream does its work.
    ///
    /// # Errors
    ///
    /// The capture was invalidated, so it gives no graph. Another thread captures the stream.
    pub(crate) fn recording(&self, call: &'static str) -> Result<Option<Recording<'_>>> {
        self.context().check_alive()?;
        let submission = self.enter_gate(call)?;
        if self.submitted(&submission)? == Submitted::WillRun {
            return Ok(None);
        }
        let _current = self.enter()?;
        let (status, id, graph) = capture_of(self.context(), self.raw())?;
        match status {
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE => {
                Ok(Some(Recording { stream: self, _submission: submission, id, graph }))
            }
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => Ok(None),
            _ => Err(CaptureRefusal::Invalidated.of(call)),
        }
    }
}

/// The state, the number and the graph of the capture of a stream that lives.
pub(in crate::stream) fn capture_of(
    context: &Context,
    stream: CUstream,
) -> Result<(CUstreamCaptureStatus, u64, CUgraph)> {
    let cuda = context.driver().raw();
    let (mut status, mut id, mut graph) = (CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE, 0, ptr::null_mut());
    let none = ptr::null_mut();
    // Null pointers ask for no dependencies, so the older form loses none of their data.
    // SAFETY: the places are writable. The callers' stream lives.
    unsafe { call!(cuda.cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut graph, ptr::null_mut(), none)) }?;
    Ok((status, id, graph))
}

impl Recording<'_> {
    /// Has the driver call `ended` when no work of the graph can run any more: the graph, its clones, the executable
    /// graphs made of it and their launches are gone. If the capture gives no graph, that is its end. The function runs
    /// on any thread, and must neither call the driver nor wait.
    ///
    /// # Errors
    ///
    /// The driver is older than CUDA 11.3 and has no user objects, or refuses.
    #[doc(alias = "cuUserObjectCreate")]
    #[doc(alias = "cuGraphRetainUserObject")]
    pub fn at_end(&self, ended: impl FnOnce() + Send + 'static) -> Result<()> {
        let context = self.stream.context();
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let ended: Box<dyn FnOnce() + Send> = Box::new(ended);
        let data = Box::into_raw(Box::new(ended));
        let (mut object, flags) = (ptr::null_mut(), CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC.0);
        // SAFETY: `object` is writable. `run_ended` takes the type of `data`. The driver calls it once if, and only if,
        // it makes the object.
        let made = unsafe { call!(cuda.cuUserObjectCreate(&mut object, data.cast(), Some(run_ended), 1, flags)) };
        if let Err(error) = made {
            // SAFETY: the driver refused, so we still own the box.
            drop(unsafe { Box::from_raw(data) });
            return Err(error);
        }
        let moved = CUuserObjectRetain_flags::CU_GRAPH_USER_OBJECT_MOVE.0;
        // SAFETY: the capture goes on, and its graph with it. The object's one reference is ours.
        let retained = unsafe { call!(cuda.cuGraphRetainUserObject(self.graph, object, 1, moved)) };
        retained.inspect_err(|_| {
            // SAFETY: the graph did not take the reference. This ends the object, and calls the function.
            if let Err(error) = unsafe { call!(cuda.cuUserObjectRelease(object, 1)) } {
                context.drop_errors().push("releasing a user object", error);
            }
        })
    }
}

unsafe extern "C" fn run_ended(data: *mut c_void) {
    // SAFETY: `at_end` made the box for this one call.
    let ended = *unsafe { Box::from_raw(data.cast::<Box<dyn FnOnce() + Send>>()) };
    // The driver's rules for this function are those of host functions.
    let _inside = Inside::enter();
    // Nobody could handle a panic.
    let _ = call_back(ended);
}
