//! Errors of frames.

use core::time::Duration;

/// Why no frame is available, or why a frame cannot be used.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// No slot is left that device work could free, so a wait would never end.
    #[error(
        "{call}: all {frames} frames of the ring are taken ({open} open, {captured} out of use because a graph may read \
         them): publish or drop one first, or make a ring of more frames; a forgotten frame stays open for ever"
    )]
    AllOpen {
        /// The function.
        call: &'static str,
        /// Number of the ring's frames.
        frames: usize,
        /// Number of frames that are open, or that other threads are taking.
        open: usize,
        /// Number of frames no longer used, because a graph may read them.
        captured: usize,
    },

    /// Device work still reads the oldest frame.
    #[error(
        "{call}: after {waited:?} device work still reads the oldest frame: the consumers are too slow, or they wait \
         for something that this thread has yet to do, such as publishing an earlier frame"
    )]
    TimedOut {
        /// The function.
        call: &'static str,
        /// Duration of the wait.
        waited: Duration,
    },

    /// The ring was dropped, which ended the frame.
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
        "frame {frame} was abandoned: {why} before it was published, so work on this stream that waited for it read \
         unfinished bytes; do not use the results of that work"
    )]
    Abandoned {
        /// The frame's number.
        frame: u64,
        /// What ended first.
        why: &'static str,
    },

    /// A stream that reads a frame captures a graph, which could read the frame at every launch.
    #[error(
        "{call}: stream began to capture a graph while work on frame {frame} was queued on it: the graph could read \
         the frame at any time, so the frame's memory is not used again; capture on a stream without frames"
    )]
    Captured {
        /// The function.
        call: &'static str,
        /// The frame's number.
        frame: u64,
    },
}
