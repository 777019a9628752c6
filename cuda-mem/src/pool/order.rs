//! Which freed memory a stream may have, and what it has to wait for: bookkeeping without CUDA and without `unsafe`.
//!
//! A free leaves a *tag* on its bytes: the stream, and the stream's *epoch*. An event that is recorded closes the epoch,
//! so that one event stands for all frees before it, and none is recorded until another stream wants the memory. Tags
//! belong to bytes, not to blocks: however free ranges are joined and divided, each byte keeps what it waits for.
//!
//! Tags of used bytes mean nothing, and stay: a free writes over them. So a stream that allocates and frees the same memory
//! again and again changes no tag, and the memory of a stream that is alone has one.
//!
//! A tag does not hold a stream back if it is the stream's own, if its epoch's event has passed, or if the stream was told
//! to wait for that event. Another stream gets the bytes once it was told so itself, or the event has passed.

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many events of one stream are kept. An older one gives way: what it stood for has to wait for the next one.
const MOST_EVENTS: usize = 8;

/// What the streams' driver is asked for.
pub(super) trait Clock {
    /// A stream; two values are equal if they are the same stream.
    type Stream: Clone + PartialEq;
    /// A point in a stream.
    type Event: Clone;
    /// Why the driver refused.
    type Error;

    /// Records an event at the stream's present end.
    fn record(&mut self, stream: &Self::Stream) -> Result<Mark<Self::Event>, Self::Error>;
    /// Whether the work before an event is done.
    fn has_passed(&mut self, event: &Self::Event) -> Result<bool, Self::Error>;
    /// Lets work given to `stream` from now on wait for an event; `false` if it cannot.
    fn wait(&mut self, stream: &Self::Stream, event: &Self::Event) -> Result<bool, Self::Error>;
    /// Takes an event back that is not asked for any more. Who was told to wait for it may still do so.
    fn retire(&mut self, event: Self::Event);
    /// Takes a stream that no memory waits for any more.
    fn let_go(&mut self, stream: Self::Stream);
}

/// One whose events the CPU may wait for while others wait for it.
pub(super) trait Waiting: Clock {
    /// Waits for the work before an event.
    fn synchronize(&mut self, event: &Self::Event) -> Result<(), Self::Error>;
}

/// What recording gave.
#[derive(Debug)]
pub(super) enum Mark<E> {
    /// The event.
    Event(E),
    /// The stream's context has ended, and all work of the stream with it.
    Over,
    /// The stream captures a graph: it has no present end.
    NotNow,
}

/// Names a stream while it is known here; no other stream ever gets the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct StreamId(u64);

/// What is known of one stream's progress.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Timeline<S, E> {
    /// Held while memory waits for it, so that no other stream gets its handle.
    stream: S,
    /// The epoch that frees fall into now.
    open: u64,
    /// All frees up to this epoch wait for nothing any more.
    passed: u64,
    /// Events with the last epoch that each closed, oldest first.
    events: VecDeque<(u64, E)>,
    /// Work given to this stream from now on comes after these epochs of other streams.
    waited: BTreeMap<StreamId, u64>,
}

/// What freed bytes wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tag {
    end: u64,
    stream: StreamId,
    epoch: u64,
}

/// The streams and the tags of all memory.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Order<S, E> {
    timelines: BTreeMap<StreamId, Timeline<S, E>>,
    last_id: u64,
    /// By first byte; no two overlap.
    tags: BTreeMap<u64, Tag>,
    /// Plants a bug of a known pool, which the model check has to find.
    #[cfg(test)]
    pub planted: bool,
}

impl<S: Clone + PartialEq, E: Clone> Order<S, E> {
    pub fn new() -> Self {
        Self {
            timelines: BTreeMap::new(),
            last_id: 0,
            tags: BTreeMap::new(),
            #[cfg(test)]
            planted: false,
        }
    }

    /// The name of a stream, which it gets now if it has none.
    pub fn id(&mut self, stream: &S) -> StreamId {
        if let Some((id, _)) = self.timelines.iter().find(|(_, timeline)| timeline.stream == *stream) {
            return *id;
        }
        self.last_id += 1;
        let id = StreamId(self.last_id);
        let (events, waited) = (VecDeque::new(), BTreeMap::new());
        self.timelines.insert(id, Timeline { stream: stream.clone(), open: 1, passed: 0, events, waited });
        id
    }

    /// Tags bytes that a stream has freed.
    #[inline]
    pub fn freed(&mut self, bytes: Range<u64>, id: StreamId) {
        let Some(epoch) = self.timelines.get(&id).map(|timeline| timeline.open) else { return };
        let tag = Tag { end: bytes.end, stream: id, epoch };
        if !self.covering(&bytes).is_some_and(|other| Tag { end: tag.end, ..other } == tag) {
            self.put(bytes.start, tag);
        }
    }

    fn put(&mut self, start: u64, tag: Tag) {
        self.clear(start..tag.end);
        let (mut tag, mut start) = (tag, start);
        let joins = |other: &Tag| Tag { end: tag.end, ..*other } == tag;
        if let Some(after) = self.tags.get(&tag.end).copied().filter(joins) {
            self.tags.remove(&tag.end);
            tag.end = after.end;
        }
        let before = self.tags.range(..start).next_back();
        let joins = |other: &Tag| Tag { end: tag.end, ..*other } == tag;
        if let Some((&first, _)) = before.filter(|(_, before)| before.end == start && joins(before)) {
            start = first;
        }
        self.tags.insert(start, tag);
    }

    /// Takes the tags off bytes.
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

    /// The tag that all these bytes have, if they have one.
    #[inline]
    fn covering(&self, bytes: &Range<u64>) -> Option<Tag> {
        let (_, tag) = self.tags.range(..=bytes.start).next_back()?;
        (tag.end >= bytes.end).then_some(*tag)
    }

    /// Whether a stream may have these bytes at once.
    #[inline]
    pub fn is_ready(&self, bytes: &Range<u64>, id: StreamId) -> bool {
        if self.covering(bytes).is_some_and(|tag| tag.stream == id) {
            return true;
        }
        self.tags_in(bytes).all(|(_, tag)| self.is_open_to(&tag, id))
    }

    /// The first place in free bytes where a stream may have `size` of them at once.
    pub fn place(&self, bytes: &Range<u64>, size: u64, id: StreamId) -> Option<u64> {
        let mut start = bytes.start;
        for (first, tag) in self.tags_in(bytes) {
            if !self.is_open_to(&tag, id) {
                if first.saturating_sub(start) >= size {
                    break;
                }
                start = tag.end;
            }
        }
        (start.saturating_add(size) <= bytes.end).then_some(start)
    }

    /// Looks whether what holds a stream back from these bytes has passed.
    pub fn look<C>(&mut self, bytes: &Range<u64>, id: StreamId, clock: &mut C) -> Result<(), C::Error>
    where
        C: Clock<Stream = S, Event = E>,
    {
        for (stream, epoch) in self.held_back_by(bytes, id) {
            self.event(stream, epoch, clock)?;
            self.look_at(stream, clock)?;
        }
        Ok(())
    }

    /// Looks at all streams that memory waits for, and takes off the tags of what has passed. Streams that no memory waits
    /// for any more are let go.
    pub fn settle<C>(&mut self, clock: &mut C) -> Result<(), C::Error>
    where
        C: Clock<Stream = S, Event = E>,
    {
        self.close_epochs(clock)?;
        for id in self.ids() {
            self.look_at(id, clock)?;
        }
        self.sweep(clock);
        Ok(())
    }

    /// Events after all work that memory waits for: one for each stream, unless none can be recorded now.
    pub fn ends<C>(&mut self, clock: &mut C) -> Result<Vec<E>, C::Error>
    where
        C: Clock<Stream = S, Event = E>,
    {
        self.close_epochs(clock)?;
        let last = |timeline: &Timeline<S, E>| timeline.events.back().map(|(_, event)| event.clone());
        Ok(self.timelines.values().filter_map(last).collect())
    }

    /// Lets a stream wait for what holds it back from these bytes; `false` if it cannot wait now.
    pub fn wait<C>(&mut self, bytes: &Range<u64>, id: StreamId, clock: &mut C) -> Result<bool, C::Error>
    where
        C: Clock<Stream = S, Event = E>,
    {
        for (other, epoch) in self.held_back_by(bytes, id) {
            if !self.event(other, epoch, clock)? {
                return Ok(false);
            }
            let (Some(waiter), Some(timeline)) = (self.timelines.get(&id), self.timelines.get(&other)) else {
                return Ok(false);
            };
            let event = timeline.events.iter().find(|(closed, _)| *closed >= epoch);
            let Some((closed, event)) = event else { continue };
            if !clock.wait(&waiter.stream, event)? {
                return Ok(false);
            }
            let closed = *closed;
            if let Some(waiter) = self.timelines.get_mut(&id) {
                waiter.waited.insert(other, closed);
            }
            #[cfg(test)]
            self.plant(id, other, closed);
        }
        Ok(true)
    }

    /// Asks of the streams that memory waits for whether they have no work left: then it waits for nothing.
    pub fn note_idle(&mut self, mut is_idle: impl FnMut(&S) -> bool) {
        for (id, timeline) in &mut self.timelines {
            let waits = self.tags.values().any(|tag| tag.stream == *id && tag.epoch > timeline.passed);
            if waits && is_idle(&timeline.stream) {
                timeline.passed = timeline.open;
                timeline.open += 1;
            }
        }
    }

    /// The tags in these bytes, each cut to them: start, end, stream.
    pub fn pending<'order>(
        &'order self,
        bytes: &Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, &'order S)> + use<'order, S, E> {
        let (tags, bytes) = (self.tags_in(bytes), bytes.clone());
        let cut = move |(start, tag): (u64, Tag)| {
            let timeline = self.timelines.get(&tag.stream)?;
            let waits = tag.epoch > timeline.passed;
            waits.then_some((start.max(bytes.start)..tag.end.min(bytes.end), &timeline.stream))
        };
        tags.filter_map(cut)
    }

    /// Whether no byte of these waits for anything.
    pub fn is_settled(&self, bytes: &Range<u64>) -> bool {
        self.pending(bytes).next().is_none()
    }

    /// The streams that memory waits for.
    pub fn streams(&self) -> Vec<&S> {
        let waiting: BTreeSet<StreamId> = self.tags.values().map(|tag| tag.stream).collect();
        waiting.iter().filter_map(|id| self.timelines.get(id)).map(|timeline| &timeline.stream).collect()
    }

    /// How many streams are held.
    pub fn stream_count(&self) -> usize {
        self.timelines.len()
    }

    /// The event that stands for an epoch of a stream is there from now on; `false` if it cannot be recorded now.
    fn event<C>(&mut self, id: StreamId, epoch: u64, clock: &mut C) -> Result<bool, C::Error>
    where
        C: Clock<Stream = S, Event = E>,
    {
        let Some(timeline) = self.timelines.get_mut(&id) else { return Ok(true) };
        let last = timeline.events.back().map_or(timeline.passed, |(closed, _)| *closed);
        if last >= epoch {
            return Ok(true);
        }
        match clock.record(&timeline.stream)? {
            Mark::Event(event) => timeline.events.push_back((timeline.open, event)),
            Mark::Over => timeline.passed = timeline.open,
            Mark::NotNow => return Ok(false),
        }
        timeline.open += 1;
        if timeline.events.len() > MOST_EVENTS {
            timeline.events.pop_front().into_iter().for_each(|(_, event)| clock.retire(event));
        }
        Ok(true)
    }

    /// Every tag's epoch has an event from now on, where one can be recorded.
    fn close_epochs<C>(&mut self, clock: &mut C) -> Result<(), C::Error>
    where
        C: Clock<Stream = S, Event = E>,
    {
        let mut last = BTreeMap::new();
        for tag in self.tags.values() {
            let epoch = last.entry(tag.stream).or_insert(0);
            *epoch = tag.epoch.max(*epoch);
        }
        last.into_iter().try_for_each(|(id, epoch)| self.event(id, epoch, clock).map(drop))
    }

    fn look_at<C>(&mut self, id: StreamId, clock: &mut C) -> Result<(), C::Error>
    where
        C: Clock<Stream = S, Event = E>,
    {
        let Some(timeline) = self.timelines.get_mut(&id) else { return Ok(()) };
        while let Some((closed, event)) = timeline.events.front() {
            if !clock.has_passed(event)? {
                break;
            }
            timeline.passed = timeline.passed.max(*closed);
            timeline.events.pop_front().into_iter().for_each(|(_, event)| clock.retire(event));
        }
        Ok(())
    }

    /// Takes off what has passed, and lets streams go that have no tag left.
    fn sweep<C>(&mut self, clock: &mut C)
    where
        C: Clock<Stream = S, Event = E>,
    {
        let (timelines, mut waiting) = (&mut self.timelines, BTreeSet::new());
        self.tags.retain(|_, tag| {
            let waits = timelines.get(&tag.stream).is_some_and(|timeline| tag.epoch > timeline.passed);
            if waits {
                waiting.insert(tag.stream);
            }
            waits
        });
        let idle: Vec<StreamId> = timelines.keys().filter(|id| !waiting.contains(id)).copied().collect();
        for timeline in idle.iter().filter_map(|id| timelines.remove(id)) {
            timeline.events.into_iter().for_each(|(_, event)| clock.retire(event));
            clock.let_go(timeline.stream);
        }
        for timeline in timelines.values_mut() {
            timeline.waited.retain(|id, _| !idle.contains(id));
        }
    }

    /// The streams, and up to which epoch, that hold a stream back from these bytes.
    fn held_back_by(&self, bytes: &Range<u64>, id: StreamId) -> BTreeMap<StreamId, u64> {
        let mut streams = BTreeMap::new();
        for (_, tag) in self.tags_in(bytes).filter(|(_, tag)| !self.is_open_to(tag, id)) {
            let epoch = streams.entry(tag.stream).or_insert(0);
            *epoch = tag.epoch.max(*epoch);
        }
        streams
    }

    fn is_open_to(&self, tag: &Tag, id: StreamId) -> bool {
        if tag.stream == id {
            return true;
        }
        let passed = self.timelines.get(&tag.stream).is_none_or(|timeline| tag.epoch <= timeline.passed);
        let waited = || self.timelines.get(&id).and_then(|own| own.waited.get(&tag.stream));
        passed || waited().is_some_and(|waited| tag.epoch <= *waited)
    }

    fn tags_in<'order>(&'order self, bytes: &Range<u64>) -> impl Iterator<Item = (u64, Tag)> + use<'order, S, E> {
        let before = self.tags.range(..bytes.start).next_back();
        let start = before.filter(|(_, tag)| tag.end > bytes.start).map_or(bytes.start, |(start, _)| *start);
        self.tags.range(start..bytes.end.max(start)).map(|(start, tag)| (*start, *tag))
    }

    fn first_in(&self, bytes: &Range<u64>) -> Option<(u64, Tag)> {
        self.tags_in(bytes).next()
    }

    fn ids(&self) -> Vec<StreamId> {
        self.timelines.keys().copied().collect()
    }

    /// What another pool does: after a wait, all that the waiter waited for counts as its own, as of the waiter's last
    /// event, which was recorded before the wait.
    #[cfg(test)]
    fn plant(&mut self, waiter: StreamId, other: StreamId, closed: u64) {
        if !self.planted {
            return;
        }
        let stale = self.timelines[&waiter].open - 1;
        for tag in self.tags.values_mut().filter(|tag| tag.stream == other && tag.epoch <= closed) {
            *tag = Tag { end: tag.end, stream: waiter, epoch: stale };
        }
    }
}

#[cfg(test)]
mod model;
#[cfg(any(test, fuzzing))]
pub(super) mod world;
