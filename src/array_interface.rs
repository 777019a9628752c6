//! Array interfaces
//!
//! The CUDA array interface and numpy's array interface, as JSON, for programs that exchange arrays with Python
//! libraries: exports of version 3, imports of any version. They carry no ownership: an exporter keeps the view while
//! others use the array, and an importer keeps the array's owner alive.

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

/// A flag of array interfaces: numpy's array interface, of memory that the CPU addresses, instead of CUDA's.
pub const CUDAMEM_ARRAY_INTERFACE_NUMPY: u32 = 1;
/// A flag of cudamem_view_import_array_interface: do not wait for the producer's stream.
pub const CUDAMEM_ARRAY_INTERFACE_ORDERED: u32 = 2;

/// Gets the CUDA array interface of a view as JSON: the device's address, and the home stream, which the consumer's
/// stream must wait for. Does not wait. Record the consumer's work with cudamem_record_use.
///
/// With CUDAMEM_ARRAY_INTERFACE_NUMPY, gets numpy's array interface: the CPU's address. Waits for the work on the
/// memory.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if devices, or the CPU, do not address the memory, if the CPU's memory needs
/// flushes, or if the type has no typestr.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_view_export_array_interface(
    view: cudamem_view,
    flags: u32,
    json: Out<'_, cudamem_text>,
) -> cudamem_status {
    run("cudamem_view_export_array_interface", || {
        let json = out("json", json)?;
        check_flags("flags", flags, CUDAMEM_ARRAY_INTERFACE_NUMPY)?;
        let tensor = object("view", view)?.to_tensor()?;
        let said = if flags == 0 { tensor.cuda_array_interface()? } else { tensor.array_interface()? };
        json.write(new_text(said.to_json())?);
        Ok(())
    })
}

/// # Safety
///
/// The text is NULL or a C string.
unsafe fn read(json: *const c_char) -> Outcome<ArrayInterface> {
    // SAFETY: this function's contract.
    match unsafe { text("json", json) }? {
        Some(json) => Ok(ArrayInterface::from_json(json).map_err(Error::from)?),
        None => Err(invalid("json", "NULL", "it must be the JSON text of an array interface")),
    }
}

/// Makes a view of another library's array that devices address, from its CUDA array interface as JSON. stream becomes
/// the memory's home stream, and waits for the stream that the interface names unless CUDAMEM_ARRAY_INTERFACE_ORDERED
/// is set. The memory must stay allocated until the library calls release with user, after the last view or buffer of
/// it has ended and its work is done, or until that point if release is NULL. After a failure the library does not call
/// release. With CUDAMEM_ARRAY_INTERFACE_NUMPY, the array lies in host memory, and the text is numpy's array interface.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the text is not an array interface, or if the driver does not know the
/// address as a device address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_view_import_array_interface(
    json: *const c_char,
    flags: u32,
    stream: cudamem_stream,
    release: cudamem_release_callback,
    user: *mut c_void,
    view: Out<'_, cudamem_view>,
) -> cudamem_status {
    run("cudamem_view_import_array_interface", || {
        let view = out("view", view)?;
        check_flags("flags", flags, CUDAMEM_ARRAY_INTERFACE_NUMPY | CUDAMEM_ARRAY_INTERFACE_ORDERED)?;
        // SAFETY: the header requires NULL or a zero-terminated string.
        let said = unsafe { read(json) }?;
        let stream = object("stream", stream)?;
        let owner = Owner::new(release, user);
        let ordered = flags & CUDAMEM_ARRAY_INTERFACE_ORDERED != 0;
        // SAFETY: the header requires live memory and a live producer's stream.
        let shared = unsafe {
            match flags & CUDAMEM_ARRAY_INTERFACE_NUMPY {
                0 => said.import_cuda(owner.clone(), &stream, ordered)?,
                _ => said.import_host(owner.clone(), &stream)?,
            }
        };
        view.write(call::new_handle(shared.into_view()?)?);
        owner.arm();
        Ok(())
    })
}
