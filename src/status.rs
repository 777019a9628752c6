//! Status
//!
//! Functions return a status. The message of the calling thread's last failure has the details: the function, the
//! argument, its value, the rule that it broke, and what to do.

use crate::message;
use core::ffi::{CStr, c_char};
use cuda_mem::Error;
use cuda_mem::copy::FileErrorCause;
use cuda_mem::frames::FrameError;
use cuda_mem::ipc::ChannelError;
use cuda_mem::pool::SleepError;
use cuda_mem::signal::SignalError;
use cuda_mem::view::ViewError;

/// The result of a function: CUDAMEM_SUCCESS or one of CUDAMEM_ERROR_... . Later releases may add values.
pub type cudamem_status = i32;

/// The call succeeded.
pub const CUDAMEM_SUCCESS: cudamem_status = 0;
/// An argument is NULL or out of range, or a flag, an enumerated value or a struct size is unknown.
pub const CUDAMEM_ERROR_INVALID_ARGUMENT: cudamem_status = 1;
/// A library (the CUDA driver or vkgdr) was not found.
pub const CUDAMEM_ERROR_LOAD: cudamem_status = 2;
/// The loaded library is too old for the call.
pub const CUDAMEM_ERROR_MISSING_SYMBOL: cudamem_status = 3;
/// The CUDA driver returned an error. cudamem_last_driver_code returns its code.
pub const CUDAMEM_ERROR_DRIVER: cudamem_status = 4;
/// The vkgdr library returned an error. The message contains its text.
pub const CUDAMEM_ERROR_VKGDR: cudamem_status = 5;
/// There is not enough memory, or a limit is reached. The same call may succeed after memory is freed.
pub const CUDAMEM_ERROR_OUT_OF_MEMORY: cudamem_status = 6;
/// A range lies outside of its memory.
pub const CUDAMEM_ERROR_OUT_OF_RANGE: cudamem_status = 7;
/// An offset, a size or an address is not a multiple of the required alignment.
pub const CUDAMEM_ERROR_MISALIGNED: cudamem_status = 8;
/// The driver, the library or the device cannot do this.
pub const CUDAMEM_ERROR_UNSUPPORTED: cudamem_status = 9;
/// A panic. A panic in libcudamem is a bug: the call was abandoned; please report it with the message.
pub const CUDAMEM_ERROR_PANIC: cudamem_status = 10;
/// A handle is null, names another kind of object, was destroyed, or was never made. The call changed nothing.
pub const CUDAMEM_ERROR_INVALID_HANDLE: cudamem_status = 11;
/// The process was forked after the driver was loaded. The driver does not survive a fork.
pub const CUDAMEM_ERROR_FORKED: cudamem_status = 12;
/// The operating system refused a call.
pub const CUDAMEM_ERROR_SYSTEM: cudamem_status = 13;
/// A wait reached its time limit.
pub const CUDAMEM_ERROR_TIMED_OUT: cudamem_status = 14;
/// A write damaged memory that it must not touch: a red zone, a freed block, or the words of a ring. The message names
/// the place.
pub const CUDAMEM_ERROR_DAMAGED: cudamem_status = 15;
/// The other process closed the channel or is gone, or a flag or counter was destroyed during a wait for it.
pub const CUDAMEM_ERROR_CLOSED: cudamem_status = 16;
/// A message between processes is too long or has the wrong files, or an earlier call failed in the middle of a
/// message.
pub const CUDAMEM_ERROR_CHANNEL: cudamem_status = 17;
/// A message from another process is not an export, is truncated, changed or forged, or is for another kind, device or
/// pool.
pub const CUDAMEM_ERROR_DESCRIPTOR: cudamem_status = 18;
/// One device does not access another device's memory directly, and the call would need it: there is no path, or the
/// access does not work, or the program asked to do without the host.
pub const CUDAMEM_ERROR_NO_ACCESS: cudamem_status = 19;
/// The call needs memory of a pool that sleeps. Wake the pool first (cudamem_pool_wake).
pub const CUDAMEM_ERROR_ASLEEP: cudamem_status = 20;
/// The program's callback for progress canceled the call. Nothing is left of it.
pub const CUDAMEM_ERROR_CANCELED: cudamem_status = 21;

/// The name of each status, in the order of the numbers.
const NAMES: [&CStr; 22] = [
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
    c"CUDAMEM_ERROR_INVALID_HANDLE",
    c"CUDAMEM_ERROR_FORKED",
    c"CUDAMEM_ERROR_SYSTEM",
    c"CUDAMEM_ERROR_TIMED_OUT",
    c"CUDAMEM_ERROR_DAMAGED",
    c"CUDAMEM_ERROR_CLOSED",
    c"CUDAMEM_ERROR_CHANNEL",
    c"CUDAMEM_ERROR_DESCRIPTOR",
    c"CUDAMEM_ERROR_NO_ACCESS",
    c"CUDAMEM_ERROR_ASLEEP",
    c"CUDAMEM_ERROR_CANCELED",
];

/// The status of an error of cuda-mem.
pub fn status_of(error: &Error) -> cudamem_status {
    match error {
        error if error.is_out_of_memory() => CUDAMEM_ERROR_OUT_OF_MEMORY,
        Error::InvalidArgument { .. }
        | Error::Alignment { .. }
        | Error::Capturing { .. }
        | Error::StillShared { .. }
        | Error::DataType(_)
        | Error::Tensor(_)
        | Error::Dlpack(_)
        | Error::Arrow(_)
        | Error::ArrayInterface(_) => CUDAMEM_ERROR_INVALID_ARGUMENT,
        Error::View(error) => match **error {
            ViewError::OutOfBounds { .. } => CUDAMEM_ERROR_OUT_OF_RANGE,
            ViewError::Misaligned { .. } => CUDAMEM_ERROR_MISALIGNED,
            _ => CUDAMEM_ERROR_INVALID_ARGUMENT,
        },
        Error::Peer(_) => CUDAMEM_ERROR_NO_ACCESS,
        Error::Sleep(SleepError::Asleep { .. }) => CUDAMEM_ERROR_ASLEEP,
        Error::Sleep(SleepError::Busy { .. }) => CUDAMEM_ERROR_TIMED_OUT,
        Error::Sleep(_) => CUDAMEM_ERROR_INVALID_ARGUMENT,
        Error::Canceled { .. } => CUDAMEM_ERROR_CANCELED,
        Error::Load(_) => CUDAMEM_ERROR_LOAD,
        Error::MissingSymbol(_) => CUDAMEM_ERROR_MISSING_SYMBOL,
        Error::Driver(_) | Error::NoSuchDevice { .. } => CUDAMEM_ERROR_DRIVER,
        Error::Forked { .. } => CUDAMEM_ERROR_FORKED,
        Error::Vkgdr { .. } => CUDAMEM_ERROR_VKGDR,
        Error::OutOfRange { .. } => CUDAMEM_ERROR_OUT_OF_RANGE,
        Error::Misaligned { .. } => CUDAMEM_ERROR_MISALIGNED,
        Error::System { .. } => CUDAMEM_ERROR_SYSTEM,
        Error::File(error) => match error.cause {
            FileErrorCause::OutOfRange { .. } | FileErrorCause::Ended { .. } => CUDAMEM_ERROR_OUT_OF_RANGE,
            FileErrorCause::System { .. } => CUDAMEM_ERROR_SYSTEM,
            _ => CUDAMEM_ERROR_INVALID_ARGUMENT,
        },
        Error::Panicked { .. } => CUDAMEM_ERROR_PANIC,
        // No resource of a C program is foreign.
        Error::Foreign { .. } => CUDAMEM_ERROR_UNSUPPORTED,
        Error::WaitTimedOut(_) => CUDAMEM_ERROR_TIMED_OUT,
        Error::Signal(error) if matches!(**error, SignalError::TimedOut { .. }) => CUDAMEM_ERROR_TIMED_OUT,
        Error::Signal(error) if matches!(**error, SignalError::Abandoned { .. } | SignalError::Closed { .. }) => {
            CUDAMEM_ERROR_CLOSED
        }
        Error::Signal(_) | Error::Damaged(_) => CUDAMEM_ERROR_DAMAGED,
        Error::Frame(FrameError::TimedOut { .. }) => CUDAMEM_ERROR_TIMED_OUT,
        Error::Frame(FrameError::RingDropped { .. } | FrameError::Abandoned { .. }) => CUDAMEM_ERROR_CLOSED,
        Error::Frame(_) => CUDAMEM_ERROR_INVALID_ARGUMENT,
        Error::Channel(ChannelError::TimedOut { .. }) => CUDAMEM_ERROR_TIMED_OUT,
        Error::Channel(ChannelError::Closed { .. } | ChannelError::Cut { .. }) => CUDAMEM_ERROR_CLOSED,
        Error::Channel(_) => CUDAMEM_ERROR_CHANNEL,
        Error::Descriptor(_) => CUDAMEM_ERROR_DESCRIPTOR,
        // A variant of a later cuda-mem that this release does not know counts as unsupported.
        _ => CUDAMEM_ERROR_UNSUPPORTED,
    }
}

/// Returns the name of a status, such as "CUDAMEM_ERROR_DRIVER", or "CUDAMEM_ERROR_UNKNOWN" for a value that this
/// release does not know. The text is static.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_status_name(status: cudamem_status) -> *const c_char {
    let known = usize::try_from(status).ok().and_then(|index| NAMES.get(index));
    known.copied().unwrap_or(c"CUDAMEM_ERROR_UNKNOWN").as_ptr()
}

/// Returns the message of the calling thread's last failure, or NULL if the thread had none. The text is valid until
/// the same thread's next failure, or until the thread ends.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_last_error_message() -> *const c_char {
    message::last_text()
}

/// Returns the CUDA driver's code (CUresult) of the calling thread's last failure, or 0 if it was not a driver error.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_last_driver_code() -> i32 {
    message::last_driver_code()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_mem::ipc::DescriptorError;

    #[test]
    fn every_status_has_a_name_and_unknown_ones_say_so() {
        let name = |status| {
            // SAFETY: the function returns static text.
            unsafe { CStr::from_ptr(cudamem_status_name(status)) }.to_string_lossy()
        };
        assert_eq!(name(CUDAMEM_SUCCESS), "CUDAMEM_SUCCESS");
        assert_eq!(name(CUDAMEM_ERROR_PANIC), "CUDAMEM_ERROR_PANIC");
        assert_eq!(name(CUDAMEM_ERROR_SYSTEM), "CUDAMEM_ERROR_SYSTEM");
        assert_eq!(name(CUDAMEM_ERROR_DESCRIPTOR), "CUDAMEM_ERROR_DESCRIPTOR");
        assert_eq!(name(CUDAMEM_ERROR_NO_ACCESS), "CUDAMEM_ERROR_NO_ACCESS");
        assert_eq!(name(CUDAMEM_ERROR_ASLEEP), "CUDAMEM_ERROR_ASLEEP");
        assert_eq!(NAMES.len() as i32 - 1, CUDAMEM_ERROR_CANCELED);
        assert_eq!((name(-1), name(i32::MAX)), ("CUDAMEM_ERROR_UNKNOWN".into(), "CUDAMEM_ERROR_UNKNOWN".into()));
    }

    #[test]
    fn errors_become_the_status_that_says_what_to_do() {
        let limit = Error::LimitReached { call: "t", requested: 1, used: 1, limit: 1 };
        assert_eq!(status_of(&limit), CUDAMEM_ERROR_OUT_OF_MEMORY);
        let range = Error::OutOfRange { call: "t", offset: 1, length: 2, size: 3 };
        assert_eq!(status_of(&range), CUDAMEM_ERROR_OUT_OF_RANGE);
        assert_eq!(status_of(&Error::Forked { call: "t", loaded_by: 1, process: 2 }), CUDAMEM_ERROR_FORKED);
        let closed = |error: ChannelError| status_of(&error.into());
        assert_eq!(closed(ChannelError::Closed { call: "t" }), CUDAMEM_ERROR_CLOSED);
        assert_eq!(closed(ChannelError::Cut { call: "t", received: 1, expected: 2 }), CUDAMEM_ERROR_CLOSED);
        assert_eq!(closed(ChannelError::TimedOut { call: "t", limit: Default::default() }), CUDAMEM_ERROR_TIMED_OUT);
        assert_eq!(closed(ChannelError::Broken { call: "t" }), CUDAMEM_ERROR_CHANNEL);
        assert_eq!(status_of(&DescriptorError::Forged { call: "t" }.into()), CUDAMEM_ERROR_DESCRIPTOR);
        let sleep = |error: SleepError| status_of(&error.into());
        assert_eq!(status_of(&Error::Canceled { call: "t" }), CUDAMEM_ERROR_CANCELED);
        assert_eq!(sleep(SleepError::Asleep { call: "t", address: None }), CUDAMEM_ERROR_ASLEEP);
        assert_eq!(sleep(SleepError::Busy { call: "t", waits: "".into() }), CUDAMEM_ERROR_TIMED_OUT);
        assert_eq!(sleep(SleepError::Awake { call: "t" }), CUDAMEM_ERROR_INVALID_ARGUMENT);
        assert_eq!(status_of(&Error::ImportedPool { call: "t" }), CUDAMEM_ERROR_UNSUPPORTED);
    }
}
