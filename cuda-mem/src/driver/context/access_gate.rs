//! Keeps work that uses access between devices apart from changes of that access.
//!
//! An answer "this device has access" must hold until the work is queued for which it was asked. So the work is queued
//! inside the gate, where only driver calls are made. So are copies that need no access: the driver (580.159) breaks the
//! context of a copy that is queued while access changes, and of one that runs while access is taken back.
//!
//! Access is given only while nobody is inside. It is taken back only while nobody is inside, and only if nobody was inside
//! since the work of both devices was awaited.

use crate::lifetime::waiting::{self, Target};
use crate::locks::{Held, Kind};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

/// Set while access changes.
const CLOSED: u64 = 1 << 63;
/// The bits that count the threads inside.
const INSIDE: u64 = ENTRY - 1;
/// The bits between count all entries: at one each microsecond, they last for four years.
const ENTRY: u64 = 1 << 16;

const AWAITED: &str = "the end of access between devices on another thread";

#[derive(Debug, Default)]
pub(crate) struct AccessGate {
    word: AtomicU64,
    /// For how many milliseconds entries are held back.
    held_back: AtomicU32,
}

/// The entries up to a moment in which nobody was inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entries(u64);

impl AccessGate {
    /// Keeps access as it is while the result lives. Only driver calls that queue work may be made meanwhile.
    #[inline]
    pub fn enter(&self) -> Entered<'_> {
        #[cfg(test)]
        if let Some(meanwhile) = BEFORE_ENTRY.take() {
            meanwhile();
        }
        if self.held_back.load(Ordering::Relaxed) != 0 {
            self.wait_a_while();
        }
        while self.word.fetch_add(ENTRY + 1, Ordering::Acquire) & CLOSED != 0 {
            self.word.fetch_sub(ENTRY + 1, Ordering::Relaxed);
            self.wait(|word| word & CLOSED == 0);
        }
        Entered { gate: self, _held: Held::new(Kind::Gate) }
    }

    /// The entries so far. None if somebody is inside.
    pub fn entries(&self) -> Option<Entries> {
        let word = self.word.load(Ordering::Acquire);
        (word & (CLOSED | INSIDE) == 0).then_some(Entries(word))
    }

    /// Waits until nobody is inside. Those who are only queue work.
    pub fn wait_until_idle(&self) -> Entries {
        loop {
            self.wait(|word| word & (CLOSED | INSIDE) == 0);
            if let Some(entries) = self.entries() {
                return entries;
            }
        }
    }

    /// Keeps everybody out while the result lives. None if somebody has entered since.
    pub fn close(&self, since: Entries) -> Option<Closed<'_>> {
        let closed = self.word.compare_exchange(since.0, since.0 | CLOSED, Ordering::Acquire, Ordering::Relaxed);
        // Not then_some: the drop of an unneeded `Closed` would open the gate that another thread closed.
        closed.is_ok().then(|| Closed { gate: self, _held: Held::new(Kind::Gate) })
    }

    /// Waits until nobody is inside, and keeps everybody out while the result lives. Repeats the wait if somebody
    /// enters in between.
    pub fn close_when_idle(&self) -> Closed<'_> {
        loop {
            let entries = self.wait_until_idle();
            if let Some(closed) = self.close(entries) {
                return closed;
            }
        }
    }

    /// Lets entries wait while the result lives, each at most for a time, which doubles with each round. None waits for
    /// ever, because the device's work may itself wait for the thread that copies.
    pub fn hold_back(&self, round: u32) -> HeldBack<'_> {
        self.held_back.store(1 << round.min(20), Ordering::Relaxed);
        HeldBack { gate: self, _held: Held::new(Kind::Gate) }
    }

    #[cold]
    fn wait_a_while(&self) {
        let limit = Duration::from_millis(self.held_back.load(Ordering::Relaxed).into());
        let is_over = || Ok((self.held_back.load(Ordering::Relaxed) == 0).then_some(()));
        // The end of the time is no error.
        let _ = waiting::look(&AWAITED, Target::THREAD, limit, is_over);
    }

    #[cold]
    fn wait(&self, is_over: impl Fn(u64) -> bool) {
        let is_over = || Ok(is_over(self.word.load(Ordering::Acquire)).then_some(()));
        // No limit, and no error.
        let _ = waiting::look(&AWAITED, Target::THREAD, Duration::MAX, is_over);
    }
}

#[cfg(test)]
thread_local! {
    /// What happens before this thread's next entry, after it was told of access.
    pub(crate) static BEFORE_ENTRY: core::cell::Cell<Option<Box<dyn FnOnce()>>> = const { core::cell::Cell::new(None) };
}

/// Keeps access as it is while it lives.
#[must_use = "access stays only while this lives"]
#[derive(Debug)]
pub(crate) struct Entered<'gate> {
    gate: &'gate AccessGate,
    _held: Held,
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.word.fetch_sub(1, Ordering::Release);
    }
}

/// Keeps everybody out while it lives.
#[must_use = "the gate is closed only while this lives"]
pub(crate) struct Closed<'gate> {
    gate: &'gate AccessGate,
    _held: Held,
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.gate.word.fetch_and(!CLOSED, Ordering::Release);
    }
}

/// Lets entries wait for a while.
#[must_use = "entries wait only while this lives"]
pub(crate) struct HeldBack<'gate> {
    gate: &'gate AccessGate,
    _held: Held,
}

impl Drop for HeldBack<'_> {
    fn drop(&mut self) {
        self.gate.held_back.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicUsize;
    use std::thread;
    use std::time::Instant;

    #[test]
    fn the_gate_closes_only_if_nobody_entered_since() {
        let gate = AccessGate::default();
        let before = gate.wait_until_idle();
        let inside = gate.enter();
        assert!(gate.close(before).is_none() && gate.entries().is_none());
        drop((gate.enter(), inside));
        assert!(gate.close(before).is_none(), "two have been inside meanwhile");
        let now = gate.wait_until_idle();
        let closed = gate.close(now);
        assert!(closed.is_some() && gate.close(now).is_none() && gate.entries().is_none());
        drop(closed);
        assert_eq!(gate.entries(), Some(now), "the refusal opened the gate");
        assert!(gate.close(now).is_some());
    }

    #[test]
    fn entries_that_are_held_back_go_on_after_a_while() {
        let gate = AccessGate::default();
        let held_back = gate.hold_back(3);
        let begun = Instant::now();
        drop(gate.enter());
        assert!(begun.elapsed() >= Duration::from_millis(8));
        drop(held_back);
        assert_eq!(gate.held_back.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn nobody_is_inside_while_access_is_taken_back() {
        let rounds = if cfg!(miri) { 30 } else { 10_000 };
        let (gate, inside, closed) = (AccessGate::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let entries = gate.wait_until_idle();
                        if let Some(_closed) = gate.close(entries) {
                            assert_eq!(inside.load(Ordering::SeqCst), 0);
                            assert_eq!(closed.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                            closed.fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                });
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let _entered = gate.enter();
                        inside.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(closed.load(Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
    }
}
