//! How the CPU waits: it spins, then yields, then sleeps, each time longer. Policy without CUDA and without `unsafe`.

use crate::Result;
use crate::lifetime::waiting::{self, Target};
use core::time::Duration;
use std::thread;
use std::time::Instant;

/// Number of spins after which a wait reads the clock.
const CLOCK_EVERY: u32 = 64;
/// Number of spins after which the watchdog learns of a wait, even if its policy spins on.
const SHORT: u32 = 10_000;
/// How long a wait sleeps between two checks of the context.
const HEALTH_EVERY: Duration = Duration::from_millis(5);

/// How the CPU waits. Nothing wakes a thread when memory changes, so a wait polls: first without a pause, then yielding
/// the processor to others, then with sleeps that double. A long wait takes almost no CPU time.
///
/// ```
/// use cuda_mem::signal::WaitPolicy;
/// use std::time::Duration;
/// let mut policy = WaitPolicy::within(Duration::from_secs(1));
/// policy.spins = 0; // saves CPU time, costs a microsecond
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitPolicy {
    /// Number of polls without a pause. A poll takes 30 to 60 ns in pinned memory and 1 us in mapped memory.
    pub spins: u32,
    /// Number of polls after that, yielding the processor to other threads in between.
    pub yields: u32,
    /// Length of the first sleep. Each sleep is twice as long as the one before.
    pub shortest_nap: Duration,
    /// Length of the longest sleep, which is how late a long wait may notice the value.
    pub longest_nap: Duration,
    /// Time limit; `None` is no limit. A wait also ends, with the driver's error, when the context has ended or the
    /// device has failed. It checks this after every 5 ms of sleep.
    pub timeout: Option<Duration>,
}

impl Default for WaitPolicy {
    fn default() -> Self {
        Self {
            spins: 10_000,
            yields: 200,
            shortest_nap: Duration::from_micros(20),
            longest_nap: Duration::from_millis(1),
            timeout: None,
        }
    }
}

impl WaitPolicy {
    /// The default policy with a time limit.
    pub fn within(timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..Self::default() }
    }
}

/// The next step of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitStep {
    Spin,
    Yield,
    Nap {
        length: Duration,
        /// Whether to check the context.
        check: bool,
    },
    GiveUp,
}

/// The steps of one wait.
#[derive(Debug)]
struct Steps {
    policy: WaitPolicy,
    turn: u32,
    nap: Duration,
    since_check: Duration,
}

impl Steps {
    fn new(policy: &WaitPolicy) -> Self {
        let nap = policy.shortest_nap.clamp(Duration::from_micros(1), Duration::from_secs(1));
        Self { policy: *policy, turn: 0, nap, since_check: Duration::ZERO }
    }

    /// The next step, after the elapsed time.
    fn next(&mut self, elapsed: impl FnOnce() -> Duration) -> WaitStep {
        let spinning = self.turn < self.policy.spins;
        self.turn = self.turn.saturating_add(1);
        // Reading the clock takes about as long as reading a word.
        if spinning && !self.turn.is_multiple_of(CLOCK_EVERY) {
            return WaitStep::Spin;
        }
        let left = self.policy.timeout.map(|timeout| timeout.saturating_sub(elapsed()));
        if left == Some(Duration::ZERO) {
            return WaitStep::GiveUp;
        }
        if spinning {
            return WaitStep::Spin;
        }
        if self.turn <= self.policy.spins.saturating_add(self.policy.yields) {
            return WaitStep::Yield;
        }
        let length = self.nap.min(left.unwrap_or(Duration::MAX));
        self.nap = (self.nap * 2).min(self.policy.longest_nap).max(self.nap);
        self.since_check += length;
        let check = self.since_check >= HEALTH_EVERY;
        if check {
            self.since_check = Duration::ZERO;
        }
        WaitStep::Nap { length, check }
    }
}

/// How a wait ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Waited<T> {
    /// With a result.
    For(T),
    /// Without a result, after this time.
    InVain(Duration),
}

/// What the watchdog learns of a wait that is not short: the call, and a function that tells what it waits for.
pub(crate) type Watch<F> = (&'static &'static str, F);

/// Calls `poll` until it returns a result. `health` returns an error when no result can come any more.
#[inline]
pub(crate) fn wait<T>(
    policy: &WaitPolicy,
    watch: Watch<impl Fn() -> Target>,
    mut poll: impl FnMut() -> Result<Option<T>>,
    health: impl Fn() -> Result<()>,
) -> Result<Waited<T>> {
    match poll()? {
        Some(found) => Ok(Waited::For(found)),
        None => wait_on(policy, watch, poll, health),
    }
}

fn wait_on<T>(
    policy: &WaitPolicy,
    (call, target): Watch<impl Fn() -> Target>,
    mut poll: impl FnMut() -> Result<Option<T>>,
    health: impl Fn() -> Result<()>,
) -> Result<Waited<T>> {
    let (start, mut steps, mut watched) = (Instant::now(), Steps::new(policy), None);
    loop {
        let step = steps.next(|| start.elapsed());
        if watched.is_none() && (step != WaitStep::Spin || steps.turn > SHORT) {
            watched = Some(waiting::enter(call, target()));
        }
        match step {
            // No pause instruction: it takes longer than a poll.
            WaitStep::Spin => {}
            WaitStep::Yield => thread::yield_now(),
            WaitStep::Nap { length, check } => {
                if check {
                    health()?;
                }
                waiting::nap(length);
            }
            // If there is a cause, its error is more useful than a timeout.
            WaitStep::GiveUp => health()?,
        }
        if let Some(found) = poll()? {
            return Ok(Waited::For(found));
        }
        if step == WaitStep::GiveUp {
            return Ok(Waited::InVain(start.elapsed()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use core::cell::Cell;
    use proptest::prelude::*;

    const WATCH: Watch<fn() -> Target> = (&"a test", || Target::THREAD);

    fn policy(spins: u32, yields: u32, naps: (u64, u64), timeout: Option<u64>) -> WaitPolicy {
        WaitPolicy {
            spins,
            yields,
            shortest_nap: Duration::from_micros(naps.0),
            longest_nap: Duration::from_micros(naps.1),
            timeout: timeout.map(Duration::from_micros),
        }
    }

    #[test]
    fn a_wait_spins_then_yields_then_naps_ever_longer() {
        let mut steps = Steps::new(&policy(70, 2, (100, 350), None));
        let mut next = || steps.next(|| Duration::ZERO);
        assert!((0..70).all(|_| next() == WaitStep::Spin));
        assert_eq!((next(), next()), (WaitStep::Yield, WaitStep::Yield));
        let nap = |micros| WaitStep::Nap { length: Duration::from_micros(micros), check: false };
        assert_eq!([next(), next(), next(), next()], [nap(100), nap(200), nap(350), nap(350)]);
    }

    #[test]
    fn health_is_asked_every_five_milliseconds_of_naps() {
        let mut steps = Steps::new(&policy(0, 0, (1000, 1000), None));
        let checks: Vec<bool> = (0..12)
            .map(|_| match steps.next(|| Duration::ZERO) {
                WaitStep::Nap { check, .. } => check,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(checks, [false, false, false, false, true, false, false, false, false, true, false, false]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Under every policy, a wait with a limit ends in time, and its sleeps neither overrun nor get shorter.
        #[test]
        fn a_wait_gives_up_in_time(
            spins in 0u32..300, yields in 0u32..5, shortest in 0u64..2000, longest in 0u64..5000, timeout in 0u64..20_000,
        ) {
            let mut steps = Steps::new(&policy(spins, yields, (shortest, longest), Some(timeout)));
            let timeout = Duration::from_micros(timeout);
            let (mut now, mut last) = (Duration::ZERO, Duration::ZERO);
            for _ in 0..100_000 {
                match steps.next(|| now) {
                    WaitStep::Spin | WaitStep::Yield => now += Duration::from_nanos(500),
                    WaitStep::Nap { length, .. } => {
                        prop_assert!(now + length <= timeout.max(now));
                        prop_assert!(length >= last || now + length == timeout);
                        (now, last) = (now + length, length);
                    }
                    WaitStep::GiveUp => {
                        // A spinning wait reads the clock every 64 polls.
                        prop_assert!(now >= timeout && now <= timeout + Duration::from_micros(33));
                        return Ok(());
                    }
                }
            }
            prop_assert!(false, "it never gave up");
        }
    }

    #[test]
    fn the_last_look_is_after_the_last_nap_and_health_comes_first() -> Result<()> {
        let looks = Cell::new(0);
        let poll = || {
            looks.set(looks.get() + 1);
            Ok((looks.get() == 3).then_some("found"))
        };
        let quick = policy(0, 0, (1, 1), None);
        assert_eq!(wait(&quick, WATCH, poll, || Ok(()))?, Waited::For("found"));
        let none = policy(0, 0, (1, 1), Some(0));
        let at_once = Cell::new(0);
        let never = || {
            at_once.set(at_once.get() + 1);
            Ok(None::<()>)
        };
        assert!(matches!(wait(&none, WATCH, never, || Ok(()))?, Waited::InVain(_)));
        assert_eq!(at_once.get(), 2, "once at the start, once after the decision");
        let sick = || Err(Error::Unsupported { feature: "a test", needs: "a device".into() });
        assert!(wait(&none, WATCH, || Ok(None::<()>), sick).is_err());
        assert!(
            wait(&policy(0, 0, (5000, 5000), None), WATCH, || Ok(None::<()>), sick).is_err(),
            "no time, and it ends"
        );
        Ok(())
    }
}
