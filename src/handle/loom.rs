//! Loom's check of slots: the same sources, compiled over loom's primitives, under every interleaving of threads and
//! every value that a load may return.

#![allow(clippy::duplicate_mod, reason = "the same sources over other primitives")]

/// Both halves of the asymmetric fence are whole fences here, which promise the same.
mod sync {
    pub use super::presence::Inside;
    pub use loom::cell::UnsafeCell;
    pub use loom::sync::Mutex;
    pub use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
    pub use loom::thread::yield_now;

    use super::presence::{Presence, Words};
    use core::cell::Cell;
    use core::num::NonZeroUsize;

    /// How many uses are counted before a value is lasting.
    pub const COUNTED: u64 = 4;

    loom::lazy_static! {
        // Two threads have a word, and all others have none.
        static ref IN_USE: Presence<2, 1> = Presence::new(core::array::from_fn(|_| Words([AtomicUsize::new(0)])));
    }

    loom::thread_local! {
        /// The thread's number.
        pub static NUMBER: Cell<usize> = Cell::new(usize::MAX);
    }

    pub fn begin(place: NonZeroUsize) -> Option<Inside<'static>> {
        // SAFETY: a test gives each thread another number, except those that have no word.
        unsafe { IN_USE.enter(NUMBER.with(Cell::get), place) }
    }

    pub fn all_ended(place: NonZeroUsize) -> bool {
        IN_USE.is_left(place)
    }

    pub fn light_fence() {
        fence(Ordering::SeqCst);
    }

    pub fn heavy_fence() -> bool {
        fence(Ordering::SeqCst);
        true
    }
}

#[path = "lasting.rs"]
mod lasting;
#[allow(dead_code, reason = "nobody here waits, or asks for the thread")]
#[path = "../../cuda-mem/src/cpu/presence.rs"]
mod presence;
#[allow(dead_code, reason = "only the table uses these parts, and it is not here")]
#[path = "slot.rs"]
mod slot;

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread::{self, JoinHandle};
use slot::{Closed, NotBegun, Slot};
use sync::{COUNTED, NUMBER};

/// A value that loom watches: a read that races with its end is an error.
#[derive(Debug)]
struct Watched(Arc<UnsafeCell<bool>>);

impl Watched {
    fn new() -> Self {
        Self(Arc::new(UnsafeCell::new(true)))
    }

    fn read(&self) {
        // SAFETY: loom detects a concurrent write.
        assert!(self.0.with(|alive| unsafe { *alive }));
    }

    fn end(&mut self) {
        // SAFETY: loom detects a concurrent read.
        self.0.with_mut(|alive| unsafe { *alive = false });
    }
}

/// A slot and what its table holds for it.
struct Place {
    slot: Slot<Watched>,
    taking: Mutex<()>,
}

impl Place {
    /// A slot whose value was used `uses` times. Returns the value's generation too.
    fn used(uses: u64) -> (Arc<Self>, u32) {
        let place = Self { slot: Slot::new(1), taking: Mutex::new(()) };
        let generation = place.open();
        for _ in 0..uses {
            assert!(!place.use_it(generation));
        }
        (Arc::new(place), generation)
    }

    fn open(&self) -> u32 {
        // SAFETY: the slot is vacant, and nobody else opens it.
        unsafe { self.slot.open(Watched::new()) }
    }

    /// Uses the value as a call does. Returns whether this ended it.
    fn use_it(&self, generation: u32) -> bool {
        let taken = match self.slot.enter(generation, &self.taking) {
            Ok(begun) => {
                // SAFETY: `enter` succeeded.
                unsafe { self.slot.value() }.read();
                // SAFETY: `enter` succeeded, and this leaves once.
                unsafe { self.slot.leave(begun, generation, &self.taking) }
            }
            Err(refused) => refused == NotBegun::Taken,
        };
        if taken {
            self.end();
        }
        taken
    }

    /// Destroys the value. Returns whether this ended it.
    fn destroy(&self, generation: u32) -> bool {
        match self.slot.close(generation, &self.taking) {
            Closed::Taken => {
                self.end();
                true
            }
            Closed::InUse => false,
            Closed::Gone => panic!("nobody else closes"),
        }
    }

    /// Ends the value of the taken slot.
    fn end(&self) {
        // SAFETY: the caller has taken the slot.
        unsafe {
            self.slot.with_value(Watched::end);
            self.slot.discard();
            assert!(self.slot.vacate());
        }
    }
}

/// Uses the value on another thread.
fn user(place: &Arc<Place>, number: usize, generation: u32) -> JoinHandle<bool> {
    let place = place.clone();
    thread::spawn(move || {
        NUMBER.with(|mine| mine.set(number));
        place.use_it(generation)
    })
}

/// Checks all interleavings, or those with so many preemptions. All of three threads, or of two with longer paths, take
/// minutes; three preemptions find all known bugs.
fn check(preemptions: Option<usize>, test: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(test);
}

/// Threads with these numbers use a value that was used `before`, while it is destroyed.
fn ends_once(before: u64, numbers: &'static [usize]) {
    check((numbers.len() > 1).then_some(3), move || {
        let (place, generation) = Place::used(before);
        let users: Vec<_> = numbers.iter().map(|number| user(&place, *number, generation)).collect();
        let here = place.destroy(generation);
        let ended = users.into_iter().map(|user| user.join().expect("no thread panics"));
        assert_eq!(usize::from(here) + ended.filter(|ended| *ended).count(), 1);
        assert!(!place.use_it(generation));
        assert_eq!(place.slot.generation(), generation + 1);
    });
}

#[test]
fn value_is_dropped_once_after_several_concurrent_uses() {
    ends_once(0, &[0, 1]);
}

#[test]
fn lasting_value_is_dropped_once_after_one_concurrent_use() {
    ends_once(COUNTED, &[0]);
}

#[test]
fn lasting_value_is_dropped_once_after_several_concurrent_uses() {
    ends_once(COUNTED, &[0, 1]);
}

#[test]
fn a_lasting_value_also_waits_for_threads_without_words() {
    ends_once(COUNTED, &[0, 7]);
}

#[test]
fn a_value_that_becomes_lasting_beside_its_end_ends_once() {
    ends_once(COUNTED - 1, &[0, 1]);
}

#[test]
fn of_two_that_destroy_one_gets_the_value() {
    for uses in [0, COUNTED] {
        check(None, move || {
            let (place, generation) = Place::used(uses);
            let close = move |place: &Place| place.slot.close(generation, &place.taking) == Closed::Taken;
            let other = {
                let place = place.clone();
                thread::spawn(move || close(&place))
            };
            let here = close(&place);
            assert_ne!(here, other.join().expect("no thread panics"));
            place.end();
        });
    }
}

/// An end is refused, and then the value is destroyed again, while another thread uses it.
fn is_shown_again(before: u64, preemptions: Option<usize>) {
    check(preemptions, move || {
        let (place, generation) = Place::used(before);
        let user = user(&place, 0, generation);
        let (mut ends, mut next) = (0, None);
        if place.slot.close(generation, &place.taking) == Closed::Taken {
            // SAFETY: taken by the close.
            unsafe { place.slot.reopen() };
            if place.destroy(generation) {
                ends += 1;
                next = Some(place.open());
            }
        }
        ends += usize::from(user.join().expect("no thread panics"));
        assert_eq!(ends, 1);
        if let Some(next) = next {
            assert_ne!(next, generation);
            assert!(place.destroy(next));
        }
    });
}

#[test]
fn refused_destroy_reopens_the_value_but_not_for_stale_handles() {
    is_shown_again(0, None);
}

#[test]
fn a_refused_end_shows_a_lasting_value_again() {
    is_shown_again(COUNTED, Some(3));
}

#[test]
fn stale_handle_neither_destroys_nor_leaks_the_next_value() {
    check(Some(3), || {
        let (place, first) = Place::used(COUNTED);
        let stale = user(&place, 0, first);
        let mut ends = usize::from(place.destroy(first));
        if ends == 1 {
            let next = place.open();
            for _ in 0..COUNTED {
                ends += usize::from(place.use_it(next));
            }
            ends += usize::from(place.destroy(next));
        } else {
            ends += 1;
        }
        ends += usize::from(stale.join().expect("no thread panics"));
        assert_eq!(ends, 2);
    });
}
