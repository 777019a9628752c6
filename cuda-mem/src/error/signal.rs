//! Errors of signals.

use core::time::Duration;

/// Why a wait failed, or a ring cannot go on.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignalError {
    /// The word did not get the awaited value in time.
    #[error(
        "{call}: after {waited:?} {what} is {seen:#x}, but the wait is for a value {comparison} {wanted:#x}: check \
         that its writer was launched, still runs, and writes to this word's address"
    )]
    TimedOut {
        /// The function.
        call: &'static str,
        /// The word.
        what: &'static str,
        /// The comparison.
        comparison: &'static str,
        /// The value that the word is compared with.
        wanted: u64,
        /// The last value of the word.
        seen: u64,
        /// Duration of the wait.
        waited: Duration,
    },

    /// The ring's other end wrote an impossible index.
    #[error(
        "{call}: the other end's index is {other}, which does not match this end's {own} in a ring of {capacity} \
         items: two producers or two consumers use the ring, or its memory was overwritten"
    )]
    OutOfStep {
        /// The function.
        call: &'static str,
        /// This end's index.
        own: u32,
        /// The other end's index, as read.
        other: u32,
        /// How many items the ring holds.
        capacity: u32,
    },

    /// A flag or counter ended while a stream waited for it. The library released the stream; the stream's next wait or
    /// access returns this error.
    #[error(
        "{name} was dropped while stream {stream:#x} waited for a value {comparison} {wanted:#x} (it was {value:#x}): \
         the work behind the wait ran without its condition; write the value before the signal ends, or keep the signal"
    )]
    Abandoned {
        /// The signal: its kind and its name.
        name: Box<str>,
        /// The driver's handle of the stream, as a number.
        stream: usize,
        /// The comparison.
        comparison: &'static str,
        /// The value that the word was compared with.
        wanted: u64,
        /// The word when the signal ended.
        value: u64,
    },

    /// The signal was closed: nobody writes it any more.
    #[error("{call}: {name} is closed: nobody writes it any more")]
    Closed {
        /// The function.
        call: &'static str,
        /// The signal: its kind and its name.
        name: Box<str>,
    },
}
