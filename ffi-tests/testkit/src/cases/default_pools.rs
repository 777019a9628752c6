//! The pools of locations: the default pool and the current one.

use super::lab::codes::*;
use super::lab::{DEVICE_0, HOST, Lab, NO_HANDLES, READ_WRITE, Run, access, place, pool_of};
use CUmemLocationType as L;
use CUmemPool_attribute as A;
use cuda_mem::cuda_sys::*;
use std::ptr;

cases! {
    Shared the_default_pool,
    Shared the_present_pool,
    Shared pools_by_place,
    Alone the_default_pool_destroyed,
}

fn the_default_pool(l: &mut Lab) -> Run {
    let (mut pool, mut again) = (ptr::null_mut(), ptr::null_mut());
    ask!(l, "default pool" => OK, cuDeviceGetDefaultMemPool(&mut pool, 0));
    ask!(l, "the same again" => OK, cuDeviceGetDefaultMemPool(&mut again, 0));
    l.check("is the same", pool == again, true);
    for (name, attribute) in [
        ("follow events", A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES),
        ("opportunistic", A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC),
        ("internal dependencies", A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES),
        ("threshold", A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD),
    ] {
        let mut value = 0_u64;
        ask!(l, name, cuMemPoolGetAttribute(pool, attribute, ptr::from_mut(&mut value).cast()));
        l.say(format!("{name} is"), value & 0xffff_ffff);
    }
    ask!(l, "of device 99" => DEVICE, cuDeviceGetDefaultMemPool(&mut pool, 99));
    ask!(l, "of device -1" => DEVICE, cuDeviceGetDefaultMemPool(&mut pool, -1));
    ask!(l, "without a result", cuDeviceGetDefaultMemPool(ptr::null_mut(), 0));
    Ok(())
}

fn the_present_pool(l: &mut Lab) -> Run {
    let (mut usual, mut now) = (ptr::null_mut(), ptr::null_mut());
    let pool = l.pool(&pool_of(DEVICE_0, NO_HANDLES))?;
    need!(l, cuDeviceGetDefaultMemPool(&mut usual, 0))?;
    ask!(l, "present pool" => OK, cuDeviceGetMemPool(&mut now, 0));
    l.check("is the default pool", now == usual, true);
    ask!(l, "set another" => OK, cuDeviceSetMemPool(0, pool));
    ask!(l, "present pool then" => OK, cuDeviceGetMemPool(&mut now, 0));
    l.check("is the other one", now == pool, true);
    let (mut block, mut of) = (0, ptr::null_mut());
    need!(l, cuMemAllocAsync(&mut block, 4096, ptr::null_mut()))?;
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
    ask!(l, "pool of a block", cuPointerGetAttribute(ptr::from_mut::<CUmemoryPool>(&mut of).cast(), attribute, block));
    l.say("is the other one then", of == pool);
    need!(l, cuMemFree_v2(block))?;
    ask!(l, "set null", cuDeviceSetMemPool(0, ptr::null_mut()));
    ask!(l, "set for device 99", cuDeviceSetMemPool(99, pool));
    let host = l.pool(&pool_of(HOST, NO_HANDLES))?;
    ask!(l, "set a host pool", cuDeviceSetMemPool(0, host));
    need!(l, cuDeviceSetMemPool(0, pool))?;
    let mut ended = ptr::null_mut();
    need!(l, cuMemPoolCreate(&mut ended, &pool_of(DEVICE_0, NO_HANDLES)))?;
    need!(l, cuDeviceSetMemPool(0, ended))?;
    ask!(l, "destroy the present pool" => OK, cuMemPoolDestroy(ended));
    ask!(l, "present pool after that" => OK, cuDeviceGetMemPool(&mut now, 0));
    l.say("is the default pool then", now == usual);
    ask!(l, "set the default pool" => OK, cuDeviceSetMemPool(0, usual));
    Ok(())
}

fn pools_by_place(l: &mut Lab) -> Run {
    let pinned = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    let managed = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED;
    let (mut usual, mut pool) = (ptr::null_mut(), ptr::null_mut());
    need!(l, cuDeviceGetDefaultMemPool(&mut usual, 0))?;
    let node = place(L::CU_MEM_LOCATION_TYPE_HOST_NUMA, 0);
    let far = place(L::CU_MEM_LOCATION_TYPE_DEVICE, 99);
    let nowhere = place(L::CU_MEM_LOCATION_TYPE_INVALID, 0);
    for (name, mut location, kind) in [
        ("device", DEVICE_0, pinned),
        ("host", HOST, pinned),
        ("NUMA node 0", node, pinned),
        ("managed, device", DEVICE_0, managed),
        ("managed, host", HOST, managed),
        ("managed, no place", nowhere, managed),
        ("no place", nowhere, pinned),
        ("device 99", far, pinned),
        ("allocation type 0", DEVICE_0, CUmemAllocationType(0)),
    ] {
        if ask!(l, format!("default pool: {name}"), cuMemGetDefaultMemPool(&mut pool, &mut location, kind)) {
            l.say(format!("default pool: {name}: is the device's"), pool == usual);
            let mut now = ptr::null_mut();
            ask!(l, format!("present pool: {name}"), cuMemGetMemPool(&mut now, &mut location, kind));
            l.say(format!("present pool: {name}: is the default one"), now == pool);
            ask!(l, format!("set the pool: {name}"), cuMemSetMemPool(&mut location, kind, pool));
            let access = &access(DEVICE_0, READ_WRITE);
            ask!(l, format!("default pool: {name}: set access"), cuMemPoolSetAccess(pool, access, 1));
        }
    }
    ask!(l, "default pool without a place", cuMemGetDefaultMemPool(&mut pool, ptr::null_mut(), pinned));
    ask!(l, "set null", cuMemSetMemPool(&mut DEVICE_0.clone(), pinned, ptr::null_mut()));
    Ok(())
}

fn the_default_pool_destroyed(l: &mut Lab) -> Run {
    let (mut pool, mut block) = (ptr::null_mut(), 0);
    need!(l, cuDeviceGetDefaultMemPool(&mut pool, 0))?;
    ask!(l, "destroy" => VALUE, cuMemPoolDestroy(pool));
    ask!(l, "allocate" => OK, cuMemAllocAsync(&mut block, 64, ptr::null_mut()));
    Ok(())
}
