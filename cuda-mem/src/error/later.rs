//! Code of the program that waits until its thread holds nothing.
//!
//! Such code is a hook for drop errors, a subscriber of `tracing`, the drop of the program's values. It may be due deep
//! inside a call, where a lock is held that the code could need. Such a call begins [`Reports`] before it takes the lock,
//! and what is due runs when the outermost of them ends.

use crate::error::callback::call_back;
use core::cell::RefCell;
use core::marker::PhantomData;
use core::mem::take;

type Report = Box<dyn FnOnce()>;

#[derive(Default)]
struct Waiting {
    /// How many [`Reports`] the thread has.
    depth: usize,
    reports: Vec<Report>,
}

thread_local! {
    static WAITING: RefCell<Waiting> = const { RefCell::new(Waiting { depth: 0, reports: Vec::new() }) };
}

/// Runs code of the program, now or at the end of this thread's [`Reports`]. A panic ends this code only.
pub(crate) fn run(report: impl FnOnce() + 'static) {
    let mut report = Some(report);
    // A thread that is ending has none.
    let _ = WAITING.try_with(|waiting| {
        let mut waiting = waiting.borrow_mut();
        if waiting.depth > 0
            && let Some(report) = report.take()
        {
            waiting.reports.push(Box::new(report));
        }
    });
    if let Some(report) = report {
        let _ = call_back(report);
    }
}

/// Lets this thread's reports wait while it lives. Declare it before the guard of a lock, so that it is dropped after it.
#[must_use = "reports wait only while this lives"]
#[derive(Debug)]
pub struct Reports {
    is_counted: bool,
    /// Not `Send`: each thread has its own reports.
    on_this_thread: PhantomData<*const ()>,
}

impl Reports {
    /// Lets them wait.
    pub fn wait() -> Self {
        let counted = WAITING.try_with(|waiting| waiting.borrow_mut().depth += 1);
        Self { is_counted: counted.is_ok(), on_this_thread: PhantomData }
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        if !self.is_counted {
            return;
        }
        let due = WAITING.try_with(|waiting| {
            let mut waiting = waiting.borrow_mut();
            waiting.depth -= 1;
            if waiting.depth == 0 { take(&mut waiting.reports) } else { Vec::new() }
        });
        due.unwrap_or_default().into_iter().for_each(|report| drop(call_back(report)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn reports_wait_for_the_outermost_end_and_keep_their_order() {
        let told = Rc::new(RefCell::new(Vec::new()));
        let tell = |what| {
            let told = told.clone();
            run(move || told.borrow_mut().push(what));
        };
        let outer = Reports::wait();
        tell(1);
        let inner = Reports::wait();
        tell(2);
        drop(inner);
        tell(3);
        assert!(told.borrow().is_empty());
        drop(outer);
        tell(4);
        assert_eq!(*told.borrow(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_report_may_make_others() {
        let told = Rc::new(RefCell::new(Vec::new()));
        let (outer, inner) = (told.clone(), told.clone());
        let waiting = Reports::wait();
        run(move || {
            let waiting = Reports::wait();
            run(move || inner.borrow_mut().push("inner"));
            outer.borrow_mut().push("outer");
            drop(waiting);
        });
        drop(waiting);
        assert_eq!(*told.borrow(), ["outer", "inner"]);
    }
}
