//! Version
//!
//! CUDAMEM_VERSION_NUMBER is the release of the header that a program was compiled with. cudamem_version_number returns
//! the release of the library that it runs with.

use core::ffi::{CStr, c_char};

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version without zeros"),
};

/// Returns the library's release as text, such as "0.1.0". The text is static.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Returns the library's release as one number, to compare with CUDAMEM_VERSION_NUMBER: major * 1000000 + minor * 1000
/// + patch.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_version_number() -> u32 {
    const NUMBER: u32 = number(env!("CARGO_PKG_VERSION_MAJOR")) * 1_000_000
        + number(env!("CARGO_PKG_VERSION_MINOR")) * 1000
        + number(env!("CARGO_PKG_VERSION_PATCH"));
    NUMBER
}

const fn number(digits: &str) -> u32 {
    let (digits, mut value, mut at) = (digits.as_bytes(), 0, 0);
    while at < digits.len() {
        value = value * 10 + (digits[at] - b'0') as u32;
        at += 1;
    }
    value
}
