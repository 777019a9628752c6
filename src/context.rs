//! Contexts
//!
//! Streams, events and memory of a device belong to a context. The library does not change which context is current for
//! the program: each thread's current context is the same before and after each call.

use crate::call::{self, Out, Outcome, destroy, drop_object, handle_type, invalid, object, out, run};
use crate::callbacks::drop_error_hook;
use crate::device::device;
use crate::handle::Kind;
use crate::handles::cudamem_context;
use crate::library::driver;
use crate::status::cudamem_status;
use core::ffi::c_void;
use cuda_mem::Context;

handle_type!(cudamem_context: Context, Kind::Context);

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

/// Gets the driver's handle, a CUcontext. It is valid while the handle lives.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_context_get_raw(context: cudamem_context, raw: Out<'_, *mut c_void>) -> cudamem_status {
    run("cudamem_context_get_raw", || {
        let raw = out("raw", raw)?;
        raw.write(object("context", context)?.raw().cast());
        Ok(())
    })
}

/// Gets the ordinal of the context's device.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_context_get_device(context: cudamem_context, ordinal: Out<'_, i32>) -> cudamem_status {
    run("cudamem_context_get_device", || {
        let ordinal = out("ordinal", ordinal)?;
        ordinal.write(object("context", context)?.device().ordinal());
        Ok(())
    })
}

/// Gets the device's free and total memory in bytes. Either place may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_context_get_memory(
    context: cudamem_context,
    free: Out<'_, u64>,
    total: Out<'_, u64>,
) -> cudamem_status {
    run("cudamem_context_get_memory", || {
        let info = object("context", context)?.memory_info()?;
        if let Some(free) = free {
            free.write(info.free as u64);
        }
        if let Some(total) = total {
            total.write(info.total as u64);
        }
        Ok(())
    })
}

/// Waits until all work of the context is done.
///
/// Errors: CUDAMEM_ERROR_DRIVER if work failed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_context_synchronize(context: cudamem_context) -> cudamem_status {
    run("cudamem_context_synchronize", || Ok(object("context", context)?.synchronize()?))
}

/// Destroys the handle. The context itself ends when nothing made in it is left. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_context_destroy(context: cudamem_context) -> cudamem_status {
    run("cudamem_context_destroy", || destroy("context", context, drop_object))
}
