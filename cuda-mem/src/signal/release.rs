//! The ends of signals that device work still uses.
//!
//! What ended retires until the work is done. Nobody waits for that when a signal ends: a kernel may wait for several flags
//! and rings, and another's end may be what it waits for. A stream that waits for what nobody will write is released: the
//! library writes what it waits for, and the stream's next wait or access fails. Different waits may need different values, or
//! be satisfied by work that is still queued: then a thread looks after them, which ends when all have passed.

use super::SignalError;
use super::compare::Comparison;
use super::hope::{Held, Hope, Writer, hopes};
use super::state::Signal;
use super::uses::{Fate, Place, Use, What};
use crate::beside_captures::relaxed;
use crate::context::Liveness;
use crate::waiting::{self, Target};
use crate::{Context, Error, Result};
use core::mem;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// The first nap between two looks, and the longest. The device looks at a word every few microseconds, but a stream may have
/// to wait for its turn.
const NAPS: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(5));
/// How often in a row the driver may fail to answer before the device has failed.
const SILENCES: usize = 3;

/// The signals of a memory that ended while device work used them.
pub(super) struct Retired {
    context: Context,
    signals: Mutex<Vec<Arc<Signal>>>,
    /// One at a time looks after them.
    turn: Mutex<()>,
    reaper: Mutex<Reaper>,
}

#[derive(Default)]
struct Reaper {
    works: bool,
    /// It is to look again before it ends.
    again: bool,
    thread: Option<JoinHandle<()>>,
}

/// What a look has found.
struct Left {
    /// Nobody has to look again before somebody asks for memory.
    at_rest: bool,
    /// The driver has said what is done.
    answered: bool,
    nothing: bool,
    /// Of a question that the driver did not answer, or of a stream of which none can be asked.
    result: Result<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Retired {
    pub fn new(context: &Context) -> Arc<Self> {
        Arc::new(Self {
            context: context.clone(),
            signals: Mutex::default(),
            turn: Mutex::default(),
            reaper: Mutex::default(),
        })
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Takes a signal that has ended. What waits for it is released before this returns, if one write does that.
    pub fn add(self: &Arc<Self>, signal: &Arc<Signal>) {
        // In a forked process, the locks may be held for ever.
        if self.context.liveness() == Liveness::DriverGone || signal.log().is_empty() {
            return;
        }
        lock(&self.signals).push(signal.clone());
        self.tend();
    }

    /// Gives back what no work uses any more, and releases who waits for what nobody will write.
    pub fn tend(self: &Arc<Self>) {
        if lock(&self.signals).is_empty() {
            return;
        }
        let liveness = self.context.liveness();
        if liveness == Liveness::DriverGone {
            return;
        }
        let at_rest = match self.turn.try_lock() {
            // Where the driver says that the context is gone, the thread asks once more.
            Ok(_turn) => liveness == Liveness::Alive && self.look(true).at_rest,
            // Whoever looks may have looked at this before.
            Err(_) => false,
        };
        if !at_rest {
            self.employ();
        }
    }

    /// Lets a thread look after the signals.
    fn employ(self: &Arc<Self>) {
        let mut reaper = lock(&self.reaper);
        if mem::replace(&mut reaper.works, true) {
            reaper.again = true;
            return;
        }
        if let Some(former) = reaper.thread.take() {
            // It has said that it ends, and needs no lock any more.
            let _ = former.join();
        }
        let retired = self.clone();
        let spawned = thread::Builder::new().name("cuda-mem signals".into()).spawn(move || retired.reap());
        match spawned {
            Ok(thread) => reaper.thread = Some(thread),
            Err(error) => {
                reaper.works = false;
                drop(reaper);
                let call = "pthread_create";
                let error = Error::System { call, code: error.raw_os_error().unwrap_or_default() };
                self.context.drop_errors().push("starting the thread that releases waits for dropped signals", error);
            }
        }
    }

    fn reap(&self) {
        let (mut nap, mut silences) = (NAPS.0, 0);
        loop {
            let at_rest = self.context.liveness() != Liveness::Alive || {
                let left = self.look_in_turn(silences < SILENCES);
                silences = if left.answered { 0 } else { silences + 1 };
                left.at_rest || silences > SILENCES
            };
            if at_rest {
                let mut reaper = lock(&self.reaper);
                if !mem::take(&mut reaper.again) {
                    reaper.works = false;
                    return;
                }
            }
            thread::sleep(nap);
            nap = (nap * 2).min(NAPS.1);
        }
    }

    fn look_in_turn(&self, patient: bool) -> Left {
        let _turn = lock(&self.turn);
        self.look(patient)
    }

    /// Waits for all work, and gives everything back.
    pub fn wait(&self) {
        waiting::during(&"Signals::drop", Target::context(&self.context), || self.wait_for_work());
    }

    fn wait_for_work(&self) {
        let (mut nap, mut silences) = (NAPS.0, 0);
        loop {
            match self.context.liveness() {
                Liveness::Alive => {}
                // It has no work left.
                Liveness::Gone => {
                    let gone = mem::take(&mut *lock(&self.signals));
                    drop(gone);
                    break;
                }
                // In a forked process there is no thread, and locks may be held for ever.
                Liveness::DriverGone => {
                    let gone = self.signals.try_lock().map(|mut signals| mem::take(&mut *signals));
                    drop(gone);
                    let thread = self.reaper.try_lock().map(|mut reaper| reaper.thread.take());
                    mem::forget(thread);
                    return;
                }
            }
            let left = self.look_in_turn(true);
            match left.result {
                Ok(()) => silences = 0,
                Err(error) => {
                    silences += 1;
                    if silences == SILENCES {
                        let doing = "waiting for device work before giving back a signal's memory";
                        self.context.drop_errors().push(doing, error);
                        // Nobody knows when the work is done: the memory must not become other memory.
                        mem::forget(mem::take(&mut *lock(&self.signals)));
                    }
                }
            }
            if left.nothing || silences == SILENCES {
                break;
            }
            thread::sleep(nap);
            nap = (nap * 2).min(NAPS.1);
        }
        let reaper = lock(&self.reaper).thread.take();
        // The thread itself may run a hook that ends the last signal.
        if let Some(thread) = reaper.filter(|reaper| reaper.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }

    /// One look at all that has retired, by who has the turn. If `patient`, nothing is decided while the driver does not say
    /// what is done.
    fn look(&self, patient: bool) -> Left {
        let _relaxed = relaxed(self.context.driver());
        // Out of the lock: the driver may let its caller wait.
        let signals = mem::take(&mut *lock(&self.signals));
        let (mut result, mut answered, mut done) = (Ok(()), true, Vec::new());
        for signal in &signals {
            let mut log = signal.log();
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
        lock(&self.signals).extend(rest);
        // Streams and events may end, and their errors may be told to a hook.
        drop((done, over));
        Left { at_rest, answered, nothing: nothing && lock(&self.signals).is_empty(), result }
    }
}

/// The comparison and the value of a wait.
fn wanted(used: &Use) -> Option<(Comparison, u64)> {
    match used.what {
        What::Wait { comparison, value } => Some((comparison, value)),
        What::Write { .. } | What::Kernel => None,
    }
}

/// Whether it is decided that the library sees to a wait.
fn is_decided(used: &Use) -> bool {
    matches!(used.fate, Fate::Granted | Fate::Abandoned)
}

/// Whether all waits pass without another look: the word is what they wait for, and nobody writes it.
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

/// Decides which waits nobody will satisfy, tells their streams, and writes what they wait for.
fn release(signals: &[Arc<Signal>]) {
    let (mut held, mut wants, mut writers) = (Vec::new(), Vec::new(), Vec::new());
    let mut places: Vec<Place> = Vec::new();
    for (signal, state) in signals.iter().enumerate() {
        let log = state.log();
        for used in log.uses() {
            let stream = places.iter().position(|place| place.is(&used.place)).unwrap_or_else(|| {
                places.push(used.place.clone());
                places.len() - 1
            });
            let ticket = used.ticket;
            match used.what {
                What::Wait { comparison, value } => {
                    let holds = || !log.rewritten && state.holds(comparison, state.word(), value);
                    held.push(Held { signal, stream, ticket, passes: is_decided(used) || holds() });
                    wants.push((comparison, value));
                }
                What::Write { value } => writers.push(Writer { signal, stream, ticket, value: Some(value) }),
                What::Kernel => writers.push(Writer { signal, stream, ticket, value: None }),
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
    let hopes = hopes(&held, &writers, satisfies);
    for (wait, hope) in held.iter().zip(hopes) {
        if let Some(signal) = signals.get(wait.signal) {
            decide(signal, wait.ticket, hope);
        }
    }
    signals.iter().for_each(|signal| satisfy(signal));
}

/// Decides the fate of a wait, and tells its stream before it goes on.
fn decide(signal: &Signal, ticket: u64, hope: Hope) {
    let mut log = signal.log();
    let Some(used) = log.uses_mut().iter_mut().find(|used| used.ticket == ticket) else { return };
    used.fate = match (used.fate, hope) {
        (decided @ (Fate::Granted | Fate::Abandoned), _) => decided,
        (_, Hope::Passes) => Fate::Granted,
        (_, Hope::Write) => Fate::Hoped,
        (fate, Hope::Kernel) => fate,
        // The write is done, and the library may have written over it.
        (Fate::Hoped, Hope::None) => Fate::Granted,
        (Fate::Open, Hope::None) => Fate::Abandoned,
    };
    if used.fate == Fate::Abandoned
        && hope == Hope::None
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

/// Writes the word so that streams pass their waits: one value for all, if one does, else another each time.
fn satisfy(signal: &Signal) {
    let mut log = signal.log();
    let waits: Vec<_> = log.uses().iter().filter_map(|used| Some((used, wanted(used)?))).collect();
    if waits.is_empty() {
        return;
    }
    let word = signal.word();
    // A stream stands at the first of its waits that the word does not satisfy, or before it.
    let (mut places, mut fronts): (Vec<&Place>, Vec<(Comparison, u64)>) = (Vec::new(), Vec::new());
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
        log.rewritten = true;
        signal.set_word(value);
    }
}
