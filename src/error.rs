//! Status codes, the thread's last message, and the boundary at which panics stop.

use core::any::Any;
use core::ffi::{CStr, c_char};
use cuda_mem::Error;
use std::cell::RefCell;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `cudamem_status` of the header.
pub type Status = i32;

/// One row for each status of the header, in the order of its numbers.
const NAMES: [&CStr; 11] = [
    c"CUDAMEM_SUCCESS",
    c"CUDAMEM_ERROR_INVALID_ARGUMENT",
    c"CUDAMEM_ERROR_LOAD",
    c"CUDAMEM_ERROR_MISSING_SYMBOL",
    c"CUDAMEM_ERROR_DRIVER",
    c"CUDAMEM_ERROR_VKGDR",
    c"CUDAMEM_ERROR_OUT_OF_MEMORY",
    c"CUDAMEM_ERROR_OUT_OF_RANGE",
    c"CUDAMEM_ERROR_MISALIGNED",
    c"CUDAMEM_ERROR_UNSUPPORTED",
    c"CUDAMEM_ERROR_PANIC",
];
const PANIC: Status = 10;

fn status(error: &Error) -> Status {
    match error {
        Error::InvalidArgument { .. } => 1,
        Error::Load(_) => 2,
        Error::MissingSymbol(_) => 3,
        Error::Driver(_) | Error::Forked { .. } => 4,
        Error::Vkgdr { .. } => 5,
        Error::OutOfMemory { .. } => 6,
        Error::OutOfRange { .. } => 7,
        Error::Misaligned { .. } => 8,
        // A later variant of cuda-mem that this release does not know is something it does not offer.
        _ => 9,
    }
}

thread_local! {
    static MESSAGE: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Runs a call of the interface: an error becomes a status and the thread's message, and a panic stops here.
pub fn boundary(call: impl FnOnce() -> Result<(), Error>) -> Status {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => fail(status(&error), error.to_string()),
        Err(payload) => {
            let message = format!("a defect of libcudamem: {}", words(&*payload));
            // A payload may panic when it is dropped.
            let _ = catch_unwind(AssertUnwindSafe(move || drop(payload)));
            fail(PANIC, message)
        }
    }
}

/// The error for a null pointer.
pub fn null(call: &'static str, argument: &'static str) -> Error {
    Error::InvalidArgument { call, argument, value: "null".into(), rule: "it points to where the result goes" }
}

fn words(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without words")
}

fn fail(status: Status, mut message: String) -> Status {
    message.retain(|letter| letter != '\0');
    // A thread that is ending has no message left to set.
    let _ = MESSAGE.try_with(|last| *last.borrow_mut() = CString::new(message).ok());
    status
}

/// `cudamem_last_error_message` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_last_error_message() -> *const c_char {
    MESSAGE
        .try_with(|last| last.borrow().as_ref().map_or(core::ptr::null(), |message| message.as_ptr()))
        .unwrap_or(core::ptr::null())
}

/// `cudamem_status_name` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_status_name(status: Status) -> *const c_char {
    let known = usize::try_from(status).ok().and_then(|index| NAMES.get(index));
    known.copied().unwrap_or(c"CUDAMEM_ERROR_UNKNOWN").as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> String {
        let text = cudamem_last_error_message();
        assert!(!text.is_null());
        // SAFETY: the thread's own message, which no other call changes here.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    #[test]
    fn an_error_becomes_a_status_and_a_message() {
        assert!(cudamem_last_error_message().is_null());
        assert_eq!(boundary(|| Ok(())), 0);
        assert_eq!(boundary(|| Err(null("cudamem_load", "release"))), 1);
        assert_eq!(message(), "cudamem_load: release is null, but it points to where the result goes");
        let range = Error::OutOfRange { call: "t", offset: 1, length: 2, size: 3 };
        assert_eq!(boundary(|| Err(range)), 7);
    }

    #[test]
    fn a_panic_stops_at_the_boundary_even_one_whose_payload_panics() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("again");
            }
        }
        assert_eq!(boundary(|| panic!("words {}", 7)), PANIC);
        assert_eq!(message(), "a defect of libcudamem: words 7");
        assert_eq!(boundary(|| std::panic::panic_any(Bomb)), PANIC);
    }

    #[test]
    fn every_status_has_a_name_and_unknown_ones_say_so() {
        let name = |status| {
            // SAFETY: the function gives text that lives forever.
            unsafe { CStr::from_ptr(cudamem_status_name(status)) }.to_string_lossy()
        };
        assert_eq!(name(0), "CUDAMEM_SUCCESS");
        assert_eq!(name(PANIC), "CUDAMEM_ERROR_PANIC");
        assert_eq!((name(-1), name(i32::MAX)), ("CUDAMEM_ERROR_UNKNOWN".into(), "CUDAMEM_ERROR_UNKNOWN".into()));
    }
}
