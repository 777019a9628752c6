//! The common part of flags, counters and rings: a name, memory, and a log of the device work that uses it.

use super::SignalError;
use super::armed;
use super::compare::{Comparison, SignalWord};
use super::memory::SignalLines;
use super::release::Retired;
use super::uses::{UseKind, UseLog, UsePlace};
use crate::driver::relaxed::RelaxedCalls;
use crate::error::{check_not_forked, forked, unless_forked};
use crate::lifetime::drop_outside;
use crate::locks::{Mutex, MutexGuard};
use crate::{Context, Event, Result, Stream};
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::{self, Thread};

/// The kind of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Flag,
    /// Its word only grows, so the word tells which waits have passed.
    Counter,
    Ring,
    /// The word that tells when a frame is published.
    Frame,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Flag => "flag",
            Kind::Counter => "counter",
            Kind::Ring => "ring",
            Kind::Frame => "frame",
        }
    }
}

/// How reports tell a signal from others.
#[derive(Default)]
enum Name {
    /// By its number.
    #[default]
    Number,
    Given(Box<str>),
    /// By the frame that it now publishes, and by the thread that took that frame.
    Frame(u64, Thread),
}

/// A signal as streams use it. It lives until no device work uses it.
pub(super) struct Signal {
    kind: Kind,
    /// Whether the word has 64 bits.
    wide: bool,
    /// A flag or counter: the line of its word. A ring: items with the tail, and the head.
    lines: Vec<SignalLines>,
    number: u64,
    name: Mutex<Name>,
    closed: AtomicBool,
    registered: AtomicBool,
    log: Mutex<UseLog>,
    retired: Arc<Retired>,
}

impl Signal {
    pub fn new(kind: Kind, wide: bool, lines: Vec<SignalLines>, retired: &Arc<Retired>) -> Arc<Self> {
        static NUMBERS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
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
        self.rename(Name::Given(name.into()));
    }

    /// This thread has taken a frame that the signal publishes.
    pub fn set_frame(&self, number: u64) {
        self.rename(Name::Frame(number, thread::current()));
    }

    fn rename(&self, name: Name) {
        unless_forked(|| {
            let former = core::mem::replace(&mut *self.name.lock(), name);
            drop(former);
        });
    }

    /// Kind and name, such as `flag "ready"`, or kind and number, such as `flag #3`.
    pub fn title(&self) -> Box<str> {
        let kind = self.kind.name();
        match &*self.name.lock() {
            Name::Given(name) => format!("{kind} {name:?}").into(),
            Name::Number => format!("{kind} #{}", self.number).into(),
            Name::Frame(number, thread) => match thread.name() {
                Some(name) => format!("frame {number}, taken by thread {name:?}").into(),
                None => format!("frame {number}, taken by thread {:?}", thread.id()).into(),
            },
        }
    }

    /// A number that no other signal has, of any kind.
    pub fn unique_number(&self) -> u64 {
        self.number << 2 | self.kind as u64
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn context(&self) -> &Context {
        self.retired.context()
    }

    pub fn log(&self) -> MutexGuard<'_, UseLog> {
        self.log.lock()
    }

    /// The log, or `None` if another thread holds it. For callers that must not wait.
    pub fn try_log(&self) -> Option<MutexGuard<'_, UseLog>> {
        self.log.try_lock()
    }

    #[inline]
    fn line(&self) -> &SignalLines {
        // Every signal has at least one.
        &self.lines[0]
    }

    /// The index that each side of a ring has published: tail, head.
    pub fn indices(&self) -> (u32, u32) {
        let head = self.lines.get(1).unwrap_or(self.line());
        // SAFETY: the lines of a ring begin with a 32-bit word.
        unsafe { (self.line().load(0), head.load(0)) }
    }

    /// The word of a flag or counter, widened to 64 bits.
    pub fn word(&self) -> u64 {
        // SAFETY: the line of a flag begins with its word, whose size `wide` tells.
        unsafe { if self.wide { self.line().load(0) } else { self.line().load::<u32>(0).into() } }
    }

    /// Writes the word of a flag or counter, of either size, and returns it as [`word`](Self::word) does.
    pub fn set_word(&self, value: u64) -> u64 {
        let word = if self.wide { value } else { u64::from(value as u32) };
        // SAFETY: as in `word`.
        unsafe { if self.wide { self.line().store(0, word) } else { self.line().store(0, word as u32) } }
        word
    }

    /// Whether the comparison of a word of this signal's size is true.
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

    /// Set once the signal is in the list of words that queued work waits for.
    pub fn registered(&self) -> &AtomicBool {
        &self.registered
    }

    /// Logs work that the driver is about to get. Returns its ticket, and an event for it if `marked`.
    fn begin(&self, place: UsePlace, what: UseKind, marked: bool) -> (u64, Option<Result<Event>>) {
        let _relaxed = RelaxedCalls::begin(self.context().driver());
        let mut log = self.log();
        let done = log.trim();
        let ticket = log.push(place, what);
        let spare = marked.then(|| log.spare());
        drop(log);
        if !done.is_empty() {
            // The caller may be inside a submission.
            drop_outside(done);
        }
        (ticket, spare.map(|spare| spare.map_or_else(|| Event::new(self.context()), Ok)))
    }

    /// Makes a stream wait for the word, by `submit`. An event behind the wait tells when the stream has passed it. The
    /// word of a flag does not, because it may be written again; the word of a counter only grows.
    pub fn wait_on<W: SignalWord>(
        self: &Arc<Self>,
        stream: &Stream,
        comparison: Comparison,
        value: W,
        submit: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        check_not_forked("a stream's wait for a signal")?;
        let place = UsePlace::of(stream);
        let marked = self.kind != Kind::Counter || place.is_per_thread();
        if self.log().has_unmarked_kernel(&place) {
            // Mark the kernel before the wait: an event behind the wait would not tell when the kernel is done.
            let _ = self.log().mark();
        }
        armed::register(self);
        let (ticket, event) = self.begin(place, UseKind::Wait { comparison, value: value.into() }, marked);
        match event.transpose().and_then(|event| submit().map(|()| event)) {
            Ok(event) => {
                // If this fails, an event is recorded later, on demand.
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

    /// Logs work that the driver already has.
    pub fn note(self: &Arc<Self>, stream: &Stream, what: UseKind) {
        if forked() {
            return;
        }
        let place = UsePlace::of(stream);
        if !matches!(what, UseKind::Write { .. }) {
            armed::register(self);
        }
        // Record now: no other thread can record on this thread's default stream.
        let marked = place.is_per_thread();
        let (ticket, event) = self.begin(place, what, marked);
        let event = event.and_then(Result::ok).filter(|event| event.record(stream).is_ok());
        self.log().submitted(ticket, event);
    }

    /// Ends the signal. Waits of the CPU fail, waits of streams are released, and the memory stays until no work uses
    /// it.
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
