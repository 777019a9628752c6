//! What can go wrong between CPU and device.

use core::time::Duration;

/// Why a wait ended without what it waited for, or a ring cannot go on.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignalError {
    /// Time was up.
    #[error(
        "{call}: after {waited:?} {what} is {seen:#x}, but it waits for one {comparison} {wanted:#x}: whoever writes it has \
         not, or not where the CPU sees it (look for a missing launch, a kernel that ended, a wrong address)"
    )]
    TimedOut {
        /// The function.
        call: &'static str,
        /// What was looked at.
        what: &'static str,
        /// How it was compared.
        comparison: &'static str,
        /// With what.
        wanted: u64,
        /// What it was last.
        seen: u64,
        /// How long the wait was.
        waited: Duration,
    },

    /// The ring's other end wrote an index that cannot be.
    #[error(
        "{call}: the other end's index is {other}, which does not fit to this end's {own} in a ring of {capacity} items: \
         two producers or two consumers use the ring, or its memory was overwritten"
    )]
    OutOfStep {
        /// The function.
        call: &'static str,
        /// This end's index.
        own: u32,
        /// The other end's, as it was read.
        other: u32,
        /// How many items the ring holds.
        capacity: u32,
    },

    /// A flag or counter ended while a stream waited for it. The library let the stream go on; this error goes to the
    /// stream's next wait or access.
    #[error(
        "{name} was dropped while stream {stream:#x} waited for it to be {comparison} {wanted:#x} (it was {value:#x}): the \
         work behind the wait ran without its condition; write the value before the signal ends, or keep the signal"
    )]
    Abandoned {
        /// The signal: its kind and its name.
        name: Box<str>,
        /// The driver's handle of the stream, as a number.
        stream: usize,
        /// How the word was compared.
        comparison: &'static str,
        /// With what.
        wanted: u64,
        /// What the word was when the signal ended.
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
