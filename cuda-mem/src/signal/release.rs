//! Keeps signals that ended while device work still uses them.
//!
//! The end of a signal does not wait for that work: a kernel may wait for several flags and rings, so it may be waiting
//! for the end of another one. A stream whose wait nobody will satisfy is released: the library writes the awaited
//! value, and the stream's next wait or access fails. If the waits need different values, or queued work may satisfy
//! them, the worker looks until all have passed.

use super::SignalError;
use super::base::Signal;
use super::compare::Comparison;
use super::satisfier::{BlockedWait, Satisfier, Writer, satisfiers};
use super::uses::{Fate, Use, UseKind, UseLog, UsePlace};
use crate::driver::context::Liveness;
use crate::driver::relaxed::RelaxedCalls;
use crate::lifetime::drop_on_worker;
use crate::lifetime::waiting::{self, Target};
use crate::lifetime::worker::{PAUSES, RELEASES, Waiting};
use crate::locks::Mutex;
use crate::{Context, Result};
use core::mem;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Consecutive looks without an answer of the driver, after which the device counts as failed.
const SILENCES: usize = 3;

/// The signals of one [`Signals`](super::Signals) that ended while device work used them.
pub(super) struct Retired {
    context: Context,
    signals: Mutex<Vec<Arc<Signal>>>,
    /// Held by the thread that looks.
    turn: Mutex<()>,
    /// Consecutive looks of the worker without an answer of the driver.
    silences: AtomicUsize,
}

/// What a look found.
struct LookResult {
    /// No further look is needed until somebody allocates.
    at_rest: bool,
    /// The driver told which work is done.
    answered: bool,
    nothing: bool,
    /// An error if the driver did not answer, or refused an event on some stream.
    result: Result<()>,
    /// What has ended. Its drop may drop streams and events, whose errors may call a hook: after the turn.
    ended: (Vec<Use>, Vec<Arc<Signal>>),
}

impl Retired {
    pub fn new(context: &Context) -> Arc<Self> {
        Arc::new(Self {
            context: context.clone(),
            signals: Mutex::default(),
            turn: Mutex::default(),
            silences: AtomicUsize::new(0),
        })
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Keeps a signal that has ended. Waits for it are released before this returns, if one write satisfies them.
    pub fn add(self: &Arc<Self>, signal: &Arc<Signal>) {
        // In a forked process, the locks may be held for ever.
        if self.context.liveness() == Liveness::DriverGone || signal.log().is_empty() {
            return;
        }
        self.signals.lock().push(signal.clone());
        self.tend();
    }

    /// Frees signals that no work uses any more, and releases waits that nobody will satisfy.
    pub fn tend(self: &Arc<Self>) {
        if self.signals.lock().is_empty() {
            return;
        }
        let liveness = self.context.liveness();
        if liveness == Liveness::DriverGone {
            return;
        }
        let looked = match self.turn.try_lock() {
            Some(_turn) if liveness == Liveness::Alive => Some(self.look(true)),
            // If the driver says that the context is gone, the worker checks once more. And a thread that looks now may have
            // passed over this signal already.
            _ => None,
        };
        if !looked.is_some_and(|left| left.at_rest) {
            self.employ();
        }
    }

    /// Lets the worker look after the signals.
    fn employ(self: &Arc<Self>) {
        if let Err(error) = RELEASES.employ(self) {
            let doing = "starting the thread that releases waits for dropped signals";
            self.context.drop_errors().push(doing, error);
        }
    }

    fn look_in_turn(&self, patient: bool) -> LookResult {
        let _turn = self.turn.lock();
        self.look(patient)
    }

    /// Waits for all work, and frees all signals.
    pub fn wait(self: &Arc<Self>) {
        waiting::during(&"Signals::drop", Target::context(&self.context), || self.wait_for_work());
    }

    fn wait_for_work(self: &Arc<Self>) {
        let (mut pause, mut silences) = (PAUSES.0, 0);
        loop {
            match self.context.liveness() {
                Liveness::Alive => {}
                // Its work has ended with it.
                Liveness::Gone => {
                    let gone = mem::take(&mut *self.signals.lock());
                    drop(gone);
                    break;
                }
                // A forked process has no such thread, and its locks may be held for ever.
                Liveness::DriverGone => {
                    let gone = self.signals.try_lock().map(|mut signals| mem::take(&mut *signals));
                    drop(gone);
                    return;
                }
            }
            let left = self.look_in_turn(true);
            drop(left.ended);
            match left.result {
                Ok(()) => silences = 0,
                Err(error) => {
                    silences += 1;
                    if silences == SILENCES {
                        let doing = "waiting for device work before giving back a signal's memory";
                        self.context.drop_errors().push(doing, error);
                        // Nobody knows when the work is done, so the memory must not be reused.
                        mem::forget(mem::take(&mut *self.signals.lock()));
                    }
                }
            }
            if left.nothing || silences == SILENCES {
                break;
            }
            waiting::nap(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
        RELEASES.dismiss(self);
    }

    /// Looks once at all kept signals. The caller holds `turn`. If `patient`, decides nothing while the driver does not
    /// tell which work is done.
    fn look(&self, patient: bool) -> LookResult {
        let _relaxed = RelaxedCalls::begin(self.context.driver());
        // Without the lock: driver calls may block.
        let signals = mem::take(&mut *self.signals.lock());
        let (mut result, mut answered, mut done) = (Ok(()), true, Vec::new());
        for signal in &signals {
            let mut log = signal.log();
            note_word(signal, &mut log);
            result = result.and(log.mark());
            let (removed, questions) = log.take_done();
            answered &= questions.is_ok();
            result = result.and(questions);
            done.extend(removed);
        }
        if answered || !patient {
            release(&signals);
        }
        let (over, rest): (Vec<_>, Vec<_>) = signals.into_iter().partition(|signal| signal.log().is_empty());
        let (at_rest, nothing) = (answered && rest.iter().all(|signal| is_at_rest(signal)), rest.is_empty());
        self.signals.lock().extend(rest);
        let nothing = nothing && self.signals.lock().is_empty();
        LookResult { at_rest, answered, nothing, result, ended: (done, over) }
    }
}

impl Waiting for Retired {
    fn look(&self) -> bool {
        if self.context.liveness() != Liveness::Alive {
            return false;
        }
        let silences = self.silences.load(Ordering::Relaxed);
        let left = self.look_in_turn(silences < SILENCES);
        let (uses, signals) = left.ended;
        if !uses.is_empty() {
            // The ends of streams and of their owners may wait, and others may wait for this thread.
            drop_on_worker(uses);
        }
        drop(signals);
        let silences = if left.answered { 0 } else { silences + 1 };
        let gives_up = silences > SILENCES;
        self.silences.store(if gives_up { 0 } else { silences }, Ordering::Relaxed);
        !left.at_rest && !gives_up
    }
}

/// The comparison and the value of a wait.
fn wanted(used: &Use) -> Option<(Comparison, u64)> {
    match used.what {
        UseKind::Wait { comparison, value } => Some((comparison, value)),
        UseKind::Write { .. } | UseKind::Kernel => None,
    }
}

/// Whether the fate of a wait is final: the library makes it pass.
fn is_decided(used: &Use) -> bool {
    matches!(used.fate, Fate::Granted | Fate::Abandoned)
}

/// Whether all waits pass without another look: the word satisfies them, and no work writes it.
fn is_at_rest(signal: &Signal) -> bool {
    let log = signal.log();
    let mut waits = log.uses().iter().filter_map(|used| Some((used, wanted(used)?))).peekable();
    if waits.peek().is_none() {
        return true;
    }
    let word = signal.word();
    let passes = |(used, (comparison, value)): (&Use, (Comparison, u64))| {
        is_decided(used) && signal.holds(comparison, word, value)
    };
    waits.all(passes) && log.uses().iter().all(|used| wanted(used).is_some())
}

fn note_word(signal: &Signal, log: &mut UseLog) {
    let word = signal.word();
    log.note_word(word, |value| signal.holds(Comparison::Equal, word, value));
}

/// Decides which waits nobody will satisfy, stores errors in their streams, and writes the awaited values.
fn release(signals: &[Arc<Signal>]) {
    let (mut held, mut wants, mut writers) = (Vec::new(), Vec::new(), Vec::new());
    let mut places: Vec<UsePlace> = Vec::new();
    for (signal, state) in signals.iter().enumerate() {
        let log = state.log();
        for used in log.uses() {
            let stream = places.iter().position(|place| place.is(&used.place)).unwrap_or_else(|| {
                places.push(used.place.clone());
                places.len() - 1
            });
            let ticket = used.ticket;
            match used.what {
                UseKind::Wait { comparison, value } => {
                    let holds = || !log.rewritten && state.holds(comparison, state.word(), value);
                    held.push(BlockedWait { signal, stream, ticket, passes: is_decided(used) || holds() });
                    wants.push((comparison, value));
                }
                UseKind::Write { value } => writers.push(Writer { signal, stream, ticket, value: Some(value) }),
                UseKind::Kernel => writers.push(Writer { signal, stream, ticket, value: None }),
            }
        }
    }
    if held.is_empty() {
        return;
    }
    let satisfies = |index: usize, word| {
        let (Some(wait), Some((comparison, value))) = (held.get(index), wants.get(index)) else { return false };
        signals.get(wait.signal).is_some_and(|signal| signal.holds(*comparison, word, *value))
    };
    for (wait, satisfier) in held.iter().zip(satisfiers(&held, &writers, satisfies)) {
        if let Some(signal) = signals.get(wait.signal) {
            decide(signal, wait.ticket, satisfier);
        }
    }
    signals.iter().for_each(|signal| satisfy(signal));
}

/// Decides the fate of a wait, and stores its stream's error before the stream goes on.
fn decide(signal: &Signal, ticket: u64, satisfier: Satisfier) {
    let mut log = signal.log();
    let Some(used) = log.uses_mut().iter_mut().find(|used| used.ticket == ticket) else { return };
    used.fate = match (used.fate, satisfier) {
        (decided @ (Fate::Granted | Fate::Abandoned), _) => decided,
        (_, Satisfier::Word) => Fate::Granted,
        (_, Satisfier::Write) => Fate::WriteQueued,
        (fate, Satisfier::Kernel) => fate,
        // The queued write is done, and the library may have overwritten it.
        (Fate::WriteQueued, Satisfier::Nobody) => Fate::Granted,
        (Fate::Open, Satisfier::Nobody) => Fate::Abandoned,
    };
    if used.fate == Fate::Abandoned
        && satisfier == Satisfier::Nobody
        && let Some((comparison, wanted)) = wanted(used)
    {
        let stream = &used.place.stream;
        let error = SignalError::Abandoned {
            name: signal.title(),
            stream: stream.raw().addr(),
            comparison: comparison.text(),
            wanted,
            value: signal.word(),
        };
        stream.abandon(error.into());
    }
}

/// Writes the word so that streams pass their waits: one value that satisfies all, or else another value each time.
fn satisfy(signal: &Signal) {
    let mut log = signal.log();
    let waits: Vec<_> = log.uses().iter().filter_map(|used| Some((used, wanted(used)?))).collect();
    if waits.is_empty() {
        return;
    }
    let word = signal.word();
    // A stream has not passed its first wait that the word does not satisfy.
    let (mut places, mut fronts): (Vec<&UsePlace>, Vec<(Comparison, u64)>) = (Vec::new(), Vec::new());
    for (used, (comparison, value)) in &waits {
        if !signal.holds(*comparison, word, *value) && !places.iter().any(|place| place.is(&used.place)) {
            places.push(&used.place);
            if is_decided(used) {
                fronts.push((*comparison, *value));
            }
        }
    }
    if fronts.is_empty() {
        return;
    }
    let decided: Vec<_> = waits.iter().filter(|(used, _)| is_decided(used)).map(|(_, wanted)| *wanted).collect();
    let first_for = |waits: &[(Comparison, u64)]| {
        let mut values = decided.iter().map(|(comparison, value)| comparison.satisfying(*value));
        values.find(|word| waits.iter().all(|(comparison, value)| signal.holds(*comparison, *word, *value)))
    };
    let turn = log.turn % fronts.len();
    let value = first_for(&decided).or_else(|| first_for(&fronts)).or_else(|| {
        let (comparison, value) = fronts.get(turn)?;
        Some(comparison.satisfying(*value))
    });
    if let Some(value) = value {
        log.turn = turn + 1;
        // What a write of the device stored meanwhile is lost, but not that it is done.
        note_word(signal, &mut log);
        let word = signal.set_word(value);
        log.note_rewritten(word);
    }
}
