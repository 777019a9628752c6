//! Calls that were refused because a stream captures a graph.

use crate::Error;
use core::fmt;
use cuda_sys::CUresult;

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

/// The error of a call on a stream that only records work.
#[cold]
pub(crate) fn capturing(call: &'static str) -> Error {
    CaptureRefusal::RecordsOnly.of(call)
}

/// Whether this crate or the driver refused a call because a stream captures.
pub(crate) fn is_for_a_capture(error: &Error) -> bool {
    matches!(error, Error::Capturing { .. }) || error.driver_code().is_some_and(is_of_capture)
}

/// Whether the driver refused a call because some stream captures a graph.
fn is_of_capture(code: CUresult) -> bool {
    (CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.0..=CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD.0)
        .contains(&code.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_capturing_stream_says_what_to_do() {
        let text = capturing("DriverPool::allocate").to_string();
        assert!(text.starts_with("DriverPool::allocate: the stream is capturing a graph, and "), "{text}");
        assert!(text.contains("before the capture") && text.contains("graph memory"), "{text}");
    }
}
