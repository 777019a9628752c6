//! Pools: properties, attributes, limits, and blocks in stream order.

use super::lab::codes::*;
use super::lab::{DEVICE_0, FDS, HOST, Lab, MIB, NO_HANDLES, Run, place, pool_of};
use CUmemLocationType as L;
use CUmemPool_attribute as A;
use cuda_mem::cuda_sys::*;
use std::ptr;

cases! {
    Shared properties,
    Shared host_properties,
    Shared bad_properties,
    Shared zero_sizes,
    Shared frees,
    Shared attributes_of_a_new_pool,
    Shared attributes_set,
    Shared use_and_trim,
    Shared threshold,
    Shared limits,
    Shared addresses_of_a_pool,
    Shared end_with_a_live_block,
    Shared null_arguments,
    Shared reuse_in_one_stream,
    Alone destroyed_twice,
    Alone allocation_from_a_destroyed_pool,
    Alone attribute_of_a_destroyed_pool,
}

fn number(l: &mut Lab, pool: CUmemoryPool, attribute: A) -> String {
    let mut value = u64::MAX;
    match call!(l, cuMemPoolGetAttribute(pool, attribute, ptr::from_mut(&mut value).cast())) {
        Ok(CUresult::CUDA_SUCCESS) => value.to_string(),
        other => super::lab::text(other),
    }
}

fn creates(l: &mut Lab, label: &str, props: CUmemPoolProps) {
    let (mut pool, mut block) = (ptr::null_mut(), 0);
    if ask!(l, label, cuMemPoolCreate(&mut pool, &props)) {
        if ask!(l, format!("{label}: allocate"), cuMemAllocFromPoolAsync(&mut block, 4096, pool, ptr::null_mut())) {
            ask!(l, format!("{label}: free"), cuMemFreeAsync(block, ptr::null_mut()));
        }
        ask!(l, format!("{label}: destroy"), cuMemPoolDestroy(pool));
    }
}

fn properties(l: &mut Lab) -> Run {
    creates(l, "device", pool_of(DEVICE_0, NO_HANDLES));
    creates(l, "device with descriptors", pool_of(DEVICE_0, FDS));
    creates(l, "device with a limit", CUmemPoolProps { maxSize: 64 * MIB, ..pool_of(DEVICE_0, NO_HANDLES) });
    creates(l, "device for decompression", CUmemPoolProps { usage: 2, ..pool_of(DEVICE_0, NO_HANDLES) });
    let managed = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED;
    creates(l, "managed, device", CUmemPoolProps { allocType: managed, ..pool_of(DEVICE_0, NO_HANDLES) });
    creates(l, "managed, host", CUmemPoolProps { allocType: managed, ..pool_of(HOST, NO_HANDLES) });
    let nowhere = place(L::CU_MEM_LOCATION_TYPE_INVALID, 0);
    creates(l, "managed, no place", CUmemPoolProps { allocType: managed, ..pool_of(nowhere, NO_HANDLES) });
    creates(l, "managed with descriptors", CUmemPoolProps { allocType: managed, ..pool_of(DEVICE_0, FDS) });
    Ok(())
}

fn host_properties(l: &mut Lab) -> Run {
    creates(l, "host", pool_of(HOST, NO_HANDLES));
    creates(l, "host with an id", pool_of(place(L::CU_MEM_LOCATION_TYPE_HOST, 7), NO_HANDLES));
    creates(l, "host with descriptors", pool_of(HOST, FDS));
    let node = |id| place(L::CU_MEM_LOCATION_TYPE_HOST_NUMA, id);
    creates(l, "NUMA node 0", pool_of(node(0), NO_HANDLES));
    creates(l, "NUMA node 0 with descriptors", pool_of(node(0), FDS));
    creates(l, "NUMA node -1", pool_of(node(-1), NO_HANDLES));
    creates(l, "NUMA node 999", pool_of(node(999), NO_HANDLES));
    creates(l, "the current NUMA node", pool_of(place(L::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0), NO_HANDLES));
    Ok(())
}

fn bad_properties(l: &mut Lab) -> Run {
    let good = pool_of(DEVICE_0, NO_HANDLES);
    let mut pool = ptr::null_mut();
    let mut refused = |l: &mut Lab, label: &str, props: CUmemPoolProps| {
        if ask!(l, label, cuMemPoolCreate(&mut pool, &props)) {
            let _ = call!(l, cuMemPoolDestroy(pool));
        }
    };
    refused(l, "no place", CUmemPoolProps { location: place(L::CU_MEM_LOCATION_TYPE_INVALID, 0), ..good });
    refused(l, "unknown place", CUmemPoolProps { location: place(L(77), 0), ..good });
    refused(l, "device 99", CUmemPoolProps { location: place(L::CU_MEM_LOCATION_TYPE_DEVICE, 99), ..good });
    refused(l, "device -1", CUmemPoolProps { location: place(L::CU_MEM_LOCATION_TYPE_DEVICE, -1), ..good });
    let kind = |value| CUmemAllocationType(value);
    refused(l, "allocation type 0", CUmemPoolProps { allocType: kind(0), ..good });
    refused(l, "allocation type 77", CUmemPoolProps { allocType: kind(77), ..good });
    let handles = |value| CUmemAllocationHandleType(value);
    refused(l, "win32 handles", CUmemPoolProps { handleTypes: handles(2), ..good });
    refused(l, "unknown handles", CUmemPoolProps { handleTypes: handles(0x40), ..good });
    refused(l, "unknown usage", CUmemPoolProps { usage: 0x40, ..good });
    let mut reserved = good;
    reserved.reserved[5] = 1;
    refused(l, "a reserved byte", reserved);
    refused(l, "an enormous limit", CUmemPoolProps { maxSize: usize::MAX, ..good });
    Ok(())
}

fn zero_sizes(l: &mut Lab) -> Run {
    let (pool, stream, mut block) = (l.pool(&pool_of(DEVICE_0, NO_HANDLES))?, l.stream(0)?, 77);
    ask!(l, "cuMemAllocAsync" => OK, cuMemAllocAsync(&mut block, 0, stream));
    l.check("cuMemAllocAsync gives", block, 0);
    block = 77;
    ask!(l, "cuMemAllocFromPoolAsync" => OK, cuMemAllocFromPoolAsync(&mut block, 0, pool, stream));
    l.check("cuMemAllocFromPoolAsync gives", block, 0);
    ask!(l, "cuMemFreeAsync of 0" => OK, cuMemFreeAsync(0, stream));
    ask!(l, "cuMemFreeAsync of 0 on the default stream", cuMemFreeAsync(0, ptr::null_mut()));
    Ok(())
}

fn frees(l: &mut Lab) -> Run {
    let (pool, stream, mut block) = (l.pool(&pool_of(DEVICE_0, NO_HANDLES))?, l.stream(0)?, 0);
    need!(l, cuMemAllocFromPoolAsync(&mut block, 4096, pool, stream))?;
    ask!(l, "garbage", cuMemFreeAsync(0xdead_beef, stream));
    ask!(l, "address + 256", cuMemFreeAsync(block + 256, stream));
    ask!(l, "cuMemFreeHost", cuMemFreeHost(block as *mut _));
    ask!(l, "address" => OK, cuMemFreeAsync(block, stream));
    ask!(l, "again" => VALUE, cuMemFreeAsync(block, stream));
    ask!(l, "then cuMemFree", cuMemFree_v2(block));
    ask!(l, "the stream" => OK, cuStreamSynchronize(stream));
    ask!(l, "memset of the freed block", cuMemsetD8_v2(block, 1, 64));
    Ok(())
}

const ALL: [(&str, A); 8] = [
    ("follow events", A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES),
    ("opportunistic", A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC),
    ("internal dependencies", A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES),
    ("threshold", A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD),
    ("reserved", A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT),
    ("reserved at most", A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH),
    ("used", A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
    ("used at most", A::CU_MEMPOOL_ATTR_USED_MEM_HIGH),
];

fn attributes_of_a_new_pool(l: &mut Lab) -> Run {
    let pool = l.pool(&pool_of(DEVICE_0, NO_HANDLES))?;
    for (name, attribute) in ALL {
        let mut value = 0_u64;
        ask!(l, name, cuMemPoolGetAttribute(pool, attribute, ptr::from_mut(&mut value).cast()));
        match name {
            "threshold" => l.check("threshold is", value, 0),
            name => l.say(format!("{name} is"), value & 0xffff_ffff),
        }
    }
    let mut value = 0_u64;
    ask!(l, "unknown attribute", cuMemPoolGetAttribute(pool, A(99), ptr::from_mut(&mut value).cast()));
    ask!(l, "attribute 0", cuMemPoolGetAttribute(pool, A(0), ptr::from_mut(&mut value).cast()));
    ask!(l, "without a result", cuMemPoolGetAttribute(pool, A(4), ptr::null_mut()));
    Ok(())
}

fn attributes_set(l: &mut Lab) -> Run {
    let pool = l.pool(&pool_of(DEVICE_0, NO_HANDLES))?;
    for (name, attribute) in ALL {
        for value in [0_u64, 5] {
            let mut wanted = value;
            let data = ptr::from_mut(&mut wanted).cast();
            let label = format!("{name} to {value}");
            if value == 5 && name.starts_with("used") {
                ask!(l, label.clone() => VALUE, cuMemPoolSetAttribute(pool, attribute, data));
            } else {
                ask!(l, label.clone(), cuMemPoolSetAttribute(pool, attribute, data));
            }
        }
        if !name.contains("used") && !name.contains("reserved") {
            let value = if name == "threshold" {
                number(l, pool, attribute)
            } else {
                let mut value = 77_i32;
                need!(l, cuMemPoolGetAttribute(pool, attribute, ptr::from_mut(&mut value).cast()))?;
                value.to_string()
            };
            l.say(format!("{name} is then"), value);
        }
    }
    let mut value = 0_u64;
    ask!(l, "unknown attribute", cuMemPoolSetAttribute(pool, A(99), ptr::from_mut(&mut value).cast()));
    ask!(l, "without a value", cuMemPoolSetAttribute(pool, A(4), ptr::null_mut()));
    Ok(())
}

fn state(l: &mut Lab, when: &str, pool: CUmemoryPool) {
    for (name, attribute) in &ALL[4..] {
        let value = number(l, pool, *attribute);
        l.say(format!("{when}: {name}"), value);
    }
}

fn use_and_trim(l: &mut Lab) -> Run {
    let (pool, stream, mut one, mut two) = (l.pool(&pool_of(DEVICE_0, NO_HANDLES))?, l.stream(0)?, 0, 0);
    let mut all = u64::MAX;
    let data = ptr::from_mut(&mut all).cast();
    need!(l, cuMemPoolSetAttribute(pool, A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, data))?;
    need!(l, cuMemAllocFromPoolAsync(&mut one, 1000, pool, stream))?;
    state(l, "1000 bytes", pool);
    need!(l, cuMemAllocFromPoolAsync(&mut two, 40 * MIB, pool, stream))?;
    state(l, "40 MiB more", pool);
    need!(l, cuMemFreeAsync(two, stream))?;
    need!(l, cuStreamSynchronize(stream))?;
    state(l, "those freed", pool);
    ask!(l, "trim to 36 MiB" => OK, cuMemPoolTrimTo(pool, 36 * MIB));
    state(l, "trimmed to 36 MiB", pool);
    ask!(l, "trim to 0" => OK, cuMemPoolTrimTo(pool, 0));
    state(l, "trimmed to 0", pool);
    let (high, mut zero) = (A::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0_u64);
    ask!(l, "reset the peak" => OK, cuMemPoolSetAttribute(pool, high, ptr::from_mut(&mut zero).cast()));
    state(l, "after the reset", pool);
    need!(l, cuMemFreeAsync(one, stream))?;
    need!(l, cuStreamSynchronize(stream))?;
    ask!(l, "trim to more than there is", cuMemPoolTrimTo(pool, 1 << 40));
    Ok(())
}

fn threshold(l: &mut Lab) -> Run {
    let (pool, stream, mut block) = (l.pool(&pool_of(DEVICE_0, NO_HANDLES))?, l.stream(0)?, 0);
    need!(l, cuMemAllocFromPoolAsync(&mut block, 4096, pool, stream))?;
    need!(l, cuMemFreeAsync(block, stream))?;
    need!(l, cuStreamSynchronize(stream))?;
    let reserved = number(l, pool, A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    l.say("reserved after the stream was waited for", reserved);
    need!(l, cuMemAllocFromPoolAsync(&mut block, 4096, pool, stream))?;
    need!(l, cuMemFreeAsync(block, stream))?;
    need!(l, cuCtxSynchronize())?;
    let reserved = number(l, pool, A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    l.say("reserved after the context was waited for", reserved);
    Ok(())
}

fn limits(l: &mut Lab) -> Run {
    let stream = l.stream(0)?;
    for (name, limit) in [("1 byte", 1), ("2 MiB", 2 * MIB), ("64 MiB", 64 * MIB)] {
        let (props, mut block) = (CUmemPoolProps { maxSize: limit, ..pool_of(DEVICE_0, NO_HANDLES) }, 0);
        let pool = l.pool(&props)?;
        for (what, size) in [("1 MiB", MIB), ("32 MiB", 32 * MIB), ("64 MiB", 64 * MIB), ("96 MiB", 96 * MIB)] {
            let label = format!("{what} of a limit of {name}");
            if ask!(l, label, cuMemAllocFromPoolAsync(&mut block, size, pool, stream)) {
                need!(l, cuMemFreeAsync(block, stream))?;
                need!(l, cuStreamSynchronize(stream))?;
            }
        }
    }
    Ok(())
}

/// The size of the process's address space, in GiB.
fn space() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) >> 20
}

fn addresses_of_a_pool(l: &mut Lab) -> Run {
    for (name, limit) in [("no limit", 0), ("a limit of 2 MiB", 2 * MIB), ("a limit of 1 GiB", 1024 * MIB)] {
        let before = space();
        let pool = l.pool(&CUmemPoolProps { maxSize: limit, ..pool_of(DEVICE_0, NO_HANDLES) })?;
        let block = l.block(pool, 4096, ptr::null_mut())?;
        let taken = space().saturating_sub(before);
        if limit == 0 {
            let (mut free, mut total) = (0, 0);
            need!(l, cuMemGetInfo_v2(&mut free, &mut total))?;
            // Devices have other sizes.
            let memories = (taken as f64 / (total >> 30) as f64).round();
            l.say("addresses without a limit, in sizes of the device", memories);
        } else {
            l.say(format!("GiB of addresses with {name}"), taken);
        }
        need!(l, cuMemFree_v2(block))?;
    }
    Ok(())
}

fn end_with_a_live_block(l: &mut Lab) -> Run {
    let (mut pool, mut block, stream) = (ptr::null_mut(), 0, l.stream(0)?);
    need!(l, cuMemPoolCreate(&mut pool, &pool_of(DEVICE_0, NO_HANDLES)))?;
    need!(l, cuMemAllocFromPoolAsync(&mut block, 4096, pool, stream))?;
    ask!(l, "destroy" => OK, cuMemPoolDestroy(pool));
    ask!(l, "use the block" => OK, cuMemsetD8Async(block, 3, 64, stream));
    ask!(l, "wait" => OK, cuStreamSynchronize(stream));
    l.bytes::<4>("the block's bytes", block);
    ask!(l, "free the block" => OK, cuMemFreeAsync(block, stream));
    ask!(l, "free it again", cuMemFreeAsync(block, stream));
    ask!(l, "wait for the end" => OK, cuStreamSynchronize(stream));
    Ok(())
}

fn null_arguments(l: &mut Lab) -> Run {
    let pool = l.pool(&pool_of(DEVICE_0, NO_HANDLES))?;
    let (mut block, mut value) = (0, 0_u64);
    ask!(l, "cuMemAllocAsync without a result", cuMemAllocAsync(ptr::null_mut(), 64, ptr::null_mut()));
    let stream = ptr::null_mut();
    ask!(l, "cuMemAllocFromPoolAsync without a result", cuMemAllocFromPoolAsync(ptr::null_mut(), 64, pool, stream));
    ask!(l, "cuMemAllocFromPoolAsync without a pool", cuMemAllocFromPoolAsync(&mut block, 64, ptr::null_mut(), stream));
    ask!(l, "cuMemPoolCreate without a result", cuMemPoolCreate(ptr::null_mut(), &pool_of(DEVICE_0, NO_HANDLES)));
    ask!(l, "cuMemPoolCreate without properties", cuMemPoolCreate(&mut ptr::null_mut(), ptr::null()));
    ask!(l, "cuMemPoolDestroy", cuMemPoolDestroy(ptr::null_mut()));
    ask!(l, "cuMemPoolTrimTo", cuMemPoolTrimTo(ptr::null_mut(), 0));
    let data = ptr::from_mut(&mut value).cast();
    ask!(l, "cuMemPoolGetAttribute", cuMemPoolGetAttribute(ptr::null_mut(), A(4), data));
    ask!(l, "cuMemPoolSetAttribute", cuMemPoolSetAttribute(ptr::null_mut(), A(4), data));
    Ok(())
}

fn reuse_in_one_stream(l: &mut Lab) -> Run {
    let (pool, stream, mut one, mut two) = (l.pool(&pool_of(DEVICE_0, NO_HANDLES))?, l.stream(0)?, 0, 0);
    need!(l, cuMemAllocFromPoolAsync(&mut one, 4096, pool, stream))?;
    need!(l, cuMemFreeAsync(one, stream))?;
    need!(l, cuMemAllocFromPoolAsync(&mut two, 4096, pool, stream))?;
    l.say("a freed block is used again at once", one == two);
    need!(l, cuMemFreeAsync(two, stream))?;
    need!(l, cuStreamSynchronize(stream))
}

fn ended(l: &mut Lab) -> Result<CUmemoryPool, super::lab::Stop> {
    let mut pool = ptr::null_mut();
    need!(l, cuMemPoolCreate(&mut pool, &pool_of(DEVICE_0, NO_HANDLES)))?;
    need!(l, cuMemPoolDestroy(pool))?;
    Ok(pool)
}

fn destroyed_twice(l: &mut Lab) -> Run {
    let pool = ended(l)?;
    ask!(l, "destroy again", cuMemPoolDestroy(pool));
    Ok(())
}

fn allocation_from_a_destroyed_pool(l: &mut Lab) -> Run {
    let (pool, mut block) = (ended(l)?, 0);
    ask!(l, "allocate", cuMemAllocFromPoolAsync(&mut block, 64, pool, ptr::null_mut()));
    Ok(())
}

fn attribute_of_a_destroyed_pool(l: &mut Lab) -> Run {
    let (pool, mut value) = (ended(l)?, 0_u64);
    ask!(l, "threshold", cuMemPoolGetAttribute(pool, A(4), ptr::from_mut(&mut value).cast()));
    Ok(())
}
