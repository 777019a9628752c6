//! Calls functions that callers supply: hooks, host functions, deleters, wakers, writers.
//!
//! [`call_back`] stops a panic and keeps its text. In a call that returns the function's result, the panic may go on to
//! the caller instead; [`or_undo`] then restores what was taken before the function ran.

use crate::locks::later::dispose;
use crate::{Error, locks};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A panic of a caller's function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Panicked(Box<str>);

impl Panicked {
    /// The panic's text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Converts the panic to an error. `function` names the function that panicked.
    pub fn of(self, function: &'static str) -> Error {
        Error::Panicked { function, message: self.0 }
    }
}

/// Calls a caller's function and stops its panic.
#[inline]
#[track_caller]
pub(crate) fn call_back<R>(function: impl FnOnce() -> R) -> Result<R, Panicked> {
    locks::check_nothing_held();
    catch_unwind(AssertUnwindSafe(function)).map_err(panicked)
}

/// Calls a caller's function within a call of the same caller, to which its panic goes on.
#[inline]
#[track_caller]
pub(crate) fn call_through<R>(function: impl FnOnce() -> R) -> R {
    locks::check_nothing_held();
    function()
}

#[cold]
fn panicked(payload: Box<dyn Any + Send>) -> Panicked {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let panicked = Panicked(text.unwrap_or("the panic has no text").into());
    dispose(payload);
    panicked
}

/// Runs `work`, which may be code of the program, then `undo` if `work` failed or panicked.
#[inline]
#[track_caller]
pub(crate) fn or_undo<T, E>(work: impl FnOnce() -> Result<T, E>, undo: impl FnOnce()) -> Result<T, E> {
    locks::check_nothing_held();
    struct Undo<F: FnOnce()>(Option<F>);
    impl<F: FnOnce()> Drop for Undo<F> {
        fn drop(&mut self) {
            if let Some(undo) = self.0.take() {
                undo();
            }
        }
    }
    let mut guard = Undo(Some(undo));
    let value = work()?;
    guard.0 = None;
    Ok(value)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::panic::panic_any;

    /// Panics when dropped, and so does the payload of that panic.
    pub struct Nested(pub u32);

    impl Drop for Nested {
        fn drop(&mut self) {
            if self.0 > 0 {
                panic_any(Nested(self.0 - 1));
            }
        }
    }

    #[test]
    fn the_text_of_a_panic_is_kept_and_nothing_unwinds() {
        assert_eq!(call_back(|| 7), Ok(7));
        assert_eq!(call_back(|| panic!("plain")).unwrap_err().text(), "plain");
        assert_eq!(call_back(|| panic!("{} of {}", 1, 2)).unwrap_err().text(), "1 of 2");
        for depth in 0..4 {
            assert_eq!(call_back(|| panic_any(Nested(depth))).unwrap_err().text(), "the panic has no text");
        }
        let error = call_back(|| panic!("why")).unwrap_err().of("a hook");
        assert_eq!(error.to_string(), "a hook panicked: why");
    }

    #[test]
    fn what_was_taken_is_put_back_after_an_error_and_after_a_panic() {
        let outcome = |work: fn() -> Result<u8, u8>| {
            let mut undone = 0;
            let result = call_back(|| or_undo(work, || undone += 1));
            (result.ok(), undone)
        };
        assert_eq!(outcome(|| Ok(1)), (Some(Ok(1)), 0));
        assert_eq!(outcome(|| Err(2)), (Some(Err(2)), 1));
        assert_eq!(outcome(|| panic_any(Nested(2))), (None, 1));
    }
}
