//! What each thread waits for now, in a form that the watchdog can read.
//!
//! A wait costs its thread a few plain stores. The watchdog reads the fields without a lock. A sequence number, which
//! is odd while the fields change and new afterwards, tells it whether what it read belongs together.

use super::{SignalTarget, SlowWait, Target, What, this_thread, watchdog};
use crate::error::forked;
use crate::locks;
use crate::locks::{Mutex, MutexGuard};
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
use core::time::Duration;
use std::sync::Arc;

/// One thread's wait. Only that thread writes it.
#[derive(Debug)]
pub(super) struct WaitSlot {
    thread: Box<str>,
    /// Odd while the fields change.
    sequence: AtomicU64,
    /// Time at which the wait began, 0 outside of waits.
    since: AtomicU64,
    call: AtomicPtr<&'static str>,
    doing: AtomicPtr<&'static str>,
    what: AtomicU8,
    stream: AtomicUsize,
    context: (AtomicUsize, AtomicU64),
    device: AtomicI32,
    /// Number, comparison and value of [`SignalTarget`].
    signal: (AtomicU64, AtomicU8, AtomicU64),
}

/// A wait as the watchdog read it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    /// Distinguishes the waits of all threads.
    pub sequence: u64,
    pub since: u64,
    call: &'static str,
    doing: Option<&'static str>,
    target: Target,
}

/// The slots of all running threads that have waited at least once.
static SLOTS: Mutex<Vec<Arc<WaitSlot>>> = Mutex::new(Vec::new());

pub(super) fn slots() -> MutexGuard<'static, Vec<Arc<WaitSlot>>> {
    SLOTS.lock()
}

/// This thread's slot. The end of the thread removes it from the list.
struct Own(Arc<WaitSlot>);

impl Own {
    fn new() -> Self {
        let slot = Arc::new(WaitSlot::new(this_thread()));
        slots().push(slot.clone());
        Self(slot)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if !forked() {
            slots().retain(|slot| !Arc::ptr_eq(slot, &self.0));
        }
    }
}

thread_local! {
    static OWN: Own = Own::new();
}

/// The system's monotonic clock in nanoseconds, exact to a few milliseconds; never 0.
pub(super) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable. The coarse clock needs no system call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut time) };
    (time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64).max(1)
}

/// Makes the thread's wait visible to the watchdog while it lives. It stays on its thread.
#[derive(Debug)]
pub(crate) struct Watched {
    is_visible: bool,
    /// In a box, because waits within waits are rare.
    outer: Option<Box<SlotFields>>,
    on_this_thread: PhantomData<*const ()>,
}

/// A wait. The end of an inner wait restores the outer one.
#[derive(Clone, Copy, Debug)]
struct SlotFields {
    since: u64,
    call: *mut &'static str,
    target: Target,
}

/// Begins a wait of this thread, which holds no lock.
#[track_caller]
pub(crate) fn enter(call: &'static &'static str, target: Target) -> Watched {
    locks::check_may_wait(call);
    enter_with_lock(call, target)
}

/// Begins a wait of this thread for a condition variable, which releases the variable's lock. The thread holds no other
/// lock.
pub(super) fn enter_with_lock(call: &'static &'static str, target: Target) -> Watched {
    if forked() {
        // No thread watches here, and the list of slots may be locked for ever.
        return Watched { is_visible: false, outer: None, on_this_thread: PhantomData };
    }
    // A thread that is ending has no slot any more, so its waits are not watched.
    let begun = OWN.try_with(|own| own.0.begin(now(), ptr::from_ref(call).cast_mut(), &target));
    watchdog::ensure_running();
    Watched { is_visible: begun.is_ok(), outer: begun.unwrap_or_default(), on_this_thread: PhantomData }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.is_visible {
            let _ = OWN.try_with(|own| own.0.end(self.outer.take()));
        }
    }
}

/// Makes the purpose of the thread's waits visible while it lives.
pub(super) struct Named {
    is_outermost: bool,
    on_this_thread: PhantomData<*const ()>,
}

/// Names what this thread is doing, unless an outer call has named it.
pub(super) fn name(doing: &'static &'static str) -> Named {
    let is_outermost = !forked()
        && OWN
            .try_with(|own| {
                let is_outermost = own.0.doing.load(Ordering::Relaxed).is_null();
                if is_outermost {
                    own.0.doing.store(ptr::from_ref(doing).cast_mut(), Ordering::Relaxed);
                }
                is_outermost
            })
            .unwrap_or(false);
    Named { is_outermost, on_this_thread: PhantomData }
}

impl Drop for Named {
    fn drop(&mut self) {
        if self.is_outermost {
            let _ = OWN.try_with(|own| own.0.doing.store(ptr::null_mut(), Ordering::Relaxed));
        }
    }
}

impl WaitSlot {
    fn new(thread: Box<str>) -> Self {
        // No two slots share sequence numbers: a slot may lie where that of an ended thread lay.
        static SLOTS: AtomicU64 = AtomicU64::new(0);
        Self {
            thread,
            sequence: AtomicU64::new(SLOTS.fetch_add(1, Ordering::Relaxed) << 40),
            since: AtomicU64::new(0),
            call: AtomicPtr::new(ptr::null_mut()),
            doing: AtomicPtr::new(ptr::null_mut()),
            what: AtomicU8::new(0),
            stream: AtomicUsize::new(0),
            context: Default::default(),
            device: AtomicI32::new(0),
            signal: Default::default(),
        }
    }

    /// Begins a wait, and returns the one that it is part of. Called only by the slot's thread, as all that writes.
    #[inline]
    fn begin(&self, since: u64, call: *mut &'static str, target: &Target) -> Option<Box<SlotFields>> {
        let outer = match self.since.load(Ordering::Relaxed) {
            0 => None,
            outer => Some(self.fields(outer)),
        };
        self.set(since, call, target);
        outer
    }

    #[cold]
    fn fields(&self, since: u64) -> Box<SlotFields> {
        Box::new(SlotFields { since, call: self.call.load(Ordering::Relaxed), target: self.target() })
    }

    /// Ends the wait that `begin` began, with what it returned.
    fn end(&self, outer: Option<Box<SlotFields>>) {
        match outer {
            Some(outer) => self.set(outer.since, outer.call, &outer.target),
            // The other fields stay, so a thread that still sees the time sees the whole wait that has just ended.
            None => self.since.store(0, Ordering::Release),
        }
    }

    #[inline]
    fn set(&self, since: u64, call: *mut &'static str, target: &Target) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        // No field is written before the odd number is visible.
        fence(Ordering::Release);
        self.since.store(since, Ordering::Relaxed);
        self.call.store(call, Ordering::Relaxed);
        self.what.store(target.what as u8, Ordering::Relaxed);
        self.stream.store(target.stream, Ordering::Relaxed);
        let (raw, id) = target.context;
        self.context.0.store(raw, Ordering::Relaxed);
        self.context.1.store(id.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.device.store(target.device, Ordering::Relaxed);
        let SignalTarget { number, how, value } = target.signal;
        self.signal.0.store(number, Ordering::Relaxed);
        self.signal.1.store(how, Ordering::Relaxed);
        self.signal.2.store(value, Ordering::Relaxed);
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    fn target(&self) -> Target {
        let what = usize::from(self.what.load(Ordering::Relaxed));
        let what = What::ALL.get(what).copied().unwrap_or_default();
        let id = self.context.1.load(Ordering::Relaxed);
        let context = (self.context.0.load(Ordering::Relaxed), (id != u64::MAX).then_some(id));
        Target {
            what,
            stream: self.stream.load(Ordering::Relaxed),
            context,
            device: self.device.load(Ordering::Relaxed),
            signal: SignalTarget {
                number: self.signal.0.load(Ordering::Relaxed),
                how: self.signal.1.load(Ordering::Relaxed),
                value: self.signal.2.load(Ordering::Relaxed),
            },
        }
    }

    /// The wait of the slot's thread. None if there is no wait, or if it changes just now.
    pub fn see(&self) -> Option<Seen> {
        let sequence = self.sequence.load(Ordering::Acquire);
        let since = self.since.load(Ordering::Relaxed);
        let (call, doing) = (self.call.load(Ordering::Relaxed), self.doing.load(Ordering::Relaxed));
        let target = self.target();
        // No field is read after the second read of the number.
        fence(Ordering::Acquire);
        let is_whole = sequence.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == sequence;
        if !is_whole || since == 0 {
            return None;
        }
        // SAFETY: only `enter` and `name` store pointers here, and those point to static values.
        let text = |pointer: *mut &'static str| unsafe { pointer.as_ref() }.copied();
        Some(Seen { sequence, since, call: text(call)?, doing: text(doing), target })
    }

    /// The report on a wait.
    pub fn report(&self, seen: &Seen, waited: Duration) -> SlowWait {
        describe(seen.doing.unwrap_or(seen.call), seen.call, seen.target, waited, self.thread.clone())
    }
}

#[cfg(test)]
impl Seen {
    /// A wait of which only the sequence number matters.
    pub fn with_sequence(sequence: u64) -> Self {
        Self { sequence, since: 1, call: "call", doing: None, target: Target::default() }
    }
}

/// Makes the report on a wait.
pub(super) fn describe(
    doing: &'static str,
    call: &'static str,
    target: Target,
    waited: Duration,
    thread: Box<str>,
) -> SlowWait {
    let (target, awaits) = target.tell();
    SlowWait { doing, call, thread, target, waited, awaits }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(stream: usize) -> Target {
        let number = stream as u64;
        Target {
            what: What::ALL[stream % What::ALL.len()],
            stream,
            context: (stream, Some(number)),
            device: stream as i32,
            signal: SignalTarget { number, how: number as u8, value: number },
        }
    }

    #[test]
    fn a_wait_within_a_wait_is_seen_and_the_outer_one_comes_back() {
        let own = || OWN.with(|own| own.0.see());
        assert_eq!(own(), None);
        let outer = enter(&"outer", target(1));
        {
            let _named = name(&"doing this");
            let _not_named = name(&"doing that");
            let _inner = enter(&"inner", target(2));
            let seen = own().expect("it waits");
            assert_eq!((seen.call, seen.doing, seen.target), ("inner", Some("doing this"), target(2)));
        }
        let seen = own().expect("it waits");
        assert_eq!((seen.call, seen.doing, seen.target), ("outer", None, target(1)));
        drop(outer);
        assert_eq!(own(), None);
    }

    #[test]
    fn what_another_thread_sees_belongs_together() {
        let slot = WaitSlot::new("one".into());
        let call: &'static &'static str = &"call";
        let rounds = if cfg!(miri) { 100 } else { 100_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..rounds {
                    let call = ptr::from_ref(call).cast_mut();
                    let outer = slot.begin(n as u64, call, &target(n));
                    slot.end(outer);
                }
            });
            for _ in 0..rounds {
                if let Some(seen) = slot.see() {
                    assert_eq!(seen.target, target(seen.since as usize));
                }
            }
        });
    }

    #[test]
    fn waits_of_two_threads_have_different_numbers() {
        let number = || {
            let _watched = enter(&"call", Target::default());
            OWN.with(|own| own.0.see()).expect("it waits").sequence
        };
        let numbers = [(), ()].map(|()| std::thread::spawn(number).join().expect("no panic"));
        assert_ne!(numbers[0], numbers[1]);
    }

    #[test]
    fn a_thread_that_ends_leaves_no_slot() {
        let name = "a thread that waits once";
        let count = move || slots().iter().filter(|slot| slot.thread.contains(name)).count();
        let thread = std::thread::Builder::new().name(name.into());
        let ran = thread.spawn(move || {
            drop(enter(&"call", Target::default()));
            count()
        });
        assert_eq!(ran.map(|thread| thread.join().ok()).ok(), Some(Some(1)));
        assert_eq!(count(), 0);
    }
}
