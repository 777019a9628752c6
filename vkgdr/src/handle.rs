//! The handles of the C interface: what they hold, and how calls check them and catch panics.

#![allow(non_camel_case_types)]

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

use cuda_sys::CUdevice;

use crate::cuda::Cuda;
use crate::device::Device;
use crate::error::{self, Error};
use crate::memory::{Direction, Memory};
use crate::{cache, process};

/// `VKGDR_OPEN_CURRENT_CONTEXT_BIT`: take the device of the current CUDA context.
pub const VKGDR_OPEN_CURRENT_CONTEXT_BIT: u32 = 1;
/// `VKGDR_OPEN_FORCE_NON_COHERENT_BIT`: treat all memory as non-coherent.
pub const VKGDR_OPEN_FORCE_NON_COHERENT_BIT: u32 = 2;
/// `VKGDR_OPEN_REQUIRE_COHERENT_BIT`: fail unless the memory is coherent.
pub const VKGDR_OPEN_REQUIRE_COHERENT_BIT: u32 = 4;

const ALL_FLAGS: u32 =
    VKGDR_OPEN_CURRENT_CONTEXT_BIT | VKGDR_OPEN_FORCE_NON_COHERENT_BIT | VKGDR_OPEN_REQUIRE_COHERENT_BIT;

/// An open device.
#[allow(missing_debug_implementations)]
pub struct Gpu {
    pub(crate) device: Arc<Device>,
    pub(crate) cuda: Cuda,
    ordinal: CUdevice,
    pub(crate) coherent: bool,
    generation: u32,
}

/// An allocation.
#[allow(missing_debug_implementations)]
pub struct Allocation {
    memory: Memory,
    generation: u32,
}

/// The C handle of a device.
pub type vkgdr_t = *mut Gpu;
/// The C handle of an allocation.
pub type vkgdr_memory_t = *mut Allocation;

/// Runs `work`. On failure, stores the thread's last error and returns `fallback`.
pub(crate) fn call<T>(fallback: T, work: impl FnOnce() -> Result<T, Error>) -> T {
    attempt(work).unwrap_or(fallback)
}

/// Runs `work`. Returns 0, or on failure stores the thread's last error and returns its code.
pub(crate) fn status(work: impl FnOnce() -> Result<(), Error>) -> c_int {
    error::clear();
    match attempt(work) {
        Ok(()) => 0,
        Err(code) => code,
    }
}

fn attempt<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, c_int> {
    let outcome = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        let text = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(Error::Internal(format!("a bug in vkgdr: {text}")))
    });
    outcome.map_err(|error| {
        error::set(&error);
        error.code()
    })
}

/// # Safety
///
/// `handle` is NULL or an open device.
pub(crate) unsafe fn opened<'a>(handle: vkgdr_t) -> Result<&'a Gpu, Error> {
    // SAFETY: the caller's contract.
    let this = unsafe { handle.as_ref() }.ok_or(Error::InvalidHandle("the vkgdr_t is NULL"))?;
    same_process(this.generation)?;
    Ok(this)
}

/// # Safety
///
/// `handle` is NULL or memory that was not freed.
pub(crate) unsafe fn allocated<'a>(handle: vkgdr_memory_t) -> Result<&'a Memory, Error> {
    // SAFETY: the caller's contract.
    let this = unsafe { handle.as_ref() }.ok_or(Error::InvalidHandle("the vkgdr_memory_t is NULL"))?;
    same_process(this.generation)?;
    Ok(&this.memory)
}

fn same_process(generation: u32) -> Result<(), Error> {
    if generation == process::generation() {
        return Ok(());
    }
    Err(Error::InvalidHandle("the handle belongs to the parent process: open a new one after fork"))
}

pub(crate) fn open(device: CUdevice, flags: u32, cuda: impl FnOnce() -> Result<Cuda, Error>) -> vkgdr_t {
    error::clear();
    call(ptr::null_mut(), || {
        if flags & !ALL_FLAGS != 0 {
            return Err(Error::InvalidValue(format!("flags {flags:#x}: only the bits {ALL_FLAGS:#x} are defined")));
        }
        let cuda = cuda()?;
        let ordinal = if flags & VKGDR_OPEN_CURRENT_CONTEXT_BIT == 0 { device } else { cuda.current_device()? };
        let device = cache::device(cuda.uuid(ordinal)?)?;
        if flags & VKGDR_OPEN_REQUIRE_COHERENT_BIT != 0 && !device.memory.coherent {
            return Err(Error::vulkan(
                format!(
                    "the Vulkan device {} has no suitable memory type: none is device-local, host-visible and coherent",
                    device.name
                ),
                ash::vk::Result::ERROR_FEATURE_NOT_PRESENT,
            ));
        }
        Ok(Box::into_raw(Box::new(Gpu {
            coherent: device.memory.coherent && flags & VKGDR_OPEN_FORCE_NON_COHERENT_BIT == 0,
            device,
            cuda,
            ordinal,
            generation: process::generation(),
        })))
    })
}

/// The checks that allocation and import share: handle, size, flags, current context.
///
/// # Safety
///
/// `handle` is NULL or an open device.
pub(crate) unsafe fn ready<'a>(handle: vkgdr_t, size: usize, flags: u32) -> Result<(&'a Gpu, u64), Error> {
    // SAFETY: the caller's contract.
    let this = unsafe { opened(handle) }?;
    if flags != 0 {
        return Err(Error::InvalidValue(format!("flags {flags:#x}: no flag is defined, pass 0")));
    }
    if size == 0 {
        return Err(Error::InvalidValue("size 0: memory must have at least 1 byte".into()));
    }
    let current = this.cuda.current_device()?;
    if current != this.ordinal {
        return Err(Error::InvalidValue(format!(
            "the current CUDA context belongs to device {current}, but the handle to device {}: make a context of that \
             device current",
            this.ordinal
        )));
    }
    Ok((this, size as u64))
}

pub(crate) fn hand_out(memory: Memory) -> vkgdr_memory_t {
    Box::into_raw(Box::new(Allocation { memory, generation: process::generation() }))
}

/// # Safety
///
/// `handle` is NULL or memory that was not freed.
pub(crate) unsafe fn synchronise(
    direction: Direction,
    handle: vkgdr_memory_t,
    offset: usize,
    size: usize,
) -> Result<(), Error> {
    // SAFETY: the caller's contract.
    unsafe { allocated(handle) }?.synchronise(direction, offset as u64, size as u64)
}
