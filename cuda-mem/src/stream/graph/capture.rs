//! Captures, and the graphs that they produce.

use super::{ExecutableGraph, GraphOptions};
use crate::driver::context::Handle;
use crate::driver::context::Liveness;
use crate::error::call;
use crate::error::capture_errors::is_for_a_capture;
use crate::lifetime::capture_numbers::{self, CaptureId};
use crate::lifetime::captures::UnderWay;
use crate::lifetime::submission::Beginning;
use crate::lifetime::waiting::{self, Target};
use crate::lifetime::{drop_after_host_function, inside_host_function};
use crate::{Context, Result, Stream};
use core::fmt;
use core::ptr;
use cuda_sys::{CUgraph, CUstreamCaptureMode};

/// How often a capture is ended whose end fails.
const TRIES: usize = 3;

/// The threads to which a capture forbids calls that it cannot record, such as plain allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureMode {
    /// All threads.
    #[default]
    Global,
    /// The thread that captures.
    ThreadLocal,
    /// No thread. The caller guarantees that no such call belongs to the captured work.
    Relaxed,
}

impl CaptureMode {
    fn raw(self) -> CUstreamCaptureMode {
        match self {
            CaptureMode::Global => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
            CaptureMode::ThreadLocal => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            CaptureMode::Relaxed => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
        }
    }
}

impl Stream {
    /// Records the work that `record` queues on the stream, instead of running it.
    ///
    /// Until the capture ends, the stream belongs to this thread: calls of other threads with it are refused. Another
    /// stream joins the capture when it waits for an event that was recorded here ([`join`](Self::join)). It then
    /// belongs to this thread too, and must be joined again before the end. The capture also ends if `record` fails or
    /// panics. Only success returns a graph.
    ///
    /// No work runs during the capture, so nothing has to outlive this call. Memory and kernels that the work uses must
    /// live at each [launch](ExecutableGraph::launch). After `record_use` with captured work, the next wait of that
    /// memory is an error, because there is no work to wait for.
    ///
    /// # Errors
    ///
    /// `record` fails. The stream captures already, or is the legacy default stream. A forbidden call invalidated the
    /// capture (CUDA_ERROR_STREAM_CAPTURE_INVALIDATED). Another stream was not joined again
    /// (CUDA_ERROR_STREAM_CAPTURE_UNJOINED).
    #[doc(alias = "cuStreamBeginCapture")]
    #[doc(alias = "cuStreamEndCapture")]
    pub fn capture(&self, mode: CaptureMode, record: impl FnOnce(&Stream) -> Result<()>) -> Result<Graph> {
        let (cuda, _current) = (self.context().driver().raw(), self.context().bind()?);
        let under_way = waiting::during(&"Stream::capture", Target::context(self.context()), UnderWay::begin);
        // SAFETY: the stream lives; `Capture` ends the capture that begins here.
        let begin = || unsafe { call!(cuda.cuStreamBeginCapture_v2(self.raw(), mode.raw())) };
        let id = capture_numbers::begin();
        self.begin_capture(id, begin).inspect_err(|_| capture_numbers::end(id))?;
        let capture = Capture { stream: self, id, open: true, _under_way: under_way };
        record(self)?;
        capture.end()
    }

    fn begin_capture(&self, id: CaptureId, begin: impl FnOnce() -> Result<()>) -> Result<()> {
        const CALL: &str = "Stream::capture";
        // Another library may capture the stream. Its capture is not this thread's.
        self.check_not_capturing(CALL)?;
        self.join_capture(&CALL, id, begin)
    }
}

/// A capture under way. It ends on the thread that began it, as the driver requires.
struct Capture<'stream> {
    stream: &'stream Stream,
    id: CaptureId,
    open: bool,
    _under_way: UnderWay,
}

impl Capture<'_> {
    fn end(mut self) -> Result<Graph> {
        self.finish()
    }

    fn finish(&mut self) -> Result<Graph> {
        self.open = false;
        let ended = self.end_in_driver();
        // Also after an error: otherwise the streams and events of the capture would stay this thread's for ever.
        capture_numbers::end(self.id);
        ended.map(|raw| Graph { context: self.stream.context().clone(), raw })
    }

    fn end_in_driver(&self) -> Result<CUgraph> {
        let context = self.stream.context();
        let (cuda, current) = (context.driver().raw(), context.bind());
        if let Err(error) = &current
            && context.liveness() != Liveness::Alive
        {
            // The context has ended, and the capture with it.
            return Err(error.clone());
        }
        let end = || {
            let mut raw = ptr::null_mut();
            // SAFETY: `raw` is writable and the stream lives. The gate keeps other threads away from the stream.
            unsafe { call!(cuda.cuStreamEndCapture(self.stream.raw(), &mut raw)) }.map(|()| raw)
        };
        let error = match end() {
            Err(error) if !is_for_a_capture(&error) && !error.is_teardown() => error,
            ended => return ended,
        };
        // The driver did not tell that the capture has ended.
        for _ in 1..TRIES {
            if let Ok(graph) = end() {
                return Ok(graph);
            }
        }
        // From now on, each call with the stream asks the driver whether it captures.
        let note = |beginning: &Beginning<'_>| {
            beginning.captured_by_others();
            Ok(())
        };
        self.stream.apart_from_submissions(&"Stream::capture", note)?;
        Err(error)
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        // The capture was abandoned, and its caller already has the error. So this drops what was recorded.
        if let Err(error) = self.finish()
            && !is_for_a_capture(&error)
            && !error.is_teardown()
        {
            self.stream.context().drop_errors().push("ending a capture", error);
        }
    }
}

/// Captured work. Threads may hand it over, but only one at a time may use it, as the driver requires.
pub struct Graph {
    context: Context,
    raw: CUgraph,
}

// SAFETY: a CUgraph belongs to no thread. Only simultaneous calls are forbidden, and this type is not Sync.
unsafe impl Send for Graph {}

impl Graph {
    /// Prepares the graph for launches. The result does not need the graph.
    ///
    /// A graph that allocates or frees memory has at most one executable graph at a time.
    ///
    /// # Errors
    ///
    /// The graph allocates or frees memory and has an executable graph already; or memory is short.
    #[doc(alias = "cuGraphInstantiate")]
    pub fn instantiate(&self, options: GraphOptions) -> Result<ExecutableGraph> {
        ExecutableGraph::new(self, options)
    }

    /// The number of nodes in the graph.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuGraphGetNodes")]
    pub fn node_count(&self) -> Result<usize> {
        let (cuda, _current) = (self.context.driver().raw(), self.context.bind()?);
        let mut count = 0;
        // SAFETY: `count` is writable; a null pointer requests no nodes.
        unsafe { call!(cuda.cuGraphGetNodes(self.raw, ptr::null_mut(), &mut count)) }?;
        Ok(count)
    }

    /// The context of the stream that captured it.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The driver's handle. It lives as long as this value.
    pub fn raw(&self) -> CUgraph {
        self.raw
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("raw", &self.raw).finish_non_exhaustive()
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if inside_host_function() {
            return drop_after_host_function(Self { context: self.context.clone(), raw: self.raw });
        }
        // SAFETY: the graph is ours, and executable graphs made of it do not need it.
        unsafe { self.context.destroy(Handle::Graph(self.raw)) };
    }
}
