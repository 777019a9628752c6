//! Errors with their codes and texts, and the calling thread's last error.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::ptr;

use ash::vk;

/// `VKGDR_ERROR_INVALID_VALUE`: an argument that no device could accept.
pub const INVALID_VALUE: c_int = -2001;
/// `VKGDR_ERROR_INVALID_HANDLE`: a NULL handle, or a handle of a parent process.
pub const INVALID_HANDLE: c_int = -2002;
/// `VKGDR_ERROR_LIBRARY_NOT_FOUND`: a library, or a function in it, is missing.
pub const LIBRARY_NOT_FOUND: c_int = -2003;
/// `VKGDR_ERROR_NO_DEVICE`: no Vulkan device is the CUDA device.
pub const NO_DEVICE: c_int = -2004;
/// `VKGDR_ERROR_SYSTEM`: a system call failed.
pub const SYSTEM: c_int = -2005;
/// `VKGDR_ERROR_INTERNAL`: a bug in this library.
pub const INTERNAL: c_int = -2006;

/// Why a call failed. Each text ends with a code name in brackets.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{0} (VKGDR_ERROR_INVALID_VALUE)")]
    InvalidValue(String),
    #[error("{0} (VKGDR_ERROR_INVALID_HANDLE)")]
    InvalidHandle(&'static str),
    #[error("{0} (VKGDR_ERROR_LIBRARY_NOT_FOUND)")]
    LibraryNotFound(String),
    #[error("{library} could not be loaded: {reason} (VKGDR_ERROR_LIBRARY_NOT_FOUND)")]
    NotLoaded { library: String, reason: String },
    #[error("{0} (VKGDR_ERROR_NO_DEVICE)")]
    NoDevice(String),
    #[error("{what}: {source} (VKGDR_ERROR_SYSTEM)")]
    System { what: &'static str, source: std::io::Error },
    #[error("{0} (VKGDR_ERROR_INTERNAL)")]
    Internal(String),
    #[error("{what} ({})", vulkan_name(*code))]
    Vulkan { what: String, code: vk::Result },
    #[error("{what} ({name})")]
    Cuda { what: String, code: u32, name: String },
}

impl Error {
    pub(crate) fn vulkan(what: impl Into<String>, code: vk::Result) -> Self {
        Self::Vulkan { what: what.into(), code }
    }

    /// Returns the code for C: a `VkResult` (negative), a `CUresult` (positive), or one of this library's own codes.
    pub(crate) fn code(&self) -> c_int {
        match self {
            Self::InvalidValue(_) => INVALID_VALUE,
            Self::InvalidHandle(_) => INVALID_HANDLE,
            Self::LibraryNotFound(_) | Self::NotLoaded { .. } => LIBRARY_NOT_FOUND,
            Self::NoDevice(_) => NO_DEVICE,
            Self::System { .. } => SYSTEM,
            Self::Internal(_) => INTERNAL,
            Self::Vulkan { code, .. } => code.as_raw(),
            Self::Cuda { code, .. } => c_int::try_from(*code).unwrap_or(c_int::MAX),
        }
    }
}

/// Returns the name of a `VkResult` as vulkan.h spells it.
pub(crate) fn vulkan_name(code: vk::Result) -> Cow<'static, str> {
    Cow::Borrowed(match code {
        vk::Result::NOT_READY => "VK_NOT_READY",
        vk::Result::TIMEOUT => "VK_TIMEOUT",
        vk::Result::INCOMPLETE => "VK_INCOMPLETE",
        vk::Result::ERROR_OUT_OF_HOST_MEMORY => "VK_ERROR_OUT_OF_HOST_MEMORY",
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => "VK_ERROR_OUT_OF_DEVICE_MEMORY",
        vk::Result::ERROR_INITIALIZATION_FAILED => "VK_ERROR_INITIALIZATION_FAILED",
        vk::Result::ERROR_DEVICE_LOST => "VK_ERROR_DEVICE_LOST",
        vk::Result::ERROR_MEMORY_MAP_FAILED => "VK_ERROR_MEMORY_MAP_FAILED",
        vk::Result::ERROR_LAYER_NOT_PRESENT => "VK_ERROR_LAYER_NOT_PRESENT",
        vk::Result::ERROR_EXTENSION_NOT_PRESENT => "VK_ERROR_EXTENSION_NOT_PRESENT",
        vk::Result::ERROR_FEATURE_NOT_PRESENT => "VK_ERROR_FEATURE_NOT_PRESENT",
        vk::Result::ERROR_INCOMPATIBLE_DRIVER => "VK_ERROR_INCOMPATIBLE_DRIVER",
        vk::Result::ERROR_TOO_MANY_OBJECTS => "VK_ERROR_TOO_MANY_OBJECTS",
        vk::Result::ERROR_UNKNOWN => "VK_ERROR_UNKNOWN",
        vk::Result::ERROR_OUT_OF_POOL_MEMORY => "VK_ERROR_OUT_OF_POOL_MEMORY",
        vk::Result::ERROR_INVALID_EXTERNAL_HANDLE => "VK_ERROR_INVALID_EXTERNAL_HANDLE",
        other => return Cow::Owned(format!("VkResult {}", other.as_raw())),
    })
}

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Clears the calling thread's last error.
pub(crate) fn clear() {
    // A thread that is ending no longer has a last error.
    let _ = LAST.try_with(|last| last.take());
}

/// Makes `error` the calling thread's last error.
pub(crate) fn set(error: &Error) {
    let text: Vec<u8> = error.to_string().into_bytes();
    let text: Vec<u8> = text.into_iter().filter(|byte| *byte != 0).collect();
    if let Ok(text) = CString::new(text) {
        let _ = LAST.try_with(|last| last.replace(Some(text)));
    }
}

/// Returns a copy of the calling thread's last error, allocated by `malloc`, or NULL if there is none.
pub(crate) fn last() -> *mut c_char {
    LAST.try_with(|last| last.borrow().as_deref().map_or(ptr::null_mut(), duplicate)).unwrap_or(ptr::null_mut())
}

/// Copies `text` with `malloc`. Returns NULL if memory is out.
pub(crate) fn duplicate(text: &std::ffi::CStr) -> *mut c_char {
    // SAFETY: a `CStr` ends with a zero byte.
    unsafe { libc::strdup(text.as_ptr()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_carry_the_code_name() {
        let error = Error::vulkan("allocating", vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
        assert_eq!(error.to_string(), "allocating (VK_ERROR_OUT_OF_DEVICE_MEMORY)");
        assert_eq!(error.code(), -2);
        assert_eq!(vulkan_name(vk::Result::from_raw(-77)), "VkResult -77");
    }

    #[test]
    fn the_last_error_stays_with_its_thread_until_cleared() {
        set(&Error::InvalidValue("mine\0".into()));
        std::thread::spawn(|| assert!(last().is_null())).join().expect("the other thread has no error");
        for _ in 0..2 {
            let text = last();
            assert!(!text.is_null());
            // SAFETY: `last` returned a fresh string.
            unsafe {
                assert_eq!(std::ffi::CStr::from_ptr(text).to_bytes(), b"mine (VKGDR_ERROR_INVALID_VALUE)");
                libc::free(text.cast());
            }
        }
        clear();
        assert!(last().is_null());
    }
}
