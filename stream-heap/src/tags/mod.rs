//! The work that each freed byte waits for.
//!
//! A free tags its bytes with a [`Ticket`]. Tags belong to bytes, not to blocks: each byte keeps its ticket when free
//! ranges are joined and divided.
//!
//! Tags of used bytes mean nothing, and stay until a free overwrites them. So a stream that allocates and frees the
//! same memory again and again changes no tag, and memory that only one stream uses has one tag.

use crate::timeline::{StreamDriver, StreamId, Ticket, Timelines};
use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

/// The ticket of adjacent bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tag {
    end: u64,
    ticket: Ticket,
}

/// The streams, and the tickets of all freed bytes.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Tags<S, E> {
    timelines: Timelines<S, E>,
    /// By first byte. No two overlap.
    tags: BTreeMap<u64, Tag>,
    /// Plants the bug of another pool, which the model check must find.
    #[cfg(test)]
    pub(crate) planted: bool,
}

impl<S: Clone + PartialEq, E: Clone> Default for Tags<S, E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Clone + PartialEq, E: Clone> Tags<S, E> {
    /// No streams and no tags yet.
    pub fn new() -> Self {
        Self {
            timelines: Timelines::new(),
            tags: BTreeMap::new(),
            #[cfg(test)]
            planted: false,
        }
    }

    /// The id of a stream. Gives a new stream an id. The id is valid until the next [`settle`](Self::settle), which
    /// releases streams that no tag names; later it may be the id of another stream.
    #[inline]
    pub fn id(&mut self, stream: &S) -> StreamId {
        self.timelines.id(stream)
    }

    /// Tags bytes that a stream has freed.
    #[inline]
    pub fn freed(&mut self, bytes: Range<u64>, id: StreamId) {
        let ticket = self.timelines.issue(id, bytes.end - bytes.start);
        // From the end down, so that one search finds the tag behind these bytes and the one before them.
        let mut near = self.tags.range(..=bytes.end).rev().map(|(start, tag)| (*start, *tag));
        let mut before = near.next();
        let behind = before.filter(|(start, _)| *start == bytes.end);
        if behind.is_some() {
            before = near.next();
        }
        match before {
            Some((start, tag)) if tag.end > bytes.start => {
                if start > bytes.start || tag.end < bytes.end || tag.ticket != ticket {
                    self.put(bytes.start, Tag { end: bytes.end, ticket });
                }
            }
            _ => self.add(bytes, ticket, before, behind),
        }
    }

    /// Tags bytes without tags. `before` and `behind` are the tags next to them, which join if they are the same.
    fn add(&mut self, bytes: Range<u64>, ticket: Ticket, before: Option<(u64, Tag)>, behind: Option<(u64, Tag)>) {
        let mut end = bytes.end;
        if let Some((start, tag)) = behind.filter(|(_, tag)| tag.ticket == ticket) {
            self.tags.remove(&start);
            end = tag.end;
        }
        match before.filter(|(_, tag)| tag.end == bytes.start && tag.ticket == ticket) {
            Some((start, _)) => self.tags.get_mut(&start).into_iter().for_each(|tag| tag.end = end),
            None => drop(self.tags.insert(bytes.start, Tag { end, ticket })),
        }
    }

    fn put(&mut self, start: u64, tag: Tag) {
        self.clear(start..tag.end);
        let (mut tag, mut start) = (tag, start);
        if let Some(after) = self.tags.get(&tag.end).copied().filter(|after| after.ticket == tag.ticket) {
            self.tags.remove(&tag.end);
            tag.end = after.end;
        }
        if let Some((&first, before)) = self.tags.range(..start).next_back()
            && before.end == start
            && before.ticket == tag.ticket
        {
            start = first;
        }
        self.tags.insert(start, tag);
    }

    /// Removes the tags of bytes.
    pub fn clear(&mut self, bytes: Range<u64>) {
        while let Some((start, tag)) = self.first_in(&bytes) {
            self.tags.remove(&start);
            if start < bytes.start {
                self.tags.insert(start, Tag { end: bytes.start, ..tag });
            }
            if bytes.end < tag.end {
                self.tags.insert(bytes.end, tag);
            }
        }
    }

    /// The tag that covers all of these bytes, if a single tag does.
    #[inline]
    fn covering(&self, bytes: &Range<u64>) -> Option<Tag> {
        let (_, tag) = self.tags.range(..=bytes.start).next_back()?;
        (tag.end >= bytes.end).then_some(*tag)
    }

    /// Whether a stream may use these bytes without a further wait.
    #[inline]
    pub fn is_ready(&self, bytes: &Range<u64>, id: StreamId) -> bool {
        if self.covering(bytes).is_some_and(|tag| tag.ticket.stream == id) {
            return true;
        }
        self.tags_in(bytes).all(|(_, tag)| self.timelines.is_open_to(tag.ticket, id))
    }

    /// The first address in free bytes at which a stream may use `size` bytes without a further wait.
    pub fn place(&self, bytes: &Range<u64>, size: u64, id: StreamId) -> Option<u64> {
        let mut start = bytes.start;
        for (first, tag) in self.tags_in(bytes) {
            if !self.timelines.is_open_to(tag.ticket, id) {
                if first.saturating_sub(start) >= size {
                    break;
                }
                start = tag.end;
            }
        }
        (start.saturating_add(size) <= bytes.end).then_some(start)
    }

    /// Queries the events that keep a stream from these bytes.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn query<D>(&mut self, bytes: &Range<u64>, id: StreamId, driver: &mut D) -> Result<(), D::Error>
    where
        D: StreamDriver<Stream = S, Event = E>,
    {
        for ticket in self.held_back_by(bytes, id) {
            self.timelines.ensure_event(ticket, driver)?;
            self.timelines.query(ticket.stream, driver)?;
        }
        Ok(())
    }

    /// Queries the events of all streams that memory waits for, and removes the tags of work that has passed. Releases
    /// the streams that no memory waits for.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn settle<D>(&mut self, driver: &mut D) -> Result<(), D::Error>
    where
        D: StreamDriver<Stream = S, Event = E>,
    {
        self.close_epochs(driver)?;
        for id in self.timelines.ids() {
            self.timelines.query(id, driver)?;
        }
        self.sweep(driver);
        Ok(())
    }

    /// Events behind all work that memory waits for: one for each stream on which an event can be recorded now.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn ends<D>(&mut self, driver: &mut D) -> Result<Vec<E>, D::Error>
    where
        D: StreamDriver<Stream = S, Event = E>,
    {
        self.close_epochs(driver)?;
        Ok(self.timelines.last_events().collect())
    }

    /// Makes a stream wait for the work that keeps it from these bytes. `false` if it cannot wait now.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn wait<D>(&mut self, bytes: &Range<u64>, id: StreamId, driver: &mut D) -> Result<bool, D::Error>
    where
        D: StreamDriver<Stream = S, Event = E>,
    {
        for ticket in self.held_back_by(bytes, id) {
            if !self.timelines.wait(ticket, id, driver)? {
                return Ok(false);
            }
            #[cfg(test)]
            self.plant(id, ticket);
        }
        Ok(true)
    }

    /// Records that the streams for which `is_idle` returns true have no work left. Calls it only for streams that
    /// memory waits for.
    pub fn note_idle(&mut self, mut is_idle: impl FnMut(&S) -> bool) {
        let tags = &self.tags;
        self.timelines.note_idle(|id, passed, stream| {
            let waits = tags.values().any(|tag| tag.ticket.stream == id && tag.ticket.epoch > passed);
            waits && is_idle(stream)
        });
    }

    /// The ranges of these bytes that wait for work, each with its stream.
    pub fn pending<'tags>(
        &'tags self,
        bytes: &Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, &'tags S)> + use<'tags, S, E> {
        let (tags, bytes) = (self.tags_in(bytes), bytes.clone());
        tags.filter(|(_, tag)| !self.timelines.is_past(tag.ticket)).filter_map(move |(start, tag)| {
            let stream = self.timelines.stream(tag.ticket.stream)?;
            Some((start.max(bytes.start)..tag.end.min(bytes.end), stream))
        })
    }

    /// Records an event behind all that a stream has freed so far. `false` if none can be recorded now.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn mark<D>(&mut self, stream: &S, driver: &mut D) -> Result<bool, D::Error>
    where
        D: StreamDriver<Stream = S, Event = E>,
    {
        let id = self.timelines.id(stream);
        self.timelines.close(id, driver)
    }

    /// Whether none of these bytes waits for work.
    pub fn is_settled(&self, bytes: &Range<u64>) -> bool {
        self.pending(bytes).next().is_none()
    }

    /// The streams that memory waits for.
    pub fn streams(&self) -> Vec<&S> {
        self.tagged().into_iter().filter_map(|id| self.timelines.stream(id)).collect()
    }

    /// The number of streams that are kept.
    pub fn stream_count(&self) -> usize {
        self.timelines.count()
    }

    fn tagged(&self) -> BTreeSet<StreamId> {
        self.tags.values().map(|tag| tag.ticket.stream).collect()
    }

    /// Makes sure that an event exists behind every tag, unless its stream can record none now.
    fn close_epochs<D>(&mut self, driver: &mut D) -> Result<(), D::Error>
    where
        D: StreamDriver<Stream = S, Event = E>,
    {
        let last = latest(self.tags.values().map(|tag| tag.ticket));
        last.into_iter().try_for_each(|ticket| self.timelines.ensure_event(ticket, driver).map(drop))
    }

    /// Removes the tags of work that has passed, and releases the streams that no tag names.
    fn sweep<D>(&mut self, driver: &mut D)
    where
        D: StreamDriver<Stream = S, Event = E>,
    {
        let timelines = &self.timelines;
        self.tags.retain(|_, tag| !timelines.is_past(tag.ticket));
        let tagged = self.tagged();
        self.timelines.release(|id| tagged.contains(&id), driver);
    }

    /// The latest ticket of each stream that keeps `id` from these bytes.
    fn held_back_by(&self, bytes: &Range<u64>, id: StreamId) -> Vec<Ticket> {
        let tickets = self.tags_in(bytes).map(|(_, tag)| tag.ticket);
        latest(tickets.filter(|ticket| !self.timelines.is_open_to(*ticket, id)))
    }

    fn tags_in<'tags>(&'tags self, bytes: &Range<u64>) -> impl Iterator<Item = (u64, Tag)> + use<'tags, S, E> {
        let before = self.tags.range(..bytes.start).next_back();
        let start = before.filter(|(_, tag)| tag.end > bytes.start).map_or(bytes.start, |(start, _)| *start);
        self.tags.range(start..bytes.end.max(start)).map(|(start, tag)| (*start, *tag))
    }

    fn first_in(&self, bytes: &Range<u64>) -> Option<(u64, Tag)> {
        self.tags_in(bytes).next()
    }

    /// The bug of another pool: after a wait, the memory gets the waiter's ticket, with the epoch of the waiter's last
    /// event, which was recorded before the wait.
    #[cfg(test)]
    fn plant(&mut self, waiter: StreamId, waited: Ticket) {
        if !self.planted {
            return;
        }
        let stale = Ticket { stream: waiter, epoch: self.timelines.open_epoch(waiter) - 1 };
        let closed = self.timelines.open_epoch(waited.stream) - 1;
        let taken = |ticket: Ticket| ticket.stream == waited.stream && ticket.epoch <= closed;
        self.tags.values_mut().filter(|tag| taken(tag.ticket)).for_each(|tag| tag.ticket = stale);
    }
}

/// The latest ticket of each stream.
fn latest(tickets: impl Iterator<Item = Ticket>) -> Vec<Ticket> {
    let mut latest = BTreeMap::new();
    for ticket in tickets {
        let epoch = latest.entry(ticket.stream).or_insert(0);
        *epoch = ticket.epoch.max(*epoch);
    }
    latest.into_iter().map(|(stream, epoch)| Ticket { stream, epoch }).collect()
}

#[cfg(test)]
mod model;
