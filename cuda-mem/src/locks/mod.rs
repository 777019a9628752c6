//! The locks of this crate.
//!
//! Three rules keep them from deadlocks:
//!
//! - No lock is held while code of the program runs: hooks, host functions, the program's resources, drops of its values.
//! - No wait begins under a lock, except the wait of a condition variable, which releases its own.
//! - A forked child takes no lock, because a thread of its parent may have held it.
//!
//! Each thread counts what it holds. Code of the program that is due meanwhile runs later (`later.rs`). Debug builds check
//! the first rule in `error/callback.rs`, the second in [`waiting`](crate::waiting), through which all waits go, and the
//! third where a lock is taken. So all locks are of the types in this module; clippy.toml forbids those of the standard
//! library. They know no poisoning: a panic under a lock leaves complete data, or data that it does no harm to use.

#![allow(clippy::disallowed_types, reason = "the types that replace them")]

pub(crate) mod later;

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

/// Set in a child that was forked after the driver was loaded.
pub(crate) static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether this process was forked after the driver was loaded. Drops then do nothing: the parent owns everything.
#[inline]
pub(crate) fn forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// What a thread holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A lock, which other threads wait for.
    Lock,
    /// Something else that keeps other threads from their work: captures are kept out, or queued work that waits for the
    /// CPU, or the begin of a capture. Waits are allowed, code of the program is not.
    Gate,
    /// The lock of one object of the C library, under which its call may wait and call the program. Only what is due waits.
    Turn,
}

/// Counts one lock or gate of this thread while it lives. At the end of the last one, the code of the program runs that
/// was due meanwhile. So its owner frees the lock or the gate before it drops this.
#[derive(Debug)]
pub struct Held {
    #[cfg(debug_assertions)]
    kind: Kind,
    #[cfg(debug_assertions)]
    place: &'static core::panic::Location<'static>,
    /// Not `Send`: each thread has its own counts.
    on_this_thread: PhantomData<*const ()>,
}

thread_local! {
    /// How many locks and gates the thread holds. It has no destructor, so it serves a thread that ends, too.
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// Whether this thread holds no lock and no gate.
#[inline]
pub(crate) fn holds_nothing() -> bool {
    NUMBER.get() == 0
}

/// Where this thread took what it holds, in debug builds.
#[cfg(debug_assertions)]
mod places {
    use super::{Kind, NUMBER};
    use core::cell::Cell;
    use core::panic::Location;

    /// More than these places are counted, but not named.
    const NAMED: usize = 16;

    type Places = [Option<(Kind, &'static Location<'static>)>; NAMED];

    thread_local! {
        static PLACES: Cell<Places> = const { Cell::new([None; NAMED]) };
    }

    pub fn add(kind: Kind, place: &'static Location<'static>) {
        let mut places = PLACES.get();
        if let Some(free) = places.get_mut(NUMBER.get()) {
            *free = Some((kind, place));
        }
        PLACES.set(places);
    }

    pub fn remove(kind: Kind, place: &'static Location<'static>) {
        let mut places = PLACES.get();
        if let Some(at) = places.iter().rposition(|found| *found == Some((kind, place))) {
            places[at..].rotate_left(1);
            places[NAMED - 1] = None;
        }
        PLACES.set(places);
    }

    /// Panics if this thread holds more than `allowed` of these kinds.
    #[track_caller]
    pub fn check(kinds: &[Kind], allowed: usize, what: &str) {
        let places = PLACES.get();
        let held = places.iter().flatten().filter(|(kind, _)| kinds.contains(kind));
        let found: Vec<_> = held.map(|(kind, place)| format!("a {kind:?} of {place}")).collect();
        // A second panic would end the process and hide the first.
        assert!(found.len() <= allowed || std::thread::panicking(), "{what} while this thread holds {found:?}");
    }
}

impl Held {
    /// Begins to count.
    #[inline]
    #[track_caller]
    pub fn new(kind: Kind) -> Self {
        #[cfg(debug_assertions)]
        let place = core::panic::Location::caller();
        #[cfg(debug_assertions)]
        places::add(kind, place);
        #[cfg(not(debug_assertions))]
        let _ = kind;
        NUMBER.set(NUMBER.get() + 1);
        Self {
            #[cfg(debug_assertions)]
            kind,
            #[cfg(debug_assertions)]
            place,
            on_this_thread: PhantomData,
        }
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        NUMBER.set(NUMBER.get() - 1);
        #[cfg(debug_assertions)]
        places::remove(self.kind, self.place);
        if holds_nothing() {
            later::run_due();
        }
    }
}

/// In debug builds, panics if this thread holds a lock or a gate: code of the program is about to run.
#[inline]
#[track_caller]
pub(crate) fn check_nothing_held() {
    #[cfg(debug_assertions)]
    places::check(&[Kind::Lock, Kind::Gate], 0, "code of the program runs");
}

/// In debug builds, panics if this thread holds a lock: a wait is about to begin.
#[inline]
#[track_caller]
pub(crate) fn check_may_wait(call: &str) {
    #[cfg(debug_assertions)]
    places::check(&[Kind::Lock], 0, call);
    #[cfg(not(debug_assertions))]
    let _ = call;
}

/// In debug builds, panics in a forked child, whose parent may have held the lock: the call must find out before.
#[inline]
#[track_caller]
fn check_may_lock() {
    #[cfg(debug_assertions)]
    assert!(!forked() || std::thread::panicking(), "a forked child takes a lock");
}

/// In debug builds, panics if this thread holds a lock besides the newest, which the wait that is about to begin
/// releases.
#[inline]
#[track_caller]
fn check_may_wait_with_own(call: &str) {
    #[cfg(debug_assertions)]
    places::check(&[Kind::Lock], 1, call);
    #[cfg(not(debug_assertions))]
    let _ = call;
}

/// As the standard library's, without poisoning.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

#[derive(Debug)]
pub struct MutexGuard<'lock, T: ?Sized> {
    guard: std::sync::MutexGuard<'lock, T>,
    held: Held,
}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        check_may_lock();
        let guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        MutexGuard { guard, held: Held::new(Kind::Lock) }
    }

    /// None while another thread holds the lock.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = match self.0.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { guard, held: Held::new(Kind::Lock) })
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without the value: the formatter may be the program's, and run its code under the lock.
impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// As the standard library's, without poisoning.
#[derive(Default)]
pub(crate) struct RwLock<T>(std::sync::RwLock<T>);

/// The guard of a [`RwLock`], shared or exclusive by its type `G`.
#[derive(Debug)]
pub(crate) struct RwLockGuard<G> {
    guard: G,
    _held: Held,
}

impl<T> RwLock<T> {
    pub const fn new(value: T) -> Self {
        Self(std::sync::RwLock::new(value))
    }

    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockGuard<std::sync::RwLockReadGuard<'_, T>> {
        check_may_lock();
        let guard = self.0.read().unwrap_or_else(PoisonError::into_inner);
        RwLockGuard { guard, _held: Held::new(Kind::Lock) }
    }

    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockGuard<std::sync::RwLockWriteGuard<'_, T>> {
        check_may_lock();
        let guard = self.0.write().unwrap_or_else(PoisonError::into_inner);
        RwLockGuard { guard, _held: Held::new(Kind::Lock) }
    }
}

/// As a [`Mutex`]'s.
impl<T> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RwLock")
    }
}

impl<G: Deref> Deref for RwLockGuard<G> {
    type Target = G::Target;

    #[inline]
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for RwLockGuard<G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// As the standard library's. [`waiting`](crate::waiting) watches its waits.
#[derive(Debug, Default)]
pub(crate) struct Condvar(std::sync::Condvar);

impl Condvar {
    pub const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    /// Waits while the condition is true. Not watched: [`wait_while`](crate::lifetime::waiting) is.
    pub fn wait_while<'lock, T>(
        &self,
        state: MutexGuard<'lock, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'lock, T> {
        check_may_wait_with_own("a wait for another thread begins");
        let MutexGuard { guard, held } = state;
        #[expect(clippy::disallowed_methods, reason = "the one wait while a condition is true")]
        let guard = self.0.wait_while(guard, condition).unwrap_or_else(PoisonError::into_inner);
        MutexGuard { guard, held }
    }

    /// Waits for a notification. Whether the time was over before it came.
    pub fn wait_timeout<'lock, T>(&self, state: MutexGuard<'lock, T>, limit: Duration) -> (MutexGuard<'lock, T>, bool) {
        check_may_wait_with_own("a wait for another thread begins");
        let MutexGuard { guard, held } = state;
        #[expect(clippy::disallowed_methods, reason = "the one wait with a time limit")]
        let (guard, over) = self.0.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner);
        (MutexGuard { guard, held }, over.timed_out())
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of the panic of a check, if it panics.
    fn text(check: impl FnOnce() + std::panic::UnwindSafe) -> Option<String> {
        let payload = std::panic::catch_unwind(check).err()?;
        payload.downcast_ref::<String>().cloned()
    }

    #[test]
    fn a_wait_under_a_lock_names_the_locks_place() {
        let lock = Mutex::new(1);
        assert_eq!(text(|| check_may_wait("cuCtxSynchronize begins")), None);
        let guard = lock.lock();
        let found = text(|| check_may_wait("cuCtxSynchronize begins")).expect("a lock is held");
        assert!(found.starts_with("cuCtxSynchronize begins while") && found.contains("locks/mod.rs:"), "{found}");
        drop(guard);
        assert_eq!(text(|| check_may_wait("cuCtxSynchronize begins")), None);
    }

    #[test]
    fn code_of_the_program_runs_under_no_lock_and_no_gate() {
        for kind in [Kind::Lock, Kind::Gate] {
            let held = Held::new(kind);
            assert!(text(check_nothing_held).is_some());
            drop(held);
            assert_eq!(text(check_nothing_held), None);
        }
        let shared = RwLock::new(());
        let (one, two) = (shared.read(), shared.read());
        assert!(text(check_nothing_held).is_some());
        drop((one, two));
        drop(shared.write());
        assert_eq!(text(check_nothing_held), None);
    }

    #[test]
    fn a_condition_variable_waits_under_its_own_lock_only() {
        let (lock, other, changed) = (Mutex::new(0), Mutex::new(0), Condvar::new());
        let (_own, over) = changed.wait_timeout(lock.lock(), Duration::from_millis(1));
        assert!(over);
        let outer = other.lock();
        let wait = || drop(changed.wait_while(Mutex::new(0).lock(), |_| false));
        assert!(text(std::panic::AssertUnwindSafe(wait)).is_some());
        drop(outer);
    }

    #[test]
    fn a_formatter_of_a_lock_runs_without_it() {
        struct Takes<'lock>(&'lock Mutex<u8>);
        impl fmt::Write for Takes<'_> {
            fn write_str(&mut self, _text: &str) -> fmt::Result {
                self.0.try_lock().map(drop).ok_or(fmt::Error)
            }
        }
        let lock = Mutex::new(7);
        assert_eq!(fmt::write(&mut Takes(&lock), format_args!("{lock:?}")), Ok(()));
    }

    #[test]
    fn a_held_lock_is_not_waited_for_by_a_try() {
        let lock = Mutex::new(7);
        let guard = lock.lock();
        std::thread::scope(|scope| scope.spawn(|| assert!(lock.try_lock().is_none())).join()).expect("no panic");
        drop(guard);
        assert_eq!(lock.try_lock().map(|guard| *guard), Some(7));
    }
}
