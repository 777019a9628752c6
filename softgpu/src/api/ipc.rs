//! Memory and events of other processes, and descriptors of address ranges.

use crate::call::{driver_calls, ensure, put};
use crate::state::Global;
use crate::state::backing::{PAGE, rounded};
use crate::state::contexts::current;
use crate::state::handle::next_sequence;
use crate::state::memory::Origin;
use crate::state::pools::Pool;
use crate::state::sharing::SharedEvent;
use crate::state::sharing::{
    close_memory, export_memory, export_pool_memory, import_pool_memory, open_memory, shared_file,
};
use crate::state::streams::Event;
use cuda_sys::{
    CUdeviceptr, CUevent, CUipcEventHandle, CUipcMemHandle, CUmemAllocationHandleType, CUmemPoolPtrExportData,
    CUmemRangeHandleType, CUmemoryPool, CUresult,
};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::os::fd::{IntoRawFd, RawFd};
use std::ptr;

driver_calls! {
    |global: &'static Global|

    /// Exports the allocation that contains an address.
    fn cuIpcGetMemHandle[Started](pHandle: *mut CUipcMemHandle, dptr: CUdeviceptr) {
        ensure(!pHandle.is_null())?;
        current(global)?;
        pHandle.cast::<[u8; 64]>().write(export_memory(global, dptr)?);
        Ok(())
    }

    /// Opens an allocation of another process.
    fn cuIpcOpenMemHandle_v2[Locked](pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, Flags: c_uint) {
        ensure(!pdptr.is_null() && Flags == 1)?;
        let context = current(global)?;
        put(pdptr, open_memory(global, &context, &handle.reserved.map(|byte| byte as u8))?)
    }

    /// Undoes cuIpcOpenMemHandle.
    fn cuIpcCloseMemHandle[Locked](dptr: CUdeviceptr) {
        close_memory(global, dptr)
    }

    /// Exports an event that was made for other processes.
    fn cuIpcGetEventHandle[Started](pHandle: *mut CUipcEventHandle, event: CUevent) {
        ensure(!pHandle.is_null() && !event.is_null())?;
        let event = super::event::find(global, event)?;
        let shared = event.shared().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        pHandle.cast::<[u8; 64]>().write(shared.ticket()?);
        Ok(())
    }

    /// Opens an event of another process. cuEventDestroy ends it.
    fn cuIpcOpenEventHandle[Started](phEvent: *mut CUevent, handle: CUipcEventHandle) {
        ensure(!phEvent.is_null())?;
        let context = current(global)?;
        let shared = SharedEvent::open(&handle.reserved.map(|byte| byte as u8))?;
        let sequence = next_sequence();
        let (handle, _) = global.events.insert(sequence, Event::new(sequence, context, false, Some(shared)));
        put(phEvent, ptr::without_provenance_mut(handle as usize))
    }

    /// Exports a pool.
    fn cuMemPoolExportToShareableHandle[Started](
        handle_out: *mut c_void,
        pool: CUmemoryPool,
        handleType: CUmemAllocationHandleType,
        flags: c_ulonglong,
    ) {
        ensure(!handle_out.is_null() && flags == 0)?;
        ensure(handleType == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)?;
        let fd = Pool::find(global, pool)?.export()?;
        put(handle_out.cast::<c_int>(), fd.into_raw_fd())
    }

    /// Imports a pool of another process or of this one. The caller keeps the descriptor.
    fn cuMemPoolImportFromShareableHandle[Started](
        pool_out: *mut CUmemoryPool,
        handle: *mut c_void,
        handleType: CUmemAllocationHandleType,
        flags: c_ulonglong,
    ) {
        ensure(!pool_out.is_null() && flags == 0)?;
        ensure(handleType == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)?;
        let fd = RawFd::try_from(handle.addr()).map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)?;
        let pool = Pool::import(global, fd)?;
        put(pool_out, ptr::without_provenance_mut(pool as usize))
    }

    /// Exports a block of an exported pool.
    fn cuMemPoolExportPointer[Started](shareData_out: *mut CUmemPoolPtrExportData, ptr: CUdeviceptr) {
        let reserved = export_pool_memory(global, ptr)?;
        put(shareData_out, CUmemPoolPtrExportData { reserved })
    }

    /// Imports a block of an imported pool.
    fn cuMemPoolImportPointer[Started](
        ptr_out: *mut CUdeviceptr,
        pool: CUmemoryPool,
        shareData: *mut CUmemPoolPtrExportData,
    ) {
        ensure(!ptr_out.is_null())?;
        let data = shareData.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        put(ptr_out, import_pool_memory(global, &Pool::find(global, pool)?, &data.reserved)?)
    }

    /// Returns a descriptor of an address range, here of a memory file. The range must begin with a cuMemAlloc
    /// allocation or a mapping of physical memory.
    fn cuMemGetHandleForAddressRange[Started](
        handle: *mut c_void,
        dptr: CUdeviceptr,
        size: usize,
        handleType: CUmemRangeHandleType,
        flags: c_ulonglong,
    ) {
        ensure(!handle.is_null() && flags == 0 && size > 0)?;
        ensure(handleType == CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)?;
        ensure(dptr.is_multiple_of(PAGE as u64) && size.is_multiple_of(PAGE))?;
        let block = global.memory.at(dptr);
        let block = block.filter(|block| matches!(block.origin, Origin::Device | Origin::Virtual));
        let block = block.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let room = rounded(block.size).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)? as u64;
        ensure(dptr - block.base + size as u64 <= room)?;
        if dptr != block.base {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let fd = match block.mapped() {
            Some(mapped) => mapped.physical.descriptor()?,
            None => shared_file(&block)?.try_clone().map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)?,
        };
        put(handle.cast::<c_int>(), fd.into_raw_fd())
    }
}
