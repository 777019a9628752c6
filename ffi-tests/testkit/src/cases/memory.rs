//! Device memory: sizes, frees, ranges, rows.

use super::lab::codes::*;
use super::lab::{Lab, MIB, Run};
use cuda_mem::cuda_sys::*;
use std::ptr;

cases! {
    Shared sizes,
    Shared frees,
    Shared frees_by_the_wrong_function,
    Shared frees_of_foreign_pointers,
    Shared freed_from_the_stream,
    Shared ranges,
    Shared ranges_of_foreign_pointers,
    Shared rows,
    Shared alignment,
    Shared freed_memory,
    Shared running_out_and_on,
    Shared dma_buf,
    Shared graph_memory,
}

fn sizes(l: &mut Lab) -> Run {
    let mut address = 4096;
    ask!(l, "0 bytes" => VALUE, cuMemAlloc_v2(&mut address, 0));
    l.say("0 bytes leave the result as it was", address == 4096);
    ask!(l, "without a result" => VALUE, cuMemAlloc_v2(ptr::null_mut(), 64));
    ask!(l, "2^60 bytes" => MEMORY, cuMemAlloc_v2(&mut address, 1 << 60));
    l.say("2^60 bytes leave the result as it was", address == 4096);
    ask!(l, "all bytes" => MEMORY, cuMemAlloc_v2(&mut address, usize::MAX));
    let (mut free, mut total) = (0, 0);
    need!(l, cuMemGetInfo_v2(&mut free, &mut total))?;
    ask!(l, "one byte more than the device has" => MEMORY, cuMemAlloc_v2(&mut address, total + 1));
    if ask!(l, "1 byte" => OK, cuMemAlloc_v2(&mut address, 1)) {
        l.check("aligned to 256 bytes", address % 256, 0);
        ask!(l, "free it" => OK, cuMemFree_v2(address));
    }
    Ok(())
}

fn frees(l: &mut Lab) -> Run {
    let memory = l.alloc(4096)?;
    ask!(l, "0" => OK, cuMemFree_v2(0));
    ask!(l, "garbage" => VALUE, cuMemFree_v2(0xdead_beef));
    ask!(l, "address + 16" => VALUE, cuMemFree_v2(memory + 16));
    ask!(l, "address + 4096", cuMemFree_v2(memory + 4096));
    ask!(l, "address" => OK, cuMemFree_v2(memory));
    ask!(l, "again" => VALUE, cuMemFree_v2(memory));
    ask!(l, "all ones", cuMemFree_v2(u64::MAX));
    Ok(())
}

fn frees_by_the_wrong_function(l: &mut Lab) -> Run {
    let (memory, host, stream) = (l.alloc(4096)?, l.host(4096)?, l.stream(0)?);
    ask!(l, "cuMemFreeHost of device memory", cuMemFreeHost(memory as *mut _));
    ask!(l, "cuMemHostUnregister of device memory", cuMemHostUnregister(memory as *mut _));
    ask!(l, "cuIpcCloseMemHandle of device memory", cuIpcCloseMemHandle(memory));
    ask!(l, "cuMemUnmap of device memory", cuMemUnmap(memory, 2 * MIB));
    ask!(l, "cuMemAddressFree of device memory", cuMemAddressFree(memory, 2 * MIB));
    ask!(l, "the device memory is still there" => OK, cuMemsetD8_v2(memory, 1, 64));
    ask!(l, "cuMemFree of host memory", cuMemFree_v2(host as CUdeviceptr));
    ask!(l, "cuMemFreeAsync of host memory", cuMemFreeAsync(host as CUdeviceptr, stream));
    ask!(l, "cuMemHostUnregister of host memory", cuMemHostUnregister(host.cast()));
    ask!(l, "the host memory is still there", cuMemHostGetFlags(&mut 0, host.cast()));
    let managed = l.managed(4096)?;
    ask!(l, "cuMemFreeHost of managed memory", cuMemFreeHost(managed as *mut _));
    ask!(l, "cuMemFreeAsync of managed memory", cuMemFreeAsync(managed, stream));
    ask!(l, "the stream" => OK, cuStreamSynchronize(stream));
    ask!(l, "cuMemFree of managed memory", cuMemFree_v2(managed));
    Ok(())
}

fn frees_of_foreign_pointers(l: &mut Lab) -> Run {
    let mut here = 0_u64;
    let heap = vec![0_u8; 4096];
    ask!(l, "cuMemFree of the stack", cuMemFree_v2(ptr::from_mut(&mut here) as CUdeviceptr));
    ask!(l, "cuMemFree of the heap", cuMemFree_v2(heap.as_ptr() as CUdeviceptr));
    ask!(l, "cuMemFreeAsync of the heap", cuMemFreeAsync(heap.as_ptr() as CUdeviceptr, ptr::null_mut()));
    ask!(l, "cuMemFreeHost of the heap" => VALUE, cuMemFreeHost(heap.as_ptr().cast_mut().cast()));
    ask!(l, "cuMemFreeHost of null" => OK, cuMemFreeHost(ptr::null_mut()));
    ask!(l, "cuMemHostUnregister of the heap", cuMemHostUnregister(heap.as_ptr().cast_mut().cast()));
    ask!(l, "cuIpcCloseMemHandle of the heap", cuIpcCloseMemHandle(heap.as_ptr() as CUdeviceptr));
    Ok(())
}

fn freed_from_the_stream(l: &mut Lab) -> Run {
    let (memory, stream, mut ordered) = (l.alloc(64)?, l.stream(0)?, 0);
    ask!(l, "cuMemFreeAsync of cuMemAlloc's memory" => OK, cuMemFreeAsync(memory, stream));
    ask!(l, "the stream" => OK, cuStreamSynchronize(stream));
    ask!(l, "then cuMemFree" => VALUE, cuMemFree_v2(memory));
    need!(l, cuMemAllocAsync(&mut ordered, 64, stream))?;
    ask!(l, "cuMemFree of cuMemAllocAsync's memory" => OK, cuMemFree_v2(ordered));
    ask!(l, "again", cuMemFree_v2(ordered));
    ask!(l, "then cuMemFreeAsync", cuMemFreeAsync(ordered, stream));
    Ok(())
}

fn ranges(l: &mut Lab) -> Run {
    let (memory, mut base, mut size) = (l.alloc(1000)?, 0, 0);
    ask!(l, "base" => OK, cuMemGetAddressRange_v2(&mut base, &mut size, memory));
    l.check("base is", base == memory, true);
    l.check("size is", size, 1000);
    ask!(l, "inside" => OK, cuMemGetAddressRange_v2(&mut base, &mut size, memory + 999));
    l.check("inside: base", base == memory, true);
    ask!(l, "at the end", cuMemGetAddressRange_v2(&mut base, &mut size, memory + 1000));
    ask!(l, "only the base" => OK, cuMemGetAddressRange_v2(&mut base, ptr::null_mut(), memory));
    ask!(l, "only the size" => OK, cuMemGetAddressRange_v2(ptr::null_mut(), &mut size, memory));
    ask!(l, "neither", cuMemGetAddressRange_v2(ptr::null_mut(), ptr::null_mut(), memory));
    let (host, managed) = (l.host(1000)? as CUdeviceptr, l.managed(1000)?);
    ask!(l, "host memory", cuMemGetAddressRange_v2(&mut base, &mut size, host + 5));
    l.say("host memory: size", size);
    ask!(l, "managed memory", cuMemGetAddressRange_v2(&mut base, &mut size, managed + 5));
    l.say("managed memory: size", size);
    Ok(())
}

fn ranges_of_foreign_pointers(l: &mut Lab) -> Run {
    let (mut base, mut size, heap) = (0, 0, vec![0_u8; 4096]);
    ask!(l, "0", cuMemGetAddressRange_v2(&mut base, &mut size, 0));
    ask!(l, "garbage", cuMemGetAddressRange_v2(&mut base, &mut size, 0xdead_beef));
    ask!(l, "the heap", cuMemGetAddressRange_v2(&mut base, &mut size, heap.as_ptr() as CUdeviceptr));
    let mut freed = 0;
    need!(l, cuMemAlloc_v2(&mut freed, 1000))?;
    need!(l, cuMemFree_v2(freed))?;
    ask!(l, "freed memory", cuMemGetAddressRange_v2(&mut base, &mut size, freed));
    Ok(())
}

fn rows(l: &mut Lab) -> Run {
    let (mut address, mut pitch, mut size) = (0, 0, 0);
    for (width, height, element) in [(100, 7, 4), (1, 1, 16), (512, 3, 8), (513, 3, 8)] {
        let label = format!("{width} bytes x {height}, elements of {element}");
        if ask!(l, label.clone() => OK, cuMemAllocPitch_v2(&mut address, &mut pitch, width, height, element)) {
            l.say(format!("{label}: pitch"), pitch);
            ask!(l, format!("{label}: range"), cuMemGetAddressRange_v2(ptr::null_mut(), &mut size, address));
            l.say(format!("{label}: size"), size);
            ask!(l, format!("{label}: free") => OK, cuMemFree_v2(address));
        }
    }
    for element in [0, 1, 2, 3, 5, 32] {
        if ask!(l, format!("elements of {element}"), cuMemAllocPitch_v2(&mut address, &mut pitch, 64, 2, element)) {
            need!(l, cuMemFree_v2(address))?;
        }
    }
    ask!(l, "width 0", cuMemAllocPitch_v2(&mut address, &mut pitch, 0, 2, 4));
    ask!(l, "height 0", cuMemAllocPitch_v2(&mut address, &mut pitch, 64, 0, 4));
    ask!(l, "a width of all bytes", cuMemAllocPitch_v2(&mut address, &mut pitch, usize::MAX, 2, 4));
    ask!(l, "more than all bytes", cuMemAllocPitch_v2(&mut address, &mut pitch, 1 << 40, 1 << 40, 4));
    ask!(l, "without an address", cuMemAllocPitch_v2(ptr::null_mut(), &mut pitch, 64, 2, 4));
    ask!(l, "without a pitch", cuMemAllocPitch_v2(&mut address, ptr::null_mut(), 64, 2, 4));
    Ok(())
}

fn alignment(l: &mut Lab) -> Run {
    for size in [1, 3, 255, 257, 4097, MIB, 2 * MIB + 1] {
        let address = l.alloc(size)?;
        l.check(format!("{size} bytes are at a multiple of 256"), address.is_multiple_of(256), true);
    }
    let (one, two) = (l.alloc(1)?, l.alloc(1)?);
    l.say("two of one byte are 512 bytes apart", one.abs_diff(two) == 512);
    // Several allocations, because one may be aligned by chance.
    let large = [l.alloc(2 * MIB)?, l.alloc(2 * MIB)?, l.alloc(2 * MIB)?, l.alloc(2 * MIB)?];
    l.say("2 MiB are at a multiple of 2 MiB", large.iter().all(|address| address.is_multiple_of(2 << 20)));
    Ok(())
}

fn freed_memory(l: &mut Lab) -> Run {
    let (mut memory, mut byte) = (0, 0_u8);
    need!(l, cuMemAlloc_v2(&mut memory, 8 * MIB))?;
    need!(l, cuMemFree_v2(memory))?;
    ask!(l, "memset", cuMemsetD8_v2(memory, 1, 64));
    ask!(l, "read", cuMemcpyDtoH_v2(ptr::from_mut(&mut byte).cast(), memory, 1));
    ask!(l, "write", cuMemcpyHtoD_v2(memory, ptr::from_ref(&byte).cast(), 1));
    ask!(l, "the context goes on", cuCtxSynchronize());
    Ok(())
}

fn running_out_and_on(l: &mut Lab) -> Run {
    let (mut address, mut pitch) = (0, 0);
    let huge = 1 << 45;
    ask!(l, "cuMemAlloc" => MEMORY, cuMemAlloc_v2(&mut address, huge));
    ask!(l, "cuMemAllocManaged", cuMemAllocManaged(&mut address, 1 << 60, 1));
    ask!(l, "cuMemAllocPitch", cuMemAllocPitch_v2(&mut address, &mut pitch, 1 << 20, 1 << 25, 4));
    ask!(l, "cuMemAllocAsync", cuMemAllocAsync(&mut address, huge, ptr::null_mut()));
    let mut host = ptr::null_mut();
    ask!(l, "cuMemHostAlloc of 2^60 bytes", cuMemHostAlloc(&mut host, 1 << 60, 0));
    let memory = l.alloc(64)?;
    ask!(l, "work goes on" => OK, cuMemsetD8_v2(memory, 1, 64));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    Ok(())
}

fn dma_buf(l: &mut Lab) -> Run {
    let (memory, mut fd) = (l.alloc(4 * MIB)?, -1);
    let (host, kind) = (l.host(MIB)?, CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
    let out = ptr::from_mut(&mut fd).cast();
    let close = |fd: i32| {
        // SAFETY: the descriptor is this case's own.
        unsafe { libc::close(fd) };
    };
    if ask!(l, "device memory", cuMemGetHandleForAddressRange(out, memory, 2 * MIB, kind, 0)) {
        l.say("a descriptor", fd >= 0);
        close(fd);
    }
    for (label, address, size) in [
        ("4 KiB", memory, 4096),
        ("at 4 KiB", memory + 4096, 4096),
        ("64 KiB at 64 KiB", memory + 65536, 65536),
        ("100 bytes", memory, 100),
        ("at 100 bytes", memory + 100, 4096),
        ("0 bytes", memory, 0),
        ("past the end", memory, 64 * MIB),
        ("address 0", 0, 4096),
        ("garbage", 0xdead_0000, 4096),
        ("host memory", host as CUdeviceptr, MIB),
    ] {
        if ask!(l, label, cuMemGetHandleForAddressRange(out, address, size, kind, 0)) {
            close(fd);
        }
    }
    let other = CUmemRangeHandleType(7);
    ask!(l, "unknown type", cuMemGetHandleForAddressRange(out, memory, 2 * MIB, other, 0));
    ask!(l, "unknown flags", cuMemGetHandleForAddressRange(out, memory, 2 * MIB, kind, 0x100));
    ask!(l, "without a result", cuMemGetHandleForAddressRange(ptr::null_mut(), memory, 2 * MIB, kind, 0));
    Ok(())
}

fn graph_memory(l: &mut Lab) -> Run {
    use CUgraphMem_attribute as A;
    let mut value = 7_u64;
    for (name, attribute) in [
        ("used", A::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT),
        ("used at most", A::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH),
        ("reserved", A::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT),
        ("reserved at most", A::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH),
    ] {
        ask!(l, name, cuDeviceGetGraphMemAttribute(0, attribute, ptr::from_mut(&mut value).cast()));
        l.say(format!("{name} is"), value);
        let mut zero = 0_u64;
        let data = ptr::from_mut(&mut zero).cast();
        ask!(l, format!("set {name} to 0"), cuDeviceSetGraphMemAttribute(0, attribute, data));
    }
    let high = A::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH;
    ask!(l, "set used at most to 5", cuDeviceSetGraphMemAttribute(0, high, ptr::from_mut(&mut 5_u64).cast()));
    ask!(l, "unknown attribute", cuDeviceGetGraphMemAttribute(0, A(99), ptr::from_mut(&mut value).cast()));
    ask!(l, "device 99", cuDeviceGetGraphMemAttribute(99, high, ptr::from_mut(&mut value).cast()));
    ask!(l, "without a result", cuDeviceGetGraphMemAttribute(0, high, ptr::null_mut()));
    ask!(l, "trim" => OK, cuDeviceGraphMemTrim(0));
    ask!(l, "trim device 99" => DEVICE, cuDeviceGraphMemTrim(99));
    Ok(())
}
