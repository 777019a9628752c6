//! The error of calls that take a value, with that value.

use super::Error;
use core::fmt;

/// The error of a call that takes a value, with that value. `?` converts it to [`Error`].
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct Refused<V> {
    /// The value that the call took.
    pub value: V,
    /// Why the call was refused.
    pub error: Error,
}

impl<V> fmt::Debug for Refused<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<V> Refused<V> {
    pub(crate) fn new(value: V, error: Error) -> Box<Self> {
        Box::new(Self { value, error })
    }
}

impl<V> From<Box<Refused<V>>> for Error {
    fn from(refused: Box<Refused<V>>) -> Self {
        refused.error
    }
}
