//! Keeps calls that wait for a whole context apart from queued work that waits for the CPU.
//!
//! Some driver calls wait for all work of a context and hold the context's lock meanwhile: frees outside of stream
//! order, the end of a registration, loading a kernel. cuCtxSynchronize waits without the lock. Queued work may itself wait for the CPU: a
//! host function that has not returned, a stream that waits for a flag. The driver call would then wait for its own
//! caller, or for a thread that waits for the lock. So the two exclude each other: such a call needs a [`Quiet`], which
//! exists only while no queued work waits for the CPU, and such work is queued only while no [`Quiet`] exists. Only
//! [`QuietRegister::enter_after_waits`] waits for the CPU.

use crate::lifetime::waiting::{self, Target};
use crate::locks::{Condvar, Held, Kind, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often a waiting [`QuietRegister::enter_after_waits`] calls `can_come`.
const HEARTBEAT: Duration = Duration::from_millis(50);

/// The register of one driver context.
#[derive(Debug, Default)]
pub(crate) struct QuietRegister {
    state: Mutex<WaitRegister>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WaitRegister {
    /// The queued work that waits for the CPU: its number, and the driver's handle of its stream.
    waits: BTreeMap<u64, usize>,
    next: u64,
    /// Number of running calls that wait for all work.
    device_waits: usize,
}

/// Queued work that waits for the CPU. Any thread may drop it, even where it must not call the driver.
#[derive(Debug)]
pub(crate) struct CpuWait {
    of: Arc<QuietRegister>,
    number: u64,
}

/// Admits a call that waits for all work, while it lives.
#[derive(Debug)]
pub(crate) struct Quiet<'register> {
    of: &'register QuietRegister,
    _held: Held,
}

impl QuietRegister {
    fn lock(&self) -> MutexGuard<'_, WaitRegister> {
        self.state.lock()
    }

    /// Announces work that waits for the CPU, before it is queued. First waits for the running calls that wait for all
    /// work: they need nothing from the CPU.
    pub fn begin(self: &Arc<Self>, stream: usize) -> CpuWait {
        let state = self.lock();
        let calls_go_on = |state: &mut WaitRegister| state.device_waits > 0;
        let call = &"queuing work that waits for the CPU";
        let mut state = waiting::wait_while(call, Target::THREAD, &self.changed, state, calls_go_on);
        let number = state.next;
        state.next += 1;
        state.waits.insert(number, stream);
        CpuWait { of: self.clone(), number }
    }

    /// Whether queued work waits for the CPU now.
    pub fn has_waits(&self) -> bool {
        !self.lock().waits.is_empty()
    }

    /// The streams of that work, by the driver's handles.
    pub fn streams(&self) -> Vec<usize> {
        self.lock().waits.values().copied().collect()
    }

    /// Lets a call that waits for all work begin. None while queued work waits for the CPU.
    pub fn enter(&self) -> Option<Quiet<'_>> {
        let mut state = self.lock();
        if !state.waits.is_empty() {
            return None;
        }
        state.device_waits += 1;
        Some(Quiet { of: self, _held: Held::new(Kind::Gate) })
    }

    /// Waits until the work that waits for the CPU now has gone on, and lets a call that waits for all work begin.
    /// `None` if more such work was queued meanwhile, or if `can_come` returns `false`: this work will never go on.
    pub fn enter_after_waits(&self, can_come: impl Fn() -> bool) -> Option<Quiet<'_>> {
        let mut state = self.lock();
        let now = state.next;
        while state.waits.first_key_value().is_some_and(|(first, _)| *first < now) {
            let (locked, timed_out) = self.changed.wait_timeout(state, HEARTBEAT);
            state = locked;
            if timed_out {
                // Without the lock: `can_come` calls the driver.
                drop(state);
                if !can_come() {
                    return None;
                }
                state = self.lock();
            }
        }
        drop(state);
        self.enter()
    }
}

impl Drop for CpuWait {
    fn drop(&mut self) {
        self.of.lock().waits.remove(&self.number);
        self.of.changed.notify_all();
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.of.lock().device_waits -= 1;
        self.of.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;

    #[test]
    fn a_wait_for_all_work_begins_only_in_a_quiet_moment() {
        let register = Arc::new(QuietRegister::default());
        let (one, other) = (register.begin(0), register.begin(0));
        assert!(register.enter().is_none());
        drop(one);
        assert!(register.enter().is_none());
        drop(other);
        let first = register.enter();
        // Calls that wait for all work do not exclude each other.
        assert!(first.is_some() && register.enter().is_some());
    }

    #[test]
    fn work_that_waits_for_the_cpu_is_queued_after_a_quiet_wait() {
        let register = Arc::new(QuietRegister::default());
        let wait = register.enter();
        let (done, seen) = channel();
        thread::scope(|threads| {
            threads.spawn(|| {
                let pending = register.begin(0);
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
        let register = Arc::new(QuietRegister::default());
        let earlier = register.begin(0);
        thread::scope(|threads| {
            let (waits, seen) = channel();
            let register = &register;
            let waiter = threads.spawn(move || register.enter_after_waits(|| waits.send(()).is_ok()).is_some());
            seen.recv().unwrap();
            let later = register.begin(0);
            drop(earlier);
            assert!(!waiter.join().unwrap());
            drop(later);
        });
        assert!(register.enter_after_waits(|| true).is_some());
    }

    #[test]
    fn a_wait_ends_when_nothing_comes_any_more() {
        let register = Arc::new(QuietRegister::default());
        let never = register.begin(0);
        assert!(register.enter_after_waits(|| false).is_none());
        drop(never);
    }
}
