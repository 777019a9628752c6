//! Whose work the freed memory of a pool waits for: a stream's, a thread's default stream's, or a graph's.

use super::graphs::CapturedGraph;
use super::recorder::{self, Recorder};
use crate::error::CaptureRefusal;
use crate::stream::{Used, WorkUnknown};
use crate::{Error, Event, Result, Stream};
use cuda_sys::CU_STREAM_PER_THREAD;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use stream_heap::{Mark, StreamDriver};

/// What a heap knows as a stream: work in one order.
#[derive(Debug)]
pub(super) struct WorkOrder {
    pub stream: Stream,
    /// The thread, for the per-thread default stream, which is another stream on each.
    thread: Option<ThreadId>,
    /// Other work that may use the memory.
    others: Vec<OtherWork>,
    /// A capture records the frees. So once the graphs have ended, no work is left.
    is_recorded: bool,
}

/// Work that may use memory, of others than the stream that frees it.
#[derive(Debug)]
pub(super) enum OtherWork {
    Graph(Arc<CapturedGraph>),
    Use(Use),
}

/// A further stream that uses a block. The stream may have ended.
#[derive(Debug)]
pub(super) struct Use {
    stream: Stream,
    thread: Option<ThreadId>,
    /// When the block was freed, until which the stream's work uses it.
    until: Option<Used>,
}

/// A stream in figures, which show its handle: streams of several contexts, threads and times may share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct OrderSource {
    pub handle: u64,
    stream: u64,
    thread: Option<ThreadId>,
}

/// The end of the work of all streams of an order.
#[derive(Clone, Debug)]
pub(super) struct End {
    first: Arc<Event>,
    others: Vec<Arc<Event>>,
}

impl End {
    fn events(&self) -> impl Iterator<Item = &Arc<Event>> {
        core::iter::once(&self.first).chain(&self.others)
    }

    /// Waits for the work. If a context has ended, its work has ended too.
    pub fn reach(&self) -> Result<()> {
        self.events().try_for_each(|event| recorder::reach(event))
    }
}

/// The thread whose stream it is, for the per-thread default stream.
#[inline]
fn thread_of(stream: &Stream) -> Option<ThreadId> {
    (stream.raw() == CU_STREAM_PER_THREAD).then(|| thread::current().id())
}

impl Use {
    /// A use by a stream, during a call that names it.
    pub fn by(stream: &Stream) -> Self {
        Self { stream: stream.kept(), thread: thread_of(stream), until: None }
    }
}

impl OtherWork {
    /// Whether this is the use by the stream that frees the block, in whose order the memory is reused.
    pub fn is_by(&self, stream: &Stream) -> bool {
        matches!(self, Self::Use(one) if one.stream == *stream && one.thread == thread_of(stream))
    }

    /// The same of a block that is freed now: work queued later does not use it.
    pub fn until_now(&self) -> Self {
        let mut ended = self.clone();
        if let Self::Use(one) = &mut ended {
            one.until = Some(one.stream.note_used());
        }
        ended
    }
}

/// Work of one stream.
struct Work<'order> {
    stream: &'order Stream,
    thread: Option<ThreadId>,
    until: Option<Used>,
}

impl Work<'_> {
    /// Finds out what is left of the work, as [`Stream::work_left`] does. Only its own thread may ask about a thread's
    /// default stream.
    fn left<R>(
        &self,
        with_stream: impl FnOnce() -> R,
        with_event: impl FnOnce(Arc<Event>) -> R,
        done: R,
    ) -> Result<R, WorkUnknown> {
        if self.thread.is_some_and(|thread| thread != thread::current().id()) {
            return Err(WorkUnknown::Ended);
        }
        self.stream.work_left(self.until, with_stream, with_event, done)
    }

    fn record(&self, recorder: &mut Recorder) -> Result<Mark<Arc<Event>>> {
        let recorded = self.left(|| recorder.record(self.stream), |event| Ok(Mark::Event(event)), Ok(Mark::Over));
        recorded.unwrap_or(Ok(Mark::NotNow))
    }

    fn is_idle(&self) -> bool {
        self.left(|| recorder::is_idle(self.stream), |event| recorder::is_past(&event), true) == Ok(true)
    }

    fn drain(&self, call: &'static str) -> Result<()> {
        match self.left(|| recorder::drain(call, [self.stream]), |event| recorder::reach(&event), Ok(())) {
            Ok(drained) => drained,
            Err(WorkUnknown::Ended) if self.thread.is_some() => {
                let rule = "the thread must free its memory, or the driver must record an event for it, while it runs";
                Err(Error::invalid(call, "stream", "the per-thread default stream of another thread", rule))
            }
            Err(WorkUnknown::Ended) => Err(ended(call)),
            Err(WorkUnknown::Captured) => Err(CaptureRefusal::OtherThread.of(call)),
        }
    }
}

impl WorkOrder {
    /// The work that a stream does itself.
    #[inline]
    pub fn of(stream: &Stream) -> Self {
        Self { stream: stream.clone(), thread: thread_of(stream), others: Vec::new(), is_recorded: false }
    }

    /// The work of a stream in the capture of a graph.
    pub fn recorded(stream: &Stream, graph: Arc<CapturedGraph>) -> Self {
        Self { others: vec![OtherWork::Graph(graph)], is_recorded: true, ..Self::of(stream) }
    }

    /// The work that a stream does itself, on memory that other work may use too.
    pub fn with_others(stream: &Stream, others: Vec<OtherWork>) -> Self {
        Self { others, ..Self::of(stream) }
    }

    /// Which stream does the work.
    pub fn source(&self) -> OrderSource {
        OrderSource { handle: self.stream.raw().addr() as u64, stream: self.stream.id(), thread: self.thread }
    }

    /// Whether only this thread can record an event behind the work.
    pub fn is_of_this_thread(&self) -> bool {
        self.thread.is_some()
    }

    /// Whether a capture records the work.
    pub fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    /// All streams whose work the memory waits for.
    pub fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.works().map(|work| work.stream)
    }

    fn works(&self) -> impl Iterator<Item = Work<'_>> {
        let own = Work { stream: &self.stream, thread: self.thread, until: None };
        let uses = self.others.iter().filter_map(|work| match work {
            OtherWork::Graph(_) => None,
            OtherWork::Use(used) => Some(Work { stream: &used.stream, thread: used.thread, until: used.until }),
        });
        // The uses first: of them, least is known.
        uses.chain((!self.is_recorded).then_some(own))
    }

    /// Whether work of a graph may run later.
    pub fn waits_for_graphs(&self) -> bool {
        self.others.iter().any(|work| matches!(work, OtherWork::Graph(graph) if !graph.has_ended()))
    }

    /// Whether no work is left. An order of which nothing is known counts as busy.
    pub fn is_idle(&self) -> bool {
        !self.waits_for_graphs() && self.works().all(|work| work.is_idle())
    }

    /// Waits, at a pool's end, for work behind which no event could be recorded.
    pub fn drain(&self, call: &'static str) -> Result<()> {
        if self.waits_for_graphs() {
            return Err(CaptureRefusal::RecordsOnly.of(call));
        }
        self.works().try_for_each(|work| work.drain(call))
    }
}

/// The error of work that nobody can wait for.
fn ended(call: &'static str) -> Error {
    let rule = "its last value must be dropped while it does not capture, outside of host functions: that drop records an \
                event, for which the pool's memory waits";
    Error::invalid(call, "stream", "a stream of another library that has ended", rule)
}

/// A clone is kept in records.
impl Clone for WorkOrder {
    fn clone(&self) -> Self {
        let (stream, others) = (self.stream.kept(), self.others.clone());
        Self { stream, thread: self.thread, others, is_recorded: self.is_recorded }
    }
}

impl PartialEq for WorkOrder {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.stream == other.stream
            && self.thread == other.thread
            && self.is_recorded == other.is_recorded
            && self.others == other.others
    }
}

impl Clone for OtherWork {
    fn clone(&self) -> Self {
        match self {
            Self::Graph(graph) => Self::Graph(graph.clone()),
            Self::Use(used) => Self::Use(Use { stream: used.stream.kept(), ..*used }),
        }
    }
}

impl PartialEq for OtherWork {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Graph(one), Self::Graph(other)) => Arc::ptr_eq(one, other),
            (Self::Use(one), Self::Use(other)) => {
                one.stream == other.stream && one.thread == other.thread && one.until == other.until
            }
            _ => false,
        }
    }
}

/// The driver's events for lines.
#[derive(Debug, Default)]
pub(super) struct OrderRecorder(pub Recorder);

impl StreamDriver for OrderRecorder {
    type Stream = WorkOrder;
    type Event = End;
    type Error = Error;

    fn record(&mut self, order: &WorkOrder) -> Result<Mark<End>> {
        if order.waits_for_graphs() {
            return Ok(Mark::NotNow);
        }
        let mut end: Option<End> = None;
        for work in order.works() {
            match (work.record(&mut self.0), &mut end) {
                (Ok(Mark::Over), _) => {}
                (Ok(Mark::Event(event)), Some(end)) => end.others.push(event),
                (Ok(Mark::Event(first)), None) => end = Some(End { first, others: Vec::new() }),
                (other, _) => {
                    end.into_iter().for_each(|end| self.retire(end));
                    return other.map(|_| Mark::NotNow);
                }
            }
        }
        Ok(end.map_or(Mark::Over, Mark::Event))
    }

    fn has_passed(&mut self, end: &End) -> Result<bool> {
        for event in end.events() {
            if !self.0.has_passed(event)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn wait(&mut self, order: &WorkOrder, end: &End) -> Result<bool> {
        // The work of a graph runs at launches, on any stream.
        if order.is_recorded {
            return Ok(false);
        }
        for event in end.events() {
            if !self.0.wait(&order.stream, event)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn retire(&mut self, end: End) {
        self.0.retire(end.first);
        end.others.into_iter().for_each(|event| self.0.retire(event));
    }

    fn release(&mut self, order: WorkOrder) {
        self.0.release(order.stream);
        for work in order.others {
            if let OtherWork::Use(used) = work {
                self.0.release(used.stream);
            }
        }
    }
}
