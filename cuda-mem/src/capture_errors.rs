//! Errors of calls that were refused because a stream captures a graph.

use crate::Error;
use cuda_sys::CUresult;

const CAPTURING: &str = "capturing a graph";

/// The error of a call that this crate refuses, with advice.
#[cold]
pub(crate) fn capturing(call: &'static str) -> Error {
    Error::invalid(
        call,
        "stream",
        CAPTURING,
        "a capture only records work: make this call before the capture or after it; memory inside a graph comes \
               from graph memory",
    )
}

/// Whether this crate or the driver refused a call because a stream captures.
pub(crate) fn is_for_a_capture(error: &Error) -> bool {
    match error {
        Error::InvalidArgument { value, .. } => **value == *CAPTURING,
        error => error.driver_code().is_some_and(is_of_capture),
    }
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
        assert!(text.starts_with("DriverPool::allocate: stream is capturing a graph, but "), "{text}");
        assert!(text.contains("before the capture") && text.contains("graph memory"), "{text}");
    }
}
