//! Which device work uses a signal: what each piece waits for or writes, and whether it is done.

use super::armed::Counted;
use super::compare::Comparison;
use crate::{Error, Event, Result, Stream};
use core::sync::atomic::{AtomicU64, Ordering};
use cuda_sys::CU_STREAM_PER_THREAD;
use std::thread::{self, ThreadId};

/// How many uses a log holds before it looks which of them are done.
const LOOK_AT: usize = 64;
/// How many events a log keeps for its next uses.
const SPARE: usize = 16;

/// What a piece of device work does with the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Holds its stream until the word compares.
    Wait { comparison: Comparison, value: u64 },
    /// Writes the word.
    Write { value: u64 },
    /// A kernel, which may wait for the signal and may write it.
    Kernel,
}

/// What becomes of a wait whose signal has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing is decided.
    Open,
    /// A write that satisfies it is queued.
    Hoped,
    /// It is satisfied by what the word was, or by a queued write.
    Granted,
    /// Nobody is left who would satisfy it: the library does, and the stream gets an error.
    Abandoned,
}

/// A stream. The per-thread default stream is another one on each thread.
#[derive(Clone)]
pub(super) struct Place {
    pub stream: Stream,
    thread: Option<ThreadId>,
}

impl Place {
    pub fn of(stream: &Stream) -> Self {
        let thread = (stream.raw() == CU_STREAM_PER_THREAD).then(|| thread::current().id());
        Self { stream: stream.clone(), thread }
    }

    pub fn is_per_thread(&self) -> bool {
        self.thread.is_some()
    }

    pub fn is(&self, other: &Self) -> bool {
        self.thread == other.thread && self.stream == other.stream
    }

    /// An event behind the work so far; none where that is done.
    fn event(&self, spare: impl FnOnce() -> Option<Event>) -> Result<Option<Event>> {
        const CALL: &str = "Signals";
        if self.thread.is_some_and(|thread| thread != thread::current().id()) {
            let (argument, value) = ("stream", "another thread's default stream".into());
            return Err(Error::InvalidArgument { call: CALL, argument, value, rule: "only that thread can name it" });
        }
        self.stream.check_not_capturing(CALL)?;
        if self.stream.is_done()? {
            return Ok(None);
        }
        let event = spare().map_or_else(|| Event::new(self.stream.context()), Ok)?;
        event.record(&self.stream)?;
        Ok(Some(event))
    }
}

/// A piece of device work.
pub(super) struct Use {
    /// The order in which work was given to streams.
    pub ticket: u64,
    pub place: Place,
    pub what: What,
    pub fate: Fate,
    /// Whether the driver has the work.
    submitted: bool,
    /// Whether it is known that the work is done.
    done: bool,
    /// Recorded behind the work.
    event: Option<Event>,
    #[expect(dead_code, reason = "held for its drop")]
    counted: Option<Counted>,
}

/// The device work that uses one signal, oldest first. Work that is done is removed now and then.
#[derive(Default)]
pub(super) struct Log {
    uses: Vec<Use>,
    spare: Vec<Event>,
    look_at: usize,
    /// Which of several values the word gets next, after the signal has ended.
    pub turn: usize,
    /// The library has written the word, after the signal has ended.
    pub rewritten: bool,
}

static TICKETS: AtomicU64 = AtomicU64::new(0);

impl Log {
    /// Adds work that the driver is about to get ([`submitted`](Self::submitted)). Gives its ticket.
    pub fn push(&mut self, place: Place, what: What) -> u64 {
        let ticket = TICKETS.fetch_add(1, Ordering::Relaxed);
        let counted = (!matches!(what, What::Write { .. })).then(Counted::new);
        self.uses.push(Use {
            ticket,
            place,
            what,
            fate: Fate::Open,
            submitted: false,
            done: false,
            event: None,
            counted,
        });
        ticket
    }

    /// The driver has the work; `event` is recorded behind it.
    pub fn submitted(&mut self, ticket: u64, event: Option<Event>) {
        if let Some(used) = self.uses.iter_mut().rev().find(|used| used.ticket == ticket) {
            (used.submitted, used.event) = (true, event);
        }
    }

    /// The driver refused the work. The use is to be dropped outside of the lock.
    pub fn refused(&mut self, ticket: u64) -> Option<Use> {
        let index = self.uses.iter().rposition(|used| used.ticket == ticket)?;
        Some(self.uses.remove(index))
    }

    pub fn spare(&mut self) -> Option<Event> {
        self.spare.pop()
    }

    pub fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }

    pub fn uses(&self) -> &[Use] {
        &self.uses
    }

    pub fn uses_mut(&mut self) -> &mut [Use] {
        &mut self.uses
    }

    /// Whether a kernel was given to the stream, behind which there is no event.
    pub fn has_unmarked_kernel(&self, place: &Place) -> bool {
        let last = self.uses.iter().rfind(|used| used.place.is(place));
        last.is_some_and(|used| used.what == What::Kernel && used.event.is_none())
    }

    /// Records an event behind the last use of each stream that has none, unless it is done. The error is of a stream for which there is none
    /// now: it captures, or the driver refuses.
    pub fn mark(&mut self) -> Result<()> {
        let mut result = Ok(());
        for index in (0..self.uses.len()).rev() {
            let (earlier, later) = self.uses.split_at_mut(index + 1);
            let Some(used) = earlier.last_mut() else { continue };
            let is_last = !later.iter().any(|other| other.submitted && other.place.is(&used.place));
            if !used.submitted || used.done || used.event.is_some() || !is_last {
                continue;
            }
            let spare = &mut self.spare;
            match used.place.event(|| spare.pop()) {
                Ok(event) => (used.done, used.event) = (event.is_none(), event),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    /// Removes the work that is done, to be dropped outside of the lock. The error is of a question that the driver did not
    /// answer.
    pub fn take_done(&mut self) -> (Vec<Use>, Result<()>) {
        let mut result = Ok(());
        let mut done: Vec<Place> = Vec::new();
        let mut removed = Vec::new();
        for index in (0..self.uses.len()).rev() {
            let Some(used) = self.uses.get(index) else { continue };
            if !used.submitted {
                continue;
            }
            // Work of a stream is done in order.
            if !done.iter().any(|place| place.is(&used.place)) {
                match used.event.as_ref().map_or(Ok(used.done), Event::is_done) {
                    Ok(true) => done.push(used.place.clone()),
                    Ok(false) => continue,
                    Err(error) => {
                        result = result.and(Err(error));
                        continue;
                    }
                }
            }
            let mut used = self.uses.remove(index);
            match used.event.take() {
                Some(event) if self.spare.len() < SPARE => self.spare.push(event),
                event => used.event = event,
            }
            removed.push(used);
        }
        (removed, result)
    }

    /// Now and then, removes the work that is done, so that the log does not grow with the number of waits.
    pub fn trim(&mut self) -> Vec<Use> {
        if self.uses.len() < self.look_at.max(LOOK_AT) {
            return Vec::new();
        }
        // What is not known now is asked for again.
        let _ = self.mark();
        let (removed, _) = self.take_done();
        self.look_at = 2 * self.uses.len();
        removed
    }
}
