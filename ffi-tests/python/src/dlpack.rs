//! DLPack.

use crate::{Outcome, Session, boxed, run};
use cuda_mem::interchange::dlpack::{DLManagedTensor, DLManagedTensorVersioned, ManagedTensor};
use cuda_mem::interchange::{Consumer, Copying, ExportOptions, Release, SharedTensor, StreamName, TensorDevice};
use std::ffi::c_void;
use std::ptr;

/// Options of an export, as bits.
const READ_ONLY: u32 = 1;
const COPY: u32 = 2;
const LEGACY: u32 = 4;
const TO_CPU: u32 = 8;

/// Exports a tensor through DLPack. `stream` is the consumer's stream number, or 0 if the consumer names none. A copy
/// is allocated from pinned memory if the CPU wants it, else from the tensor's own kind of memory.
///
/// # Safety
///
/// Session and tensor are alive. A stream's handle lives until the deleter is called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_to_dlpack(
    session: &Session,
    tensor: &SharedTensor,
    stream: i64,
    how: u32,
) -> *mut c_void {
    let export = || -> Outcome<*mut c_void> {
        let theirs = match StreamName::from_dlpack((stream != 0).then_some(stream))? {
            // SAFETY: this function's contract.
            name if stream != 0 => unsafe { name.stream(&session.context) },
            _ => None,
        };
        let consumer = match &theirs {
            Some(theirs) => Consumer::Stream(theirs),
            None if stream == -1 => Consumer::Unordered,
            None => Consumer::Unsaid,
        };
        let kind = match tensor.tensor().device() {
            TensorDevice::Cuda(_) if how & TO_CPU == 0 => 0,
            TensorDevice::CudaManaged => 2,
            _ => 1,
        };
        let resource = session.resource(kind)?;
        let managed = tensor.to_dlpack(&ExportOptions {
            consumer,
            release: Release::AfterStream,
            read_only: how & READ_ONLY != 0,
            copying: if how & COPY != 0 { Copying::Always } else { Copying::WhereNeeded },
            device: (how & TO_CPU != 0).then_some(TensorDevice::Cpu),
            resource: Some(&resource),
        })?;
        Ok(match how & LEGACY {
            0 => managed.into_versioned().cast(),
            _ => managed.into_legacy()?.cast(),
        })
    };
    run(export).unwrap_or(ptr::null_mut())
}

/// Calls the deleter of an export that was not consumed.
///
/// # Safety
///
/// The export comes from `interchange_to_dlpack` and was not consumed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_end_dlpack(managed: *mut c_void, legacy: bool) {
    // SAFETY: this function's contract.
    unsafe {
        match legacy {
            true => drop(ManagedTensor::from_legacy(managed.cast::<DLManagedTensor>())),
            false => drop(ManagedTensor::from_versioned(managed.cast::<DLManagedTensorVersioned>())),
        }
    }
}

/// Imports a DLPack tensor. The import is ordered on the session's stream, and its end waits for that stream.
///
/// # Safety
///
/// The session is open. The pointer is a tensor, and the call consumes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn interchange_from_dlpack(
    session: &Session,
    managed: *mut c_void,
    legacy: bool,
) -> *mut SharedTensor {
    boxed(|| {
        // SAFETY: this function's contract, and the caller has ordered the tensor before the session's stream.
        unsafe {
            let managed = match legacy {
                true => ManagedTensor::from_legacy(managed.cast())?,
                false => ManagedTensor::from_versioned(managed.cast())?,
            };
            Ok(managed.check()?.into_shared(&session.stream, None)?)
        }
    })
}
