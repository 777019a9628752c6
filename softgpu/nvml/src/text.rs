//! Start and end, versions, texts of errors.

use crate::calls::{INVALID_ARGUMENT, nvml_calls, put, put_text, start, started, stop};
use std::ffi::{CStr, c_char, c_int, c_uint};

/// The release of the driver whose answers softgpu gives.
const DRIVER: &str = "580.159.04";

nvml_calls! {
    /// Starts the library.
    fn nvmlInit() {
        start()
    }

    /// Starts the library.
    fn nvmlInit_v2() {
        start()
    }

    /// Starts the library. The flags only concern machines without devices.
    fn nvmlInitWithFlags(flags: c_uint) {
        if flags > 3 { Err(INVALID_ARGUMENT) } else { start() }
    }

    /// Ends the library, as often as it was started.
    fn nvmlShutdown() {
        stop()
    }

    /// Writes the release of the driver.
    fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) {
        started()?;
        put_text(version, length as usize, DRIVER)
    }

    /// Writes the release of this library.
    fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint) {
        started()?;
        put_text(version, length as usize, &format!("13.{DRIVER}"))
    }

    /// Returns the CUDA release that softgpu serves.
    fn nvmlSystemGetCudaDriverVersion(cudaDriverVersion: *mut c_int) {
        put(cudaDriverVersion, started()?.settings.version as c_int)
    }

    /// Returns the CUDA release that softgpu serves.
    fn nvmlSystemGetCudaDriverVersion_v2(cudaDriverVersion: *mut c_int) {
        put(cudaDriverVersion, started()?.settings.version as c_int)
    }
}

/// The text for a code.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn nvmlErrorString(result: c_uint) -> *const c_char {
    text(result).as_ptr()
}

fn text(code: c_uint) -> &'static CStr {
    match code {
        0 => c"success",
        1 => c"the library is not started: call nvmlInit",
        2 => c"an argument is invalid",
        3 => c"the device does not support this",
        4 => c"the caller has no permission",
        6 => c"nothing was found",
        7 => c"the buffer is too small",
        9 => c"the driver is not loaded",
        13 => c"the library lacks the function",
        25 => c"the version of an argument does not match",
        _ => c"unknown error",
    }
}
