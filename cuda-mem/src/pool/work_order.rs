//! Whose work the freed memory of a pool waits for: a stream's, a thread's default stream's, or a graph's.

use super::graphs::CapturedGraph;
use super::recorder::{self, Recorder};
use crate::error::CaptureRefusal;
use crate::stream::{LastWork, Present};
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
    /// The graphs whose work may use the memory.
    graphs: Vec<Arc<CapturedGraph>>,
    /// A capture records the frees. So once the graphs have ended, no work is left.
    is_recorded: bool,
}

/// A stream in figures, which show its handle: streams of several contexts, threads and times may share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct OrderSource {
    pub handle: u64,
    stream: u64,
    thread: Option<ThreadId>,
}

/// What is known of the work of a order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It is the work of the stream, which this thread may ask about.
    OnStream,
    /// It may run later, or another thread's default stream has it.
    Unknown,
    /// None can run any more.
    Over,
}

impl WorkOrder {
    /// The work that a stream does itself.
    #[inline]
    pub fn of(stream: &Stream) -> Self {
        let thread = (stream.raw() == CU_STREAM_PER_THREAD).then(|| thread::current().id());
        Self { stream: stream.clone(), thread, graphs: Vec::new(), is_recorded: false }
    }

    /// The work of a stream in the capture of a graph.
    pub fn recorded(stream: &Stream, graph: Arc<CapturedGraph>) -> Self {
        Self { graphs: vec![graph], is_recorded: true, ..Self::of(stream) }
    }

    /// The work that a stream does itself, on memory that the work of graphs may use too.
    pub fn beside_graphs(stream: &Stream, graphs: Vec<Arc<CapturedGraph>>) -> Self {
        Self { graphs, ..Self::of(stream) }
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

    fn standing(&self) -> Standing {
        if self.graphs.iter().any(|graph| !graph.has_ended()) {
            Standing::Unknown
        } else if self.is_recorded {
            Standing::Over
        } else if self.thread.is_some_and(|thread| thread != thread::current().id()) {
            Standing::Unknown
        } else {
            Standing::OnStream
        }
    }

    /// Whether no work is left. A order of which nothing is known counts as busy.
    pub fn is_idle(&self) -> bool {
        match self.standing() {
            Standing::OnStream => match self.stream.while_present(|| recorder::is_idle(&self.stream)) {
                Present::Yes(idle) => idle,
                Present::No(LastWork::Before(event)) => recorder::is_past(&event),
                Present::No(LastWork::Done) => true,
                Present::No(LastWork::Unknown) | Present::Captured => false,
            },
            Standing::Unknown => false,
            Standing::Over => true,
        }
    }

    /// Waits, at a pool's end, for work behind which no event could be recorded.
    pub fn drain(&self, call: &'static str) -> Result<()> {
        match self.standing() {
            Standing::OnStream => match self.stream.while_present(|| recorder::drain(call, [&self.stream])) {
                Present::Yes(drained) => drained,
                Present::No(LastWork::Before(event)) => recorder::reach(&event),
                Present::No(LastWork::Done) => Ok(()),
                Present::No(LastWork::Unknown) => Err(ended(call)),
                Present::Captured => Err(CaptureRefusal::OtherThread.of(call)),
            },
            Standing::Unknown if self.thread.is_some() => {
                let rule = "the thread must free its memory, or the driver must record an event for it, while it runs";
                Err(Error::invalid(call, "stream", "the per-thread default stream of another thread", rule))
            }
            Standing::Unknown => Err(CaptureRefusal::RecordsOnly.of(call)),
            Standing::Over => Ok(()),
        }
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
        let (stream, graphs) = (self.stream.kept(), self.graphs.clone());
        Self { stream, thread: self.thread, graphs, is_recorded: self.is_recorded }
    }
}

impl PartialEq for WorkOrder {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.stream == other.stream
            && self.thread == other.thread
            && self.is_recorded == other.is_recorded
            && self.graphs.len() == other.graphs.len()
            && self.graphs.iter().zip(&other.graphs).all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

/// The driver's events for lines.
#[derive(Debug, Default)]
pub(super) struct OrderRecorder(pub Recorder);

impl StreamDriver for OrderRecorder {
    type Stream = WorkOrder;
    type Event = Arc<Event>;
    type Error = Error;

    fn record(&mut self, order: &WorkOrder) -> Result<Mark<Arc<Event>>> {
        match order.standing() {
            Standing::OnStream => match order.stream.while_present(|| self.0.record(&order.stream)) {
                Present::Yes(recorded) => recorded,
                Present::No(LastWork::Before(event)) => Ok(Mark::Event(event)),
                Present::No(LastWork::Done) => Ok(Mark::Over),
                Present::No(LastWork::Unknown) | Present::Captured => Ok(Mark::NotNow),
            },
            Standing::Unknown => Ok(Mark::NotNow),
            Standing::Over => Ok(Mark::Over),
        }
    }

    fn has_passed(&mut self, event: &Arc<Event>) -> Result<bool> {
        self.0.has_passed(event)
    }

    fn wait(&mut self, order: &WorkOrder, event: &Arc<Event>) -> Result<bool> {
        // The work of a graph runs at launches, on any stream.
        if order.is_recorded { Ok(false) } else { self.0.wait(&order.stream, event) }
    }

    fn retire(&mut self, event: Arc<Event>) {
        self.0.retire(event);
    }

    fn release(&mut self, order: WorkOrder) {
        self.0.release(order.stream);
    }
}
