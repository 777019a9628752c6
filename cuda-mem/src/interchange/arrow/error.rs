//! What is wrong with Arrow's structures of others.

use crate::interchange::dlpack::DlpackError;

/// Why a structure of Arrow's was refused, or cannot be made.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrowError {
    /// A null pointer where there has to be something.
    #[error("{what} is a null pointer")]
    Null {
        /// What.
        what: &'static str,
    },
    /// A structure that was released, or moved to somebody else.
    #[error("{what} was released already, or moved: each is taken over once")]
    Released {
        /// What.
        what: &'static str,
    },
    /// A number that cannot be.
    #[error("{what} is {value}, but {rule}")]
    Number {
        /// What.
        what: &'static str,
        /// The number.
        value: i64,
        /// What it has to be.
        rule: &'static str,
    },
    /// Nested deeper than there may be.
    #[error("the array is nested more than {limit} deep")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// Text that is not UTF-8.
    #[error("{what} is not UTF-8")]
    Text {
        /// Whose.
        what: &'static str,
    },
    /// The type and the values do not fit.
    #[error("an array of format \"{format}\" has {seen} {what}, and should have {expected}")]
    Shape {
        /// The type.
        format: Box<str>,
        /// Of what there are too many or too few.
        what: &'static str,
        /// How many there are.
        seen: usize,
        /// How many there should be.
        expected: usize,
    },
    /// A stream of arrays reported an error.
    #[error("the stream of arrays reported error {code}: {message}")]
    Stream {
        /// The number (errno).
        code: i32,
        /// The producer's words.
        message: Box<str>,
    },
    /// What the `arrow` crates say.
    #[error("{message}")]
    Library {
        /// Their words.
        message: Box<str>,
    },
    /// The device.
    #[error(transparent)]
    Device(#[from] DlpackError),
}
