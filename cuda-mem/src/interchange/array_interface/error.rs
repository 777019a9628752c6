//! What is wrong with array interfaces of others.

use crate::interchange::TensorError;

/// Why an array interface was refused, or cannot be made.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrayInterfaceError {
    /// A version that said less.
    #[error("the array interface is of version {version}, and only 3 and newer are known")]
    Version {
        /// The version.
        version: u32,
    },
    /// A mask.
    #[error("the array has a mask, which is not supported: fill what it leaves out, and export without it")]
    Mask,
    /// Not the dictionary.
    #[error("this is no array interface: {message}")]
    Json {
        /// The reader's words.
        message: Box<str>,
    },
    /// The numbers of the array.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}
