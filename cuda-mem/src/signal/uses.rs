//! Logs the device work that uses a signal: what each piece waits for or writes, and whether it is done.

use super::compare::Comparison;
use crate::lifetime::queued_waits::CountedWait;
use crate::{Error, Event, Result, Stream};
use core::mem;
use core::sync::atomic::{AtomicU64, Ordering};
use cuda_sys::CU_STREAM_PER_THREAD;
use std::thread::{self, ThreadId};

/// Number of uses from which a log checks which of them are done.
const LOOK_AT: usize = 64;
/// Number of events that a log keeps for later uses.
const SPARE: usize = 16;

/// What a piece of device work does with the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UseKind {
    /// Stops its stream until the word compares.
    Wait { comparison: Comparison, value: u64 },
    /// Writes the word.
    Write { value: u64 },
    /// A kernel, which may wait for the signal and may write it.
    Kernel,
}

/// The fate of a wait whose signal has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Not decided yet.
    Open,
    /// A queued write will satisfy it.
    WriteQueued,
    /// The last word, or a queued write, satisfies it.
    Granted,
    /// Nobody else will satisfy it. The library does, and the stream gets an error.
    Abandoned,
}

/// A stream. The per-thread default stream differs between threads.
#[derive(Clone)]
pub(super) struct UsePlace {
    pub stream: Stream,
    thread: Option<ThreadId>,
}

impl UsePlace {
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

    /// Records an event behind the work so far. None if that work is done.
    fn event(&self, spare: impl FnOnce() -> Option<Event>) -> Result<Option<Event>> {
        const CALL: &str = "Signals";
        if self.thread.is_some_and(|thread| thread != thread::current().id()) {
            let rule = "only that thread can use it";
            return Err(Error::invalid(CALL, "stream", "another thread's default stream", rule));
        }
        // The caller has locked the log.
        let running = self.stream.try_running(CALL)?;
        if self.stream.is_done()? {
            return Ok(None);
        }
        let event = spare().map_or_else(|| Event::new(self.stream.context()), Ok)?;
        event.mark(&running)?;
        Ok(Some(event))
    }
}

/// A piece of device work.
pub(super) struct Use {
    /// Number of the work, in the order of submission.
    pub ticket: u64,
    pub place: UsePlace,
    pub what: UseKind,
    pub fate: Fate,
    /// Whether the driver has the work.
    submitted: bool,
    /// Whether the work is known to be done.
    pub done: bool,
    /// The event behind the work.
    event: Option<Event>,
    counted: Option<CountedWait>,
}

/// The device work that uses one signal, oldest first. Finished work is removed from time to time.
#[derive(Default)]
pub(super) struct UseLog {
    uses: Vec<Use>,
    spare: Vec<Event>,
    look_at: usize,
    /// Index of the value to write next, if the waits for an ended signal need different values.
    pub turn: usize,
    /// Whether the library has written the word since the signal ended.
    pub rewritten: bool,
    /// The word of an ended signal as the library last saw or wrote it.
    seen: Option<u64>,
}

static TICKETS: AtomicU64 = AtomicU64::new(0);

impl UseLog {
    /// Logs work that the driver is about to get (then call [`submitted`](Self::submitted)). Returns its ticket.
    pub fn push(&mut self, place: UsePlace, what: UseKind) -> u64 {
        let ticket = TICKETS.fetch_add(1, Ordering::Relaxed);
        let counted = (!matches!(what, UseKind::Write { .. })).then(CountedWait::new);
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

    /// Removes work that the driver refused. Drop the result without the lock.
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

    /// Whether the last use on the stream is a kernel without an event behind it.
    pub fn has_unmarked_kernel(&self, place: &UsePlace) -> bool {
        let last = self.uses.iter().rfind(|used| used.place.is(place));
        last.is_some_and(|used| used.what == UseKind::Kernel && used.event.is_none())
    }

    /// Records an event behind the last use of each stream, unless it has one or is done. Returns an error if a stream
    /// has no event now: it captures, or the driver refuses.
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

    /// Notes the word of an ended signal. Only queued work has changed it since the last note, so if `is_word` accepts the
    /// value of a write, that write is done, and the work of its stream before it. No event tells this while the stream
    /// waits behind the write, and the library may overwrite the word.
    pub fn note_word(&mut self, word: u64, is_word: impl Fn(u64) -> bool) {
        let is_new = self.seen.replace(word).is_some_and(|seen| seen != word);
        // Nobody knows which values a kernel writes.
        if !is_new || self.uses.iter().any(|used| used.what == UseKind::Kernel) {
            return;
        }
        let is_written = |used: &&mut Use| {
            used.submitted && !used.done && matches!(used.what, UseKind::Write { value } if is_word(value))
        };
        if let Some(used) = self.uses.iter_mut().find(is_written) {
            used.done = true;
        }
    }

    /// Notes a word that the library has written.
    pub fn note_rewritten(&mut self, word: u64) {
        (self.rewritten, self.seen) = (true, Some(word));
    }

    /// Notes which work is done, and drops nothing. Returns an error if the driver did not answer for some work.
    pub fn note_done(&mut self) -> Result<()> {
        let mut result = Ok(());
        let mut done: Vec<UsePlace> = Vec::new();
        for used in self.uses.iter_mut().rev().filter(|used| used.submitted) {
            // A stream does its work in order.
            if !done.iter().any(|place| place.is(&used.place)) {
                let is_done = || used.event.as_ref().map_or(Ok(false), Event::is_done);
                match if used.done { Ok(true) } else { is_done() } {
                    Ok(true) => done.push(used.place.clone()),
                    Ok(false) => continue,
                    Err(error) => {
                        result = result.and(Err(error));
                        continue;
                    }
                }
            }
            (used.done, used.counted) = (true, None);
        }
        result
    }

    /// Notes which work is done, and removes that work. Drop it without the lock. Also returns an error if the driver
    /// did not answer for some work.
    pub fn take_done(&mut self) -> (Vec<Use>, Result<()>) {
        let result = self.note_done();
        let (mut removed, rest): (Vec<_>, _) = mem::take(&mut self.uses).into_iter().partition(|used| used.done);
        self.uses = rest;
        for used in &mut removed {
            if self.spare.len() < SPARE {
                self.spare.extend(used.event.take());
            }
        }
        (removed, result)
    }

    /// Removes the finished work if the log has grown, so that its length does not depend on the number of waits.
    pub fn trim(&mut self) -> Vec<Use> {
        if self.uses.len() < self.look_at.max(LOOK_AT) {
            return Vec::new();
        }
        // Work that is not known to be done now is checked again later.
        let _ = self.mark();
        let (removed, _) = self.take_done();
        self.look_at = 2 * self.uses.len();
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Driver;
    use std::sync::mpsc::channel;

    #[test]
    #[cfg_attr(miri, ignore = "needs the software GPU")]
    fn a_write_is_done_when_its_word_was_seen() -> Result<()> {
        let context = Driver::software()?.device(0)?.primary_context()?;
        let stream = Stream::new(&context)?;
        let (open, gate) = channel::<()>();
        stream.launch_host_function(move || gate.recv().unwrap_or_default())?;
        let wait = |value| UseKind::Wait { comparison: Comparison::Equal, value };
        let mut log = UseLog::default();
        for what in [wait(1), UseKind::Write { value: 2 }, wait(3), UseKind::Write { value: 4 }] {
            let ticket = log.push(UsePlace::of(&stream), what);
            log.submitted(ticket, None);
        }
        let left = |log: &mut UseLog, word| {
            log.note_word(word, |value| value == word);
            log.take_done().1.map(|()| log.uses().iter().map(|used| used.what).collect::<Vec<_>>())
        };
        assert_eq!(left(&mut log, 2)?.len(), 4, "nobody knows who wrote the first word");
        log.note_rewritten(1);
        assert_eq!(left(&mut log, 1)?.len(), 4, "the library wrote it");
        assert_eq!(left(&mut log, 2)?, [wait(3), UseKind::Write { value: 4 }]);
        assert_eq!(left(&mut log, 7)?.len(), 2, "no write has this value");
        drop(open);
        stream.synchronize()
    }
}
