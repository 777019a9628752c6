//! The streams' driver behind the order: records events, asks them, and uses them again.

use super::order::{Clock, Mark, Waiting};
use crate::capture_errors::is_for_a_capture;
use crate::{Error, Event, Stream};
use cuda_sys::CUresult;
use std::sync::Arc;

/// How many events are kept to be recorded again.
const SPARE_EVENTS: usize = 64;

/// Real events.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    spare: Vec<Arc<Event>>,
    /// What is to be dropped where no lock is held: it calls the driver, and maybe a hook.
    pub ended: Vec<Ended>,
    pub recorded: u64,
    pub waits: u64,
}

/// What has ended here.
#[derive(Debug)]
pub(super) enum Ended {
    Stream(#[expect(dead_code, reason = "held for its drop")] Stream),
    Event(#[expect(dead_code, reason = "held for its drop")] Arc<Event>),
}

/// Waits for the work before an event. The work of a context that has ended has ended.
pub(super) fn reach(event: &Event) -> Result<(), Error> {
    event.synchronize().or_else(|error| if error.is_teardown() { Ok(()) } else { Err(error) })
}

/// Whether events of a stream are no points in time now: it captures a graph, or another stream does that it must not
/// wait for.
pub(super) fn captures(stream: &Stream) -> Result<bool, Error> {
    match stream.is_capturing() {
        Err(error) if error.driver_code() == Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) => Ok(true),
        other => other,
    }
}

/// Whether a stream has no work left. One that captures may not be asked.
pub(super) fn is_idle(stream: &Stream) -> bool {
    match captures(stream).and_then(|captures| Ok(!captures && stream.is_done()?)) {
        Ok(idle) => idle,
        // The work of a context that has ended has ended.
        Err(error) => error.is_teardown(),
    }
}

/// Waits for streams of which no event could be had, at a pool's end.
pub(super) fn drain(call: &'static str, streams: &[Stream]) -> Result<(), Error> {
    streams.iter().try_for_each(|stream| {
        if captures(stream)? {
            return Err(Error::InvalidArgument {
                call,
                argument: "stream",
                value: "capturing a graph".into(),
                rule: "memory that was freed on it stays until the context ends; end pools outside of captures",
            });
        }
        stream.drain()
    })
}

impl Clock for Recorder {
    type Stream = Stream;
    type Event = Arc<Event>;
    type Error = Error;

    fn record(&mut self, stream: &Stream) -> Result<Mark<Arc<Event>>, Error> {
        match self.try_record(stream) {
            Err(error) if error.is_teardown() => Ok(Mark::Over),
            other => other,
        }
    }

    fn has_passed(&mut self, event: &Arc<Event>) -> Result<bool, Error> {
        event.is_done().or_else(|error| if error.is_teardown() { Ok(true) } else { Err(error) })
    }

    fn wait(&mut self, stream: &Stream, event: &Arc<Event>) -> Result<bool, Error> {
        // A capture must not depend on work outside of it. The pool refuses such streams before, where it sees them.
        if captures(stream)? {
            return Ok(false);
        }
        stream.wait(event)?;
        self.waits += 1;
        Ok(true)
    }

    fn retire(&mut self, event: Arc<Event>) {
        // One that another thread waits for is not recorded again.
        if self.spare.len() < SPARE_EVENTS && Arc::strong_count(&event) == 1 {
            self.spare.push(event);
        } else {
            self.ended.push(Ended::Event(event));
        }
    }

    fn let_go(&mut self, stream: Stream) {
        self.ended.push(Ended::Stream(stream));
    }
}

impl Waiting for Recorder {
    fn synchronize(&mut self, event: &Arc<Event>) -> Result<(), Error> {
        reach(event)
    }
}

impl Recorder {
    fn try_record(&mut self, stream: &Stream) -> Result<Mark<Arc<Event>>, Error> {
        if captures(stream)? {
            return Ok(Mark::NotNow);
        }
        let event = match self.spare.iter().position(|event| event.context() == stream.context()) {
            Some(place) => self.spare.swap_remove(place),
            None => Arc::new(Event::new(stream.context())?),
        };
        match event.mark(stream) {
            Ok(_) => self.recorded += 1,
            // A capture that has begun since.
            Err(error) if is_for_a_capture(&error) => {
                self.retire(event);
                return Ok(Mark::NotNow);
            }
            Err(error) => {
                self.retire(event);
                return Err(error);
            }
        }
        Ok(Mark::Event(event))
    }
}
