//! Memory of other APIs.

use crate::call::{driver_calls, ensure, put};
use crate::state::Global;
use crate::state::contexts::current;
use crate::state::sharing::ExternalMemory;
use cuda_sys::{
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_DEDICATED, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUdeviceptr,
    CUexternalMemory, CUexternalMemoryHandleType, CUresult,
};
use std::ptr;

driver_calls! {
    |global: &'static Global|

    /// Imports memory by an opaque file descriptor, which the driver owns afterwards.
    fn cuImportExternalMemory[Started](
        extMem_out: *mut CUexternalMemory,
        memHandleDesc: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    ) {
        let wish = memHandleDesc.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        ensure(!extMem_out.is_null())?;
        let context = current(global)?;
        ensure(wish.flags & !CUDA_EXTERNAL_MEMORY_DEDICATED == 0)?;
        match wish.type_ {
            CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD => {}
            CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD => {
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
            // Includes those of other systems.
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
        let handle = ExternalMemory::import(global, &context, wish.handle.fd, wish.size)?;
        put(extMem_out, ptr::without_provenance_mut(handle as usize))
    }

    /// Maps a range of imported memory. cuMemFree unmaps it.
    fn cuExternalMemoryGetMappedBuffer[Started](
        devPtr: *mut CUdeviceptr,
        extMem: CUexternalMemory,
        bufferDesc: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
    ) {
        let wish = bufferDesc.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        ensure(!devPtr.is_null() && !extMem.is_null() && wish.flags == 0)?;
        let memory = global.externals.get(extMem.addr() as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        put(devPtr, memory.map(global, wish.offset, wish.size)?.base)
    }

    /// Ends an import. Mapped ranges stay usable.
    fn cuDestroyExternalMemory[Started](extMem: CUexternalMemory) {
        ensure(!extMem.is_null())?;
        let gone = global.externals.remove(extMem.addr() as u64);
        gone.map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }
}
