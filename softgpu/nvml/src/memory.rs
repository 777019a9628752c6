//! The memory that this process uses, which only the driver knows.

use std::ffi::{c_int, c_void};

/// The bytes of a device's memory that this process uses: those of the libcuda.so.1 that the process has loaded, if it
/// is softgpu, and 0 otherwise.
pub(crate) fn used(unit: usize) -> u64 {
    const LOADED: c_int = libc::RTLD_NOW | libc::RTLD_NOLOAD;
    // SAFETY: the name is a C string. The call loads nothing; it only finds a library that is loaded already.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), LOADED) };
    if library.is_null() {
        return 0;
    }
    // SAFETY: the library is open, and the name is a C string.
    let address = unsafe { libc::dlsym(library, c"softgpu_memory_used".as_ptr()) };
    let bytes = if address.is_null() {
        0
    } else {
        // SAFETY: softgpu exports a function of this signature under this name, which no other library has.
        let ask = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(usize) -> u64>(address) };
        ask(unit)
    };
    // SAFETY: `dlopen` above returned the library; others still use it.
    unsafe { libc::dlclose(library) };
    bytes
}
