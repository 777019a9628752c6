//! What freed blocks wait for, each by itself: bookkeeping without CUDA and without `unsafe`.
//!
//! [`Order`](super::order::Order) puts tags on bytes, because free ranges are joined and divided. Blocks that stay as they
//! are need less: a free gives the block a *ticket*, which names the stream and the stream's *epoch*. An event that is
//! recorded closes the epoch, so that one event stands for all tickets of the stream before it. Each step takes constant
//! time in the number of blocks.

use super::order::{Clock, Mark, Waiting};
use std::collections::VecDeque;

/// How many events of one stream are kept. An older one gives way: what it stood for waits for the next one.
const MOST_EVENTS: usize = 8;
/// How many streams are held before those that no ticket names are let go.
const MOST_STREAMS: usize = 32;

/// Names a stream while a ticket names it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineId(usize);

impl LineId {
    /// Streams are numbered from 0 on; numbers are used again.
    pub fn index(self) -> usize {
        self.0
    }
}

/// What a freed block waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub line: LineId,
    epoch: u64,
}

/// What is known of one stream's progress.
#[derive(Debug)]
struct Line<S, E> {
    /// Held while tickets name it, so that no other stream gets its handle.
    stream: S,
    /// The epoch of tickets that are given out now.
    open: u64,
    /// All tickets up to this epoch wait for nothing any more.
    passed: u64,
    /// Events with the last epoch that each closed, oldest first.
    events: VecDeque<(u64, E)>,
    /// Work given to this stream from now on comes after these epochs of other streams.
    waited: Vec<(LineId, u64)>,
    /// How many tickets name the stream.
    tickets: usize,
    /// How many bytes were freed in the open epoch.
    fresh: u64,
}

/// The streams that tickets name.
#[derive(Debug)]
pub(super) struct Tickets<S, E> {
    lines: Vec<Option<Line<S, E>>>,
    /// Which stream was asked for last.
    recent: usize,
}

impl<S: Clone + PartialEq, E> Tickets<S, E> {
    pub fn new() -> Self {
        Self { lines: Vec::new(), recent: 0 }
    }

    /// The stream's name, if it has one.
    #[inline]
    pub fn find(&mut self, stream: &S) -> Option<LineId> {
        let is = |line: &Option<Line<S, E>>| line.as_ref().is_some_and(|line| line.stream == *stream);
        if !self.lines.get(self.recent).is_some_and(is) {
            self.recent = self.lines.iter().position(is)?;
        }
        Some(LineId(self.recent))
    }

    /// The stream's name, which it gets now if it has none.
    pub fn line<C>(&mut self, stream: &S, clock: &mut C) -> LineId
    where
        C: Clock<Stream = S, Event = E>,
    {
        if let Some(id) = self.find(stream) {
            return id;
        }
        if self.lines.iter().flatten().count() >= MOST_STREAMS {
            self.sweep(clock);
        }
        let (events, waited) = (VecDeque::new(), Vec::new());
        let line = Line { stream: stream.clone(), open: 1, passed: 0, events, waited, tickets: 0, fresh: 0 };
        let vacant = self.lines.iter().position(Option::is_none);
        self.recent = vacant.unwrap_or(self.lines.len());
        match vacant {
            Some(index) => self.lines[index] = Some(line),
            None => self.lines.push(Some(line)),
        }
        LineId(self.recent)
    }

    /// A ticket for a block of `bytes` that the stream frees now.
    #[inline]
    pub fn issue(&mut self, line: LineId, bytes: u64) -> Ticket {
        let epoch = self.lines[line.0].as_mut().map_or(0, |line| {
            line.tickets += 1;
            line.fresh += bytes;
            line.open
        });
        Ticket { line, epoch }
    }

    /// Takes a ticket back: the block is used again, or free for everybody.
    #[inline]
    pub fn redeem(&mut self, ticket: Ticket) {
        if let Some(line) = &mut self.lines[ticket.line.0] {
            line.tickets -= 1;
        }
    }

    /// How many bytes the stream has freed since its last event.
    pub fn fresh(&self, line: LineId) -> u64 {
        self.lines[line.0].as_ref().map_or(0, |line| line.fresh)
    }

    /// The streams that tickets name.
    pub fn streams(&self) -> impl Iterator<Item = &S> {
        self.lines.iter().flatten().filter(|line| line.tickets > 0).map(|line| &line.stream)
    }

    /// Whether a ticket is known to wait for nothing any more.
    pub fn is_past(&self, ticket: Ticket) -> bool {
        self.lines[ticket.line.0].as_ref().is_none_or(|line| ticket.epoch <= line.passed)
    }

    /// Records an event that stands for all tickets of the stream so far; `false` if it cannot be recorded now.
    pub fn close<C>(&mut self, id: LineId, clock: &mut C) -> Result<bool, C::Error>
    where
        C: Clock<Stream = S, Event = E>,
    {
        let Some(line) = &mut self.lines[id.0] else { return Ok(true) };
        match clock.record(&line.stream)? {
            Mark::Event(event) => line.events.push_back((line.open, event)),
            Mark::Over => line.passed = line.open,
            Mark::NotNow => return Ok(false),
        }
        line.open += 1;
        line.fresh = 0;
        if line.events.len() > MOST_EVENTS {
            line.events.pop_front().into_iter().for_each(|(_, event)| clock.retire(event));
        }
        Ok(true)
    }

    /// Asks whether what a ticket waits for is done.
    pub fn look<C>(&mut self, ticket: Ticket, clock: &mut C) -> Result<bool, C::Error>
    where
        C: Clock<Stream = S, Event = E>,
    {
        if self.is_past(ticket) {
            return Ok(true);
        }
        if !self.ensure_event(ticket, clock)? {
            return Ok(false);
        }
        let Some(line) = &mut self.lines[ticket.line.0] else { return Ok(true) };
        while let Some((closed, event)) = line.events.front() {
            if !clock.has_passed(event)? {
                break;
            }
            line.passed = line.passed.max(*closed);
            line.events.pop_front().into_iter().for_each(|(_, event)| clock.retire(event));
        }
        Ok(self.is_past(ticket))
    }

    /// Waits on the CPU for what a ticket waits for; `false` if that cannot be waited for now.
    pub fn synchronize<C>(&mut self, ticket: Ticket, clock: &mut C) -> Result<bool, C::Error>
    where
        C: Waiting<Stream = S, Event = E>,
    {
        if self.is_past(ticket) {
            return Ok(true);
        }
        if !self.ensure_event(ticket, clock)? {
            return Ok(false);
        }
        let Some(line) = &mut self.lines[ticket.line.0] else { return Ok(true) };
        if let Some((closed, event)) = line.events.iter().find(|(closed, _)| *closed >= ticket.epoch) {
            clock.synchronize(event)?;
            line.passed = line.passed.max(*closed);
        }
        while line.events.front().is_some_and(|(closed, _)| *closed <= line.passed) {
            line.events.pop_front().into_iter().for_each(|(_, event)| clock.retire(event));
        }
        Ok(true)
    }

    /// Lets a stream wait for what a ticket waits for; `false` if it cannot wait now.
    pub fn wait<C>(&mut self, ticket: Ticket, waiter: LineId, clock: &mut C) -> Result<bool, C::Error>
    where
        C: Clock<Stream = S, Event = E>,
    {
        if ticket.line == waiter || self.is_past(ticket) {
            return Ok(true);
        }
        if !self.ensure_event(ticket, clock)? {
            return Ok(false);
        }
        let (Some(line), Some(own)) = (&self.lines[ticket.line.0], &self.lines[waiter.0]) else { return Ok(false) };
        let waited = own.waited.iter().find(|(other, _)| *other == ticket.line).map_or(0, |(_, epoch)| *epoch);
        if ticket.epoch <= waited {
            return Ok(true);
        }
        // There is none where the stream's context has ended.
        let Some((closed, event)) = line.events.iter().find(|(closed, _)| *closed >= ticket.epoch) else {
            return Ok(true);
        };
        if !clock.wait(&own.stream, event)? {
            return Ok(false);
        }
        let closed = *closed;
        if let Some(own) = &mut self.lines[waiter.0] {
            own.waited.retain(|(other, _)| *other != ticket.line);
            own.waited.push((ticket.line, closed));
        }
        Ok(true)
    }

    /// The event that stands for a ticket is there from now on; `false` if it cannot be recorded now.
    fn ensure_event<C>(&mut self, ticket: Ticket, clock: &mut C) -> Result<bool, C::Error>
    where
        C: Clock<Stream = S, Event = E>,
    {
        let Some(line) = &self.lines[ticket.line.0] else { return Ok(true) };
        let last = line.events.back().map_or(line.passed, |(closed, _)| *closed);
        if last >= ticket.epoch { Ok(true) } else { self.close(ticket.line, clock) }
    }

    /// Lets streams go that no ticket names.
    fn sweep<C>(&mut self, clock: &mut C)
    where
        C: Clock<Stream = S, Event = E>,
    {
        for place in &mut self.lines {
            if place.as_ref().is_some_and(|line| line.tickets == 0)
                && let Some(line) = place.take()
            {
                line.events.into_iter().for_each(|(_, event)| clock.retire(event));
                clock.let_go(line.stream);
            }
        }
        // A later stream of the same number is another one.
        let gone: Vec<bool> = self.lines.iter().map(Option::is_none).collect();
        for line in self.lines.iter_mut().flatten() {
            line.waited.retain(|(other, _)| !gone[other.0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::order::world::World;
    use super::*;

    #[test]
    fn one_event_stands_for_all_tickets_before_it() {
        let (mut tickets, mut world) = (Tickets::new(), World::<2>::new());
        let line = tickets.line(&0, &mut world);
        world.work(0, &mut [0; 2]);
        let [first, second] = [tickets.issue(line, 100), tickets.issue(line, 50)];
        assert_eq!((tickets.fresh(line), first), (150, second));
        assert_eq!(tickets.close(line, &mut world), Ok(true));
        let third = tickets.issue(line, 1);
        assert_eq!((tickets.fresh(line), tickets.look(first, &mut world)), (1, Ok(false)));
        assert_eq!(tickets.synchronize(second, &mut world), Ok(true));
        assert!(tickets.is_past(first) && tickets.is_past(second) && !tickets.is_past(third));
        assert_eq!(tickets.look(third, &mut world), Ok(true), "no work was given to the stream since");
    }

    #[test]
    fn a_stream_that_waited_once_waits_for_the_same_event_no_more() {
        let (mut tickets, mut world) = (Tickets::new(), World::<2>::new());
        let [one, two] = [0, 1].map(|stream| tickets.line(&stream, &mut world));
        world.work(0, &mut [0; 2]);
        let early = [tickets.issue(one, 1), tickets.issue(one, 1)];
        for ticket in early {
            assert_eq!(tickets.wait(ticket, two, &mut world), Ok(true));
        }
        assert_eq!(tickets.lines[two.0].as_ref().map(|line| line.waited.clone()), Some(vec![(one, 1)]));
        let late = tickets.issue(one, 1);
        assert_eq!(tickets.wait(late, two, &mut world), Ok(true));
        assert_eq!(tickets.lines[two.0].as_ref().map(|line| line.waited.clone()), Some(vec![(one, 2)]));
    }

    #[test]
    fn events_are_bounded_and_none_that_gives_way_is_missed() {
        let (mut tickets, mut world) = (Tickets::new(), World::<1>::new());
        let line = tickets.line(&0, &mut world);
        let first = tickets.issue(line, 1);
        for _ in 0..3 * MOST_EVENTS {
            world.work(0, &mut [0]);
            assert_eq!(tickets.close(line, &mut world), Ok(true));
        }
        assert_eq!(tickets.lines[0].as_ref().map(|line| line.events.len()), Some(MOST_EVENTS));
        assert_eq!(tickets.look(first, &mut world), Ok(false));
        world.complete(0);
        assert_eq!(tickets.look(first, &mut world), Ok(true));
        assert_eq!(tickets.lines[0].as_ref().map(|line| line.events.len()), Some(0));
    }

    #[test]
    fn streams_without_tickets_are_let_go_and_their_numbers_used_again() {
        const STREAMS: usize = 3 * MOST_STREAMS;
        let (mut tickets, mut world) = (Tickets::new(), World::<STREAMS>::new());
        let kept = tickets.line(&0, &mut world);
        world.work(0, &mut [0; STREAMS]);
        let ticket = tickets.issue(kept, 1);
        let mut others = Vec::new();
        for stream in 1..STREAMS {
            let line = tickets.line(&stream, &mut world);
            assert_eq!(tickets.wait(ticket, line, &mut world), Ok(true));
            let mut last = [0; STREAMS];
            world.work(stream, &mut last);
            let passing = tickets.issue(line, 1);
            assert_eq!(tickets.wait(passing, kept, &mut world), Ok(true));
            assert!(world.is_before(&last, 0), "stream {stream} was taken for an earlier one of its number");
            tickets.redeem(passing);
            others.push(line);
        }
        assert_eq!(tickets.lines.len(), MOST_STREAMS);
        assert!(others.iter().all(|line| line.0 != kept.0), "a stream that a ticket names stays");
        assert!(!tickets.is_past(ticket) && tickets.find(&0) == Some(kept));
        let waited = tickets.lines[kept.0].as_ref().map(|line| line.waited.len());
        assert!(waited.is_some_and(|waited| waited < MOST_STREAMS), "{waited:?}");
    }
}
