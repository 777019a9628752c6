//! Tells which streams and threads wait for a signal, and how.

use super::Comparison;
use super::base::{Kind, Signal};
use super::uses::{Use, UseKind};
use crate::error::forked;
use crate::lifetime::queued_waits::{self, AwaitedWord, ContextName};
use crate::lifetime::waiting::{SignalTarget, Target};
use core::sync::atomic::Ordering;
use std::sync::Arc;

/// Adds a signal that streams wait for to the words that reports name.
pub(super) fn register(signal: &Arc<Signal>) {
    let registered = signal.registered();
    if forked() || registered.load(Ordering::Acquire) {
        return;
    }
    let word: Arc<dyn AwaitedWord> = signal.clone();
    queued_waits::add_once(Arc::downgrade(&word), registered);
}

/// Why a wait is not over. Its text, behind a signal's title, is `: value 3, needs >= 4`.
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

impl WaitReason {
    fn text(&self, signal: &Signal) -> Box<str> {
        let title = signal.title();
        let mut text = match self {
            Self::Word { value, sign, wanted } => format!("{title}: value {value}, needs {sign} {wanted}"),
            Self::Frame => format!("{title}, is not published"),
            Self::Ring { pushed, popped, needs } => {
                format!("{title}: {pushed} items pushed, {popped} popped, needs {needs}")
            }
            Self::WordOfKernel { value } => format!("{title}: value {value}, used by a kernel that may wait for it"),
            Self::RingOfKernel { pushed, popped } => {
                format!("{title}: {pushed} items pushed, {popped} popped, used by a kernel that may wait for it")
            }
        };
        if signal.is_closed() {
            text.push_str(" (dropped)");
        }
        text.into()
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

/// What a producer or a consumer of a ring waits for.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum RingNeed {
    Room,
    Items,
}

/// What a producer or a consumer of a ring waits for, in a report's numbers.
pub(super) fn of_ring(signal: &Arc<Signal>, need: RingNeed) -> Target {
    register(signal);
    Target::signal(SignalTarget { number: signal.unique_number(), how: need as u8, value: 0 })
}

/// What a use waits for now, if anything.
fn waits(signal: &Signal, used: &Use) -> Option<WaitReason> {
    match used.what {
        _ if used.done => None,
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

impl AwaitedWord for Signal {
    fn number(&self) -> u64 {
        self.unique_number()
    }

    fn context(&self) -> ContextName {
        self.context().name()
    }

    fn holds_work(&self) -> bool {
        // The thread that holds the log may be adding a wait.
        let Some(mut log) = self.try_log() else { return true };
        let _ = log.mark();
        // What is done stays in the log: the caller may hold what the end of a stream needs.
        let _ = log.note_done();
        log.uses().iter().any(|used| waits(self, used).is_some())
    }

    /// Leaves out a signal whose log another thread holds.
    fn waits(&self) -> Vec<(usize, Box<str>)> {
        let Some(log) = self.try_log() else { return Vec::new() };
        let waits = log.uses().iter().filter_map(|used| Some((used.place.stream.raw().addr(), waits(self, used)?)));
        waits.map(|(raw, reason)| (raw, reason.text(self))).collect()
    }

    fn wait_of_thread(&self, SignalTarget { how, value, .. }: SignalTarget) -> Option<Box<str>> {
        let reason = match self.kind() {
            Kind::Ring => {
                let (pushed, popped) = self.indices();
                WaitReason::Ring { pushed, popped, needs: if how == RingNeed::Room as u8 { "room" } else { "items" } }
            }
            _ => word_reason(self, *Comparison::ALL.get(usize::from(how))?, value),
        };
        Some(reason.text(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::{Comparison, Flag, SignalError, SignalKernels, Signals, WaitPolicy, Waiter};
    use crate::{Driver, Error, Result, Stream};
    use core::time::Duration;

    fn texts(stream: &Stream) -> Vec<Box<str>> {
        queued_waits::behind(Target::stream(stream))
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
        assert!(!queued_waits::hold(context.name()) && texts(&stream).is_empty());
        let (ready, other) = (signals.flag::<u32>(Waiter::Device)?.named("ready"), Stream::new(context)?);
        ready.store(3);
        ready.wait_on(&stream, Comparison::AtLeast, 4)?;
        assert_eq!(*texts(&stream), ["flag \"ready\": value 3, needs >= 4".into()]);
        assert!(queued_waits::hold(context.name()) && texts(&other).is_empty());
        let late = stream.synchronize_for(Duration::from_millis(5)).expect_err("nobody has written 4").to_string();
        assert!(late.contains("queued work waits for flag \"ready\": value 3, needs >= 4"), "{late}");
        ready.store(4);
        assert!(texts(&stream).is_empty(), "it passes by itself");
        stream.synchronize()?;
        ready.store(0);
        assert!(!queued_waits::hold(context.name()) && texts(&stream).is_empty(), "it has passed");

        let mut pieces = signals.counter::<u64>()?.named("pieces");
        pieces.wait_on(&stream, 2)?;
        pieces.add(1);
        assert_eq!(*texts(&stream), ["counter \"pieces\": value 1, needs >= 2".into()]);
        pieces.add(1);
        assert!(!queued_waits::hold(context.name()), "its value says so");
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
        while *texts(&stream)[0]
            != *"ring \"requests\": 1 items pushed, 1 popped, used by a kernel that may wait for it"
        {
            std::thread::yield_now();
        }
        assert!(texts(&stream)[1].ends_with("value 0, used by a kernel that may wait for it"));
        assert!(queued_waits::hold(context.name()));
        drop(requests);
        stream.synchronize()?;
        assert_eq!((sum.load(), queued_waits::hold(context.name())), (5, false));
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
