//! The streams' driver behind the order: records events, asks them, and uses them again.

use super::order::{Clock, Mark};
use crate::{Error, Event, Stream};

/// How many events are kept to be recorded again.
const SPARE_EVENTS: usize = 64;

/// Real events.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    spare: Vec<Event>,
    pub recorded: u64,
    pub waits: u64,
}

impl Clock for Recorder {
    type Stream = Stream;
    type Event = Event;
    type Error = Error;

    fn record(&mut self, stream: &Stream) -> Result<Mark<Event>, Error> {
        match self.try_record(stream) {
            Err(error) if error.is_teardown() => Ok(Mark::Over),
            other => other,
        }
    }

    fn has_passed(&mut self, event: &Event) -> Result<bool, Error> {
        // The work of a context that has ended has ended.
        event.has_passed().or_else(|error| if error.is_teardown() { Ok(true) } else { Err(error) })
    }

    fn wait(&mut self, stream: &Stream, event: &Event) -> Result<bool, Error> {
        // A capture must not depend on work outside of it. The pool refuses such streams before, where it sees them.
        if stream.is_capturing()? {
            return Ok(false);
        }
        stream.wait(event)?;
        self.waits += 1;
        Ok(true)
    }

    fn synchronize(&mut self, event: &Event) -> Result<(), Error> {
        event.synchronize().or_else(|error| if error.is_teardown() { Ok(()) } else { Err(error) })
    }

    fn retire(&mut self, event: Event) {
        if self.spare.len() < SPARE_EVENTS {
            self.spare.push(event);
        }
    }
}

impl Recorder {
    fn try_record(&mut self, stream: &Stream) -> Result<Mark<Event>, Error> {
        if stream.is_capturing()? {
            return Ok(Mark::NotNow);
        }
        let event = match self.spare.iter().position(|event| event.context() == stream.context()) {
            Some(place) => self.spare.swap_remove(place),
            None => Event::new(stream.context())?,
        };
        match event.record(stream) {
            Ok(()) => self.recorded += 1,
            Err(error) => {
                self.retire(event);
                return Err(error);
            }
        }
        Ok(Mark::Event(event))
    }
}
