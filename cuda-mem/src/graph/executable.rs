//! Graphs made ready for launches.

use super::Graph;
use crate::ends::Ended;
use crate::error::call;
use crate::later::{drop_later, inside_host_function};
use crate::{Context, Result, Stream};
use core::fmt;
use core::ptr;
use cuda_sys::{CUgraphExec, CUgraphInstantiate_flags};

/// How an executable graph is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphOptions {
    /// A launch first frees the memory that the one before allocated and nobody freed. Without this, a launch while
    /// such memory is live is refused.
    pub auto_free_on_launch: bool,
}

/// Captured work, ready for launches. It may be handed to another thread, and is used by one at a time, as the driver
/// wants it.
pub struct ExecutableGraph {
    context: Context,
    raw: CUgraphExec,
}

// SAFETY: a CUgraphExec belongs to no thread; only calls at the same time are forbidden, and this type is not Sync.
unsafe impl Send for ExecutableGraph {}

impl ExecutableGraph {
    pub(super) fn new(graph: &Graph, options: GraphOptions) -> Result<Self> {
        let context = graph.context();
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let flags = if options.auto_free_on_launch {
            CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0
        } else {
            0
        };
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is writable and the graph lives.
        unsafe { call!(cuda.cuGraphInstantiateWithFlags(&mut raw, graph.raw(), flags.into())) }?;
        Ok(Self { context: context.clone(), raw })
    }

    /// Does the captured work after all earlier work of the stream, and after the launch before.
    ///
    /// # Errors
    ///
    /// The driver refuses: memory that an earlier launch allocated is live, and
    /// [`auto_free_on_launch`](GraphOptions::auto_free_on_launch) was not asked for; or memory is short.
    ///
    /// # Safety
    ///
    /// Until this launch is done, everything that the captured work uses lives as it did at the capture: memory of the
    /// device and the host, kernels with their modules, the arguments of host functions. What the work's own calls
    /// demanded when they were captured holds for each launch anew: nobody else uses the memory meanwhile, and work
    /// that must be done only once is not in the graph.
    #[doc(alias = "cuGraphLaunch")]
    pub unsafe fn launch(&self, stream: &Stream) -> Result<()> {
        let (cuda, _ready) = stream.ready()?;
        // SAFETY: both live; the caller vouches for what the work uses.
        unsafe { call!(cuda.cuGraphLaunch(self.raw, stream.raw())) }
    }

    /// The context of the stream that captured the work.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The driver's handle. It lives as long as this value.
    pub fn raw(&self) -> CUgraphExec {
        self.raw
    }
}

impl fmt::Debug for ExecutableGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutableGraph").field("raw", &self.raw).finish_non_exhaustive()
    }
}

impl Drop for ExecutableGraph {
    fn drop(&mut self) {
        if inside_host_function() {
            return drop_later(Self { context: self.context.clone(), raw: self.raw });
        }
        // SAFETY: ours; a launch that goes on keeps what it needs.
        unsafe { self.context.driver().ends().end(&self.context, Ended::Executable(self.raw)) };
    }
}
