//! The device work that reads a slot.

use crate::error::CaptureRefusal;
use crate::relaxed::RelaxedCalls;
use crate::{Error, Event, Result, Stream};

/// The streams whose work reads the slot, each with an event behind that work.
///
/// The event is recorded at once. A later event would come behind newer work of the stream, such as a wait for the next
/// frame.
#[derive(Default)]
pub(super) struct Reads {
    marks: Vec<Mark>,
    /// Streams without an event yet, because the driver failed.
    unmarked: Vec<Stream>,
    /// A graph may read the slot at any time.
    captured: bool,
}

struct Mark {
    stream: Stream,
    event: Event,
    outstanding: bool,
}

impl Reads {
    /// Records that the work queued on `stream` so far reads the slot. If that is not possible now, an event is recorded
    /// later, on demand: the driver fails, or another thread captures the stream.
    pub fn note(&mut self, stream: &Stream) {
        match self.mark(stream) {
            Ok(()) => {}
            // The work is part of the graph.
            Err(Error::Capturing { why: CaptureRefusal::RecordsOnly, .. }) => self.captured = true,
            Err(_) if self.unmarked.contains(stream) => {}
            Err(_) => self.unmarked.push(stream.clone()),
        }
    }

    fn mark(&mut self, stream: &Stream) -> Result<()> {
        let running = stream.running("FrameRing")?;
        let index = match self.marks.iter().position(|mark| mark.stream == *stream) {
            Some(index) => index,
            None => {
                let event = Event::new(stream.context())?;
                self.marks.push(Mark { stream: stream.clone(), event, outstanding: false });
                self.marks.len() - 1
            }
        };
        let mark = &mut self.marks[index];
        mark.event.mark(&running)?;
        mark.outstanding = true;
        Ok(())
    }

    /// Whether work on the slot was recorded in a graph.
    pub fn captured(&self) -> bool {
        self.captured
    }

    /// Whether all of the work is done. After an error it may still run.
    pub fn is_over(&mut self) -> Result<bool> {
        self.settle()?;
        for mark in &mut self.marks {
            if mark.outstanding {
                let _relaxed = RelaxedCalls::begin(mark.event.context().driver())?;
                mark.outstanding = !mark.event.is_done()?;
            }
            if mark.outstanding {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits for all of the work. After an error it may still run.
    pub fn wait(&mut self) -> Result<()> {
        self.settle()?;
        for mark in &mut self.marks {
            if mark.outstanding {
                mark.event.finish()?;
                mark.outstanding = false;
            }
        }
        Ok(())
    }

    /// Makes work queued on `stream` from now on wait for all of it.
    pub fn order_before(&mut self, stream: &Stream) -> Result<()> {
        self.settle()?;
        self.marks.iter().filter(|mark| mark.outstanding).try_for_each(|mark| stream.wait(&mark.event))
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
