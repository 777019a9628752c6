//! Host memory that the device reaches.

use super::memory::check_idle;
use crate::call::{Result, driver_calls, ensure, put};
use crate::state::Global;
use crate::state::context::current;
use crate::state::mapping::{Mapping, PAGE};
use crate::state::memory::{Allocation, Origin, Storage};
use cuda_sys::{CU_MEMHOSTALLOC_DEVICEMAP, CUdeviceptr, CUresult};
use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::Arc;

driver_calls! {
    /// Allocates pinned host memory.
    fn cuMemAllocHost_v2[Started](pp: *mut *mut c_void, bytesize: usize) {
        ensure(!pp.is_null())?;
        put(pp, allocate(bytesize, CU_MEMHOSTALLOC_DEVICEMAP)?)
    }

    /// Allocates pinned host memory with flags.
    fn cuMemHostAlloc[Started](pp: *mut *mut c_void, bytesize: usize, Flags: c_uint) {
        ensure(!pp.is_null())?;
        put(pp, allocate(bytesize, Flags)?)
    }

    /// Frees pinned host memory, after all work of its context.
    fn cuMemFreeHost[Started](p: *mut c_void) {
        if p.is_null() {
            return Ok(());
        }
        let memory = &Global::get()?.memory;
        let block = memory.remove(p.addr() as u64, |block| block.origin == Origin::Host);
        release("cuMemFreeHost", block.ok_or_else(|| memory.wrong_free("cuMemFreeHost", p.addr() as u64))?);
        Ok(())
    }

    /// Gives the device's address of host memory: the same.
    fn cuMemHostGetDevicePointer_v2[Started](pdptr: *mut CUdeviceptr, p: *mut c_void, Flags: c_uint) {
        ensure(!pdptr.is_null() && Flags == 0)?;
        host_block(p)?;
        put(pdptr, p.addr() as u64)
    }

    /// Gives the flags of pinned host memory.
    fn cuMemHostGetFlags[Started](pFlags: *mut c_uint, p: *mut c_void) {
        ensure(!pFlags.is_null())?;
        put(pFlags, host_block(p)?.flags)
    }

    /// Pins existing host memory.
    fn cuMemHostRegister_v2[Started](p: *mut c_void, bytesize: usize, Flags: c_uint) {
        let global = Global::get()?;
        let context = current(global)?;
        ensure(!p.is_null() && bytesize > 0 && Flags & !15 == 0)?;
        ensure(is_mapped(p.addr(), bytesize))?;
        let storage = Storage::Caller(p.expose_provenance());
        let block = Allocation::new(&context, Origin::Registered, bytesize, storage, None);
        let block = global.memory.insert_apart(block.flagged(Flags | CU_MEMHOSTALLOC_DEVICEMAP));
        block.map(drop).ok_or(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
    }

    /// Ends what cuMemHostRegister began, after all work of its context.
    fn cuMemHostUnregister[Started](p: *mut c_void) {
        ensure(!p.is_null())?;
        let memory = &Global::get()?.memory;
        let block = memory.remove(p.addr() as u64, |block| block.origin == Origin::Registered);
        release("cuMemHostUnregister", block.ok_or(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)?);
        Ok(())
    }
}

fn allocate(size: usize, flags: c_uint) -> Result<*mut c_void> {
    let global = Global::get()?;
    let context = current(global)?;
    ensure(flags & !7 == 0)?;
    if size == 0 {
        return Ok(ptr::null_mut());
    }
    let mapping = Mapping::anonymous(size).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    // With unified addresses all host memory is mapped.
    let flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
    let block = Allocation::new(&context, Origin::Host, size, Storage::Own(mapping), None).flagged(flags);
    Ok(ptr::with_exposed_provenance_mut(global.memory.insert(block).base as usize))
}

/// The host block that an address lies in.
fn host_block(address: *mut c_void) -> Result<Arc<Allocation>> {
    let block = Global::get()?.memory.at(address.addr() as u64);
    let block = block.filter(|block| matches!(block.origin, Origin::Host | Origin::Registered));
    block.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// Lets go of a block, after the work that may still use it.
fn release(call: &'static str, block: Arc<Allocation>) {
    check_idle(call, &block, 1);
    if let Some(context) = &block.context {
        context.synchronize();
    }
}

/// Whether every page of a range is mapped in this process.
fn is_mapped(address: usize, size: usize) -> bool {
    let start = address / PAGE * PAGE;
    let Some(end) = address.checked_add(size).and_then(|end| end.checked_next_multiple_of(PAGE)) else { return false };
    // msync of a range with a hole says so; with MS_ASYNC it does nothing else.
    // SAFETY: msync takes any range, and touches no memory.
    unsafe { libc::msync(ptr::without_provenance_mut(start), end - start, libc::MS_ASYNC) == 0 }
}
