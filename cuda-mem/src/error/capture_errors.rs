//! Calls that were refused because a stream captures a graph.

use crate::Error;
use crate::error::CaptureRefusal;
use cuda_sys::CUresult;

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
