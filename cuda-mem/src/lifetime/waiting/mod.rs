//! Reports waits that take long, and what they wait for.
//!
//! Device work may never end: it waits for a flag that nobody sets, or for a host function that never returns. So every
//! wait of this crate is watched. If it takes longer than [a limit](set_limit), 10 seconds by default,
//! [a hook](set_hook) is called. Without a hook, one line goes to the standard error stream: the call, its thread, the
//! stream, the time, and the flags, counters and rings that the stream waits for. The wait itself goes on.
//!
//! [`Stream::synchronize_for`](crate::Stream::synchronize_for) and
//! [`Event::synchronize_for`](crate::Event::synchronize_for) are waits with a time limit.
//!
//! ```
//! use std::time::Duration;
//! cuda_mem::waiting::set_limit(Some(Duration::from_secs(2)));
//! cuda_mem::waiting::set_hook(Some(std::sync::Arc::new(|wait| eprintln!("slow: {wait}"))));
//! # cuda_mem::waiting::set_hook(None);
//! ```

mod interruption;
mod pauses;
mod slot;
mod watchdog;

use super::queued_waits;
use core::time::Duration;
use std::sync::Arc;
use std::thread;

/// The default limit, after which a wait is reported.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(10);

pub use crate::error::{SlowWait, WaitTarget};

/// Called with each long wait, on a thread of this crate. It may be called again for the same wait, each time after
/// twice the time.
pub type SlowWaitHook = Arc<dyn Fn(&SlowWait) + Send + Sync>;

/// Sets the hook for long waits. `None`, the default, prints a line to the standard error stream.
pub fn set_hook(hook: Option<SlowWaitHook>) {
    watchdog::set_hook(hook);
}

/// Sets the time after which a wait is reported, at least 1 ms. `None` ends the reports.
pub fn set_limit(limit: Option<Duration>) {
    watchdog::set_limit(limit);
}

#[doc(hidden)]
pub use interruption::interruptible;
pub(crate) use interruption::{Interruption, is_interruptible, or_interrupted, poll};
pub(crate) use pauses::{during, join, look, nap, pause_until, wait_while, watched};
pub(crate) use slot::enter;

/// What a wait is for, as plain numbers: the watchdog must not touch values that may be dropped meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub what: What,
    /// The driver's handle of the stream.
    pub stream: usize,
    /// The driver's handle of the context, and the context's number.
    pub context: (usize, Option<u64>),
    pub device: i32,
    pub signal: SignalTarget,
}

/// A wait of the CPU for a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SignalTarget {
    /// The signal's number: [`AwaitedWord::number`](super::queued_waits::AwaitedWord::number).
    pub number: u64,
    /// How the word must compare with `value`.
    pub how: u8,
    pub value: u64,
}

/// The kind of a wait's target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum What {
    #[default]
    Thread,
    Stream,
    Context,
    Event,
    Signal,
    Process,
}

impl What {
    const ALL: [Self; 6] = [Self::Thread, Self::Stream, Self::Context, Self::Event, Self::Signal, Self::Process];
}

impl Target {
    /// Another process.
    #[cfg(feature = "sharing")]
    pub const PROCESS: Self = Self { what: What::Process, ..Self::THREAD };
    /// Another thread.
    pub const THREAD: Self = Self {
        what: What::Thread,
        stream: 0,
        context: (0, None),
        device: 0,
        signal: SignalTarget { number: 0, how: 0, value: 0 },
    };

    pub fn signal(signal: SignalTarget) -> Self {
        Self { what: What::Signal, signal, ..Self::THREAD }
    }

    /// The target as reports tell it, and what queued work on it waits for.
    fn tell(self) -> (WaitTarget, Vec<Box<str>>) {
        let mut awaited = queued_waits::behind(self);
        let target = match self.what {
            What::Thread => WaitTarget::Thread,
            What::Stream => WaitTarget::Stream { raw: self.stream, device: self.device },
            What::Context => WaitTarget::Context { device: self.device },
            What::Event => WaitTarget::Event { device: self.device },
            What::Signal => WaitTarget::Signal(awaited.pop().unwrap_or_else(|| "a signal that has ended".into())),
            What::Process => WaitTarget::Process,
        };
        (target, awaited)
    }
}

/// Names the purpose of the waits inside `work`, in a user's words. The outermost name counts.
pub(crate) fn while_doing<R>(doing: &'static &'static str, work: impl FnOnce() -> R) -> R {
    let _named = slot::name(doing);
    work()
}

fn this_thread() -> Box<str> {
    let thread = thread::current();
    thread.name().map_or_else(|| format!("{:?}", thread.id()).into(), |name| format!("\"{name}\"").into())
}
