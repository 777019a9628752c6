//! Small numbers of threads. Two threads that run never have the same number, and numbers of ended threads are used
//! again, the smallest first.

use super::presence::{Inside, Presence, Words};
use crate::locks::{Mutex, MutexGuard, forked};
use core::cell::Cell;
use core::marker::PhantomData;
use core::num::NonZeroUsize;
use core::sync::atomic::AtomicUsize;
use std::collections::BTreeSet;

/// How many threads may be present in thread caches.
pub(crate) const SLOTS: usize = 64;

/// In which thread cache each of the first threads is.
pub(crate) static PRESENCE: Presence<SLOTS, 1> = Presence::new([const { Words([AtomicUsize::new(0)]) }; SLOTS]);

/// The thread has no number yet.
const NOT_ASKED: usize = usize::MAX;
/// The thread has given its number back, because it ends.
const ENDS: usize = usize::MAX - 1;

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(NOT_ASKED) };
    static GIVES_BACK: GivesBack = const { GivesBack };
}

/// The numbers that no thread has.
#[derive(Debug)]
struct Vacant {
    returned: BTreeSet<usize>,
    /// Numbers from this one on were never used.
    fresh: usize,
}

/// The lock orders what the thread that gave a number back did before what its next thread does.
static VACANT: Mutex<Vacant> = Mutex::new(Vacant { returned: BTreeSet::new(), fresh: 0 });

fn vacant() -> MutexGuard<'static, Vacant> {
    VACANT.lock()
}

/// Gives the thread's number back when the thread ends.
struct GivesBack;

impl Drop for GivesBack {
    fn drop(&mut self) {
        let number = NUMBER.replace(ENDS);
        // The end of a forked child's only thread.
        if !forked() {
            vacant().returned.insert(number);
        }
    }
}

/// The calling thread's number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadSlot {
    number: usize,
    on_this_thread: PhantomData<*const ()>,
}

impl ThreadSlot {
    #[inline]
    pub fn current() -> Self {
        let number = match NUMBER.get() {
            NOT_ASKED => take_number(),
            number => number,
        };
        Self { number, on_this_thread: PhantomData }
    }

    /// A value for tests on one thread, which do not [enter](Self::enter).
    #[cfg(test)]
    pub fn numbered(number: usize) -> Self {
        Self { number, on_this_thread: PhantomData }
    }

    /// A thread that is ending has a number that may be any thread's, larger than all others.
    #[inline]
    pub fn number(self) -> usize {
        self.number
    }

    /// Notes that the thread is inside `place`. `None` if it is inside a place already, or has no word for that.
    #[inline]
    pub fn enter(self, place: NonZeroUsize) -> Option<Inside<'static>> {
        // SAFETY: the value does not leave its thread. Of the running threads, only this one has the number. A thread
        // that ends has a number without a word.
        unsafe { PRESENCE.enter(self.number, place) }
    }
}

#[cold]
fn take_number() -> usize {
    // After the thread's destructor nobody would give the number back.
    if GIVES_BACK.try_with(|_| ()).is_err() {
        NUMBER.set(ENDS);
        return ENDS;
    }
    let mut vacant = vacant();
    let number = vacant.returned.pop_first().unwrap_or_else(|| {
        vacant.fresh += 1;
        vacant.fresh - 1
    });
    NUMBER.set(number);
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn running_threads_have_different_numbers_that_come_back() {
        let number = || ThreadSlot::current().number();
        let (here, barrier) = (number(), Barrier::new(3));
        let all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let mine = number();
                        barrier.wait();
                        assert_eq!(mine, number());
                        mine
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect::<BTreeSet<_>>()
        });
        assert_eq!(all.len(), 3);
        assert!(!all.contains(&here));
        assert_eq!(here, number());
    }

    #[test]
    fn a_thread_is_inside_one_place_at_a_time() {
        let (one, other) = (NonZeroUsize::MIN, NonZeroUsize::MAX);
        crate::cpu::asymmetric_fence::prepare();
        let slot = ThreadSlot::current();
        let Some(inside) = slot.enter(one) else { return assert!(slot.number() >= SLOTS) };
        assert!(slot.enter(one).is_none() && slot.enter(other).is_none());
        drop(inside);
        assert!(slot.enter(other).is_some());
    }
}
