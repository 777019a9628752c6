//! The thread that looks for long waits. The first wait of the process starts it. It never calls the driver.

use super::slot::{self, Seen, WaitSlot};
use super::{DEFAULT_LIMIT, SlowWait, SlowWaitHook};
use crate::error::callback::call_back;
use crate::error::forked;
use crate::error::told::told;
use crate::locks::Mutex;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::thread::{self, Thread};

/// In nanoseconds; 0 turns reports off.
static LIMIT: AtomicU64 = AtomicU64::new(DEFAULT_LIMIT.as_nanos() as u64);
static HOOK: Mutex<Option<SlowWaitHook>> = Mutex::new(None);
static RUNNING: AtomicBool = AtomicBool::new(false);
/// The watchdog's thread, which a change of the limit wakes.
static WATCHDOG: Mutex<Option<Thread>> = Mutex::new(None);

pub(super) fn set_hook(hook: Option<SlowWaitHook>) {
    if forked() {
        return;
    }
    let former = core::mem::replace(&mut *HOOK.lock(), hook);
    // Without the lock: the drop of what the hook owns may wait.
    drop(former);
}

pub(super) fn set_limit(limit: Option<Duration>) {
    let nanoseconds = limit.map_or(0, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).max(1_000_000));
    LIMIT.store(nanoseconds, Ordering::Relaxed);
    if forked() {
        return;
    }
    if let Some(thread) = &*WATCHDOG.lock() {
        thread.unpark();
    }
}

/// Starts the thread, unless it runs.
#[inline]
pub(super) fn ensure_running() {
    if !RUNNING.load(Ordering::Relaxed) {
        start();
    }
}

#[cold]
fn start() {
    if RUNNING.swap(true, Ordering::Relaxed) {
        return;
    }
    // Miri waits for all threads at the end of a test.
    if cfg!(miri) {
        return;
    }
    let started = thread::Builder::new().name("cuda-mem waits".into()).stack_size(128 << 10).spawn(run);
    match started {
        Ok(handle) => *WATCHDOG.lock() = Some(handle.thread().clone()),
        // No thread is available now. The next wait tries again.
        Err(_) => RUNNING.store(false, Ordering::Relaxed),
    }
}

#[expect(clippy::disallowed_methods, reason = "the watchdog watches, and nobody waits for it")]
fn run() {
    let mut reports = Reports::default();
    loop {
        let limit = LIMIT.load(Ordering::Relaxed);
        if limit == 0 {
            thread::park();
            continue;
        }
        thread::park_timeout(Duration::from_nanos(limit / 4));
        // It may have changed meanwhile.
        let limit = match LIMIT.load(Ordering::Relaxed) {
            0 => continue,
            limit => limit,
        };
        let slots: Vec<Arc<WaitSlot>> = slot::slots().clone();
        let now = slot::now();
        reports.begin_round();
        for slot in slots {
            let Some(seen) = slot.see() else { continue };
            let waited = now.saturating_sub(seen.since);
            if reports.is_due(Arc::as_ptr(&slot).addr(), &seen, waited, limit) {
                tell(&slot.report(&seen, Duration::from_nanos(waited)));
            }
        }
        reports.end_round();
    }
}

fn tell(wait: &SlowWait) {
    #[cfg(feature = "tracing")]
    let told_wait = wait.clone();
    told!("cuda_mem::waiting", WARN, call = told_wait.call, waited = ?told_wait.waited, "{told_wait}");
    let hook = HOOK.lock().clone();
    match hook {
        // A hook's panic must not end the watchdog. The panic has already printed its message.
        Some(hook) => drop(call_back(move || hook(wait))),
        // Not eprintln!: it panics if nobody reads stderr.
        None => drop(writeln!(std::io::stderr(), "cuda-mem: {wait}")),
    }
}

/// The reported waits, and when to report each of them again.
#[derive(Debug, Default)]
struct Reports {
    next: HashMap<usize, Reported>,
    seen: HashMap<usize, Reported>,
}

/// A wait that was reported. A later thread may have its slot, and the same sequence number.
#[derive(Clone, Copy, Debug)]
struct Reported {
    sequence: u64,
    since: u64,
    /// The nanoseconds after which the next report is due.
    due: u64,
}

impl Reports {
    fn begin_round(&mut self) {
        self.seen.clear();
    }

    /// Whether to report a wait now: at the limit, and then each time after twice as long.
    fn is_due(&mut self, slot: usize, seen: &Seen, waited: u64, limit: u64) -> bool {
        let is_same = |known: &&Reported| (known.sequence, known.since) == (seen.sequence, seen.since);
        let known = self.next.get(&slot).filter(is_same).copied();
        let is_due = waited >= known.map_or(limit, |known| known.due);
        let (sequence, since, due) = (seen.sequence, seen.since, waited.saturating_mul(2));
        let reported = if is_due { Some(Reported { sequence, since, due }) } else { known };
        if let Some(reported) = reported {
            self.seen.insert(slot, reported);
        }
        is_due
    }

    /// Forgets waits that have ended.
    fn end_round(&mut self) {
        core::mem::swap(&mut self.next, &mut self.seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_reports_a_wait_at_the_limit_and_at_each_doubling() {
        let mut reports = Reports::default();
        let mut round = |sequence: u64, waited: u64| {
            let seen = Seen::with_sequence(sequence);
            reports.begin_round();
            let is_due = reports.is_due(1, &seen, waited, 10);
            reports.end_round();
            is_due
        };
        assert_eq!(
            [9, 10, 12, 19, 20, 39, 41].map(|waited| round(2, waited)),
            [false, true, false, false, true, false, true]
        );
        // The thread's next wait.
        assert_eq!([5, 11].map(|waited| round(4, waited)), [false, true]);
    }

    #[test]
    fn a_new_limit_is_in_force_for_waits_under_way() {
        let (mut reports, seen) = (Reports::default(), Seen::with_sequence(2));
        let mut round = |waited, limit| {
            reports.begin_round();
            let is_due = reports.is_due(1, &seen, waited, limit);
            reports.end_round();
            is_due
        };
        assert!(!round(10, 1000) && round(11, 10));
    }

    #[test]
    fn what_is_over_is_forgotten() {
        let mut reports = Reports::default();
        reports.begin_round();
        assert!(reports.is_due(1, &Seen::with_sequence(2), 10, 10));
        reports.end_round();
        reports.begin_round();
        reports.end_round();
        assert!(reports.next.is_empty());
    }
}
