//! Errors of channels between processes.

use core::time::Duration;

/// Why a channel failed.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The other process closed its end, or died, between messages.
    #[error("{call}: the other process has closed the channel or ended")]
    Closed {
        /// The function.
        call: &'static str,
    },
    /// The other process closed its end, or died, within a message.
    #[error("{call}: the other process closed the channel within a message: {received} of {expected} bytes came")]
    Cut {
        /// The function.
        call: &'static str,
        /// The bytes that came.
        received: usize,
        /// The bytes of this part of the message.
        expected: usize,
    },
    /// The other process did not send or receive in time.
    #[error("{call}: the other process did nothing for {limit:?}: set_timeout sets the limit")]
    TimedOut {
        /// The function.
        call: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// The message is too long.
    #[error("{call}: the message has {length} bytes, but {limit} is the limit")]
    TooLong {
        /// The function.
        call: &'static str,
        /// Its length in bytes.
        length: usize,
        /// The longest length in bytes.
        limit: usize,
    },
    /// A message came with too few or too many file descriptors.
    #[error("{call}: {received} file descriptors came instead of {expected}")]
    FileDescriptors {
        /// The function.
        call: &'static str,
        /// How many belong to the message.
        expected: usize,
        /// How many came; [`MAX_FILE_DESCRIPTORS`](crate::ipc::MAX_FILE_DESCRIPTORS) or more if there were more than that.
        received: usize,
    },
    /// The system gave this process fewer file descriptors than a message had, and the message is lost.
    #[error(
        "{call}: the system gave this process only {received} of the message's file descriptors, and the rest is lost: it \
         has no free ones (close files, or raise the limit: `ulimit -n`, RLIMIT_NOFILE), or a security policy forbids \
         them; then open a new channel"
    )]
    NoFreeFiles {
        /// The function.
        call: &'static str,
        /// How many came.
        received: usize,
    },
    /// The message would have too many file descriptors.
    #[error("{call}: the message has {count} file descriptors, but {limit} is the limit")]
    TooManyFiles {
        /// The function.
        call: &'static str,
        /// Their number.
        count: usize,
        /// The largest number.
        limit: usize,
    },
    /// An earlier call failed within a message, so the start of the next one is unknown.
    #[error("{call}: an earlier call failed within a message: open a new channel")]
    Broken {
        /// The function.
        call: &'static str,
    },
}

cuda_sys::debug_as_display!(ChannelError);
