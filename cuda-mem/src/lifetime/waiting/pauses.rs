//! The few ways in which this crate waits. Everything else that waits goes through here, so that the watchdog sees it:
//! clippy.toml forbids the functions that wait.

use super::{Target, slot};
use crate::Result;
use crate::locks;
use crate::locks::{Condvar, MutexGuard};
use core::time::Duration;
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// A wait is not worth a sleep, or a note for the watchdog, before this time.
const SHORT: Duration = Duration::from_micros(50);
/// The first and the longest pause between two looks.
const NAPS: (Duration, Duration) = (Duration::from_micros(10), Duration::from_millis(1));

/// Makes a call that may wait for the target.
#[track_caller]
pub(crate) fn during<R>(call: &'static &'static str, target: Target, wait: impl FnOnce() -> R) -> R {
    let _watched = slot::enter(call, target);
    wait()
}

/// Makes a driver call that clippy.toml lists as one that waits, and watches it under the call's name.
macro_rules! watched {
    ($target:expr, $driver:ident . $function:ident ( $($argument:expr),* $(,)? )) => {{
        let _watched = $crate::lifetime::waiting::enter(&stringify!($function), $target);
        #[expect(clippy::disallowed_methods, reason = "watched")]
        let done = $crate::error::call!($driver.$function($($argument),*));
        done
    }};
}
pub(crate) use watched;

/// Sleeps, within a wait that is watched.
#[track_caller]
pub(crate) fn nap(length: Duration) {
    locks::check_may_wait("a pause");
    #[expect(clippy::disallowed_methods, reason = "the one sleep of watched waits")]
    thread::sleep(length);
}

/// Waits for the end of a thread.
pub(crate) fn join<R>(call: &'static &'static str, thread: JoinHandle<R>) -> thread::Result<R> {
    #[expect(clippy::disallowed_methods, reason = "watched")]
    during(call, Target::THREAD, || thread.join())
}

/// Waits for a condition variable while the condition is true.
pub(crate) fn wait_while<'state, T>(
    call: &'static &'static str,
    target: Target,
    changed: &Condvar,
    mut state: MutexGuard<'state, T>,
    condition: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'state, T> {
    let mut condition = condition;
    if !condition(&mut state) {
        return state;
    }
    let _watched = slot::enter_with_lock(call, target);
    changed.wait_while(state, condition)
}

/// Calls `find` until it returns something, with pauses that grow. None after the time limit.
#[track_caller]
pub(crate) fn look<R>(
    call: &'static &'static str,
    target: Target,
    limit: Duration,
    mut find: impl FnMut() -> Result<Option<R>>,
) -> Result<Option<R>> {
    locks::check_may_wait(call);
    let (start, mut pause, mut watched) = (Instant::now(), NAPS.0, None);
    loop {
        let found = find()?;
        let waited = start.elapsed();
        if found.is_some() || waited >= limit {
            return Ok(found);
        }
        if waited > SHORT {
            watched.get_or_insert_with(|| slot::enter(call, target));
            nap(pause.min(limit - waited));
            pause = (pause * 2).min(NAPS.1);
        }
    }
}

/// Calls `is_done` until it returns true, with pauses that grow.
#[track_caller]
pub(crate) fn pause_until(call: &'static &'static str, target: Target, mut is_done: impl FnMut() -> bool) {
    let forever = Duration::MAX;
    let _ = look(call, target, forever, || Ok(is_done().then_some(())));
}
