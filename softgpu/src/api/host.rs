//! Host memory that devices can access.

use super::memory::check_idle;
use crate::call::{Result, driver_calls, ensure, put};
use crate::state::Global;
use crate::state::backing::Mapping;
use crate::state::contexts::current;
use crate::state::memory::{Allocation, Origin, Storage};
use cuda_sys::{CU_MEMHOSTALLOC_DEVICEMAP, CUdeviceptr, CUresult};
use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::Arc;

/// The flags that registered memory reports: portable (for all contexts) and mapped.
const SHAPES: c_uint = 3;
/// The flag of memory that devices only read.
const READ_ONLY: c_uint = 8;

driver_calls! {
    |global: &'static Global|

    /// Allocates pinned host memory.
    fn cuMemAllocHost_v2[Uncaptured](pp: *mut *mut c_void, bytesize: usize) {
        ensure(!pp.is_null())?;
        put(pp, allocate(global, bytesize, CU_MEMHOSTALLOC_DEVICEMAP)?)
    }

    /// Allocates pinned host memory with flags.
    fn cuMemHostAlloc[Uncaptured](pp: *mut *mut c_void, bytesize: usize, Flags: c_uint) {
        ensure(!pp.is_null())?;
        put(pp, allocate(global, bytesize, Flags)?)
    }

    /// Frees pinned host memory, after all work of its context.
    fn cuMemFreeHost[Uncaptured](p: *mut c_void) {
        if p.is_null() {
            return Ok(());
        }
        let memory = &global.memory;
        let block = memory.remove(p.addr() as u64, |block| block.origin == Origin::Host);
        release("cuMemFreeHost", block.ok_or_else(|| memory.wrong_free("cuMemFreeHost", p.addr() as u64))?);
        Ok(())
    }

    /// Returns the device's address of host memory, which is the same.
    fn cuMemHostGetDevicePointer_v2[Started](pdptr: *mut CUdeviceptr, p: *mut c_void, Flags: c_uint) {
        ensure(!pdptr.is_null() && Flags == 0)?;
        host_block(global, p)?;
        put(pdptr, p.addr() as u64)
    }

    /// Returns the flags of pinned host memory.
    fn cuMemHostGetFlags[Started](pFlags: *mut c_uint, p: *mut c_void) {
        ensure(!pFlags.is_null())?;
        put(pFlags, host_block(global, p)?.flags)
    }

    /// Pins existing host memory.
    fn cuMemHostRegister_v2[Uncaptured](p: *mut c_void, bytesize: usize, Flags: c_uint) {
        let context = current(global)?;
        ensure(!p.is_null() && bytesize > 0 && Flags & !(SHAPES | READ_ONLY) == 0)?;
        let known = global.memory.at(p.addr() as u64);
        ensure(known.is_none_or(|block| block.origin == Origin::Registered))?;
        ensure(is_mapped(p.addr(), bytesize, Flags & READ_ONLY == 0))?;
        let storage = Storage::Caller(p.expose_provenance());
        let block = Allocation::new(&context, Origin::Registered, bytesize, storage, None).with_contents();
        let block = global.memory.insert_apart(block.flagged(Flags & SHAPES | CU_MEMHOSTALLOC_DEVICEMAP));
        block.map(drop).ok_or(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
    }

    /// Undoes cuMemHostRegister, after all work of its context.
    fn cuMemHostUnregister[Uncaptured](p: *mut c_void) {
        ensure(!p.is_null())?;
        let memory = &global.memory;
        let known = memory.at(p.addr() as u64);
        ensure(known.is_none_or(|block| block.origin == Origin::Registered && block.base == p.addr() as u64))?;
        let block = memory.remove(p.addr() as u64, |block| block.origin == Origin::Registered);
        release("cuMemHostUnregister", block.ok_or(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)?);
        Ok(())
    }
}

fn allocate(global: &Global, size: usize, flags: c_uint) -> Result<*mut c_void> {
    let context = current(global)?;
    ensure(flags & !7 == 0)?;
    if size == 0 {
        return Ok(ptr::null_mut());
    }
    let charge = global.host.take(size)?;
    let mapping = Mapping::anonymous(size).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    // With unified addressing, all host memory is mapped.
    let flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
    let block = Allocation::new(&context, Origin::Host, size, Storage::Own(mapping), Some(charge)).flagged(flags);
    Ok(ptr::with_exposed_provenance_mut(global.memory.insert(block).base as usize))
}

fn host_block(global: &Global, address: *mut c_void) -> Result<Arc<Allocation>> {
    let block = global.memory.at(address.addr() as u64);
    let block = block.filter(|block| matches!(block.origin, Origin::Host | Origin::Registered));
    block.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// Frees an allocation after the work that may still use it.
fn release(call: &'static str, block: Arc<Allocation>) {
    check_idle(call, &block, 1);
    if let Some(context) = &block.context {
        context.finish();
    }
}

/// Whether the program may read every page of a range, and also write it if `write` is set.
fn is_mapped(address: usize, size: usize, write: bool) -> bool {
    let Some(end) = address.checked_add(size) else { return false };
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return false };
    let mut reached = address;
    for line in maps.lines() {
        let Some((range, rest)) = line.split_once(' ') else { continue };
        let Some((from, to)) = range.split_once('-') else { continue };
        let number = |text| usize::from_str_radix(text, 16).unwrap_or(0);
        let (from, to) = (number(from), number(to));
        if reached < to && reached < end {
            if from > reached || !rest.starts_with(if write { "rw" } else { "r" }) {
                return false;
            }
            reached = to;
        }
    }
    reached >= end
}
