//! Captures, and the graphs that they give.

use super::{ExecutableGraph, GraphOptions};
use crate::beside_captures::UnderWay;
use crate::capture_errors::is_for_a_capture;
use crate::ends::Ended;
use crate::error::call;
use crate::later::{drop_later, inside_host_function};
use crate::submission::Beginning;
use crate::waiting::{self, Target};
use crate::{Context, Result, Stream};
use core::cell::{Cell, RefCell};
use core::fmt;
use core::ptr;
use cuda_sys::{CUgraph, CUstreamCaptureMode, CUstreamCaptureStatus};

/// To which threads a capture forbids calls that it would not notice, such as plain allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureMode {
    /// To all threads.
    #[default]
    Global,
    /// To the thread that captures.
    ThreadLocal,
    /// To none. The caller knows that no such call belongs to the captured work.
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
    /// Whether what the stream is given now is recorded; also when the capture was lost and has not ended yet.
    ///
    /// # Errors
    ///
    /// The driver refuses: it is the legacy default stream, and a blocking stream of the context captures.
    #[doc(alias = "cuStreamIsCapturing")]
    pub fn is_capturing(&self) -> Result<bool> {
        let (cuda, _current) = (self.context().driver().raw(), self.enter()?);
        // Else another thread captures it.
        let Some(_submission) = self.gate().submit() else { return Ok(true) };
        self.ask_whether_capturing(cuda)
    }

    fn ask_whether_capturing(&self, cuda: &cuda_sys::Driver) -> Result<bool> {
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: `status` is writable and the stream lives.
        unsafe { call!(cuda.cuStreamIsCapturing(self.raw(), &mut status)) }?;
        Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Records what `record` gives the stream, in place of doing it.
    ///
    /// Until the end, the stream is this thread's: calls of other threads with it are refused. Another stream takes part
    /// once it waits for an event that was recorded here ([`join`](Self::join)); it is this thread's then too, and must be
    /// joined again before the end. The capture ends on every path, also when `record` fails or panics; the graph is
    /// given only if it succeeds.
    ///
    /// Nothing is done here, so nothing has to outlive this call; what the work uses has to live at each
    /// [launch](ExecutableGraph::launch). Memory that is told of captured work (`record_use`) is told of no work that
    /// can be waited for: its next wait is an error.
    ///
    /// # Errors
    ///
    /// What `record` gives; or the driver refuses: a stream that captures already, the legacy default stream; or the
    /// capture was lost by a call that may not be made meanwhile (CUDA_ERROR_STREAM_CAPTURE_INVALIDATED), or another
    /// stream was not joined again (CUDA_ERROR_STREAM_CAPTURE_UNJOINED).
    #[doc(alias = "cuStreamBeginCapture")]
    #[doc(alias = "cuStreamEndCapture")]
    pub fn capture(&self, mode: CaptureMode, record: impl FnOnce(&Stream) -> Result<()>) -> Result<Graph> {
        let (cuda, _current) = (self.context().driver().raw(), self.context().bind()?);
        let under_way = waiting::during(&"Stream::capture", Target::context(self.context()), UnderWay::begin);
        // SAFETY: the stream lives; `Capture` ends what begins here.
        let begin = || unsafe { call!(cuda.cuStreamBeginCapture_v2(self.raw(), mode.raw())) };
        self.apart_from_submissions(&"Stream::capture", |beginning| {
            begin()?;
            beginning.captured();
            Ok(())
        })?;
        let capture = Capture { stream: self, open: true, _under_way: under_way };
        OWN_CAPTURES.set(OWN_CAPTURES.get() + 1);
        record(self)?;
        capture.end()
    }
}

/// A capture that goes on. It is ended on the thread that began it, as the driver wants it.
struct Capture<'stream> {
    stream: &'stream Stream,
    open: bool,
    _under_way: UnderWay,
}

impl Capture<'_> {
    fn end(mut self) -> Result<Graph> {
        self.finish()
    }

    fn finish(&mut self) -> Result<Graph> {
        self.open = false;
        let context = self.stream.context();
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is writable and the stream lives. Other threads are kept from it.
        let ended = unsafe { call!(cuda.cuStreamEndCapture(self.stream.raw(), &mut raw)) };
        OWN_CAPTURES.set(OWN_CAPTURES.get() - 1);
        self.stream.gate().end_capture();
        end_joined();
        ended.map(|()| Graph { context: context.clone(), raw })
    }
}

thread_local! {
    /// How many captures of this thread go on.
    static OWN_CAPTURES: Cell<usize> = const { Cell::new(0) };
    /// The streams that take part in them, apart from those that they began with.
    static JOINED: RefCell<Vec<Stream>> = const { RefCell::new(Vec::new()) };
}

impl Stream {
    /// The stream has waited for an event. Notes it if the stream takes part in a capture of this thread's since.
    pub(crate) fn note_capture(&self, beginning: &Beginning<'_>) -> Result<()> {
        if OWN_CAPTURES.get() == 0 || self.gate().is_captured() {
            return Ok(());
        }
        let (cuda, _current) = (self.context().driver().raw(), self.enter()?);
        if self.ask_whether_capturing(cuda)? {
            beginning.captured();
            JOINED.with_borrow_mut(|joined| joined.push(self.clone()));
        }
        Ok(())
    }
}

/// A capture of this thread has ended: other threads may use the streams that took part in it.
fn end_joined() {
    let goes_on = |stream: &Stream| stream.is_capturing().unwrap_or(false);
    let (open, ended): (Vec<_>, Vec<_>) = JOINED.take().into_iter().partition(goes_on);
    ended.iter().for_each(|stream| stream.gate().end_capture());
    JOINED.with_borrow_mut(|joined| joined.extend(open));
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        // Given up: what was recorded is dropped. That the capture was lost is what its caller was told already.
        if let Err(error) = self.finish()
            && !is_for_a_capture(&error)
            && !error.is_teardown()
        {
            self.stream.context().drop_errors().push("ending a capture", error);
        }
    }
}

/// Captured work. It may be handed to another thread, and is used by one at a time, as the driver wants it.
pub struct Graph {
    context: Context,
    raw: CUgraph,
}

// SAFETY: a CUgraph belongs to no thread; only calls at the same time are forbidden, and this type is not Sync.
unsafe impl Send for Graph {}

impl Graph {
    /// Makes the graph ready for launches. The result does not need the graph any more.
    ///
    /// A graph that allocates or frees memory has at most one executable graph at a time.
    ///
    /// # Errors
    ///
    /// The driver refuses: there is an executable graph already, and the graph has memory; or memory is short.
    #[doc(alias = "cuGraphInstantiate")]
    pub fn instantiate(&self, options: GraphOptions) -> Result<ExecutableGraph> {
        ExecutableGraph::new(self, options)
    }

    /// How many pieces of work it has.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    #[doc(alias = "cuGraphGetNodes")]
    pub fn node_count(&self) -> Result<usize> {
        let (cuda, _current) = (self.context.driver().raw(), self.context.bind()?);
        let mut count = 0;
        // SAFETY: `count` is writable, and no nodes are asked for.
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
            return drop_later(Self { context: self.context.clone(), raw: self.raw });
        }
        // SAFETY: ours; what was made of it keeps what it needs.
        unsafe { self.context.driver().ends().end(&self.context, Ended::Graph(self.raw)) };
    }
}
