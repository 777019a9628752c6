//! Which streams wait for which signals, for those who report waits and for calls that must not wait for such streams.

use super::state::{Kind, Signal};
use super::uses::{Use, What};
use crate::beside_captures::relaxed;
use crate::{Context, Stream};
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// How many waits and kernels the logs of all signals hold.
static ARMED: AtomicUsize = AtomicUsize::new(0);
/// The signals that streams have waited for, or kernels used. Ends of signals do not touch it: a forked process, in which they
/// end too, may have a copy that is locked for ever.
static SIGNALS: Mutex<Vec<Weak<Signal>>> = Mutex::new(Vec::new());

/// Counts a wait or a kernel while it lives.
pub(super) struct Counted(());

impl Counted {
    pub fn new() -> Self {
        ARMED.fetch_add(1, Ordering::Release);
        Self(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        ARMED.fetch_sub(1, Ordering::Release);
    }
}

/// Adds a signal that streams wait for.
pub(super) fn register(signal: &Arc<Signal>) {
    let mut signals = SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
    if signals.len() == signals.capacity() {
        signals.retain(|signal| signal.strong_count() != 0);
    }
    signals.push(Arc::downgrade(signal));
}

/// The signals of a context that were used.
fn of(context: &Context) -> Vec<Arc<Signal>> {
    let signals = SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
    signals.iter().filter_map(Weak::upgrade).filter(|signal| signal.context() == context).collect()
}

/// A stream that waits for a signal. Its text is `flag "ready": value 3, needs >= 4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArmedWait {
    title: Box<str>,
    state: State,
    closed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// The stream waits until the word compares.
    Word { value: u64, sign: &'static str, wanted: u64 },
    /// A kernel of the stream uses the word, and may wait for it.
    WordOfKernel { value: u64 },
    /// A kernel of the stream uses the ring, and may wait for items or for room.
    RingOfKernel { pushed: u32, popped: u32 },
}

impl fmt::Display for ArmedWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, state, closed } = self;
        match state {
            State::Word { value, sign, wanted } => write!(f, "{title}: value {value}, needs {sign} {wanted}"),
            State::WordOfKernel { value } => write!(f, "{title}: value {value}, used by a kernel that may wait for it"),
            State::RingOfKernel { pushed, popped } => {
                write!(f, "{title}: {pushed} items pushed, {popped} popped, used by a kernel that may wait for it")
            }
        }?;
        if *closed { f.write_str(" (dropped)") } else { Ok(()) }
    }
}

/// What a use waits for now, if it does.
fn waits(signal: &Signal, used: &Use) -> Option<State> {
    match used.what {
        What::Wait { comparison, value } => {
            let word = signal.word();
            let waits = !signal.holds(comparison, word, value);
            waits.then_some(State::Word { value: word, sign: comparison.sign(), wanted: value })
        }
        What::Kernel if signal.kind() == Kind::Ring => {
            let (pushed, popped) = signal.indices();
            Some(State::RingOfKernel { pushed, popped })
        }
        What::Kernel => Some(State::WordOfKernel { value: signal.word() }),
        What::Write { .. } => None,
    }
}

/// What a stream waits for now, as far as flags, counters and rings tell. It asks the driver, but does not wait for threads
/// that use a signal at the moment: those signals are left out.
#[cfg_attr(not(test), expect(dead_code, reason = "the watchdog of waits is the user"))]
pub(crate) fn describe(stream: &Stream) -> Vec<ArmedWait> {
    if ARMED.load(Ordering::Acquire) == 0 {
        return Vec::new();
    }
    let context = stream.context();
    let _relaxed = relaxed(context.driver());
    let mut found = Vec::new();
    for signal in of(context) {
        let Some(mut log) = signal.try_log() else { continue };
        let _ = log.mark();
        let (done, _) = log.take_done();
        let here = log.uses().iter().filter(|used| used.place.stream == *stream);
        found.extend(here.filter_map(|used| waits(&signal, used)).map(|state| ArmedWait {
            title: signal.title(),
            state,
            closed: signal.is_closed(),
        }));
        drop(log);
        drop(done);
    }
    found
}

/// Whether a stream of the context waits for a word that the CPU may have to write, or a kernel runs that may. Without any
/// waits it is one look at a counter.
#[cfg_attr(not(test), expect(dead_code, reason = "calls that wait for the device are the users"))]
pub(crate) fn armed_anywhere(context: &Context) -> bool {
    if ARMED.load(Ordering::Acquire) == 0 {
        return false;
    }
    let _relaxed = relaxed(context.driver());
    of(context).iter().any(|signal| {
        // Whoever has the log may be adding a wait.
        let Some(mut log) = signal.try_log() else { return true };
        let _ = log.mark();
        let (done, _) = log.take_done();
        let armed = log.uses().iter().any(|used| waits(signal, used).is_some());
        drop(log);
        drop(done);
        armed
    })
}
