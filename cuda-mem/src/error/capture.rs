//! Why a call was refused because a stream captures a graph.

use super::Error;
use core::fmt;

/// Why a call was refused beside a capture of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureRefusal {
    /// The stream captures, and the work must run now.
    RecordsOnly,
    /// Another thread captures the stream.
    OtherThread,
    /// A blocking stream captures, and the call uses the legacy default stream, which waits for blocking streams.
    LegacyDefault,
    /// Another thread's capture recorded the event.
    OtherThreadsEvent,
    /// The stream captures, and the event was recorded outside of that capture.
    EventFromOutside,
    /// The stream captures, and another library may launch the graph when memory of the call is another owner's: it is a
    /// stream of cudarc, or a thread's default stream.
    OthersLaunch,
    /// The stream's capture was invalidated, so no graph comes of it.
    Invalidated,
}

impl fmt::Display for CaptureRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RecordsOnly => {
                "the stream is capturing a graph, and a capture only records work: make this call before the capture or \
                 after it; memory inside a graph comes from graph memory"
            }
            Self::OtherThread => {
                "another thread is capturing a graph with the stream: use the stream after that capture has ended"
            }
            Self::LegacyDefault => {
                "a blocking stream of the context is capturing a graph, and the legacy default stream would wait for \
                 it: use another stream, or capture a stream that is not blocking"
            }
            Self::OtherThreadsEvent => {
                "another thread is capturing a graph that recorded the event: use the event after that capture has ended"
            }
            Self::EventFromOutside => {
                "the stream is capturing a graph, and the event was recorded outside of that capture: record it on a \
                 stream of the capture, or wait for it before the capture"
            }
            Self::OthersLaunch => {
                "the stream is capturing a graph that safe code of another library can launch when the memory belongs to \
                 others: make this call before the capture or after it; to record it, capture a stream made by Stream::new, or \
                 use a value of Stream::borrow_raw, whose caller answers for the launches"
            }
            Self::Invalidated => {
                "a call that no capture allows has invalidated the capture of the stream, so no graph will own the memory: \
                 end the capture, then repeat it without that call"
            }
        })
    }
}

impl CaptureRefusal {
    /// The error of a call that this crate refuses.
    #[cold]
    pub(crate) fn of(self, call: &'static str) -> Error {
        Error::Capturing { call, why: self }
    }
}
