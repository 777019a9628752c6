//! Errors of Arrow structures.

use super::DlpackError;

/// Why an Arrow structure was refused or cannot be made.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrowError {
    /// A required pointer is null.
    #[error("{what}: the pointer is null")]
    Null {
        /// The structure or field.
        what: &'static str,
    },
    /// The structure was released or moved away before.
    #[error("{what} was released already or moved away: take over each structure only once")]
    Released {
        /// The structure.
        what: &'static str,
    },
    /// A number is invalid.
    #[error("{what} is {value}, but {rule}")]
    Number {
        /// The name of the number.
        what: &'static str,
        /// Its value.
        value: i64,
        /// The valid values.
        rule: &'static str,
    },
    /// The structure has too many levels.
    #[error("the array or schema is nested deeper than {limit} levels")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// A text is not UTF-8, or contains a zero byte.
    #[error("{what} is not UTF-8 text without zero bytes")]
    Text {
        /// The name of the text.
        what: &'static str,
    },
    /// The type does not fit the values.
    #[error("the array of type \"{format}\" has {seen} {what}, but it must have {expected}")]
    Shape {
        /// The type.
        format: Box<str>,
        /// The counted things.
        what: &'static str,
        /// Their number.
        seen: usize,
        /// The number that the type requires.
        expected: usize,
    },
    /// A stream of arrays reported an error.
    #[error("the stream of arrays reported error {code}: {message}")]
    Stream {
        /// The error number (errno).
        code: i32,
        /// The producer's message.
        message: Box<str>,
    },
    /// An error of the `arrow` crates.
    #[error("{message}")]
    Library {
        /// Their message.
        message: Box<str>,
    },
    /// The device is invalid.
    #[error(transparent)]
    Device(#[from] DlpackError),
}
