//! How much queued work of a context waits for the CPU.
//!
//! Some calls of the driver wait for all work of a context, and hold the context's lock meanwhile: frees that are not in
//! stream order, the end of a registration, loading a kernel, cuCtxSynchronize. Queued work may itself wait for the CPU: a
//! host function that has not returned, a stream that waits for a flag. Such a call would then wait for a thread that may be
//! waiting for the lock, or that is the caller. So each side excludes the other: a call that waits for all work begins
//! only in a quiet moment, when no queued work waits for the CPU; and work that waits for the CPU is queued only while no
//! such call goes on. Nobody waits here for the CPU but who asks to.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a wait for a quiet moment asks whether that can still come.
const HEARTBEAT: Duration = Duration::from_millis(50);

/// The count, one for each context of the driver.
#[derive(Debug, Default)]
pub(crate) struct CpuReleased {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The numbers of what waits for the CPU.
    pending: BTreeSet<u64>,
    next: u64,
    /// How many calls that wait for all work go on.
    device_waits: usize,
}

/// Queued work that waits for the CPU. It may end on any thread, also where the driver must not be called.
#[derive(Debug)]
pub(crate) struct Pending {
    of: Arc<CpuReleased>,
    number: u64,
}

/// A call that waits for all work goes on while this lives.
#[derive(Debug)]
pub(crate) struct DeviceWait<'released>(&'released CpuReleased);

impl CpuReleased {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces work that waits for the CPU, before it is queued. A call that waits for all work ends first: it waits for
    /// nothing that the CPU must do.
    pub fn begin(self: &Arc<Self>) -> Pending {
        let state = self.lock();
        let calls_go_on = |state: &mut State| state.device_waits > 0;
        let mut state = self.changed.wait_while(state, calls_go_on).unwrap_or_else(PoisonError::into_inner);
        let number = state.next;
        state.next += 1;
        state.pending.insert(number);
        Pending { of: self.clone(), number }
    }

    /// Whether queued work waits for the CPU now.
    pub fn is_pending(&self) -> bool {
        !self.lock().pending.is_empty()
    }

    /// Lets a call that waits for all work begin, if this is a quiet moment.
    pub fn enter(&self) -> Option<DeviceWait<'_>> {
        let mut state = self.lock();
        if !state.pending.is_empty() {
            return None;
        }
        state.device_waits += 1;
        Some(DeviceWait(self))
    }

    /// The same after what waits for the CPU now. There may be more of it then, and no quiet moment: what has been queued
    /// meanwhile is not waited for. Gives up when `can_come` says that nothing comes any more.
    pub fn enter_after_pending(&self, can_come: impl Fn() -> bool) -> Option<DeviceWait<'_>> {
        let mut state = self.lock();
        let now = state.next;
        while state.pending.first().is_some_and(|first| *first < now) {
            let waited = self.changed.wait_timeout(state, HEARTBEAT).unwrap_or_else(PoisonError::into_inner);
            if waited.1.timed_out() {
                // Asked without the lock: it calls the driver.
                drop(waited);
                if !can_come() {
                    return None;
                }
                state = self.lock();
            } else {
                state = waited.0;
            }
        }
        drop(state);
        self.enter()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.of.lock().pending.remove(&self.number);
        self.of.changed.notify_all();
    }
}

impl Drop for DeviceWait<'_> {
    fn drop(&mut self) {
        self.0.lock().device_waits -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;

    #[test]
    fn a_wait_for_all_work_begins_only_in_a_quiet_moment() {
        let released = Arc::new(CpuReleased::default());
        let (one, other) = (released.begin(), released.begin());
        assert!(released.enter().is_none());
        drop(one);
        assert!(released.enter().is_none());
        drop(other);
        let first = released.enter();
        // Waits do not exclude each other.
        assert!(first.is_some() && released.enter().is_some());
    }

    #[test]
    fn work_that_waits_for_the_cpu_is_queued_after_a_wait_for_all_work() {
        let released = Arc::new(CpuReleased::default());
        let wait = released.enter();
        let (done, seen) = channel();
        thread::scope(|threads| {
            threads.spawn(|| {
                let pending = released.begin();
                done.send(()).unwrap();
                drop(pending);
            });
            assert!(seen.recv_timeout(Duration::from_millis(50)).is_err());
            drop(wait);
            assert!(seen.recv_timeout(Duration::from_secs(10)).is_ok());
        });
    }

    #[test]
    fn what_is_queued_during_a_wait_is_not_waited_for() {
        let released = Arc::new(CpuReleased::default());
        let earlier = released.begin();
        thread::scope(|threads| {
            let waiter = threads.spawn(|| released.enter_after_pending(|| true).is_some());
            thread::sleep(Duration::from_millis(20));
            let later = released.begin();
            drop(earlier);
            assert!(!waiter.join().unwrap());
            drop(later);
        });
        assert!(released.enter_after_pending(|| true).is_some());
    }

    #[test]
    fn a_wait_ends_when_nothing_comes_any_more() {
        let released = Arc::new(CpuReleased::default());
        let never = released.begin();
        assert!(released.enter_after_pending(|| false).is_none());
        drop(never);
    }
}
