//! Stream-ordered allocation and pools.

use super::memory::check_idle;
use crate::call::{Result, driver_calls, ensure, put};
use crate::misuse::{Misuse, report};
use crate::state::Global;
use crate::state::checks::races;
use crate::state::graphs::capture;
use crate::state::graphs::freeing;
use crate::state::memory::{Allocation, Origin};
use crate::state::pools::{Attribute, Place, Pool};
use crate::state::pools::{Spot, forget};
use crate::state::streams::Stream;
use cuda_sys::{
    CUdevice, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationType, CUmemLocation, CUmemLocationType,
    CUmemPool_attribute, CUmemPoolProps, CUmemoryPool, CUresult, CUstream,
};
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

driver_calls! {
    |global: &'static Global|

    /// Allocates from the device's current pool.
    fn cuMemAllocAsync[Locked, cuMemAllocAsync_ptsz](dptr: *mut CUdeviceptr, bytesize: usize, hStream: CUstream) {
        ensure(!dptr.is_null())?;
        let stream = Stream::find(global, hStream)?;
        let (_, pool) = global.devices[stream.context.device].current_pool();
        put(dptr, allocate(global, &pool, bytesize, &stream)?)
    }

    /// Allocates from a pool.
    fn cuMemAllocFromPoolAsync[Locked, cuMemAllocFromPoolAsync_ptsz](
        dptr: *mut CUdeviceptr,
        bytesize: usize,
        pool: CUmemoryPool,
        hStream: CUstream,
    ) {
        ensure(!dptr.is_null())?;
        let stream = Stream::find(global, hStream)?;
        put(dptr, allocate(global, &Pool::find(global, pool)?, bytesize, &stream)?)
    }

    /// Frees memory of pools and of cuMemAlloc when the stream reaches the free. The address is unknown to the driver
    /// at once.
    fn cuMemFreeAsync[Locked, cuMemFreeAsync_ptsz](dptr: CUdeviceptr, hStream: CUstream) {
        let stream = Stream::find(global, hStream)?;
        if dptr == 0 {
            return Ok(());
        }
        let block = global.memory.at(dptr).filter(|block| block.base == dptr);
        if let Some(block) = block.filter(|block| block.graph.is_some()) {
            return free_of_graph(global, &stream, block);
        }
        // A graph can only free memory that a graph allocated.
        ensure(!capture::enter(&stream)?)?;
        let managed = global.memory.at(dptr).filter(|block| block.base == dptr && block.origin == Origin::Managed);
        if let Some(block) = managed {
            report(Misuse::WrongFree, "cuMemFreeAsync", dptr, Some(block.sequence));
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let block = global.memory.remove(dptr, |block| matches!(block.origin, Origin::Pool | Origin::Device));
        let block = block.ok_or_else(|| global.memory.wrong_free("cuMemFreeAsync", dptr))?;
        stream.touch_block("cuMemFreeAsync", &block);
        if let Some(pool) = block.pool() {
            stream.uses_pool(pool);
        }
        let of_pool = block.origin == Origin::Pool;
        if !of_pool {
            stream.frees_plain_memory();
        }
        if stream.is_idle() {
            check_idle("cuMemFreeAsync", &block, 1);
            return Ok(());
        }
        stream.submit(Vec::new(), move || check_idle("cuMemFreeAsync", &block, 1)).map(drop)
    }

    /// Makes a pool.
    fn cuMemPoolCreate[Started](pool: *mut CUmemoryPool, poolProps: *const CUmemPoolProps) {
        ensure(!pool.is_null())?;
        let props = poolProps.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        put(pool, as_handle(Pool::make(global, props)?))
    }

    /// Destroys a pool. Its live blocks stay usable.
    fn cuMemPoolDestroy[Started](pool: CUmemoryPool) {
        let gone = Pool::find(global, pool)?;
        ensure(!gone.builtin)?;
        if races::is_on() && gone.is_in_use_by_several() {
            report(Misuse::EndOfPool, "cuMemPoolDestroy", pool.addr() as u64, None);
        }
        global.pools.remove(pool.addr() as u64);
        forget(global, &gone);
        Ok(())
    }

    /// Gives back unused reserve.
    fn cuMemPoolTrimTo[Uncaptured](pool: CUmemoryPool, minBytesToKeep: usize) {
        Pool::find(global, pool)?.trim(minBytesToKeep as u64)
    }

    /// Sets an attribute.
    fn cuMemPoolSetAttribute[Started](pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void) {
        let pool = Pool::find(global, pool)?;
        ensure(!value.is_null())?;
        let value = match pool.attribute(attr)? {
            Attribute::Size(_) => Attribute::Size(value.cast::<u64>().read()),
            Attribute::Switch(_) => Attribute::Switch(value.cast::<i32>().read()),
        };
        pool.set_attribute(attr, value)
    }

    /// Returns an attribute.
    fn cuMemPoolGetAttribute[Started](pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void) {
        let pool = Pool::find(global, pool)?;
        match pool.attribute(attr)? {
            Attribute::Size(size) => put(value.cast(), size),
            Attribute::Switch(switch) => put(value.cast(), switch),
        }
    }

    /// Sets the rights of devices to a pool's memory.
    fn cuMemPoolSetAccess[Started](pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize) {
        let pool = Pool::find(global, pool)?;
        ensure(count > 0 && !map.is_null())?;
        let wishes = std::slice::from_raw_parts(map, count);
        let _inside = pool.change_access(wishes);
        for wish in wishes {
            pool.set_access(global, wish.location, wish.flags)?;
        }
        Ok(())
    }

    /// Returns the rights of a place to a pool's memory.
    fn cuMemPoolGetAccess[Started](flags: *mut CUmemAccess_flags, memPool: CUmemoryPool, location: *mut CUmemLocation) {
        let pool = Pool::find(global, memPool)?;
        let location = location.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        put(flags, pool.access_of(global.devices.len(), *location)?)
    }

    /// Returns the device's default pool.
    fn cuDeviceGetDefaultMemPool[Started](pool_out: *mut CUmemoryPool, dev: CUdevice) {
        ensure(!pool_out.is_null())?;
        let (_, device) = global.device(dev)?;
        put(pool_out, as_handle(device.default_pool.0))
    }

    /// Returns the pool from which cuMemAllocAsync allocates.
    fn cuDeviceGetMemPool[Started](pool: *mut CUmemoryPool, dev: CUdevice) {
        ensure(!pool.is_null())?;
        let (_, device) = global.device(dev)?;
        put(pool, as_handle(device.current_pool().0))
    }

    /// Sets the pool from which cuMemAllocAsync allocates.
    fn cuDeviceSetMemPool[Started](dev: CUdevice, pool: CUmemoryPool) {
        let location = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: dev };
        let spot = Spot::of(global, &location, CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED)?;
        spot.set(global, (pool.addr() as u64, Pool::find(global, pool)?))
    }

    /// Returns a place's default pool.
    fn cuMemGetDefaultMemPool[Started](
        pool_out: *mut CUmemoryPool,
        location: *mut CUmemLocation,
        type_: CUmemAllocationType,
    ) {
        ensure(!pool_out.is_null())?;
        put(pool_out, as_handle(located(global, location.as_ref(), type_)?.usual(global).0))
    }

    /// Returns a place's current pool.
    fn cuMemGetMemPool[Started](pool: *mut CUmemoryPool, location: *mut CUmemLocation, type_: CUmemAllocationType) {
        ensure(!pool.is_null())?;
        put(pool, as_handle(located(global, location.as_ref(), type_)?.present(global).0))
    }

    /// Sets a place's current pool.
    fn cuMemSetMemPool[Started](location: *mut CUmemLocation, type_: CUmemAllocationType, pool: CUmemoryPool) {
        let spot = located(global, location.as_ref(), type_)?;
        spot.set(global, (pool.addr() as u64, Pool::find(global, pool)?))
    }
}

fn as_handle(handle: u64) -> CUmemoryPool {
    ptr::without_provenance_mut(handle as usize)
}

/// Allocates now, or records an allocation if the stream captures.
fn allocate(global: &Global, pool: &Arc<Pool>, size: usize, stream: &Stream) -> Result<CUdeviceptr> {
    let recorded = capture::enter(stream)?;
    if size == 0 {
        return Ok(0);
    }
    if !recorded {
        capture::check_unsafe(global)?;
        let block = Allocation::from_pool(global, pool, size)?;
        stream.uses_pool(pool);
        stream.touch_block("cuMemAllocAsync", &block);
        return Ok(block.base);
    }
    // A graph's memory is device memory, and cannot be shared with other processes.
    if pool.place != Place::Device || pool.shared().is_some() {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    capture::allocate(global, stream, pool.device, size)
}

/// Frees memory of a graph: when the stream reaches the free, or, if the stream captures, at each launch.
fn free_of_graph(global: &Global, stream: &Stream, block: Arc<Allocation>) -> Result {
    let Some(of_graph) = block.graph.clone() else { return Ok(()) };
    if capture::enter(stream)? {
        return capture::free(global, stream, of_graph).map_err(|code| capture::refuse(stream, code));
    }
    if let Err(code) = of_graph.retire() {
        report(Misuse::DoubleFree, "cuMemFreeAsync", block.base, Some(block.sequence));
        return Err(code);
    }
    let free = freeing(of_graph);
    let run = move || {
        // Two holders are no work: this closure, and the table of all memory.
        check_idle("cuMemFreeAsync", &block, 2);
        free();
    };
    stream.submit(Vec::new(), run).map(drop)
}

fn located(global: &Global, location: Option<&CUmemLocation>, kind: CUmemAllocationType) -> Result<Spot> {
    Spot::of(global, location.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?, kind)
}
