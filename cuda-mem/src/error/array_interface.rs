//! Errors of array interfaces.

use super::TensorError;

/// Why an array interface was refused or cannot be made.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrayInterfaceError {
    /// The version is one that this release does not know.
    #[error(
        "the array interface has version {version}, but this release knows versions 0 to 3: ask the library for version 3"
    )]
    Version {
        /// The version.
        version: u32,
    },
    /// The array has a mask.
    #[error("the array has a mask, which is not supported: fill the masked elements, and export it without a mask")]
    Mask,
    /// The JSON is not an array interface.
    #[error("the text is not an array interface: {message}")]
    Json {
        /// The message of the JSON reader.
        message: Box<str>,
    },
    /// The description of the array is invalid.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}
