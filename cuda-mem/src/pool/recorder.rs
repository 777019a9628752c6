//! The CUDA driver's events for the heaps: records and queries them, and reuses events that nobody needs.
//!
//! All calls are made in relaxed mode. Otherwise they would end captures of other libraries, which this crate cannot see.

use crate::driver::relaxed::RelaxedCalls;
use crate::error::CaptureRefusal;
use crate::error::capture_errors::is_for_a_capture;
use crate::lifetime::waiting::{self, Target};
use crate::memory::resource::Block;
use crate::{Error, Event, Stream};
use std::sync::Arc;
use stream_heap::{Mark, Region, StreamDriver};

/// How many unused events are kept.
const SPARE_EVENTS: usize = 64;

/// Events, and values that must be dropped without a lock.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    spare: Vec<Arc<Event>>,
    /// Dropped when no lock is held, because the drop calls the driver and may call a hook.
    pub ended: Vec<Ended>,
    pub recorded: u64,
    pub waits: u64,
}

/// A stream or event that the records no longer need.
#[derive(Debug)]
pub(super) enum Ended {
    Stream(#[expect(dead_code, reason = "held for its drop")] Stream),
    Event(#[expect(dead_code, reason = "held for its drop")] Arc<Event>),
}

/// Waits for the work before an event. If the context has ended, its work has ended too.
pub(super) fn reach(event: &Event) -> Result<(), Error> {
    let relaxed = || RelaxedCalls::begin(event.context().driver());
    let wait = || relaxed().and_then(|_relaxed| event.wait());
    let is_done = || relaxed().and_then(|_relaxed| event.is_done());
    waiting::or_interrupted(&"Event::synchronize", Target::event(event.context()), wait, is_done)
        .or_else(|error| event.context().unless_ended(error))
}

/// Whether the stream is being captured, or may not be used because of another stream's capture. Its events then mark
/// no points in time.
pub(super) fn captures(stream: &Stream) -> Result<bool, Error> {
    match stream.is_capturing() {
        Err(error) if is_for_a_capture(&error) => Ok(true),
        other => other,
    }
}

/// Whether the work before an event is done. An event that cannot be queried counts as busy.
pub(super) fn is_past(event: &Event) -> bool {
    let relaxed = RelaxedCalls::begin(event.context().driver());
    relaxed.is_ok() && event.is_done().unwrap_or_else(|error| event.context().is_ended_by(&error))
}

/// Whether a stream has no work left. A stream that is being captured must not be queried, and counts as busy.
pub(super) fn is_idle(stream: &Stream) -> bool {
    match stream.try_running("Pool").and_then(|_running| stream.is_done()) {
        Ok(idle) => idle,
        // If the context has ended, its work has ended too.
        Err(error) => stream.context().is_ended_by(&error),
    }
}

/// Waits, at a pool's end, for streams on which no event could be recorded.
pub(super) fn drain<'stream>(
    call: &'static str,
    streams: impl IntoIterator<Item = &'stream Stream>,
) -> Result<(), Error> {
    streams.into_iter().try_for_each(|stream| {
        if captures(stream)? {
            // Memory that was freed on it stays allocated until the context ends.
            return Err(CaptureRefusal::RecordsOnly.of(call));
        }
        stream.wait_for_work()
    })
}

impl StreamDriver for Recorder {
    type Stream = Stream;
    type Event = Arc<Event>;
    type Error = Error;

    fn record(&mut self, stream: &Stream) -> Result<Mark<Arc<Event>>, Error> {
        match self.try_record(stream) {
            Err(error) if stream.context().is_ended_by(&error) => Ok(Mark::Over),
            other => other,
        }
    }

    fn has_passed(&mut self, event: &Arc<Event>) -> Result<bool, Error> {
        let _relaxed = RelaxedCalls::begin(event.context().driver())?;
        event.is_done().or_else(|error| event.context().unless_ended(error).map(|()| true))
    }

    fn wait(&mut self, stream: &Stream, event: &Arc<Event>) -> Result<bool, Error> {
        let _relaxed = RelaxedCalls::begin(stream.context().driver())?;
        // A capture must not depend on work outside of it. Pools refuse such streams earlier, if they notice the
        // capture.
        let _running = match stream.try_running("Pool::wait") {
            Ok(running) => running,
            Err(error) if is_for_a_capture(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        stream.wait(event)?;
        self.waits += 1;
        Ok(true)
    }

    fn retire(&mut self, event: Arc<Event>) {
        // An event that another thread waits for is not recorded again.
        if self.spare.len() < SPARE_EVENTS && Arc::strong_count(&event) == 1 {
            self.spare.push(event);
        } else {
            self.ended.push(Ended::Event(event));
        }
    }

    fn release(&mut self, stream: Stream) {
        self.ended.push(Ended::Stream(stream));
    }
}

impl Recorder {
    fn try_record(&mut self, stream: &Stream) -> Result<Mark<Arc<Event>>, Error> {
        let _relaxed = RelaxedCalls::begin(stream.context().driver())?;
        let running = match stream.try_running("Pool::record") {
            Ok(running) => running,
            // Freed memory waits for the end of the capture.
            Err(error) if is_for_a_capture(&error) => return Ok(Mark::NotNow),
            Err(error) => return Err(error),
        };
        let event = match self.spare.iter().position(|event| event.context() == stream.context()) {
            Some(place) => self.spare.swap_remove(place),
            None => Arc::new(Event::new(stream.context())?),
        };
        if let Err(error) = event.mark(&running) {
            self.retire(event);
            return Err(error);
        }
        self.recorded += 1;
        Ok(Mark::Event(event))
    }
}

impl Region for Block {
    fn address(&self) -> u64 {
        self.device_pointer()
    }

    fn size(&self) -> u64 {
        self.size() as u64
    }

    #[inline]
    fn part(&self, address: u64, size: u64) -> Self {
        Block::part(*self, (address - self.device_pointer()) as usize, size as usize)
    }
}
