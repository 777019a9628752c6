//! The device work that reads a slot.

use crate::error::CaptureRefusal;
use crate::stream::Running;
use crate::stream::marks::Marks;
use crate::{Error, Result, Stream};

/// The work that reads the slot: an event behind the last of it on each stream.
///
/// The event is recorded at once. A later event would come behind newer work of the stream, such as a wait for the next
/// frame.
#[derive(Default)]
pub(super) struct Reads {
    marks: Marks,
    /// Streams without an event yet, because the driver failed.
    unmarked: Vec<Stream>,
    /// A graph may read the slot at any time.
    captured: bool,
}

impl Reads {
    /// Records that the work queued on `stream` so far reads the slot. If that is not possible now, an event is recorded
    /// later, on demand: the driver fails, or another thread captures the stream.
    pub fn note(&mut self, stream: &Stream, running: Result<Running<'_>>) {
        match running.and_then(|running| self.marks.note(&running)) {
            Ok(_) => {}
            // The work is part of the graph.
            Err(Error::Capturing { why: CaptureRefusal::RecordsOnly, .. }) => self.captured = true,
            Err(_) if self.unmarked.contains(stream) => {}
            Err(_) => self.unmarked.push(stream.clone()),
        }
    }

    fn mark(&mut self, stream: &Stream) -> Result<()> {
        let running = stream.running("FrameRing")?;
        self.marks.note(&running).map(drop)
    }

    /// Whether work on the slot was recorded in a graph.
    pub fn captured(&self) -> bool {
        self.captured
    }

    /// Whether all of the work is done. After an error it may still run.
    pub fn is_over(&mut self) -> Result<bool> {
        self.settle()?;
        self.marks.are_over()
    }

    /// Waits for all of the work. After an error it may still run.
    pub fn wait(&mut self) -> Result<()> {
        self.settle()?;
        self.marks.wait()
    }

    /// Makes work queued on `stream` from now on wait for all of it.
    pub fn order_before(&mut self, stream: &Stream) -> Result<()> {
        self.settle()?;
        self.marks.iter().try_for_each(|mark| stream.wait(mark.event()))
    }

    /// Records the missing events. Fails while a stream captures: its earlier work may still read the slot.
    fn settle(&mut self) -> Result<()> {
        while let Some(stream) = self.unmarked.last().cloned() {
            self.mark(&stream)?;
            self.unmarked.pop();
        }
        Ok(())
    }
}
