//! What `Drop` met: errors that nobody was there to receive.
//!
//! A value that ends by `close` gives its error to the caller. One that is dropped cannot; its error goes to its
//! context's queue and hook, and never into an unrelated call.

use crate::Error;
use core::fmt;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// An error met while a value was dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("while {doing}: {error}")]
#[non_exhaustive]
pub struct DropError {
    /// What was being done.
    pub doing: &'static str,
    /// What went wrong.
    pub error: Error,
}

/// Called with each error that a drop meets, on the thread that drops.
pub type DropErrorHook = Arc<dyn Fn(&DropError) + Send + Sync>;

/// How many errors a queue holds. Older ones give way, and are counted.
pub const DROP_ERROR_CAPACITY: usize = 64;

/// The errors that drops have met since they were last taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DropErrorReport {
    /// The newest errors, oldest first; at most [`DROP_ERROR_CAPACITY`].
    pub errors: Vec<DropError>,
    /// How many older ones gave way.
    pub lost: u64,
}

#[derive(Default)]
struct State {
    queue: VecDeque<DropError>,
    lost: u64,
    hook: Option<DropErrorHook>,
}

/// A bounded queue of errors and a hook.
#[derive(Default)]
pub(crate) struct DropErrors(Mutex<State>);

impl DropErrors {
    pub fn push(&self, doing: &'static str, error: Error) {
        let error = DropError { doing, error };
        let hook = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if state.queue.len() == DROP_ERROR_CAPACITY {
                state.queue.pop_front();
                state.lost += 1;
            }
            state.queue.push_back(error.clone());
            state.hook.clone()
        };
        // Outside of the lock, so that the hook may take the errors. A hook that panics must not turn a drop into an
        // abort.
        if let Some(hook) = hook {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| hook(&error)));
        }
    }

    pub fn take(&self) -> DropErrorReport {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        DropErrorReport { errors: state.queue.drain(..).collect(), lost: core::mem::take(&mut state.lost) }
    }

    pub fn set_hook(&self, hook: Option<DropErrorHook>) {
        let former = core::mem::replace(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).hook, hook);
        // Outside of the lock: what it owns may end with an error for this queue.
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
            panic!("{error}");
        })));
        errors.push("testing", error(1));
        assert_eq!(errors.take().errors.len(), 0);
        errors.set_hook(None); // which holds the queue
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
