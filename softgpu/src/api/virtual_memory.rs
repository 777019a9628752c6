//! Virtual memory: reserved addresses, physical memory, mappings.

use crate::call::{driver_calls, ensure, put};
use crate::state::Global;
use crate::state::memory::Origin;
use crate::state::memory::virtual_memory::{self, GRANULARITY, Physical, check_kind};
use crate::sync::lock;
use cuda_sys::{
    CUdeviceptr, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType, CUresult,
};
use std::ffi::{c_int, c_ulonglong, c_void};
use std::os::fd::{IntoRawFd, RawFd};

driver_calls! {
    |global: &'static Global|

    /// Reserves addresses.
    fn cuMemAddressReserve[Started](
        ptr: *mut CUdeviceptr,
        size: usize,
        alignment: usize,
        addr: CUdeviceptr,
        flags: c_ulonglong,
    ) {
        ensure(!ptr.is_null() && flags == 0)?;
        put(ptr, virtual_memory::reserve(global, size, alignment, addr)?)
    }

    /// Frees reserved addresses.
    fn cuMemAddressFree[Started](ptr: CUdeviceptr, size: usize) {
        virtual_memory::unreserve(global, ptr, size)
    }

    /// Makes physical memory.
    fn cuMemCreate[Started](
        handle: *mut CUmemGenericAllocationHandle,
        size: usize,
        prop: *const CUmemAllocationProp,
        flags: c_ulonglong,
    ) {
        ensure(!handle.is_null() && flags == 0)?;
        let prop = prop.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        put(handle, Physical::make(global, size, prop)?)
    }

    /// Releases a handle of physical memory. Mappings keep the memory.
    fn cuMemRelease[Started](handle: CUmemGenericAllocationHandle) {
        Physical::release(global, handle)
    }

    /// Maps physical memory at reserved addresses. Nobody may use it before cuMemSetAccess.
    fn cuMemMap[Started](
        ptr: CUdeviceptr,
        size: usize,
        offset: usize,
        handle: CUmemGenericAllocationHandle,
        flags: c_ulonglong,
    ) {
        ensure(flags == 0)?;
        virtual_memory::map(global, ptr, size, offset, handle)
    }

    /// Unmaps addresses.
    fn cuMemUnmap[Started](ptr: CUdeviceptr, size: usize) {
        virtual_memory::unmap(global, ptr, size)
    }

    /// Sets the rights of places to mapped addresses.
    fn cuMemSetAccess[Started](ptr: CUdeviceptr, size: usize, desc: *const CUmemAccessDesc, count: usize) {
        ensure(!desc.is_null() && count > 0 && count < 1 << 16)?;
        virtual_memory::set_access(global, ptr, size, std::slice::from_raw_parts(desc, count))
    }

    /// Returns the rights of a place at an address.
    fn cuMemGetAccess[Started](flags: *mut c_ulonglong, location: *const CUmemLocation, ptr: CUdeviceptr) {
        let location = location.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
            global.device(location.id)?;
        }
        // No place has rights to device memory of cuMemAlloc, or to reserved addresses without a mapping.
        let rights = match global.memory.at(ptr) {
            Some(block) if block.origin == Origin::Virtual => lock(&block.notes).rights_of(*location).0,
            Some(block) if block.origin == Origin::Device => 0,
            None if virtual_memory::is_reserved(global, ptr) => 0,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        put(flags, c_ulonglong::from(rights))
    }

    /// Exports physical memory to other processes.
    fn cuMemExportToShareableHandle[Started](
        shareableHandle: *mut c_void,
        handle: CUmemGenericAllocationHandle,
        handleType: CUmemAllocationHandleType,
        flags: c_ulonglong,
    ) {
        ensure(!shareableHandle.is_null() && flags == 0)?;
        let fd = Physical::find(global, handle)?.export(handleType)?;
        put(shareableHandle.cast::<c_int>(), fd.into_raw_fd())
    }

    /// Imports physical memory of another process.
    fn cuMemImportFromShareableHandle[Started](
        handle: *mut CUmemGenericAllocationHandle,
        osHandle: *mut c_void,
        shHandleType: CUmemAllocationHandleType,
    ) {
        ensure(!handle.is_null())?;
        ensure(shHandleType == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)?;
        let fd = RawFd::try_from(osHandle.addr()).map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)?;
        put(handle, Physical::import(global, fd)?)
    }

    /// Returns the unit of physical sizes and mappings in bytes.
    fn cuMemGetAllocationGranularity[Started](
        granularity: *mut usize,
        prop: *const CUmemAllocationProp,
        option: CUmemAllocationGranularity_flags,
    ) {
        ensure(!granularity.is_null() && option.0 <= 1)?;
        check_kind(prop.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?)?;
        put(granularity, GRANULARITY)
    }

    /// Returns the properties of physical memory.
    fn cuMemGetAllocationPropertiesFromHandle[Started](
        prop: *mut CUmemAllocationProp,
        handle: CUmemGenericAllocationHandle,
    ) {
        put(prop, Physical::find(global, handle)?.prop())
    }

    /// Returns another handle of the physical memory that is mapped at an address.
    fn cuMemRetainAllocationHandle[Started](handle: *mut CUmemGenericAllocationHandle, addr: *mut c_void) {
        ensure(!handle.is_null())?;
        let block = global.memory.at(addr.addr() as u64).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let mapped = block.mapped().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        put(handle, global.physical.retain(&mapped.physical))
    }
}
