//! What flags, counters and rings have in common: a name, memory, and the device work that uses it.

use super::SignalError;
use super::armed;
use super::compare::{Comparison, SignalWord};
use super::memory::Lines;
use super::release::Retired;
use super::uses::{Log, Place, What};
use crate::beside_captures::relaxed;
use crate::{Context, Event, Result, Stream};
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// What a signal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Flag,
    /// Its word only grows, so that the word tells which waits have been satisfied.
    Counter,
    Ring,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Flag => "flag",
            Kind::Counter => "counter",
            Kind::Ring => "ring",
        }
    }
}

/// A signal, as streams use it. It lives until no device work does.
pub(super) struct Signal {
    kind: Kind,
    /// Words of 64 bits.
    wide: bool,
    /// A flag's or counter's line; a ring's items with the tail, and its head.
    lines: Vec<Lines>,
    number: u64,
    name: Mutex<Option<Box<str>>>,
    closed: AtomicBool,
    registered: AtomicBool,
    log: Mutex<Log>,
    retired: Arc<Retired>,
}

impl Signal {
    pub fn new(kind: Kind, wide: bool, lines: Vec<Lines>, retired: &Arc<Retired>) -> Arc<Self> {
        static NUMBERS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
        Arc::new(Self {
            kind,
            wide,
            lines,
            number: NUMBERS[kind as usize].fetch_add(1, Ordering::Relaxed) + 1,
            name: Mutex::default(),
            closed: AtomicBool::new(false),
            registered: AtomicBool::new(false),
            log: Mutex::default(),
            retired: retired.clone(),
        })
    }

    pub fn set_name(&self, name: &str) {
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = Some(name.into());
    }

    /// The kind and the name, as in `flag "ready"`, or the kind and the number, as in `flag #3`.
    pub fn title(&self) -> Box<str> {
        let kind = self.kind.name();
        match &*self.name.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(name) => format!("{kind} {name:?}").into(),
            None => format!("{kind} #{}", self.number).into(),
        }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn context(&self) -> &Context {
        self.retired.context()
    }

    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log, unless somebody has it: for who must not wait.
    pub fn try_log(&self) -> Option<MutexGuard<'_, Log>> {
        match self.log.try_lock() {
            Ok(log) => Some(log),
            Err(TryLockError::Poisoned(log)) => Some(log.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[inline]
    fn line(&self) -> &Lines {
        // A signal has at least one.
        &self.lines[0]
    }

    /// The index that each side of a ring has published: the tail, and the head.
    pub fn indices(&self) -> (u32, u32) {
        let head = self.lines.get(1).unwrap_or(self.line());
        // SAFETY: a ring's lines begin with a word of 32 bits.
        unsafe { (self.line().load(0), head.load(0)) }
    }

    /// The word of a flag or counter, of any size.
    pub fn word(&self) -> u64 {
        // SAFETY: a flag's line begins with its word, of the size that `wide` says.
        unsafe { if self.wide { self.line().load(0) } else { self.line().load::<u32>(0).into() } }
    }

    /// Writes the word of a flag or counter, of any size.
    pub fn set_word(&self, value: u64) {
        // SAFETY: as in `word`.
        unsafe { if self.wide { self.line().store(0, value) } else { self.line().store(0, value as u32) } }
    }

    /// Whether a word of this signal compares.
    pub fn holds(&self, comparison: Comparison, word: u64, value: u64) -> bool {
        comparison.holds_in(self.wide, word, value)
    }

    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub fn check_open(&self, call: &'static str) -> Result<()> {
        if self.is_closed() { Err(SignalError::Closed { call, name: self.title() }.into()) } else { Ok(()) }
    }

    fn register(self: &Arc<Self>) {
        if !self.registered.swap(true, Ordering::Relaxed) {
            armed::register(self);
        }
    }

    /// Adds work that the driver is about to get. Gives its ticket, and an event for it, if it is to have one.
    fn begin(&self, place: Place, what: What, marked: bool) -> (u64, Option<Result<Event>>) {
        let _relaxed = relaxed(self.context().driver());
        let mut log = self.log();
        let done = log.trim();
        let ticket = log.push(place, what);
        let spare = marked.then(|| log.spare());
        drop(log);
        drop(done);
        (ticket, spare.map(|spare| spare.map_or_else(|| Event::new(self.context()), Ok)))
    }

    /// Gives a stream a wait for the word, by `submit`. An event behind the wait tells when the stream has passed it: a
    /// flag's word does not, which may be written again. A counter's word only grows.
    pub fn wait_on<W: SignalWord>(
        self: &Arc<Self>,
        stream: &Stream,
        comparison: Comparison,
        value: W,
        submit: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let place = Place::of(stream);
        let marked = self.kind == Kind::Flag || place.is_per_thread();
        if self.log().has_unmarked_kernel(&place) {
            // Once the stream has come to the wait, it is known that the kernel is done.
            let _ = self.log().mark();
        }
        self.register();
        let (ticket, event) = self.begin(place, What::Wait { comparison, value: value.into() }, marked);
        match event.transpose().and_then(|event| submit().map(|()| event)) {
            Ok(event) => {
                // Where this fails, an event is recorded when somebody asks.
                let event = event.filter(|event| event.record(stream).is_ok());
                self.log().submitted(ticket, event);
                Ok(())
            }
            Err(error) => {
                let refused = self.log().refused(ticket);
                drop(refused);
                Err(error)
            }
        }
    }

    /// Remembers work that the driver has.
    pub fn note(self: &Arc<Self>, stream: &Stream, what: What) {
        let place = Place::of(stream);
        if !matches!(what, What::Write { .. }) {
            self.register();
        }
        // On another thread nobody could record one.
        let marked = place.is_per_thread();
        let (ticket, event) = self.begin(place, what, marked);
        let event = event.and_then(Result::ok).filter(|event| event.record(stream).is_ok());
        self.log().submitted(ticket, event);
    }

    /// Ends the signal: waits of the CPU fail, waits of streams are released, and the memory stays until no work uses it.
    pub fn close(self: &Arc<Self>) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.retired.add(self);
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title())
    }
}
