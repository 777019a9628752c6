//! Code of the program that waits until its thread holds nothing.
//!
//! Such code is a hook for drop errors, a subscriber of `tracing`, the drop of the program's values. It may be due deep
//! inside a call, where a lock is held that the code could need. It then runs when the thread gives up the last of its
//! [locks and gates](super::Held).

use super::holds_nothing;
use core::cell::{Cell, RefCell};
use core::mem::{ManuallyDrop, take};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

type Report = Box<dyn FnOnce()>;

thread_local! {
    static ANY_DUE: Cell<bool> = const { Cell::new(false) };
    /// Without a destructor, so that it serves a thread that ends, too.
    static DUE: RefCell<ManuallyDrop<Vec<Report>>> = const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

/// Runs code of the program, now or when this thread holds nothing. A panic ends this code only.
pub(crate) fn run(report: impl FnOnce() + 'static) {
    if holds_nothing() {
        call(report);
    } else {
        DUE.with_borrow_mut(|due| due.push(Box::new(report)));
        ANY_DUE.set(true);
    }
}

/// Runs what is due. The thread holds nothing.
#[inline]
pub(crate) fn run_due() {
    if ANY_DUE.replace(false) {
        run_all();
    }
}

#[cold]
fn run_all() {
    let due = DUE.with_borrow_mut(|due| take(&mut **due));
    due.into_iter().for_each(call);
}

fn call(report: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(report)) {
        dispose(payload);
    }
}

/// Drops a panic's payload. If that drop panics too, leaks the second payload: dropping it could panic without end.
pub(crate) fn dispose(payload: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(move || drop(payload))) {
        leak(second);
    }
}

fn leak(payload: Box<dyn Any + Send>) {
    let payload = Box::leak(payload);
    // Miri reports leaks, except of registered static roots.
    #[cfg(miri)]
    if size_of_val(payload) > 0 {
        unsafe extern "Rust" {
            fn miri_static_root(pointer: *const u8);
        }
        // SAFETY: the pointer is the start of an allocation.
        unsafe { miri_static_root(core::ptr::from_ref(payload).cast()) };
    }
    let _ = payload;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::{Held, Kind, Mutex};
    use std::rc::Rc;

    #[test]
    fn reports_wait_for_the_end_of_the_last_lock_in_their_order() {
        let told = Rc::new(RefCell::new(Vec::new()));
        let tell = |what| {
            let told = told.clone();
            run(move || told.borrow_mut().push(what));
        };
        let (outer, inner) = (Mutex::new(()), Mutex::new(()));
        let outer = outer.lock();
        tell(1);
        let inner = inner.lock();
        tell(2);
        drop(outer);
        tell(3);
        assert!(told.borrow().is_empty());
        drop(inner);
        tell(4);
        assert_eq!(*told.borrow(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_report_may_make_others() {
        let told = Rc::new(RefCell::new(Vec::new()));
        let (outer, inner) = (told.clone(), told.clone());
        let held = Held::new(Kind::Gate);
        run(move || {
            let held = Held::new(Kind::Lock);
            run(move || inner.borrow_mut().push("inner"));
            outer.borrow_mut().push("outer");
            drop(held);
        });
        drop(held);
        assert_eq!(*told.borrow(), ["outer", "inner"]);
    }
}
