//! Access to a pool's memory.

use super::lab::codes::*;
use super::lab::{DEVICE_0, HOST, Lab, NO_ACCESS, NO_HANDLES, READ_WRITE, Run, access, place, pool_of};
use CUmemLocationType as L;
use cuda_mem::cuda_sys::*;
use std::ptr;

cases! {
    Shared of_a_device_pool,
    Shared of_a_host_pool,
    Shared of_a_numa_pool,
    Shared of_a_managed_pool,
    Shared refused,
    Shared copies_without_access,
    Two of_the_other_device,
    Two copies_between_devices_without_access,
    Two left_on_a_destroyed_pool,
}

fn asked(l: &mut Lab, label: &str, pool: CUmemoryPool, mut location: CUmemLocation) {
    let mut flags = CUmemAccess_flags(77);
    if ask!(l, label, cuMemPoolGetAccess(&mut flags, pool, &mut location)) {
        l.say(format!("{label} is"), flags.0);
    }
}

fn of_a_device_pool(l: &mut Lab) -> Run {
    let pool = l.pool(&pool_of(DEVICE_0, NO_HANDLES))?;
    asked(l, "of its device", pool, DEVICE_0);
    asked(l, "of the host", pool, HOST);
    asked(l, "of NUMA node 0", pool, place(L::CU_MEM_LOCATION_TYPE_HOST_NUMA, 0));
    ask!(l, "allow its device" => OK, cuMemPoolSetAccess(pool, &access(DEVICE_0, READ_WRITE), 1));
    ask!(l, "forbid its device" => DEVICE, cuMemPoolSetAccess(pool, &access(DEVICE_0, NO_ACCESS), 1));
    let read = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ;
    ask!(l, "let its device read only", cuMemPoolSetAccess(pool, &access(DEVICE_0, read), 1));
    ask!(l, "allow the host", cuMemPoolSetAccess(pool, &access(HOST, READ_WRITE), 1));
    asked(l, "of its device at the end", pool, DEVICE_0);
    Ok(())
}

fn of_memory_of_the_host(l: &mut Lab, location: CUmemLocation) -> Run {
    let pool = l.pool(&pool_of(location, NO_HANDLES))?;
    let block = l.block(pool, 4096, ptr::null_mut())?;
    let mut flags = CUmemAccess_flags(77);
    ask!(l, "of the device" => OK, cuMemPoolGetAccess(&mut flags, pool, &mut DEVICE_0.clone()));
    l.check("of the device is", flags.0, 0);
    asked(l, "of the host", pool, HOST);
    asked(l, "of the place", pool, location);
    ask!(l, "memset without access" => VALUE, cuMemsetD8_v2(block, 1, 64));
    // SAFETY: host memory of this case.
    unsafe { (block as *mut u8).write_volatile(9) };
    l.bytes::<1>("copy to the host without access", block);
    let byte = 5_u8;
    ask!(l, "copy from the host without access", cuMemcpyHtoD_v2(block, ptr::from_ref(&byte).cast(), 1));
    ask!(l, "allow the device" => OK, cuMemPoolSetAccess(pool, &access(DEVICE_0, READ_WRITE), 1));
    asked(l, "of the device then", pool, DEVICE_0);
    ask!(l, "memset with access" => OK, cuMemsetD8_v2(block, 1, 64));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    // SAFETY: host memory of this case, which no device writes any more.
    l.check("the CPU sees", unsafe { (block as *mut u8).read_volatile() }, 1);
    ask!(l, "forbid the device", cuMemPoolSetAccess(pool, &access(DEVICE_0, NO_ACCESS), 1));
    asked(l, "of the device at the end", pool, DEVICE_0);
    ask!(l, "memset after that", cuMemsetD8_v2(block, 1, 64));
    Ok(())
}

fn of_a_host_pool(l: &mut Lab) -> Run {
    of_memory_of_the_host(l, HOST)
}

fn of_a_numa_pool(l: &mut Lab) -> Run {
    of_memory_of_the_host(l, place(L::CU_MEM_LOCATION_TYPE_HOST_NUMA, 0))
}

fn of_a_managed_pool(l: &mut Lab) -> Run {
    let kind = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED;
    let pool = l.pool(&CUmemPoolProps { allocType: kind, ..pool_of(DEVICE_0, NO_HANDLES) })?;
    let block = l.block(pool, 4096, ptr::null_mut())?;
    asked(l, "of the device", pool, DEVICE_0);
    asked(l, "of the host", pool, HOST);
    ask!(l, "allow the device", cuMemPoolSetAccess(pool, &access(DEVICE_0, READ_WRITE), 1));
    ask!(l, "memset", cuMemsetD8_v2(block, 3, 64));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    // SAFETY: managed memory of this case, which no device uses now.
    l.say("the CPU sees", unsafe { (block as *mut u8).read_volatile() });
    Ok(())
}

fn refused(l: &mut Lab) -> Run {
    let pool = l.pool(&pool_of(DEVICE_0, NO_HANDLES))?;
    let far = place(L::CU_MEM_LOCATION_TYPE_DEVICE, 99);
    ask!(l, "set for device 99", cuMemPoolSetAccess(pool, &access(far, READ_WRITE), 1));
    asked(l, "of device 99", pool, far);
    asked(l, "of no place", pool, place(L::CU_MEM_LOCATION_TYPE_INVALID, 0));
    asked(l, "of an unknown place", pool, place(L(77), 0));
    ask!(l, "unknown flags", cuMemPoolSetAccess(pool, &access(DEVICE_0, CUmemAccess_flags(2)), 1));
    ask!(l, "no descriptions", cuMemPoolSetAccess(pool, ptr::null(), 0));
    ask!(l, "null for one description", cuMemPoolSetAccess(pool, ptr::null(), 1));
    let twice = [access(DEVICE_0, READ_WRITE), access(DEVICE_0, READ_WRITE)];
    ask!(l, "one place twice", cuMemPoolSetAccess(pool, twice.as_ptr(), 2));
    ask!(l, "no pool", cuMemPoolSetAccess(ptr::null_mut(), &access(DEVICE_0, READ_WRITE), 1));
    let mut flags = CUmemAccess_flags(0);
    ask!(l, "get without a result", cuMemPoolGetAccess(ptr::null_mut(), pool, &mut DEVICE_0.clone()));
    ask!(l, "get without a place", cuMemPoolGetAccess(&mut flags, pool, ptr::null_mut()));
    ask!(l, "get without a pool", cuMemPoolGetAccess(&mut flags, ptr::null_mut(), &mut DEVICE_0.clone()));
    Ok(())
}

fn copies_without_access(l: &mut Lab) -> Run {
    let pool = l.pool(&pool_of(HOST, NO_HANDLES))?;
    let (block, memory) = (l.block(pool, 4096, ptr::null_mut())?, l.alloc(4096)?);
    ask!(l, "cuMemcpy to it", cuMemcpy(block, memory, 64));
    ask!(l, "cuMemcpy from it", cuMemcpy(memory, block, 64));
    ask!(l, "cuMemcpyDtoD to it", cuMemcpyDtoD_v2(block, memory, 64));
    ask!(l, "cuMemcpyDtoD from it", cuMemcpyDtoD_v2(memory, block, 64));
    ask!(l, "cuMemcpyDtoH into it", cuMemcpyDtoH_v2(block as *mut _, memory, 64));
    ask!(l, "cuMemcpyHtoD out of it", cuMemcpyHtoD_v2(memory, block as *const _, 64));
    ask!(l, "cuMemcpyAsync from it", cuMemcpyAsync(memory, block, 64, ptr::null_mut()));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    Ok(())
}

const DEVICE_1: CUmemLocation = CUmemLocation { type_: L::CU_MEM_LOCATION_TYPE_DEVICE, id: 1 };

fn of_the_other_device(l: &mut Lab) -> Run {
    let pool = l.pool(&pool_of(DEVICE_0, NO_HANDLES))?;
    asked(l, "before", pool, DEVICE_1);
    ask!(l, "allow", cuMemPoolSetAccess(pool, &access(DEVICE_1, READ_WRITE), 1));
    asked(l, "then", pool, DEVICE_1);
    ask!(l, "forbid", cuMemPoolSetAccess(pool, &access(DEVICE_1, NO_ACCESS), 1));
    asked(l, "at the end", pool, DEVICE_1);
    Ok(())
}

fn copies_between_devices_without_access(l: &mut Lab) -> Run {
    let (zero, one) = (l.pool(&pool_of(DEVICE_0, NO_HANDLES))?, l.pool(&pool_of(DEVICE_1, NO_HANDLES))?);
    let mut other = ptr::null_mut();
    need!(l, cuDevicePrimaryCtxRetain(&mut other, 1))?;
    l.finally(|l| drop(call!(l, cuDevicePrimaryCtxRelease_v2(1))));
    let here = l.block(zero, 4096, ptr::null_mut())?;
    let mut there = 0;
    need!(l, cuCtxPushCurrent_v2(other))?;
    need!(l, cuMemAllocFromPoolAsync(&mut there, 4096, one, ptr::null_mut()))?;
    need!(l, cuCtxSynchronize())?;
    need!(l, cuCtxPopCurrent_v2(ptr::null_mut()))?;
    l.finally(move |l| drop(call!(l, cuMemFree_v2(there))));
    ask!(l, "cuMemcpyAsync", cuMemcpyAsync(here, there, 64, ptr::null_mut()));
    ask!(l, "cuMemcpyDtoDAsync", cuMemcpyDtoDAsync_v2(here, there, 64, ptr::null_mut()));
    ask!(l, "cuMemcpyPeerAsync", cuMemcpyPeerAsync(here, l.context, there, other, 64, ptr::null_mut()));
    ask!(l, "memset", cuMemsetD8_v2(there, 1, 64));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    Ok(())
}

fn left_on_a_destroyed_pool(l: &mut Lab) -> Run {
    let mut pool = ptr::null_mut();
    need!(l, cuMemPoolCreate(&mut pool, &pool_of(DEVICE_0, NO_HANDLES)))?;
    need!(l, cuMemPoolSetAccess(pool, &access(DEVICE_1, READ_WRITE), 1))?;
    need!(l, cuMemPoolDestroy(pool))?;
    let next = l.pool(&pool_of(DEVICE_0, NO_HANDLES))?;
    l.say("the next pool has the same handle", next == pool);
    asked(l, "of the next pool", next, DEVICE_1);
    Ok(())
}
