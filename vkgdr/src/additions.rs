//! The functions that upstream's vkgdr does not have, and the lookup of every function by name.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr;

use cuda_sys::CUdevice;

use crate::api::*;
use crate::cache;
use crate::cuda::{Cuda, Resolver};
use crate::error::{self, Error};
use crate::handle::{allocated, call, hand_out, open, ready, status, synchronise, vkgdr_memory_t, vkgdr_t};
use crate::memory::{Direction, Memory};

/// As [`vkgdr_open`], but `symbol` supplies the CUDA functions.
///
/// # Safety
///
/// During this call, `symbol` is safe to call with `user`. The functions that it returns belong to a CUDA driver and
/// stay valid as long as the handle and its memory live.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub unsafe extern "C" fn vkgdr_open_with_cuda(
    device: CUdevice,
    flags: u32,
    symbol: Option<Resolver>,
    user: *mut c_void,
) -> vkgdr_t {
    open(device, flags, || {
        let symbol = symbol.ok_or_else(|| Error::InvalidValue("the function that finds CUDA is NULL".into()))?;
        // SAFETY: the caller's contract.
        unsafe { Cuda::given(symbol, user) }
    })
}

/// As [`vkgdr_memory_flush`], but returns a status.
///
/// # Safety
///
/// `handle` is NULL or memory that was not freed.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub unsafe extern "C" fn vkgdr_memory_flush_checked(handle: vkgdr_memory_t, offset: usize, size: usize) -> c_int {
    // SAFETY: the caller's contract.
    status(|| unsafe { synchronise(Direction::Flush, handle, offset, size) })
}

/// As [`vkgdr_memory_invalidate`], but returns a status.
///
/// # Safety
///
/// `handle` is NULL or memory that was not freed.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub unsafe extern "C" fn vkgdr_memory_invalidate_checked(handle: vkgdr_memory_t, offset: usize, size: usize) -> c_int {
    // SAFETY: the caller's contract.
    status(|| unsafe { synchronise(Direction::Invalidate, handle, offset, size) })
}

/// Returns a new file descriptor for the memory. Other processes can import it too.
///
/// # Safety
///
/// `handle` is NULL or memory that was not freed; `fd` is NULL or may be written.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub unsafe extern "C" fn vkgdr_memory_export_fd(handle: vkgdr_memory_t, fd: *mut c_int) -> c_int {
    status(|| {
        // SAFETY: the caller's contract.
        let memory = unsafe { allocated(handle) }?;
        // SAFETY: the caller's contract.
        let fd =
            unsafe { fd.as_mut() }.ok_or_else(|| Error::InvalidValue("the place for the descriptor is NULL".into()))?;
        *fd = memory.export()?.into_raw_fd();
        Ok(())
    })
}

/// Maps exported memory for the CPU and for CUDA in this process. The library takes ownership of the descriptor on
/// success only.
///
/// # Safety
///
/// `handle` is NULL or an open device. `fd`, if open, refers to `size` bytes of memory that vkgdr exported. On success
/// it belongs to this library.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub unsafe extern "C" fn vkgdr_memory_import_fd(handle: vkgdr_t, fd: c_int, size: usize, flags: u32) -> vkgdr_memory_t {
    error::clear();
    call(ptr::null_mut(), || {
        // SAFETY: the caller's contract.
        let (this, size) = unsafe { ready(handle, size, flags) }?;
        if fd < 0 {
            return Err(Error::InvalidValue(format!("file descriptor {fd}: it must not be negative")));
        }
        // SAFETY: `fd` is not -1. If it is not open, its first use, which duplicates it, reports the error.
        let source = unsafe { BorrowedFd::borrow_raw(fd) };
        let mut memory = Memory::import(&this.device, &this.cuda, source, size, this.coherent)?;
        // SAFETY: `fd` is open, because duplicating it worked, and the caller gives it up.
        memory.keep(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(hand_out(memory))
    })
}

/// Returns the version of upstream's interface and of this library.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub extern "C" fn vkgdr_version() -> *const c_char {
    concat!("0.1.0+cuda-mem.", env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Returns a JSON text that describes the Vulkan setup of this machine. The caller must free it.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub extern "C" fn vkgdr_describe() -> *mut c_char {
    #[cfg(feature = "describe")]
    let text = &std::panic::catch_unwind(crate::describe::describe)
        .unwrap_or_else(|_| c"{\"error\":\"a bug in vkgdr\"}".to_owned());
    #[cfg(not(feature = "describe"))]
    let text = c"{\"error\":\"this vkgdr library was built without its feature `describe`\"}";
    error::duplicate(text)
}

/// Destroys the cached Vulkan objects that no handle uses.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub extern "C" fn vkgdr_trim() {
    call((), || {
        cache::trim();
        Ok(())
    });
}

macro_rules! symbols {
    ($($name:ident)*) => {
        /// The address of one of the C functions, by its C name; null for any other name.
        pub fn symbol(name: &CStr) -> *const c_void {
            match name.to_bytes() {
                $(bytes if bytes == stringify!($name).as_bytes() => $name as *const c_void,)*
                _ => ptr::null(),
            }
        }

        /// The names of all the C functions.
        pub const SYMBOLS: &[&str] = &[$(stringify!($name)),*];
    };
}

symbols! {
    vkgdr_open
    vkgdr_close
    vkgdr_memory_alloc
    vkgdr_memory_free
    vkgdr_memory_get_host_ptr
    vkgdr_memory_get_device_ptr
    vkgdr_memory_get_size
    vkgdr_memory_is_coherent
    vkgdr_memory_non_coherent_atom_size
    vkgdr_memory_flush
    vkgdr_memory_invalidate
    vkgdr_last_error
    vkgdr_version
    vkgdr_open_with_cuda
    vkgdr_memory_flush_checked
    vkgdr_memory_invalidate_checked
    vkgdr_memory_export_fd
    vkgdr_memory_import_fd
    vkgdr_describe
    vkgdr_trim
}
