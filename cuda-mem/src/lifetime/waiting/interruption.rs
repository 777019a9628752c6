//! Waits that their caller may end early, as an interpreter does when a signal came.

use super::{Target, pauses, slot, this_thread};
use crate::error::callback::call_back;
use crate::{Error, Result};
use core::cell::Cell;
use core::time::Duration;
use std::time::Instant;

/// The time between two questions.
const INTERVAL: Duration = Duration::from_millis(50);

thread_local! {
    static ASK: Cell<Option<fn() -> bool>> = const { Cell::new(None) };
}

/// Restores what was in force before, also after a panic.
struct Before(Option<fn() -> bool>);

impl Drop for Before {
    fn drop(&mut self) {
        ASK.set(self.0);
    }
}

/// Lets waits within `work` end early: those of [`Stream::synchronize`](crate::Stream::synchronize), of
/// [`Event::synchronize`](crate::Event::synchronize), of both with a time limit, and those of rings and pools for work on
/// freed blocks. Each 50 ms they call `is_over` on this thread, which holds nothing. If it returns `true`, they return
/// [`Error::WaitTimedOut`]. Waits that keep memory from being freed or reused under work go on. For bindings to languages
/// that handle signals between instructions.
#[doc(hidden)]
pub fn interruptible<R>(is_over: fn() -> bool, work: impl FnOnce() -> R) -> R {
    let _before = Before(ASK.replace(Some(is_over)));
    work()
}

/// Whether waits of this thread may end early.
#[inline]
pub(crate) fn is_interruptible() -> bool {
    ASK.get().is_some()
}

/// A wait that may end early.
pub(crate) struct Interruption {
    ask: Option<fn() -> bool>,
    call: &'static str,
    target: Target,
    begin: Instant,
    asked: Cell<Instant>,
}

impl Interruption {
    pub fn begin(call: &'static str, target: Target) -> Self {
        let begin = Instant::now();
        Self { ask: ASK.get(), call, target, begin, asked: Cell::new(begin) }
    }

    /// An error if the wait is over. A panic of the question ends it, too.
    pub fn check(&self) -> Result<()> {
        let Some(ask) = self.ask.filter(|_| self.asked.get().elapsed() >= INTERVAL) else { return Ok(()) };
        self.asked.set(Instant::now());
        if call_back(ask).unwrap_or(true) { Err(self.timed_out()) } else { Ok(()) }
    }

    fn timed_out(&self) -> Error {
        let waited = slot::describe(self.call, self.call, self.target, self.begin.elapsed(), this_thread());
        Error::WaitTimedOut(Box::new(waited))
    }
}

/// Waits by `wait`, or, if the wait may end early, by looking whether `is_done`.
#[track_caller]
pub(crate) fn or_interrupted(
    call: &'static &'static str,
    target: Target,
    wait: impl FnOnce() -> Result<()>,
    is_done: impl Fn() -> Result<bool>,
) -> Result<()> {
    if is_interruptible() { poll(call, target, Duration::MAX, is_done) } else { pauses::during(call, target, wait) }
}

/// Calls `is_done` until it returns true, or the time limit is over, or the caller ends the wait:
/// [`Error::WaitTimedOut`].
#[track_caller]
pub(crate) fn poll(
    call: &'static &'static str,
    target: Target,
    limit: Duration,
    is_done: impl Fn() -> Result<bool>,
) -> Result<()> {
    let interruption = Interruption::begin(call, target);
    let find = || {
        interruption.check()?;
        Ok(is_done()?.then_some(()))
    };
    pauses::look(call, target, limit, find)?.ok_or_else(|| interruption.timed_out())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn wait(is_done: impl Fn() -> bool) -> Result<()> {
        let plain = || panic!("it would not end early");
        or_interrupted(&"a wait", Target::THREAD, plain, || Ok(is_done()))
    }

    #[test]
    fn a_wait_ends_when_the_question_says_so() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let third = || ASKED.fetch_add(1, Ordering::Relaxed) == 2;
        let begin = Instant::now();
        let ended = interruptible(third, || wait(|| false));
        assert!(matches!(ended, Err(Error::WaitTimedOut(_))) && begin.elapsed() >= 3 * INTERVAL, "{ended:?}");
        // What is done at once asks nothing.
        assert_eq!(interruptible(third, || wait(|| true)), Ok(()));
        assert_eq!(ASKED.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_panic_of_the_question_ends_the_wait_and_inner_questions_end() {
        let panics = || panic!("why");
        let ended = interruptible(|| false, || (interruptible(panics, || wait(|| false)), is_interruptible()));
        assert!(matches!(ended, (Err(Error::WaitTimedOut(_)), true)));
        assert!(!is_interruptible());
        assert_eq!(or_interrupted(&"a wait", Target::THREAD, || Ok(()), || panic!("it is not asked")), Ok(()));
    }
}
