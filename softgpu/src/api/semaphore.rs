//! Semaphores of other APIs.

use crate::call::{Result, driver_calls, ensure, put};
use crate::state::Global;
use crate::state::checks::races;
use crate::state::contexts::current;
use crate::state::graphs::Params;
use crate::state::sharing::Semaphore;
use crate::state::streams::Stream;
use cuda_sys::{
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC, CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    CUexternalSemaphore, CUexternalSemaphoreHandleType, CUresult, CUstream,
};
use std::ffi::c_uint;
use std::ptr;
use std::sync::Arc;

driver_calls! {
    |global: &'static Global|

    /// Imports a semaphore by an opaque file descriptor, which the driver owns afterwards.
    fn cuImportExternalSemaphore[Started](
        extSem_out: *mut CUexternalSemaphore,
        semHandleDesc: *const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC,
    ) {
        let wish = semHandleDesc.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        ensure(!extSem_out.is_null() && wish.flags == 0)?;
        let context = current(global)?;
        match wish.type_ {
            CUexternalSemaphoreHandleType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD => {}
            CUexternalSemaphoreHandleType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD => {
                Semaphore::check(wish.handle.fd)?;
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
            // Includes those of other systems.
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
        let handle = Semaphore::import(global, &context, wish.handle.fd)?;
        put(extSem_out, ptr::without_provenance_mut(handle as usize))
    }

    /// Signals semaphores in stream order.
    fn cuSignalExternalSemaphoresAsync[Started, cuSignalExternalSemaphoresAsync_ptsz](
        extSemArray: *const CUexternalSemaphore,
        paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
        numExtSems: c_uint,
        stream: CUstream,
    ) {
        let stream = Stream::find(global, stream)?;
        let semaphores = all(global, extSemArray, paramsArray.is_null(), numExtSems)?;
        let moment = stream.moment();
        stream.perform(Params::Signal, move || {
            races::observe(&moment);
            semaphores.iter().for_each(|semaphore| semaphore.signal());
        })
    }

    /// Makes later work of a stream wait for semaphores.
    fn cuWaitExternalSemaphoresAsync[Started, cuWaitExternalSemaphoresAsync_ptsz](
        extSemArray: *const CUexternalSemaphore,
        paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
        numExtSems: c_uint,
        stream: CUstream,
    ) {
        let stream = Stream::find(global, stream)?;
        let semaphores = all(global, extSemArray, paramsArray.is_null(), numExtSems)?;
        stream.blur();
        stream.perform(Params::WaitForSignal, move || semaphores.iter().for_each(|semaphore| semaphore.wait()))
    }

    /// Ends an import.
    fn cuDestroyExternalSemaphore[Started](extSem: CUexternalSemaphore) {
        ensure(!extSem.is_null())?;
        let gone = global.semaphores.remove(extSem.addr() as u64);
        gone.map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }
}

/// The semaphores of an array.
///
/// # Safety
///
/// The array is null or has `count` elements.
unsafe fn all(
    global: &Global,
    array: *const CUexternalSemaphore,
    bare: bool,
    count: c_uint,
) -> Result<Vec<Arc<Semaphore>>> {
    ensure(!array.is_null() && !bare && count > 0)?;
    // SAFETY: by this function's contract.
    (0..count as usize).map(|n| Semaphore::find(global, unsafe { array.add(n).read() }.addr() as u64)).collect()
}
