//! What can go wrong with frames.

use core::time::Duration;

/// Why there is no frame, or why a frame is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// No slot is left that device work could give back: waiting would never end.
    #[error(
        "{call}: the ring's {frames} frames are all taken ({open} open, {lost} lost to graphs): publish or drop one first, \
         or make a ring of more frames; a frame that was forgotten stays open for ever"
    )]
    AllOpen {
        /// The function.
        call: &'static str,
        /// How many frames the ring has.
        frames: usize,
        /// How many of them are open, or asked for by other threads.
        open: usize,
        /// How many are not used any more, because a graph may read them.
        lost: usize,
    },

    /// Device work still reads the oldest frame.
    #[error(
        "{call}: after {waited:?} device work still reads the oldest frame: the consumers are too slow, or they wait for \
         something that this thread has yet to do, such as publishing a frame that was taken before"
    )]
    TimedOut {
        /// The function.
        call: &'static str,
        /// How long the wait was.
        waited: Duration,
    },

    /// The ring has ended, and the frame with it.
    #[error(
        "{call}: frame {frame} was given up when its ring was dropped: keep the ring until its frames are published"
    )]
    RingDropped {
        /// The function.
        call: &'static str,
        /// The frame's number.
        frame: u64,
    },

    /// A stream waited for a frame that nobody published.
    #[error(
        "frame {frame} was abandoned: {why} before it was published, so work that waited for it on this stream read bytes \
         that nobody had finished; do not use the results of that work"
    )]
    Abandoned {
        /// The frame's number.
        frame: u64,
        /// What ended first.
        why: &'static str,
    },

    /// A stream records a graph, which would read the frame whenever it is launched.
    #[error(
        "{call}: stream began to capture a graph while it was given work on frame {frame}: the graph could read the frame at \
         any time, so the frame's memory is not used again; capture on a stream that no frame is used on"
    )]
    Captured {
        /// The function.
        call: &'static str,
        /// The frame's number.
        frame: u64,
    },
}
