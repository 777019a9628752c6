//! Loom's check of slots: the same source, compiled over loom's primitives, under every interleaving of threads and
//! every value that a load may return.

#![allow(clippy::duplicate_mod, reason = "the same source over other primitives")]

mod sync {
    pub use loom::cell::UnsafeCell;
    pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

#[allow(dead_code, reason = "only the table uses these parts, and it is not here")]
#[path = "slot.rs"]
mod slot;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use slot::{Closed, Slot};

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

/// Uses a value as a call does. Returns whether the value existed, and whether this use ended it.
fn use_it(slot: &Slot<Watched>, generation: u32) -> (bool, bool) {
    if !slot.enter(generation) {
        return (false, false);
    }
    // SAFETY: `enter` succeeded.
    unsafe { slot.value() }.read();
    // SAFETY: `enter` succeeded, and this leaves once.
    let last = unsafe { slot.leave() };
    if last {
        end(slot);
    }
    (true, last)
}

/// Ends the value of a taken slot.
fn end(slot: &Slot<Watched>) {
    // SAFETY: the caller has taken the slot.
    unsafe {
        slot.with_value(Watched::end);
        slot.discard();
        assert!(slot.vacate());
    }
}

#[test]
fn a_value_that_is_destroyed_beside_uses_ends_once_and_after_them() {
    loom::model(|| {
        let slot = Arc::new(Slot::new(1));
        // SAFETY: a new slot is vacant.
        let generation = unsafe { slot.open(Watched::new()) };
        let user = || {
            let slot = slot.clone();
            thread::spawn(move || use_it(&slot, generation).1)
        };
        let users = [user(), user()];
        let here = match slot.close(generation) {
            Closed::Taken => {
                end(&slot);
                true
            }
            Closed::InUse => false,
            Closed::Gone => panic!("nobody else closes"),
        };
        let there = users.map(|user| user.join().expect("no thread panics"));
        let ends = usize::from(here) + there.iter().filter(|ended| **ended).count();
        assert_eq!(ends, 1);
        assert_eq!(use_it(&slot, generation), (false, false));
        assert_eq!(slot.generation(), generation + 1);
    });
}

#[test]
fn of_two_that_destroy_one_gets_the_value() {
    loom::model(|| {
        let slot = Arc::new(Slot::new(1));
        // SAFETY: a new slot is vacant.
        let generation = unsafe { slot.open(Watched::new()) };
        let other = {
            let slot = slot.clone();
            thread::spawn(move || slot.close(generation) == Closed::Taken)
        };
        let here = slot.close(generation) == Closed::Taken;
        assert_ne!(here, other.join().expect("no thread panics"));
        end(&slot);
    });
}

#[test]
fn a_refused_end_shows_the_value_again_and_a_stale_handle_never_sees_the_next_one() {
    loom::model(|| {
        let slot = Arc::new(Slot::new(1));
        // SAFETY: a new slot is vacant.
        let generation = unsafe { slot.open(Watched::new()) };
        let user = {
            let slot = slot.clone();
            thread::spawn(move || use_it(&slot, generation).1)
        };
        let (mut ended, mut next) = (false, None);
        if slot.close(generation) == Closed::Taken {
            // SAFETY: taken by the close.
            unsafe { slot.reopen() };
            if slot.close(generation) == Closed::Taken {
                end(&slot);
                ended = true;
                // SAFETY: vacant, and nobody else opens it.
                next = Some(unsafe { slot.open(Watched::new()) });
            }
        }
        assert_ne!(user.join().expect("no thread panics"), ended);
        if let Some(next) = next {
            assert_ne!(next, generation);
            assert_eq!(slot.close(next), Closed::Taken);
            end(&slot);
        }
    });
}
