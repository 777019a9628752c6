//! Contexts
//!
//! Streams, events and memory of a device belong to a context. The library does not change which context is current for
//! the program: each thread's current context is the same before and after each call.

use crate::call::{self, Options, Out, Outcome, destroy, drop_object, fill, handle_type, invalid, object, out, run};
use crate::callbacks::drop_error_hook;
use crate::device::device;
use crate::handles::cudamem_context;
use crate::library::driver;
use crate::status::cudamem_status;
use core::ffi::c_void;
use core::mem::size_of;
use cuda_mem::Context;

handle_type!(cudamem_context: Context);

fn new_context(context: Context) -> Outcome<cudamem_context> {
    context.set_drop_error_hook(Some(drop_error_hook()));
    call::new_handle(context)
}

/// Opens the primary context of a device, which the CUDA runtime uses too. The library releases it when the handle is
/// destroyed and nothing made in the context is left.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_context_open_primary(ordinal: i32, context: Out<'_, cudamem_context>) -> cudamem_status {
    run("cudamem_context_open_primary", || {
        let context = out("context", context)?;
        context.write(new_context(device(ordinal)?.primary_context()?)?);
        Ok(())
    })
}

/// Makes a new context on a device. The context ends when the handle is destroyed and nothing made in the context is
/// left.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_context_create(ordinal: i32, context: Out<'_, cudamem_context>) -> cudamem_status {
    run("cudamem_context_create", || {
        let context = out("context", context)?;
        context.write(new_context(device(ordinal)?.create_context()?)?);
        Ok(())
    })
}

/// Uses the program's own context: raw is a CUcontext. The context must outlive the handle and everything made in it.
/// The library does not destroy it.
///
/// Errors: CUDAMEM_ERROR_DRIVER if the driver does not know the context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_context_borrow(raw: *mut c_void, context: Out<'_, cudamem_context>) -> cudamem_status {
    run("cudamem_context_borrow", || {
        let context = out("context", context)?;
        if raw.is_null() {
            return Err(invalid("raw", "NULL", "it must be a CUcontext; cuCtxGetCurrent returns the current one"));
        }
        // SAFETY: the header requires a live context.
        context.write(new_context(unsafe { Context::borrow_raw(driver()?, raw.cast()) }?)?);
        Ok(())
    })
}

/// What a context is, and the memory of its device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_context_info {
    /// sizeof(cudamem_context_info), set by the program.
    pub size: usize,
    /// The free memory of the device in bytes.
    pub free_memory: u64,
    /// The size of the device's memory in bytes, as the driver offers it to programs.
    pub total_memory: u64,
    /// The ordinal of the device.
    pub device: i32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: numbers of 8 + 8 + 8 + 4 + 4 bytes.
unsafe impl Options for cudamem_context_info {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Describes a context. Set info->size first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_context_get_info(
    context: cudamem_context,
    info: *mut cudamem_context_info,
) -> cudamem_status {
    run("cudamem_context_get_info", || {
        let context = object("context", context)?;
        let memory = context.memory_info()?;
        let answer = cudamem_context_info {
            size: size_of::<cudamem_context_info>(),
            free_memory: memory.free as u64,
            total_memory: memory.total as u64,
            device: context.device().ordinal(),
            reserved: 0,
        };
        // SAFETY: the header requires NULL or `size` writable bytes.
        unsafe { fill("info", info, answer) }
    })
}

/// Waits until all work of the context is done.
///
/// Errors: CUDAMEM_ERROR_DRIVER if work failed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_context_synchronize(context: cudamem_context) -> cudamem_status {
    run("cudamem_context_synchronize", || Ok(object("context", context)?.synchronize()?))
}

/// Lets the device of peer access the plain memory of context, present and future (cuCtxEnablePeerAccess), or takes that
/// away if allowed is false, after the work of peer so far. Copies between devices give access at their first need; kernels
/// that address another device's memory need this call or cudamem_resource_set_access.
///
/// Errors: CUDAMEM_ERROR_NO_ACCESS if no path connects the devices, if the device already accesses as many as it can, or if
/// the access does not work. CUDAMEM_ERROR_DRIVER if a context has ended.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_context_set_access(
    context: cudamem_context,
    peer: cudamem_context,
    allowed: bool,
) -> cudamem_status {
    run("cudamem_context_set_access", || {
        let (context, peer) = (object("context", context)?, object("peer", peer)?);
        Ok(if allowed { context.allow_access(&peer) } else { context.deny_access(&peer) }?)
    })
}

/// Loads the library's kernels now, before their first use: comparisons, strided copies, waits for rings. The driver waits
/// for all work of the context while it loads a kernel, so a first copy between views takes milliseconds or longer where
/// the next takes microseconds. The first cudamem_signals_create of a context loads them too.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if queued work waits for the CPU for more than 10 seconds.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_context_load_kernels(context: cudamem_context) -> cudamem_status {
    run("cudamem_context_load_kernels", || Ok(object("context", context)?.load_kernels()?))
}

/// Sets how many streams the context keeps ready, 32 by default, and makes them now. cudamem_stream_create takes them
/// while queued work waits for the CPU: a host function that has not returned, or a wait for a flag, counter, ring or
/// frame. A creation by the driver may then wait for that work, and hold up other threads. 0 switches the reserve off.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if queued work waits for the CPU for more than 10 seconds.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_context_reserve_streams(context: cudamem_context, count: usize) -> cudamem_status {
    run("cudamem_context_reserve_streams", || Ok(object("context", context)?.reserve_streams(count)?))
}

/// Sets how many bytes of destroyed memory may wait to be freed, 1 GiB by default. Some memory can be freed only while no
/// queued work of the context waits for the CPU: mapped, managed, write-combined and registered memory, and memory of
/// other processes. Beyond the limit, an allocation of such memory waits up to 10 seconds, then fails with
/// CUDAMEM_ERROR_OUT_OF_MEMORY and a message that names the streams.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_context_set_postponed_limit(context: cudamem_context, bytes: usize) -> cudamem_status {
    run("cudamem_context_set_postponed_limit", || {
        object("context", context)?.set_postponed_limit(bytes);
        Ok(())
    })
}

/// Destroys the handle. The context itself ends when nothing made in it is left. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_context_destroy(context: cudamem_context) -> cudamem_status {
    run("cudamem_context_destroy", || destroy("context", context, drop_object))
}
