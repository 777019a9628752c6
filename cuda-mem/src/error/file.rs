//! Errors of reads of files.

use super::system;

/// A range of a file was not read. The text names the file, the range, the cause, and what to do.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {size} bytes from byte {offset} of {file} were not read: {cause}")]
#[non_exhaustive]
pub struct FileError {
    /// The function.
    pub call: &'static str,
    /// The file's path. If it has none, the number of its descriptor.
    pub file: Box<str>,
    /// The first byte of the range.
    pub offset: u64,
    /// The size of the range, in bytes.
    pub size: usize,
    /// Why it was not read.
    pub cause: FileErrorCause,
}

/// Why a range of a file was not read.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileErrorCause {
    /// The file has no bytes at offsets.
    #[error(
        "it is {kind}, and only regular files and block devices have bytes at offsets; read it into host memory, and copy \
         that"
    )]
    Kind {
        /// What it is.
        kind: &'static str,
    },

    /// The range reaches beyond the file, or beyond the largest offset.
    #[error("the file has {file_size} bytes; read a range that it has")]
    OutOfRange {
        /// The size of the file, in bytes.
        file_size: u64,
    },

    /// The file had the range when the call began, and then ended before it.
    #[error(
        "the file ended at byte {at}, although it was larger when the call began; keep it unchanged during the call"
    )]
    Ended {
        /// The offset of the first byte that is missing.
        at: u64,
    },

    /// The operating system refused a call.
    #[error("{call} failed: {}{}", std::io::Error::from_raw_os_error(*code), system::advice(call, *code))]
    System {
        /// The function.
        call: &'static str,
        /// The system's error number (errno).
        code: i32,
    },
}
