//! Array interfaces
//!
//! The CUDA array interface of version 3 and numpy's array interface, as JSON: plain numbers, for programs that speak to
//! Python's libraries. They say nothing of ownership: who hands an array out keeps the view while others use it, and who takes
//! one over keeps what it belongs to.

use crate::buffer::{Owner, cudamem_release_callback};
use crate::call::{self, Out, Outcome, check_flags, invalid, object, out, run, text};
use crate::handles::cudamem_stream;
use crate::handles::cudamem_text;
use crate::handles::cudamem_view;
use crate::status::cudamem_status;
use crate::text::new_text;
use core::ffi::{c_char, c_void};
use cuda_mem::Error;
use cuda_mem::interchange::array_interface::ArrayInterface;

/// Gives the CUDA array interface of a view as JSON: the address for devices, and the home stream, which the consumer orders its
/// own after. Nothing is waited for. Tell the view of the consumer's work: cudamem_view_record_use.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if devices do not address the memory, or the type has no typestr.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_view_export_cuda_array_interface(
    view: cudamem_view,
    json: Out<'_, cudamem_text>,
) -> cudamem_status {
    run("cudamem_view_export_cuda_array_interface", || {
        let json = out("json", json)?;
        let said = object("view", view)?.to_tensor()?.cuda_array_interface()?;
        json.write(new_text(said.to_json())?);
        Ok(())
    })
}

/// Gives numpy's array interface of a view as JSON: the address for the CPU. Waits for the memory's work.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the CPU does not address the memory, or not without flushes; if the type has no
/// typestr.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_view_export_array_interface(
    view: cudamem_view,
    json: Out<'_, cudamem_text>,
) -> cudamem_status {
    run("cudamem_view_export_array_interface", || {
        let json = out("json", json)?;
        let said = object("view", view)?.to_tensor()?.array_interface()?;
        json.write(new_text(said.to_json())?);
        Ok(())
    })
}

/// A flag of cudamem_view_import_cuda_array_interface: the producer's stream need not be waited for.
pub const CUDAMEM_ARRAY_INTERFACE_ORDERED: u32 = 1;

/// # Safety
///
/// The text is NULL or a C string.
unsafe fn read(json: *const c_char) -> Outcome<ArrayInterface> {
    // SAFETY: this function's contract.
    match unsafe { text("json", json) }? {
        Some(json) => Ok(ArrayInterface::from_json(json).map_err(Error::from)?),
        None => Err(invalid("json", "NULL", "it is what an array interface says")),
    }
}

/// Makes a view of an array that devices address, of which another library gives the CUDA array interface as JSON. stream becomes
/// the home stream of the memory's work, and waits for the stream that the interface names, unless a flag says that there is no
/// need. The memory must stay allocated until release was called with user, which the end of the last view or buffer of it does
/// when its work is done; where release is NULL, until that end. After a failure release is not called.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if it is no such JSON, or if the driver does not know the address as one for devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_import_cuda_array_interface(
    json: *const c_char,
    flags: u32,
    stream: cudamem_stream,
    release: cudamem_release_callback,
    user: *mut c_void,
    view: Out<'_, cudamem_view>,
) -> cudamem_status {
    run("cudamem_view_import_cuda_array_interface", || {
        let view = out("view", view)?;
        check_flags("flags", flags, CUDAMEM_ARRAY_INTERFACE_ORDERED)?;
        // SAFETY: the header's rule for texts.
        let said = unsafe { read(json) }?;
        let stream = object("stream", stream)?;
        let owner = Owner::new(release, user);
        // SAFETY: the program promises the memory, and that the producer's stream lives.
        let shared = unsafe { said.import_cuda(owner.clone(), &stream, flags != 0) }?;
        view.write(call::new_handle(shared.into_view()?)?);
        owner.arm();
        Ok(())
    })
}

/// Makes a view of an array of the host, of which another library gives numpy's array interface as JSON. Otherwise as
/// cudamem_view_import_cuda_array_interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_import_array_interface(
    json: *const c_char,
    stream: cudamem_stream,
    release: cudamem_release_callback,
    user: *mut c_void,
    view: Out<'_, cudamem_view>,
) -> cudamem_status {
    run("cudamem_view_import_array_interface", || {
        let view = out("view", view)?;
        // SAFETY: the header's rule for texts.
        let said = unsafe { read(json) }?;
        let stream = object("stream", stream)?;
        let owner = Owner::new(release, user);
        // SAFETY: the program promises the memory.
        let shared = unsafe { said.import_host(owner.clone(), &stream) }?;
        view.write(call::new_handle(shared.into_view()?)?);
        owner.arm();
        Ok(())
    })
}
