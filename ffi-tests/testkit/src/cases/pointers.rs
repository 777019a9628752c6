//! Pointer attributes of every kind of memory.

use super::lab::codes::*;
use super::lab::{DEVICE_0, FDS, HOST, Lab, MIB, NO_HANDLES, READ_WRITE, Run, access, physical, pool_of};
use CUpointer_attribute as P;
use cuda_mem::cuda_sys::*;
use std::ffi::c_void;
use std::ptr;

cases! {
    Shared of_device_memory,
    Shared inside_device_memory,
    Shared of_pinned_memory,
    Shared of_registered_memory,
    Shared of_managed_memory,
    Shared of_device_pool_memory,
    Shared of_exportable_pool_memory,
    Shared of_host_pool_memory,
    Shared of_managed_pool_memory,
    Shared of_virtual_memory,
    Shared of_reserved_addresses,
    Shared of_the_heap,
    Shared of_the_stack,
    Shared of_address_0,
    Shared of_garbage,
    Shared of_freed_memory,
    Shared past_the_end,
    Shared bad_arguments,
    Shared many_at_once,
    Shared set,
}

/// Records every attribute. Addresses and handles are compared and not recorded.
fn all(l: &mut Lab, address: CUdeviceptr, base: CUdeviceptr) {
    for (name, attribute) in [
        ("memory type", P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE),
        ("synchronous copies", P::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS),
        ("managed", P::CU_POINTER_ATTRIBUTE_IS_MANAGED),
        ("device", P::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL),
        ("legacy sharing", P::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE),
        ("mapped", P::CU_POINTER_ATTRIBUTE_MAPPED),
        ("handle types", P::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES),
        ("remote memory access", P::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE),
        ("access", P::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS),
        ("decompression", P::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE),
    ] {
        // A buffer of 8 bytes, of which the driver may write fewer.
        let mut value = 0_u64;
        if ask!(l, name, cuPointerGetAttribute(ptr::from_mut(&mut value).cast(), attribute, address)) {
            l.say(format!("{name} is"), (value & 0xffff_ffff) as i32);
        }
    }
    for (name, attribute) in
        [("range size", P::CU_POINTER_ATTRIBUTE_RANGE_SIZE), ("mapping size", P::CU_POINTER_ATTRIBUTE_MAPPING_SIZE)]
    {
        let mut value = 0_u64;
        if ask!(l, name, cuPointerGetAttribute(ptr::from_mut(&mut value).cast(), attribute, address)) {
            l.say(format!("{name} is"), value);
        }
    }
    let compared = [
        ("context", P::CU_POINTER_ATTRIBUTE_CONTEXT),
        ("device address", P::CU_POINTER_ATTRIBUTE_DEVICE_POINTER),
        ("host address", P::CU_POINTER_ATTRIBUTE_HOST_POINTER),
        ("range start", P::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR),
        ("mapping base", P::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR),
        ("pool", P::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE),
        ("buffer id", P::CU_POINTER_ATTRIBUTE_BUFFER_ID),
        ("block id", P::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID),
    ];
    for (name, attribute) in compared {
        let mut value = 0_u64;
        if ask!(l, name, cuPointerGetAttribute(ptr::from_mut(&mut value).cast(), attribute, address)) {
            let what = match value {
                0 => "0",
                value if value == l.context as u64 => "the current context",
                value if value == address => "the address",
                value if value == base => "the base",
                _ => "another value",
            };
            l.say(format!("{name} is"), what);
        }
    }
}

fn of_device_memory(l: &mut Lab) -> Run {
    let memory = l.alloc(1000)?;
    let kind = l.pointer::<u32>(P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory);
    l.check("type", kind, 2);
    all(l, memory, memory);
    Ok(())
}

fn inside_device_memory(l: &mut Lab) -> Run {
    let memory = l.alloc(1000)?;
    all(l, memory + 100, memory);
    Ok(())
}

fn of_pinned_memory(l: &mut Lab) -> Run {
    let host = l.host(1000)? as CUdeviceptr;
    let kind = l.pointer::<u32>(P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host);
    l.check("type", kind, 1);
    all(l, host + 100, host);
    Ok(())
}

fn of_registered_memory(l: &mut Lab) -> Run {
    // SAFETY: fresh memory, which is freed below.
    let address = unsafe { libc::aligned_alloc(4096, 8192) };
    need!(l, cuMemHostRegister_v2(address, 8192, 0))?;
    all(l, address as CUdeviceptr + 100, address as CUdeviceptr);
    need!(l, cuMemHostUnregister(address))?;
    // SAFETY: this is the memory of above.
    unsafe { libc::free(address) };
    Ok(())
}

fn of_managed_memory(l: &mut Lab) -> Run {
    let managed = l.managed(1000)?;
    all(l, managed + 100, managed);
    Ok(())
}

fn of_device_pool_memory(l: &mut Lab) -> Run {
    let pool = l.pool(&pool_of(DEVICE_0, NO_HANDLES))?;
    let block = l.block(pool, 1000, ptr::null_mut())?;
    let mut of: CUmemoryPool = ptr::null_mut();
    let attribute = P::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
    ask!(l, "its pool" => OK, cuPointerGetAttribute(ptr::from_mut(&mut of).cast(), attribute, block));
    l.check("is the pool", of == pool, true);
    all(l, block + 100, block);
    Ok(())
}

fn of_exportable_pool_memory(l: &mut Lab) -> Run {
    let pool = l.pool(&pool_of(DEVICE_0, FDS))?;
    let block = l.block(pool, 1000, ptr::null_mut())?;
    all(l, block + 100, block);
    Ok(())
}

fn of_host_pool_memory(l: &mut Lab) -> Run {
    let pool = l.pool(&pool_of(HOST, NO_HANDLES))?;
    let block = l.block(pool, 1000, ptr::null_mut())?;
    let kind = l.pointer::<u32>(P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block);
    l.check("type", kind, 1);
    all(l, block + 100, block);
    Ok(())
}

fn of_managed_pool_memory(l: &mut Lab) -> Run {
    let kind = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED;
    let pool = l.pool(&CUmemPoolProps { allocType: kind, ..pool_of(DEVICE_0, NO_HANDLES) })?;
    let block = l.block(pool, 1000, ptr::null_mut())?;
    all(l, block + 100, block);
    Ok(())
}

fn of_virtual_memory(l: &mut Lab) -> Run {
    let (mut address, mut handle, size) = (0, 0, 2 * MIB);
    need!(l, cuMemAddressReserve(&mut address, size, 0, 0, 0))?;
    need!(l, cuMemCreate(&mut handle, size, &physical(FDS), 0))?;
    l.finally(move |l| {
        let _ = call!(l, cuMemUnmap(address, size));
        let _ = call!(l, cuMemRelease(handle));
        let _ = call!(l, cuMemAddressFree(address, size));
    });
    need!(l, cuMemMap(address, size, 0, handle, 0))?;
    let kind = l.pointer::<u32>(P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    l.say("type before access", kind);
    need!(l, cuMemSetAccess(address, size, &access(DEVICE_0, READ_WRITE), 1))?;
    all(l, address + 100, address);
    Ok(())
}

fn of_reserved_addresses(l: &mut Lab) -> Run {
    let mut address = 0;
    need!(l, cuMemAddressReserve(&mut address, 2 * MIB, 0, 0, 0))?;
    l.finally(move |l| drop(call!(l, cuMemAddressFree(address, 2 * MIB))));
    all(l, address + 100, address);
    Ok(())
}

fn of_the_heap(l: &mut Lab) -> Run {
    let heap = vec![0_u8; 4096];
    all(l, heap.as_ptr() as CUdeviceptr, 1);
    Ok(())
}

fn of_the_stack(l: &mut Lab) -> Run {
    let here = 0_u64;
    all(l, ptr::from_ref(&here) as CUdeviceptr, 1);
    Ok(())
}

fn of_address_0(l: &mut Lab) -> Run {
    all(l, 0, 1);
    Ok(())
}

fn of_garbage(l: &mut Lab) -> Run {
    all(l, 0xdead_0000, 1);
    Ok(())
}

fn of_freed_memory(l: &mut Lab) -> Run {
    let mut memory = 0;
    need!(l, cuMemAlloc_v2(&mut memory, 8 * MIB))?;
    need!(l, cuMemFree_v2(memory))?;
    all(l, memory, memory);
    Ok(())
}

fn past_the_end(l: &mut Lab) -> Run {
    let memory = l.alloc(1000)?;
    for offset in [999, 1000, 1023] {
        let kind = l.pointer::<u32>(P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + offset);
        l.say(format!("byte {offset} of 1000"), kind);
    }
    Ok(())
}

fn bad_arguments(l: &mut Lab) -> Run {
    let (memory, mut value) = (l.alloc(64)?, 0_u64);
    ask!(l, "attribute 0", cuPointerGetAttribute(ptr::from_mut(&mut value).cast(), P(0), memory));
    ask!(l, "unknown attribute", cuPointerGetAttribute(ptr::from_mut(&mut value).cast(), P(99), memory));
    let kind = P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    ask!(l, "without a result", cuPointerGetAttribute(ptr::null_mut(), kind, memory));
    let mut tokens = [0_u64; 4];
    let p2p = P::CU_POINTER_ATTRIBUTE_P2P_TOKENS;
    ask!(l, "tokens", cuPointerGetAttribute(tokens.as_mut_ptr().cast(), p2p, memory));
    Ok(())
}

fn many(l: &mut Lab, label: &str, address: CUdeviceptr) {
    let (mut kind, mut device, mut start) = (77_u32, 77_i32, 77_u64);
    let mut data: [*mut c_void; 3] =
        [ptr::from_mut(&mut kind).cast(), ptr::from_mut(&mut device).cast(), ptr::from_mut(&mut start).cast()];
    let mut wanted = [
        P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        P::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        P::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
    ];
    ask!(l, label, cuPointerGetAttributes(3, wanted.as_mut_ptr(), data.as_mut_ptr(), address));
    let start = if start == address { "the address".to_owned() } else { start.to_string() };
    l.say(format!("{label}: are"), format!("{kind} {device} {start}"));
}

fn many_at_once(l: &mut Lab) -> Run {
    let (memory, heap) = (l.alloc(64)?, vec![0_u8; 64]);
    many(l, "device memory", memory);
    many(l, "the heap", heap.as_ptr() as CUdeviceptr);
    many(l, "garbage", 0xdead_0000);
    many(l, "address 0", 0);
    let (mut value, mut wanted) = (0_u64, [P(99)]);
    let mut data: [*mut c_void; 1] = [ptr::from_mut(&mut value).cast()];
    ask!(l, "unknown attribute", cuPointerGetAttributes(1, wanted.as_mut_ptr(), data.as_mut_ptr(), memory));
    ask!(l, "none", cuPointerGetAttributes(0, wanted.as_mut_ptr(), data.as_mut_ptr(), memory));
    ask!(l, "no attributes", cuPointerGetAttributes(1, ptr::null_mut(), data.as_mut_ptr(), memory));
    wanted[0] = P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    ask!(l, "no results", cuPointerGetAttributes(1, wanted.as_mut_ptr(), ptr::null_mut(), memory));
    Ok(())
}

fn set(l: &mut Lab) -> Run {
    let (memory, heap, yes) = (l.alloc(64)?, vec![0_u8; 64], 1_u32);
    let (sync, data) = (P::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr::from_ref(&yes).cast::<c_void>());
    ask!(l, "synchronous copies" => OK, cuPointerSetAttribute(data, sync, memory));
    let value = l.pointer::<u32>(sync, memory);
    l.say("synchronous copies are then", value);
    ask!(l, "inside", cuPointerSetAttribute(data, sync, memory + 8));
    ask!(l, "another attribute", cuPointerSetAttribute(data, P::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
    ask!(l, "without a value", cuPointerSetAttribute(ptr::null(), sync, memory));
    ask!(l, "the heap", cuPointerSetAttribute(data, sync, heap.as_ptr() as CUdeviceptr));
    ask!(l, "address 0", cuPointerSetAttribute(data, sync, 0));
    let (host, managed) = (l.host(64)?, l.managed(64)?);
    ask!(l, "pinned memory", cuPointerSetAttribute(data, sync, host as CUdeviceptr));
    ask!(l, "managed memory", cuPointerSetAttribute(data, sync, managed));
    Ok(())
}
