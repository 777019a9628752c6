//! Errors that occur in `Drop`, which has no caller to return them to.
//!
//! A value that ends by `close` returns its error to the caller. The error of a dropped value goes to its context's
//! queue and hook, and never into an unrelated call.

use crate::Error;
use crate::error::callback::call_back;
use crate::error::forked;
use crate::locks::later;
use crate::locks::{Mutex, MutexGuard};
use core::fmt;
use std::collections::VecDeque;
use std::sync::Arc;

/// An error that occurred while a value was dropped.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("while {doing}: {error}")]
#[non_exhaustive]
pub struct DropError {
    /// The operation that failed.
    pub doing: &'static str,
    /// The error of that operation.
    pub error: Error,
}

/// Called with each drop error, on the thread that drops the value.
pub type DropErrorHook = Arc<dyn Fn(&DropError) + Send + Sync>;

/// Capacity of an error queue. A full queue discards its oldest error and counts it.
pub const DROP_ERROR_CAPACITY: usize = 64;

/// The drop errors since the last report was taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DropErrorReport {
    /// The newest errors, oldest first; at most [`DROP_ERROR_CAPACITY`].
    pub errors: Vec<DropError>,
    /// Number of older errors that the full queue discarded.
    pub lost: u64,
}

#[derive(Default)]
struct ErrorQueue {
    /// Errors, each with whether a hook was told of it.
    queue: VecDeque<(DropError, bool)>,
    lost: u64,
    hook: Option<DropErrorHook>,
}

/// A bounded queue of errors, and a hook. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct DropErrors(Arc<Mutex<ErrorQueue>>);

impl DropErrors {
    /// Keeps an error, and tells the hook of it, at once or [later].
    pub fn push(&self, doing: &'static str, error: Error) {
        if forked() {
            return;
        }
        self.tell(DropError { doing, error });
    }

    fn tell(&self, error: DropError) {
        if let Some(hook) = self.keep(error.clone(), false) {
            let errors = self.clone();
            later::run(move || errors.call(hook, error));
        }
    }

    /// Calls the hook without the lock, so that it may take the errors. If `hook` is its last owner, the call drops it.
    fn call(&self, hook: DropErrorHook, error: DropError) {
        if let Err(panicked) = call_back(move || hook(&error)) {
            // The hook is not told of its own panic.
            let error = panicked.of("the hook for drop errors");
            self.keep(DropError { doing: "telling a hook of a drop error", error }, true);
        }
    }

    /// Takes over the errors left in a queue that ends. An error that a hook was told of is told to no other hook.
    pub fn inherit(&self, other: &DropErrors) {
        let (queue, lost) = {
            let mut state = other.lock();
            (core::mem::take(&mut state.queue), core::mem::take(&mut state.lost))
        };
        self.lock().lost += lost;
        for (error, told) in queue {
            match told {
                true => drop(self.keep(error, true)),
                false => self.tell(error),
            }
        }
    }

    /// Adds an error to the queue. Returns the hook to call with the error.
    fn keep(&self, error: DropError, told: bool) -> Option<DropErrorHook> {
        let mut state = self.lock();
        if state.queue.len() == DROP_ERROR_CAPACITY {
            state.queue.pop_front();
            state.lost += 1;
        }
        let hook = state.hook.clone().filter(|_| !told);
        state.queue.push_back((error, told || hook.is_some()));
        hook
    }

    fn lock(&self) -> MutexGuard<'_, ErrorQueue> {
        self.0.lock()
    }

    pub fn take(&self) -> DropErrorReport {
        if forked() {
            return DropErrorReport::default();
        }
        let mut state = self.lock();
        let errors = state.queue.drain(..).map(|(error, _)| error).collect();
        DropErrorReport { errors, lost: core::mem::take(&mut state.lost) }
    }

    pub fn set_hook(&self, hook: Option<DropErrorHook>) {
        if forked() {
            return;
        }
        let former = core::mem::replace(&mut self.lock().hook, hook);
        // Without the lock: the hook's drop may push an error to this queue.
        drop(former);
    }
}

impl fmt::Debug for DropErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DropErrors").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::callback::tests::Nested;

    fn error(value: usize) -> Error {
        Error::OutOfRange { call: "test", offset: value, length: 0, size: 0 }
    }

    #[test]
    fn the_newest_errors_are_kept_and_the_rest_counted() {
        let errors = DropErrors::default();
        (0..DROP_ERROR_CAPACITY + 3).for_each(|n| errors.push("testing", error(n)));
        let report = errors.take();
        assert_eq!((report.errors.len(), report.lost), (DROP_ERROR_CAPACITY, 3));
        assert_eq!(report.errors[0].error, error(3));
        assert_eq!(errors.take(), DropErrorReport::default());
    }

    #[test]
    fn the_hook_sees_each_error_may_take_them_and_may_panic() {
        let errors = Arc::new(DropErrors::default());
        let inner = errors.clone();
        errors.set_hook(Some(Arc::new(move |error| {
            assert_eq!(inner.take().errors.len(), 1);
            panic!("{}", error.doing);
        })));
        errors.push("testing", error(1));
        let report = errors.take();
        assert_eq!(report.errors.len(), 1, "the panic alone");
        assert_eq!(report.errors[0].error.to_string(), "the hook for drop errors panicked: testing");
        errors.set_hook(None); // the hook holds the queue
    }

    #[test]
    fn a_hook_may_panic_with_what_panics_and_may_end_itself() {
        let errors = Arc::new(DropErrors::default());
        let (inner, owned) = (errors.clone(), Nested(1));
        errors.set_hook(Some(Arc::new(move |_| {
            let _all = &owned;
            // The hook is dropped inside its own call, and the value that it owns panics then.
            inner.set_hook(None);
        })));
        errors.push("testing", error(1));
        errors.set_hook(Some(Arc::new(|_| std::panic::panic_any(Nested(3)))));
        errors.push("testing", error(2));
        assert_eq!(errors.take().errors.len(), 4);
    }

    #[test]
    fn what_a_context_leaves_to_the_driver_reaches_one_hook() {
        let told: Arc<std::sync::Mutex<Vec<(&str, Error)>>> = Arc::default();
        let hook = |name: &'static str| -> DropErrorHook {
            let told = told.clone();
            Arc::new(move |error| told.lock().unwrap().push((name, error.error.clone())))
        };
        let (context, driver) = (DropErrors::default(), DropErrors::default());
        driver.set_hook(Some(hook("driver")));
        (0..=DROP_ERROR_CAPACITY).for_each(|n| context.push("testing", error(n)));
        context.set_hook(Some(hook("context")));
        context.push("testing", error(1000));
        driver.inherit(&context);
        let told = core::mem::take(&mut *told.lock().unwrap());
        assert_eq!(told[0], ("context", error(1000)));
        assert_eq!(told[1..].iter().filter(|(name, _)| *name == "driver").count(), DROP_ERROR_CAPACITY - 1);
        assert_eq!(told.len(), DROP_ERROR_CAPACITY);
        let report = driver.take();
        assert_eq!((report.errors.len(), report.lost), (DROP_ERROR_CAPACITY, 2));
        assert_eq!(report.errors.last().unwrap().error, error(1000));
    }

    #[test]
    fn the_end_of_a_hook_may_meet_an_error() {
        struct Ends(Arc<DropErrors>);
        impl Drop for Ends {
            fn drop(&mut self) {
                self.0.push("ending a hook", error(2));
            }
        }
        let errors = Arc::new(DropErrors::default());
        let owned = Ends(errors.clone());
        errors.set_hook(Some(Arc::new(move |_| drop(owned.0.take()))));
        errors.set_hook(None);
        assert_eq!(errors.take().errors[0].error, error(2));
    }
}
