//! Tells which streams wait for which signals. Reports of waits use it, and calls that must not wait for such streams.

use super::Comparison;
use super::base::{Kind, Signal};
use super::uses::{Use, UseKind};
use crate::Driver;
use crate::driver::context::{Armed, set_armed};
use crate::driver::relaxed::relaxed;
use crate::error::forked;
use crate::lifetime::waiting::{self, SignalTarget, Target, What};
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Number of waits and kernels in the logs of all signals.
static ARMED: AtomicUsize = AtomicUsize::new(0);
/// The signals that streams have waited for, or kernels used. The end of a signal does not take this lock: signals also
/// end in forked processes, whose copy of the lock may be held for ever.
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
    if forked() || signal.was_registered() {
        return;
    }
    // Both modules are below this one, so they ask through these functions.
    waiting::set_awaited(|target| awaited(target).iter().map(|wait| wait.to_string().into()).collect());
    set_armed(Armed { any: armed_anywhere, texts: waits_of_streams });
    let mut signals = SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
    if signals.len() == signals.capacity() {
        signals.retain(|signal| signal.strong_count() != 0);
    }
    signals.push(Arc::downgrade(signal));
}

/// The registered signals of a context.
fn of(context: (usize, Option<u64>)) -> Vec<Arc<Signal>> {
    let signals = SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
    signals.iter().filter_map(Weak::upgrade).filter(|signal| signal.context().name() == context).collect()
}

/// A wait for a signal. Its text is `flag "ready": value 3, needs >= 4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArmedWait {
    title: Box<str>,
    state: WaitReason,
    closed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum WaitReason {
    /// Until the word compares.
    Word { value: u64, sign: &'static str, wanted: u64 },
    /// Until the frame is published.
    Frame,
    /// The CPU waits for items of the ring, or for room.
    Ring { pushed: u32, popped: u32, needs: &'static str },
    /// A kernel of the stream uses the word, and may wait for it.
    WordOfKernel { value: u64 },
    /// A kernel of the stream uses the ring, and may wait for items or for room.
    RingOfKernel { pushed: u32, popped: u32 },
}

impl fmt::Display for ArmedWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, state, closed } = self;
        match state {
            WaitReason::Word { value, sign, wanted } => write!(f, "{title}: value {value}, needs {sign} {wanted}"),
            WaitReason::Frame => write!(f, "{title}, is not published"),
            WaitReason::Ring { pushed, popped, needs } => {
                write!(f, "{title}: {pushed} items pushed, {popped} popped, needs {needs}")
            }
            WaitReason::WordOfKernel { value } => {
                write!(f, "{title}: value {value}, used by a kernel that may wait for it")
            }
            WaitReason::RingOfKernel { pushed, popped } => {
                write!(f, "{title}: {pushed} items pushed, {popped} popped, used by a kernel that may wait for it")
            }
        }?;
        if *closed { f.write_str(" (dropped)") } else { Ok(()) }
    }
}

fn word_reason(signal: &Signal, comparison: Comparison, wanted: u64) -> WaitReason {
    match signal.kind() {
        Kind::Frame => WaitReason::Frame,
        _ => WaitReason::Word { value: signal.word(), sign: comparison.sign(), wanted },
    }
}

/// What the CPU waits for, in a report's numbers.
pub(super) fn of_cpu(signal: &Arc<Signal>, comparison: Comparison, value: u64) -> Target {
    let how = Comparison::ALL.iter().position(|known| *known == comparison).unwrap_or_default();
    register(signal);
    Target::signal(SignalTarget { number: signal.unique_number(), how: how as u8, value })
}

/// What an end of a ring waits for.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum RingNeed {
    Room,
    Items,
}

/// As [`of_cpu`], for an end of a ring.
pub(super) fn of_ring(signal: &Arc<Signal>, need: RingNeed) -> Target {
    register(signal);
    Target::signal(SignalTarget { number: signal.unique_number(), how: need as u8, value: 0 })
}

/// The state of the signal that a thread waits for.
fn cpu_wait(SignalTarget { number, how, value }: SignalTarget) -> Option<ArmedWait> {
    let signal = {
        let signals = SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
        signals.iter().filter_map(Weak::upgrade).find(|signal| signal.unique_number() == number)?
    };
    let state = match signal.kind() {
        Kind::Ring => {
            let (pushed, popped) = signal.indices();
            WaitReason::Ring { pushed, popped, needs: if how == RingNeed::Room as u8 { "room" } else { "items" } }
        }
        _ => word_reason(&signal, *Comparison::ALL.get(usize::from(how))?, value),
    };
    Some(ArmedWait { title: signal.title(), state, closed: signal.is_closed() })
}

/// What a target of a wait is waiting for.
fn awaited(target: Target) -> Vec<ArmedWait> {
    match target.what {
        What::Thread | What::Process => Vec::new(),
        What::Stream => describe(target.context, Some(target.stream)),
        // The stream of an event is not known.
        What::Context | What::Event => describe(target.context, None),
        What::Signal => cpu_wait(target.signal).into_iter().collect(),
    }
}

/// What a use waits for now, if anything.
fn waits(signal: &Signal, used: &Use) -> Option<WaitReason> {
    match used.what {
        UseKind::Wait { comparison, value } => {
            (!signal.holds(comparison, signal.word(), value)).then(|| word_reason(signal, comparison, value))
        }
        UseKind::Kernel if signal.kind() == Kind::Ring => {
            let (pushed, popped) = signal.indices();
            Some(WaitReason::RingOfKernel { pushed, popped })
        }
        UseKind::Kernel => Some(WaitReason::WordOfKernel { value: signal.word() }),
        UseKind::Write { .. } => None,
    }
}

/// What a stream of a context waits for now, or any of its streams if `stream` is `None`: the known flags, counters and
/// rings. The stream is given by the driver's handle, the context by [`Context::name`](crate::Context).
///
/// This never calls the driver, which may not answer the watchdog. So it may report a wait that the stream has passed,
/// if the word was written again since. It leaves out signals whose log another thread holds.
pub(crate) fn describe(context: (usize, Option<u64>), stream: Option<usize>) -> Vec<ArmedWait> {
    if ARMED.load(Ordering::Acquire) == 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    for signal in of(context) {
        let Some(log) = signal.try_log() else { continue };
        let here = log.uses().iter().filter(|used| stream.is_none_or(|raw| used.place.stream.raw().addr() == raw));
        for state in here.filter_map(|used| waits(&signal, used)) {
            let wait = ArmedWait { title: signal.title(), state, closed: signal.is_closed() };
            if !found.contains(&wait) {
                found.push(wait);
            }
        }
    }
    found
}

/// Whether a stream of the context waits for a word that the CPU may have to write, or a kernel runs that may wait for
/// one. Without such waits, this costs one load of a counter.
pub(crate) fn armed_anywhere(driver: &Driver, context: (usize, Option<u64>)) -> bool {
    if ARMED.load(Ordering::Acquire) == 0 {
        return false;
    }
    let _relaxed = relaxed(driver);
    of(context).iter().any(|signal| {
        // The thread that holds the log may be adding a wait.
        let Some(mut log) = signal.try_log() else { return true };
        let _ = log.mark();
        let (done, _) = log.take_done();
        let armed = log.uses().iter().any(|used| waits(signal, used).is_some());
        drop(log);
        drop(done);
        armed
    })
}

/// What each stream of a context waits for now.
fn waits_of_streams(context: (usize, Option<u64>)) -> Vec<String> {
    let mut texts = Vec::new();
    for signal in of(context) {
        let Some(log) = signal.try_log() else { continue };
        let waits = log.uses().iter().filter_map(|used| Some((used.place.stream.raw().addr(), waits(&signal, used)?)));
        texts.extend(waits.map(|(raw, state)| {
            let wait = ArmedWait { title: signal.title(), state, closed: signal.is_closed() };
            format!("stream {raw:#x} waits for {wait}")
        }));
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::{Comparison, Flag, SignalError, SignalKernels, Signals, WaitPolicy, Waiter};
    use crate::{Driver, Error, Result, Stream};
    use core::time::Duration;

    fn texts(stream: &Stream) -> Vec<String> {
        let waits = describe(stream.context().name(), Some(stream.raw().addr()));
        waits.iter().map(ToString::to_string).collect()
    }

    /// A stream of a context of the test's own, where other tests' signals are not seen.
    fn stream() -> Result<Stream> {
        Stream::new(&Driver::software()?.device(0)?.create_context()?)
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the software GPU")]
    fn a_wait_is_described_until_the_stream_has_passed_it() -> Result<()> {
        let stream = stream()?;
        let context = stream.context();
        let signals = Signals::new(context)?;
        assert!(!armed_anywhere(context.driver(), context.name()) && texts(&stream).is_empty());
        let (ready, other) = (signals.flag::<u32>(Waiter::Device)?.named("ready"), Stream::new(context)?);
        ready.store(3);
        ready.wait_on(&stream, Comparison::AtLeast, 4)?;
        assert_eq!(texts(&stream), ["flag \"ready\": value 3, needs >= 4"]);
        assert!(armed_anywhere(context.driver(), context.name()) && texts(&other).is_empty());
        let late = stream.synchronize_for(Duration::from_millis(5)).expect_err("nobody has written 4").to_string();
        assert!(late.contains("queued work waits for flag \"ready\": value 3, needs >= 4"), "{late}");
        ready.store(4);
        assert!(texts(&stream).is_empty(), "it passes by itself");
        stream.synchronize()?;
        ready.store(0);
        assert!(!armed_anywhere(context.driver(), context.name()) && texts(&stream).is_empty(), "it has passed");

        let mut pieces = signals.counter::<u64>()?.named("pieces");
        pieces.wait_on(&stream, 2)?;
        pieces.add(1);
        assert_eq!(texts(&stream), ["counter \"pieces\": value 1, needs >= 2"]);
        pieces.add(1);
        assert!(!armed_anywhere(context.driver(), context.name()), "its value says so");
        stream.synchronize()
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the software GPU")]
    fn signals_without_names_are_numbered() -> Result<()> {
        let stream = stream()?;
        let flag = Signals::new(stream.context())?.flag::<u64>(Waiter::Device)?;
        flag.wait_on(&stream, Comparison::AnyBit, 6)?;
        let text = texts(&stream).concat();
        assert!(text.starts_with("flag #") && text.ends_with(": value 0, needs any bit of 6"), "{text}");
        flag.store(2);
        stream.synchronize()
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the software GPU")]
    fn a_ring_and_a_flag_of_a_kernel_are_described_while_it_runs() -> Result<()> {
        let stream = stream()?;
        let context = stream.context();
        let signals = Signals::new(context)?;
        let mut requests = signals.ring_to_device::<u64>(8)?.named("requests");
        let sum: Flag<u64> = signals.flag(Waiter::Cpu)?;
        SignalKernels::of(context)?.sum_ring(&requests, &sum, Duration::ZERO, &stream)?;
        requests.push(5)?;
        while texts(&stream)[0] != "ring \"requests\": 1 items pushed, 1 popped, used by a kernel that may wait for it"
        {
            std::thread::yield_now();
        }
        assert!(texts(&stream)[1].ends_with("value 0, used by a kernel that may wait for it"));
        assert!(armed_anywhere(context.driver(), context.name()));
        drop(requests);
        stream.synchronize()?;
        assert_eq!((sum.load(), armed_anywhere(context.driver(), context.name())), (5, false));
        Ok(())
    }

    /// The log must not grow with the number of waits.
    #[test]
    #[cfg_attr(miri, ignore = "needs the software GPU")]
    fn a_hundred_thousand_waits_leave_few_entries() -> Result<()> {
        let stream = stream()?;
        let signals = Signals::new(stream.context())?;
        let (flag, mut count, done) =
            (signals.flag::<u32>(Waiter::Device)?, signals.counter::<u32>()?, signals.device_counter::<u32>()?);
        let rounds = if cfg!(debug_assertions) { 20_000 } else { 100_000 };
        for round in 1..=rounds {
            flag.wait_on(&stream, Comparison::Equal, round)?;
            count.wait_on(&stream, round)?;
            done.store_on(&stream, round)?;
            flag.store(round);
            count.add(1);
            done.wait(round, &WaitPolicy::default())?;
        }
        assert!(flag.state().log().uses().len() <= 128);
        stream.synchronize()
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the software GPU")]
    fn a_closed_flag_says_so_and_its_stream_is_told() -> Result<()> {
        let stream = stream()?;
        let flag = Signals::new(stream.context())?.flag::<u32>(Waiter::Device)?.named("go");
        let (clone, policy) = (flag.clone(), WaitPolicy::default());
        let waiter = std::thread::spawn(move || clone.wait(Comparison::Equal, 9, &policy));
        flag.wait_on(&stream, Comparison::Equal, 9)?;
        flag.close();
        let told = |error: Error| match error {
            Error::Signal(error) => matches!(*error, SignalError::Closed { .. }),
            _ => false,
        };
        assert!(waiter.join().expect("no panic").is_err_and(told), "although the library has written 9");
        assert!(flag.wait_on(&stream, Comparison::Equal, 1).is_err_and(told));
        assert!(flag.store_on(&stream, 1).is_err_and(told));
        let text = stream.synchronize().expect_err("nobody wrote 9").to_string();
        assert!(text.starts_with("flag \"go\" was dropped while stream"), "{text}");
        assert!(text.contains("a value equal to 0x9 (it was 0x0)"), "{text}");
        stream.synchronize()
    }
}
