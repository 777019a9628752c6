//! The progress of streams: which earlier work a stream has finished, and which work of other streams it waits for.
//!
//! A free gives a block a [`Ticket`]: the stream, and the stream's current *epoch*. Recording an event closes the
//! epoch, so one event serves all frees before it, and a stream whose memory nobody else wants records none. A ticket
//! holds a stream back unless the ticket is the stream's own, its epoch's event has passed, or the stream already waits
//! for that event.
//!
//! Every step takes constant time in the number of tickets.

use std::collections::VecDeque;

/// How many events of one stream are kept. When the oldest event is retired, its tickets wait for the next event.
const MOST_EVENTS: usize = 8;
/// How many streams have ids before [`Timelines::has_many`] says so.
const MOST_STREAMS: usize = 32;

/// Streams, and events that mark points in them. A GPU's driver can implement it.
pub trait StreamDriver {
    /// A stream. Two values are equal if they are the same stream.
    type Stream: Clone + PartialEq;
    /// A point in a stream.
    type Event: Clone;
    /// Why the driver refused.
    type Error;

    /// Records an event behind all work queued on the stream.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    fn record(&mut self, stream: &Self::Stream) -> Result<Mark<Self::Event>, Self::Error>;

    /// Whether the work before an event is done.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    fn has_passed(&mut self, event: &Self::Event) -> Result<bool, Self::Error>;

    /// Makes work queued on `stream` from now on wait for an event. `false` if the stream cannot wait now.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    fn wait(&mut self, stream: &Self::Stream, event: &Self::Event) -> Result<bool, Self::Error>;

    /// Takes back an event that will not be queried again. A stream may still wait for it.
    fn retire(&mut self, event: Self::Event);

    /// Takes back a stream that no freed memory waits for.
    fn release(&mut self, stream: Self::Stream);
}

/// The outcome of [`StreamDriver::record`].
#[derive(Clone, Copy, Debug)]
pub enum Mark<E> {
    /// The event.
    Event(E),
    /// The stream's context has ended, and all work of the stream with it.
    Over,
    /// The stream is being captured into a graph, so it has no point in time to record.
    NotNow,
}

/// Identifies a stream until the stream is [released](Timelines::release). A later stream may get the same number, so
/// keep an id only as long as a ticket names the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(usize);

impl StreamId {
    /// A small number: numbers start at 0 and are reused.
    pub fn index(self) -> usize {
        self.0
    }
}

/// The work that a freed block waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The stream that freed the block.
    pub stream: StreamId,
    /// The stream's epoch at the free.
    pub(crate) epoch: u64,
}

/// The progress of one stream.
#[derive(Clone, Debug)]
pub(crate) struct Timeline<S, E> {
    /// Kept while tickets name it, so that no other stream gets its handle.
    pub stream: S,
    /// The epoch of tickets that are issued now.
    open: u64,
    /// Tickets up to this epoch wait for nothing.
    pub passed: u64,
    /// Events, each with the last epoch that it closed; the oldest first.
    pub events: VecDeque<(u64, E)>,
    /// Work queued on this stream from now on runs after these epochs of other streams.
    waited: Vec<(StreamId, u64)>,
    /// The number of bytes freed in the open epoch.
    fresh: u64,
}

impl<S, E> Timeline<S, E> {
    fn waited(&self, other: StreamId) -> u64 {
        self.waited.iter().find(|(stream, _)| *stream == other).map_or(0, |(_, epoch)| *epoch)
    }
}

/// The progress of all streams that tickets name.
#[derive(Clone, Debug)]
pub struct Timelines<S, E> {
    /// By the index of the stream's id.
    pub(crate) lines: Vec<Option<Timeline<S, E>>>,
    /// The last index looked up: most calls name the same stream again.
    recent: usize,
    /// Twice the number of streams after the last release.
    many: usize,
}

impl<S: Clone + PartialEq, E: Clone> Default for Timelines<S, E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Clone + PartialEq, E: Clone> Timelines<S, E> {
    /// No streams yet.
    pub fn new() -> Self {
        Self { lines: Vec::new(), recent: 0, many: 0 }
    }

    /// The id of a stream, if it has one.
    #[inline]
    pub fn find(&mut self, stream: &S) -> Option<StreamId> {
        let is = |line: &Option<Timeline<S, E>>| line.as_ref().is_some_and(|line| line.stream == *stream);
        if !self.lines.get(self.recent).is_some_and(is) {
            self.recent = self.lines.iter().position(is)?;
        }
        Some(StreamId(self.recent))
    }

    /// The id of a stream. Gives a new stream an id.
    #[inline]
    pub fn id(&mut self, stream: &S) -> StreamId {
        self.find(stream).unwrap_or_else(|| self.add(stream))
    }

    /// Whether so many streams have ids that the caller should [release](Self::release) some before it adds one. Each
    /// release doubles the number, so its cost per new stream is small.
    pub fn has_many(&self) -> bool {
        self.count() >= self.many.max(MOST_STREAMS)
    }

    fn add(&mut self, stream: &S) -> StreamId {
        let (events, waited) = (VecDeque::new(), Vec::new());
        let line = Timeline { stream: stream.clone(), open: 1, passed: 0, events, waited, fresh: 0 };
        let vacant = self.lines.iter().position(Option::is_none);
        self.recent = vacant.unwrap_or(self.lines.len());
        match vacant {
            Some(index) => self.lines[index] = Some(line),
            None => self.lines.push(Some(line)),
        }
        StreamId(self.recent)
    }

    fn line(&self, id: StreamId) -> Option<&Timeline<S, E>> {
        self.lines[id.0].as_ref()
    }

    /// A ticket for `bytes` that the stream frees now.
    #[inline]
    pub fn issue(&mut self, stream: StreamId, bytes: u64) -> Ticket {
        let epoch = self.lines[stream.0].as_mut().map_or(0, |line| {
            line.fresh += bytes;
            line.open
        });
        Ticket { stream, epoch }
    }

    /// The number of bytes that the stream has freed since its last event.
    pub fn fresh(&self, stream: StreamId) -> u64 {
        self.line(stream).map_or(0, |line| line.fresh)
    }

    /// The stream with this id.
    pub fn stream(&self, id: StreamId) -> Option<&S> {
        self.line(id).map(|line| &line.stream)
    }

    /// The number of streams with ids.
    pub fn count(&self) -> usize {
        self.lines.iter().flatten().count()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = StreamId> + use<S, E> {
        let named: Vec<_> = (0..self.lines.len()).filter(|index| self.lines[*index].is_some()).collect();
        named.into_iter().map(StreamId)
    }

    /// Whether a ticket is known to wait for nothing.
    pub fn is_past(&self, ticket: Ticket) -> bool {
        self.line(ticket.stream).is_none_or(|line| ticket.epoch <= line.passed)
    }

    /// Whether a stream may use a ticket's memory without a further wait.
    pub fn is_open_to(&self, ticket: Ticket, stream: StreamId) -> bool {
        let waits = || self.line(stream).is_some_and(|own| ticket.epoch <= own.waited(ticket.stream));
        ticket.stream == stream || self.is_past(ticket) || waits()
    }

    /// Records an event behind all tickets of the stream so far. `false` if none can be recorded now.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn close<D>(&mut self, id: StreamId, driver: &mut D) -> Result<bool, D::Error>
    where
        D: StreamDriver<Stream = S, Event = E>,
    {
        let Some(line) = &mut self.lines[id.0] else { return Ok(true) };
        match driver.record(&line.stream)? {
            Mark::Event(event) => line.events.push_back((line.open, event)),
            Mark::Over => line.passed = line.open,
            Mark::NotNow => return Ok(false),
        }
        line.open += 1;
        line.fresh = 0;
        if line.events.len() > MOST_EVENTS {
            line.events.pop_front().into_iter().for_each(|(_, event)| driver.retire(event));
        }
        Ok(true)
    }

    /// Makes sure that an event exists behind a ticket. `false` if none can be recorded now.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn ensure_event<D>(&mut self, ticket: Ticket, driver: &mut D) -> Result<bool, D::Error>
    where
        D: StreamDriver<Stream = S, Event = E>,
    {
        let Some(line) = self.line(ticket.stream) else { return Ok(true) };
        let last = line.events.back().map_or(line.passed, |(closed, _)| *closed);
        if last >= ticket.epoch { Ok(true) } else { self.close(ticket.stream, driver) }
    }

    /// Queries the events of a stream, oldest first, and records which have passed.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn query<D>(&mut self, id: StreamId, driver: &mut D) -> Result<(), D::Error>
    where
        D: StreamDriver<Stream = S, Event = E>,
    {
        let Some(line) = &mut self.lines[id.0] else { return Ok(()) };
        while let Some((closed, event)) = line.events.front() {
            if !driver.has_passed(event)? {
                break;
            }
            line.passed = line.passed.max(*closed);
            line.events.pop_front().into_iter().for_each(|(_, event)| driver.retire(event));
        }
        Ok(())
    }

    /// Whether the work that a ticket waits for is done. Records and queries events for the answer.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn has_passed<D>(&mut self, ticket: Ticket, driver: &mut D) -> Result<bool, D::Error>
    where
        D: StreamDriver<Stream = S, Event = E>,
    {
        if self.is_past(ticket) {
            return Ok(true);
        }
        if !self.ensure_event(ticket, driver)? {
            return Ok(false);
        }
        self.query(ticket.stream, driver)?;
        Ok(self.is_past(ticket))
    }

    /// An event behind the work that a ticket waits for. None if the ticket waits for nothing, or if no event can be
    /// recorded for it now.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn end<D>(&mut self, ticket: Ticket, driver: &mut D) -> Result<Option<E>, D::Error>
    where
        D: StreamDriver<Stream = S, Event = E>,
    {
        if self.is_past(ticket) || !self.ensure_event(ticket, driver)? {
            return Ok(None);
        }
        let events = self.line(ticket.stream).into_iter().flat_map(|line| &line.events);
        Ok(events.into_iter().find(|(closed, _)| *closed >= ticket.epoch).map(|(_, event)| event.clone()))
    }

    /// Makes a stream wait for the work that a ticket waits for. `false` if it cannot wait now.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn wait<D>(&mut self, ticket: Ticket, waiter: StreamId, driver: &mut D) -> Result<bool, D::Error>
    where
        D: StreamDriver<Stream = S, Event = E>,
    {
        if self.is_open_to(ticket, waiter) {
            return Ok(true);
        }
        if !self.ensure_event(ticket, driver)? {
            return Ok(false);
        }
        let (Some(line), Some(own)) = (self.line(ticket.stream), self.line(waiter)) else { return Ok(false) };
        // There is no event if the context of the ticket's stream has ended.
        let Some((closed, event)) = line.events.iter().find(|(closed, _)| *closed >= ticket.epoch) else {
            return Ok(true);
        };
        if !driver.wait(&own.stream, event)? {
            return Ok(false);
        }
        let closed = *closed;
        if let Some(own) = &mut self.lines[waiter.0] {
            own.waited.retain(|(other, _)| *other != ticket.stream);
            own.waited.push((ticket.stream, closed));
        }
        Ok(true)
    }

    /// The last event of each stream that has one.
    pub fn last_events(&self) -> impl Iterator<Item = E> {
        self.lines.iter().flatten().filter_map(|line| line.events.back()).map(|(_, event)| event.clone())
    }

    /// Records that the streams for which `is_idle` returns true have no work left.
    pub fn note_idle(&mut self, mut is_idle: impl FnMut(StreamId, u64, &S) -> bool) {
        for (index, line) in self.lines.iter_mut().enumerate() {
            if let Some(line) = line
                && is_idle(StreamId(index), line.passed, &line.stream)
            {
                line.passed = line.open;
                line.open += 1;
            }
        }
    }

    /// Releases the streams for which `keep` returns false. No ticket may name them, and their ids become invalid.
    pub fn release<D>(&mut self, keep: impl Fn(StreamId) -> bool, driver: &mut D)
    where
        D: StreamDriver<Stream = S, Event = E>,
    {
        for (index, place) in self.lines.iter_mut().enumerate() {
            if !keep(StreamId(index))
                && let Some(line) = place.take()
            {
                line.events.into_iter().for_each(|(_, event)| driver.retire(event));
                driver.release(line.stream);
            }
        }
        // A later stream may get the number, and no stream has waited for the later stream.
        let gone: Vec<bool> = self.lines.iter().map(Option::is_none).collect();
        for line in self.lines.iter_mut().flatten() {
            line.waited.retain(|(other, _)| !gone[other.0]);
        }
        self.many = 2 * self.count();
    }

    #[cfg(test)]
    pub(crate) fn known(&self, stream: &S) -> Option<StreamId> {
        self.lines.iter().position(|line| line.as_ref().is_some_and(|line| line.stream == *stream)).map(StreamId)
    }

    #[cfg(test)]
    pub(crate) fn open_epoch(&self, id: StreamId) -> u64 {
        self.line(id).map_or(0, |line| line.open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::World;

    #[test]
    fn one_event_serves_all_tickets_before_it() {
        let (mut lines, mut world) = (Timelines::new(), World::<2>::new());
        let line = lines.id(&0);
        world.work(0, &mut [0; 2]);
        let [first, second] = [lines.issue(line, 100), lines.issue(line, 50)];
        assert_eq!((lines.fresh(line), first), (150, second));
        assert_eq!(lines.close(line, &mut world), Ok(true));
        let third = lines.issue(line, 1);
        assert_eq!((lines.fresh(line), lines.has_passed(first, &mut world)), (1, Ok(false)));
        let end = lines.end(second, &mut world).unwrap().expect("an event was recorded");
        world.reach(&end);
        assert_eq!(lines.has_passed(second, &mut world), Ok(true));
        assert!(lines.is_past(first) && lines.is_past(second) && !lines.is_past(third));
        assert_eq!(lines.has_passed(third, &mut world), Ok(true), "no work was given to the stream since");
    }

    #[test]
    fn a_stream_waits_for_an_event_once() {
        let (mut lines, mut world) = (Timelines::new(), World::<2>::new());
        let [one, two] = [0, 1].map(|stream| lines.id(&stream));
        world.work(0, &mut [0; 2]);
        let early = [lines.issue(one, 1), lines.issue(one, 1)];
        for ticket in early {
            assert_eq!(lines.wait(ticket, two, &mut world), Ok(true));
        }
        assert_eq!(lines.line(two).map(|line| line.waited.clone()), Some(vec![(one, 1)]));
        let late = lines.issue(one, 1);
        assert_eq!(lines.wait(late, two, &mut world), Ok(true));
        assert_eq!(lines.line(two).map(|line| line.waited.clone()), Some(vec![(one, 2)]));
    }

    #[test]
    fn timeline_bounds_events_and_evicted_tickets_wait_for_the_next() {
        let (mut lines, mut world) = (Timelines::new(), World::<1>::new());
        let line = lines.id(&0);
        let first = lines.issue(line, 1);
        for _ in 0..3 * MOST_EVENTS {
            world.work(0, &mut [0]);
            assert_eq!(lines.close(line, &mut world), Ok(true));
        }
        assert_eq!(lines.line(line).map(|line| line.events.len()), Some(MOST_EVENTS));
        assert_eq!(lines.has_passed(first, &mut world), Ok(false));
        world.complete(0);
        assert_eq!(lines.has_passed(first, &mut world), Ok(true));
        assert_eq!(lines.line(line).map(|line| line.events.len()), Some(0));
    }

    #[test]
    fn a_later_stream_of_the_same_number_is_another_stream() {
        const STREAMS: usize = 3 * MOST_STREAMS;
        let (mut lines, mut world) = (Timelines::new(), World::<STREAMS>::new());
        let kept = lines.id(&0);
        world.work(0, &mut [0; STREAMS]);
        let ticket = lines.issue(kept, 1);
        for stream in 1..STREAMS {
            if lines.has_many() {
                lines.release(|id| id == kept, &mut world);
            }
            let line = lines.id(&stream);
            assert_eq!(lines.wait(ticket, line, &mut world), Ok(true));
            let mut last = [0; STREAMS];
            world.work(stream, &mut last);
            let passing = lines.issue(line, 1);
            assert_eq!(lines.wait(passing, kept, &mut world), Ok(true));
            assert!(world.is_before(&last, 0), "stream {stream} was taken for an earlier stream of its number");
            assert_ne!(line, kept, "a stream that a ticket names stays");
        }
        assert_eq!(lines.lines.len(), MOST_STREAMS, "numbers are used again");
        assert!(!lines.is_past(ticket) && lines.find(&0) == Some(kept));
        assert!(lines.line(kept).is_some_and(|line| line.waited.len() < MOST_STREAMS));
    }
}
