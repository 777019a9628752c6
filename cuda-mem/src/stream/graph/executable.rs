//! Graphs that are ready for launches.

use super::Graph;
use crate::driver::context::Handle;
use crate::error::call;
use crate::lifetime::{drop_after_host_function, inside_host_function};
use crate::{Context, Result, Stream};
use core::fmt;
use core::ptr;
use cuda_sys::{CUgraphExec, CUgraphInstantiate_flags};

/// Options of an executable graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphOptions {
    /// A launch first frees the memory that the previous launch allocated and nobody freed. Without this option, a
    /// launch while such memory is live is refused.
    pub auto_free_on_launch: bool,
}

/// Captured work, ready for launches. Threads may hand it over, but only one at a time may use it, as the driver
/// requires.
pub struct ExecutableGraph {
    context: Context,
    raw: CUgraphExec,
}

// SAFETY: a CUgraphExec belongs to no thread. Only simultaneous calls are forbidden, and this type is not Sync.
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

    /// Runs the captured work after all earlier work of the stream and after the previous launch.
    ///
    /// # Errors
    ///
    /// Memory is short, or memory that an earlier launch allocated is live without
    /// [`auto_free_on_launch`](GraphOptions::auto_free_on_launch).
    ///
    /// # Safety
    ///
    /// Until this launch is done, all objects that the captured work uses live as they did at the capture: memory of
    /// the device and the host, kernels with their modules, arguments of host functions. The safety rules of the
    /// captured calls apply to each launch: nobody else uses the memory meanwhile, and the graph contains no work that
    /// must run only once.
    #[doc(alias = "cuGraphLaunch")]
    pub unsafe fn launch(&self, stream: &Stream) -> Result<()> {
        let (cuda, _ready) = stream.ready()?;
        // SAFETY: both live; the caller vouches for the objects that the work uses.
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
            return drop_after_host_function(Self { context: self.context.clone(), raw: self.raw });
        }
        // SAFETY: the graph is ours; the driver keeps what a running launch needs.
        unsafe { self.context.destroy(Handle::Executable(self.raw)) };
    }
}
