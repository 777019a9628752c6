//! Points in the work of streams. They hold no stream, so a stream that the program drops ends although memory still
//! waits for its work.

use crate::driver::stream_core::Abandoned;
use crate::stream::Running;
use crate::{Context, Event, Result, Stream};
use core::mem;
use cuda_sys::CU_STREAM_PER_THREAD;
use std::sync::Arc;
use std::thread::{self, ThreadId};

/// Number of marks from which a list checks which of them have passed.
const LOOK_AT: usize = 8;
/// Number of events that a list keeps for later marks.
const SPARE: usize = 4;

/// A stream that need not be alive. The per-thread default stream differs between threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MarkPlace {
    id: u64,
    thread: Option<ThreadId>,
}

impl MarkPlace {
    fn of(stream: &Stream) -> Self {
        let thread = (stream.raw() == CU_STREAM_PER_THREAD).then(|| thread::current().id());
        Self { id: stream.id(), thread }
    }
}

/// The work that a stream had at some moment.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    place: MarkPlace,
    event: Arc<Event>,
    /// Outlives the stream: the work may run without the condition that it waited for.
    abandoned: Arc<Abandoned>,
}

impl Mark {
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// After the work: an error, once, if work of the stream ran although its wait was not satisfied.
    pub fn check_released(&self) -> Result<()> {
        self.abandoned.check()
    }

    fn is_over(&self) -> Result<bool> {
        self.event.is_over()
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        Abandoned::tell_if_last(&self.abandoned, self.event.context().drop_errors());
    }
}

/// The last mark of each stream whose work may not be over.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    marks: Vec<Mark>,
    spare: Vec<Arc<Event>>,
    look_at: usize,
}

impl Marks {
    /// Whether no stream has a mark.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// The same marks for another list. An event is marked again only while one list has it.
    pub fn copy(&self) -> Self {
        Self { marks: self.marks.clone(), ..Self::default() }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Mark> {
        self.marks.iter()
    }

    /// Marks the end of the stream's work so far. Returns the event, and marks to drop without a lock. After an error
    /// the earlier marks stay.
    pub fn note(&mut self, running: &Running<'_>) -> Result<(Arc<Event>, Vec<Mark>)> {
        let stream = running.stream();
        let event = self.take_event(stream.context())?;
        if let Err(error) = event.mark(running) {
            self.keep(&event);
            return Err(error);
        }
        let place = MarkPlace::of(stream);
        if let Some(mark) = self.marks.iter_mut().find(|mark| mark.place == place) {
            let former = mem::replace(&mut mark.event, event.clone());
            self.keep(&former);
            return Ok((event, Vec::new()));
        }
        let ended = self.trim();
        self.marks.push(Mark { place, event: event.clone(), abandoned: stream.core().abandoned.clone() });
        Ok((event, ended))
    }

    /// Removes a mark that has passed, unless it was replaced by a later one. Drop it without a lock.
    pub fn pass(&mut self, passed: &Mark) -> Option<Mark> {
        let index = self.marks.iter().position(|mark| Arc::ptr_eq(&mark.event, &passed.event))?;
        Some(self.remove(index))
    }

    /// Whether all of the work is over. After an error it may still run.
    pub fn are_over(&mut self) -> Result<bool> {
        while let Some(last) = self.marks.last() {
            if !last.is_over()? {
                return Ok(false);
            }
            self.remove(self.marks.len() - 1);
        }
        Ok(true)
    }

    /// Waits for all of the work. After an error it may still run.
    pub fn wait(&mut self) -> Result<()> {
        while let Some(last) = self.marks.last() {
            last.event.wait_beside_captures()?;
            self.remove(self.marks.len() - 1);
        }
        Ok(())
    }

    /// Removes the marks that have passed, if there are many, so that short-lived streams leave nothing. Those with an
    /// error for the next access stay.
    fn trim(&mut self) -> Vec<Mark> {
        let mut passed = Vec::new();
        if self.marks.len() < self.look_at.max(LOOK_AT) {
            return passed;
        }
        for index in (0..self.marks.len()).rev() {
            // The error comes before the end of the work. If the driver does not tell, the mark stays.
            if self.marks[index].is_over() == Ok(true) && !self.marks[index].abandoned.is_noted() {
                passed.push(self.remove(index));
            }
        }
        self.look_at = 2 * self.marks.len();
        passed
    }

    fn remove(&mut self, index: usize) -> Mark {
        let mark = self.marks.swap_remove(index);
        self.keep(&mark.event);
        mark
    }

    fn keep(&mut self, event: &Arc<Event>) {
        if self.spare.len() < SPARE {
            self.spare.push(event.clone());
        }
    }

    /// An event that nobody waits for.
    fn take_event(&mut self, context: &Context) -> Result<Arc<Event>> {
        let unused = |event: &Arc<Event>| Arc::strong_count(event) == 1 && event.context() == context;
        match self.spare.iter().position(unused) {
            Some(index) => Ok(self.spare.swap_remove(index)),
            None => Event::new(context).map(Arc::new),
        }
    }
}
