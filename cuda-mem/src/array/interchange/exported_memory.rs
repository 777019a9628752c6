//! Memory that consumers in other libraries hold, and its release.

use super::Release;
use crate::driver::context::Liveness;
use crate::error::DriverError;
use crate::lifetime::captures::captures_under_way;
use crate::lifetime::{drop_after_captures, end_beside_captures};
use crate::memory::resource::kind::Any;
use crate::{Context, Result, SharedBuffer, Stream};
use core::mem;
use cuda_sys::CUresult;
use std::thread::{self, ThreadId};

/// The memory that one consumer holds.
pub(super) struct ExportedMemory {
    pub memory: SharedBuffer<u8, Any>,
    pub after: After,
}

/// What the memory waits for after its release.
pub(super) enum After {
    Nothing,
    Stream(Stream),
    /// The default stream of the consumer's thread. Its handle means another stream on other threads.
    PerThread(Stream, ThreadId),
    Context,
}

impl After {
    pub fn new(release: Release, consumer: Option<Stream>) -> Self {
        match (release, consumer) {
            (Release::AfterContext, _) => Self::Context,
            (Release::AfterStream, Some(stream)) if stream.raw() == cuda_sys::CU_STREAM_PER_THREAD => {
                Self::PerThread(stream, thread::current().id())
            }
            (Release::AfterStream, Some(stream)) => Self::Stream(stream),
            (Release::AfterStream, None) | (Release::Immediately, _) => Self::Nothing,
        }
    }
}

impl Drop for ExportedMemory {
    fn drop(&mut self) {
        let context: &Context = self.memory.stream().context();
        if matches!(self.after, After::Nothing) || context.liveness() != Liveness::Alive {
            return;
        }
        let ordered = end_beside_captures(|| self.order(context).or_else(|error| context.unless_ended(error)));
        if matches!(ordered, Ok(true)) {
            return;
        }
        // The consumer's work may still use the memory. If a capture forbids the wait, the drop after it waits.
        let context = context.clone();
        let after = mem::replace(&mut self.after, After::Nothing);
        let held = ExportedMemory { memory: self.memory.clone(), after };
        match ordered {
            Ok(_) => drop_after_captures(held),
            Err(error) => {
                mem::forget(held);
                let doing = "ordering memory after its consumer, without which it stays allocated";
                context.drop_errors().push(doing, error);
            }
        }
    }
}

impl ExportedMemory {
    /// Orders the memory's later work and its free after the consumer's work.
    fn order(&self, context: &Context) -> Result<()> {
        match &self.after {
            After::Nothing => Ok(()),
            After::PerThread(_, thread) if *thread != thread::current().id() => wait_for_all(context),
            After::Stream(stream) | After::PerThread(stream, _) => {
                self.memory.record_use(stream).or_else(|_| wait_for_all(context))
            }
            After::Context => wait_for_all(context),
        }
    }
}

/// Waits for all work of a context. During a capture of this crate the driver would refuse, and the capture would be
/// lost.
fn wait_for_all(context: &Context) -> Result<()> {
    if captures_under_way() {
        let code = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        return Err(DriverError { call: "cuCtxSynchronize", code }.into());
    }
    context.synchronize()
}
