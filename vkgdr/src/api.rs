//! The twelve functions of vkgdr 0.1.

use std::ffi::{c_char, c_void};
use std::ptr;

use cuda_sys::{CUdevice, CUdeviceptr};

use crate::cuda::Cuda;
use crate::error;
use crate::handle::{allocated, call, hand_out, open, opened, ready, synchronise, vkgdr_memory_t, vkgdr_t};
use crate::memory::{Direction, Memory};

/// Opens the Vulkan side of a CUDA device.
///
/// # Safety
///
/// The call has no requirements beyond those of C. It calls the CUDA driver that it finds.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub unsafe extern "C" fn vkgdr_open(device: CUdevice, flags: u32) -> vkgdr_t {
    open(device, flags, Cuda::load)
}

/// Closes a device. Memory allocated from it stays valid.
///
/// # Safety
///
/// `handle` is NULL or an open device, and no other call uses it now or later.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub unsafe extern "C" fn vkgdr_close(handle: vkgdr_t) {
    call((), || {
        if handle.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's contract.
        unsafe { opened(handle) }?;
        // SAFETY: the handle came from Box::into_raw and, by contract, is used no more.
        drop(unsafe { Box::from_raw(handle) });
        Ok(())
    });
}

/// Allocates memory that CPU and GPU both address.
///
/// # Safety
///
/// `handle` is NULL or an open device.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub unsafe extern "C" fn vkgdr_memory_alloc(handle: vkgdr_t, size: usize, flags: u32) -> vkgdr_memory_t {
    error::clear();
    call(ptr::null_mut(), || {
        // SAFETY: the caller's contract.
        let (this, size) = unsafe { ready(handle, size, flags) }?;
        Memory::allocate(&this.device, &this.cuda, size, this.coherent).map(hand_out)
    })
}

/// Frees memory in the CUDA context in which it was allocated.
///
/// # Safety
///
/// `handle` is NULL or memory that was not freed, and neither it nor its addresses are used any more.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub unsafe extern "C" fn vkgdr_memory_free(handle: vkgdr_memory_t) {
    call((), || {
        if handle.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's contract.
        unsafe { allocated(handle) }?;
        // SAFETY: the handle came from Box::into_raw and, by contract, is used no more.
        drop(unsafe { Box::from_raw(handle) });
        Ok(())
    });
}

/// Returns the CPU address, or NULL if `handle` is NULL.
///
/// # Safety
///
/// `handle` is NULL or memory that was not freed.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub unsafe extern "C" fn vkgdr_memory_get_host_ptr(handle: vkgdr_memory_t) -> *mut c_void {
    call(ptr::null_mut(), || {
        // SAFETY: the caller's contract.
        Ok(unsafe { allocated(handle) }?.host().cast())
    })
}

/// Returns the CUDA address, or 0 if `handle` is NULL.
///
/// # Safety
///
/// `handle` is NULL or memory that was not freed.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub unsafe extern "C" fn vkgdr_memory_get_device_ptr(handle: vkgdr_memory_t) -> CUdeviceptr {
    call(0, || {
        // SAFETY: the caller's contract.
        Ok(unsafe { allocated(handle) }?.device_pointer())
    })
}

/// Returns the size in bytes, or 0 if `handle` is NULL.
///
/// # Safety
///
/// `handle` is NULL or memory that was not freed.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub unsafe extern "C" fn vkgdr_memory_get_size(handle: vkgdr_memory_t) -> usize {
    call(0, || {
        // SAFETY: the caller's contract.
        Ok(unsafe { allocated(handle) }?.size())
    })
}

/// Returns whether flush and invalidate are unnecessary, or false if `handle` is NULL.
///
/// # Safety
///
/// `handle` is NULL or memory that was not freed.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub unsafe extern "C" fn vkgdr_memory_is_coherent(handle: vkgdr_memory_t) -> bool {
    call(false, || {
        // SAFETY: the caller's contract.
        Ok(unsafe { allocated(handle) }?.coherent())
    })
}

/// Returns the unit of flush and invalidate in bytes: 1 for coherent memory, and 1 if `handle` is NULL.
///
/// # Safety
///
/// `handle` is NULL or memory that was not freed.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub unsafe extern "C" fn vkgdr_memory_non_coherent_atom_size(handle: vkgdr_memory_t) -> usize {
    call(1, || {
        // SAFETY: the caller's contract.
        Ok(unsafe { allocated(handle) }?.atom())
    })
}

/// Makes CPU writes visible to the device.
///
/// # Safety
///
/// `handle` is NULL or memory that was not freed.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub unsafe extern "C" fn vkgdr_memory_flush(handle: vkgdr_memory_t, offset: usize, size: usize) {
    // SAFETY: the caller's contract.
    call((), || unsafe { synchronise(Direction::Flush, handle, offset, size) });
}

/// Makes device writes visible to the CPU.
///
/// # Safety
///
/// `handle` is NULL or memory that was not freed.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub unsafe extern "C" fn vkgdr_memory_invalidate(handle: vkgdr_memory_t, offset: usize, size: usize) {
    // SAFETY: the caller's contract.
    call((), || unsafe { synchronise(Direction::Invalidate, handle, offset, size) });
}

/// Returns a copy of the calling thread's last error, or NULL if there is none. The caller must free it.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub extern "C" fn vkgdr_last_error() -> *mut c_char {
    error::last()
}
