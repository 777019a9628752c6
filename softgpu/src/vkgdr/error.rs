//! Errors, their codes, and the calling thread's last error.

use cuda_sys::CUresult;
use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a vkgdr call failed. Each text ends with the name of the code in brackets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("{0} (VKGDR_ERROR_INVALID_VALUE)")]
    InvalidValue(String),
    #[error("the {0} handle is NULL, or does not belong to this process (VKGDR_ERROR_INVALID_HANDLE)")]
    InvalidHandle(&'static str),
    #[error("{what} ({})", .code.name().unwrap_or("CUDA_ERROR_UNKNOWN"))]
    Cuda { what: String, code: CUresult },
    #[error("{0} (VK_ERROR_OUT_OF_DEVICE_MEMORY)")]
    OutOfDeviceMemory(String),
    #[error("{0} (VK_ERROR_FEATURE_NOT_PRESENT)")]
    NotCoherent(&'static str),
    #[error("{0} (VK_ERROR_INVALID_EXTERNAL_HANDLE)")]
    NotMemory(String),
    #[error("{what}: {text} (VKGDR_ERROR_SYSTEM)")]
    System { what: &'static str, text: String },
    #[error("{function} fails: a test injected this fault ({})", injected(*.code))]
    Injected { function: &'static str, code: CUresult },
    #[error("softgpu panicked, which is a bug of softgpu (VKGDR_ERROR_INTERNAL)")]
    Panicked,
}

impl Error {
    pub(crate) fn code(&self) -> c_int {
        match self {
            Error::InvalidValue(_) => -2001,
            Error::InvalidHandle(_) => -2002,
            Error::Cuda { code, .. } | Error::Injected { code, .. } => code.0 as c_int,
            Error::OutOfDeviceMemory(_) => -2,
            Error::NotCoherent(_) => -8,
            Error::NotMemory(_) => -1_000_072_003,
            Error::System { .. } => -2005,
            Error::Panicked => -2006,
        }
    }

    pub(crate) fn cuda(what: impl Into<String>) -> impl FnOnce(CUresult) -> Self {
        let what = what.into();
        |code| Error::Cuda { what, code }
    }

    pub(crate) fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Error::System { what, text: error.to_string() }
    }
}

/// The name of an injected code, which may be one of CUDA's or one of Vulkan's.
fn injected(code: CUresult) -> &'static str {
    match code.0 as i32 {
        -1 => "VK_ERROR_OUT_OF_HOST_MEMORY",
        -2 => "VK_ERROR_OUT_OF_DEVICE_MEMORY",
        -3 => "VK_ERROR_INITIALIZATION_FAILED",
        -4 => "VK_ERROR_DEVICE_LOST",
        -5 => "VK_ERROR_MEMORY_MAP_FAILED",
        -8 => "VK_ERROR_FEATURE_NOT_PRESENT",
        -10 => "VK_ERROR_TOO_MANY_OBJECTS",
        _ => code.name().unwrap_or("VK_ERROR_UNKNOWN"),
    }
}

/// Fails if a fault was injected for this call.
pub(crate) fn may_fail(function: &'static str) -> Result<(), Error> {
    match crate::rig::vkgdr_fault(function) {
        None => Ok(()),
        Some(code) => Err(Error::Injected { function, code }),
    }
}

thread_local! {
    static LAST: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// Whether a call clears the last error before it starts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    Forget,
    Keep,
}

/// Runs the body of a C function. An error becomes the thread's last error, and no panic leaves.
pub(crate) fn call<T>(before: Before, body: impl FnOnce() -> Result<T, Error>) -> Result<T, c_int> {
    if before == Before::Forget {
        set(None);
    }
    let answer = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Error::Panicked));
    answer.map_err(|error| {
        let code = error.code();
        set(Some(error));
        code
    })
}

fn set(error: Option<Error>) {
    // A thread that is ending has no last error.
    let _ = LAST.try_with(|last| *last.borrow_mut() = error);
}

/// The text of the last error, which the caller frees; null if there is none.
pub(crate) fn last() -> *mut c_char {
    let text = LAST.try_with(|last| last.borrow().as_ref().map(Error::to_string)).ok().flatten();
    text.map_or(std::ptr::null_mut(), |text| crate::ledger::c_text(&text))
}
