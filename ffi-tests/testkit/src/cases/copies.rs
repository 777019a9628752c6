//! Copies: of bytes, of rows, between contexts.

use super::lab::codes::*;
use super::lab::{Lab, MIB, Run};
use CUmemorytype as T;
use cuda_mem::cuda_sys::*;
use std::ffi::c_void;
use std::ptr;

cases! {
    Shared sizes,
    Shared null_addresses,
    Shared foreign_addresses,
    Shared directions,
    Shared any_to_any,
    Shared overlapping,
    Shared asynchronous,
    Shared between_contexts,
    Shared rows,
    Shared bad_rows,
    Shared rows_of_kinds,
    Shared planes,
    Two between_devices,
}

fn sizes(l: &mut Lab) -> Run {
    let (memory, source) = (l.alloc(64)?, vec![1_u8; 8 * MIB]);
    let from = source.as_ptr().cast::<c_void>();
    ask!(l, "0 bytes" => OK, cuMemcpyHtoD_v2(memory, from, 0));
    ask!(l, "64 bytes into 64" => OK, cuMemcpyHtoD_v2(memory, from, 64));
    ask!(l, "4 MiB into 64 bytes" => VALUE, cuMemcpyHtoD_v2(memory, from, 4 * MIB));
    ask!(l, "0 bytes to garbage", cuMemcpyHtoD_v2(0xdead_0000, from, 0));
    ask!(l, "0 bytes from null to 0", cuMemcpyHtoD_v2(0, ptr::null(), 0));
    let large = l.alloc(4 * MIB)?;
    ask!(l, "past the end of 4 MiB", cuMemcpyHtoD_v2(large + 1, from, 4 * MIB));
    Ok(())
}

fn null_addresses(l: &mut Lab) -> Run {
    let (memory, mut bytes) = (l.alloc(64)?, [0_u8; 64]);
    let host = bytes.as_mut_ptr().cast::<c_void>();
    ask!(l, "from null" => VALUE, cuMemcpyHtoD_v2(memory, ptr::null(), 64));
    ask!(l, "to null" => VALUE, cuMemcpyDtoH_v2(ptr::null_mut(), memory, 64));
    ask!(l, "to device address 0" => VALUE, cuMemcpyHtoD_v2(0, host, 64));
    ask!(l, "from device address 0" => VALUE, cuMemcpyDtoH_v2(host, 0, 64));
    ask!(l, "DtoD to 0" => VALUE, cuMemcpyDtoD_v2(0, memory, 64));
    ask!(l, "DtoD from 0" => VALUE, cuMemcpyDtoD_v2(memory, 0, 64));
    ask!(l, "cuMemcpy to 0", cuMemcpy(0, memory, 64));
    ask!(l, "cuMemcpy from 0", cuMemcpy(memory, 0, 64));
    let stream = l.stream(0)?;
    ask!(l, "asynchronous from null", cuMemcpyHtoDAsync_v2(memory, ptr::null(), 64, stream));
    ask!(l, "asynchronous to null", cuMemcpyDtoHAsync_v2(ptr::null_mut(), memory, 64, stream));
    ask!(l, "the stream" => OK, cuStreamSynchronize(stream));
    Ok(())
}

fn foreign_addresses(l: &mut Lab) -> Run {
    let (memory, mut heap) = (l.alloc(64)?, vec![7_u8; 64]);
    let host = heap.as_mut_ptr().cast::<c_void>();
    ask!(l, "HtoD to garbage", cuMemcpyHtoD_v2(0xdead_0000, host, 64));
    ask!(l, "DtoH from garbage", cuMemcpyDtoH_v2(host, 0xdead_0000, 64));
    ask!(l, "DtoD to garbage", cuMemcpyDtoD_v2(0xdead_0000, memory, 64));
    ask!(l, "HtoD to the heap", cuMemcpyHtoD_v2(host as CUdeviceptr, host, 0));
    ask!(l, "DtoH from the heap", cuMemcpyDtoH_v2(host, host as CUdeviceptr, 16));
    ask!(l, "DtoD from the heap", cuMemcpyDtoD_v2(memory, host as CUdeviceptr, 16));
    ask!(l, "DtoD to the heap", cuMemcpyDtoD_v2(host as CUdeviceptr, memory, 16));
    ask!(l, "the context goes on", cuCtxSynchronize());
    Ok(())
}

fn directions(l: &mut Lab) -> Run {
    let (memory, other, pinned) = (l.alloc(64)?, l.alloc(64)?, l.host(64)?);
    let device = |address: CUdeviceptr| address as *mut c_void;
    ask!(l, "HtoD from device memory", cuMemcpyHtoD_v2(memory, device(other), 64));
    ask!(l, "DtoH to device memory", cuMemcpyDtoH_v2(device(other), memory, 64));
    ask!(l, "HtoD to pinned memory", cuMemcpyHtoD_v2(pinned as CUdeviceptr, [1_u8; 8].as_ptr().cast(), 8));
    ask!(l, "DtoH from pinned memory", cuMemcpyDtoH_v2([1_u8; 8].as_mut_ptr().cast(), pinned as CUdeviceptr, 8));
    ask!(l, "DtoD between pinned memory", cuMemcpyDtoD_v2(pinned as CUdeviceptr, pinned as CUdeviceptr + 32, 32));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    Ok(())
}

fn any_to_any(l: &mut Lab) -> Run {
    let (memory, mut heap, mut other) = (l.alloc(64)?, vec![7_u8; 64], vec![0_u8; 64]);
    let (here, there) = (heap.as_mut_ptr() as CUdeviceptr, other.as_mut_ptr() as CUdeviceptr);
    ask!(l, "heap to heap" => OK, cuMemcpy(there, here, 64));
    l.check("heap to heap copied", other[63], 7);
    ask!(l, "heap to device" => OK, cuMemcpy(memory, here, 64));
    ask!(l, "device to heap" => OK, cuMemcpy(there, memory, 64));
    ask!(l, "device to device" => OK, cuMemcpy(memory + 32, memory, 32));
    ask!(l, "0 bytes", cuMemcpy(memory, here, 0));
    ask!(l, "heap to heap in stream order", cuMemcpyAsync(there, here, 64, ptr::null_mut()));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    Ok(())
}

fn overlapping(l: &mut Lab) -> Run {
    let memory = l.alloc(4096)?;
    ask!(l, "DtoD" => OK, cuMemcpyDtoD_v2(memory + 16, memory, 1024));
    ask!(l, "DtoD onto itself", cuMemcpyDtoD_v2(memory, memory, 1024));
    ask!(l, "cuMemcpy", cuMemcpy(memory + 16, memory, 1024));
    ask!(l, "DtoDAsync", cuMemcpyDtoDAsync_v2(memory + 16, memory, 1024, ptr::null_mut()));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    Ok(())
}

fn asynchronous(l: &mut Lab) -> Run {
    let (memory, host, stream, mut heap) = (l.alloc(4096)?, l.host(4096)?, l.stream(1)?, vec![3_u8; 4096]);
    ask!(l, "from pinned memory" => OK, cuMemcpyHtoDAsync_v2(memory, host.cast(), 4096, stream));
    ask!(l, "from the heap" => OK, cuMemcpyHtoDAsync_v2(memory, heap.as_ptr().cast(), 4096, stream));
    ask!(l, "to pinned memory" => OK, cuMemcpyDtoHAsync_v2(host.cast(), memory, 4096, stream));
    ask!(l, "to the heap" => OK, cuMemcpyDtoHAsync_v2(heap.as_mut_ptr().cast(), memory, 4096, stream));
    ask!(l, "0 bytes" => OK, cuMemcpyHtoDAsync_v2(memory, host.cast(), 0, stream));
    ask!(l, "synchronize" => OK, cuStreamSynchronize(stream));
    // SAFETY: pinned memory of this case, which no copy writes any more.
    l.check("the last byte", unsafe { host.add(4095).read_volatile() }, 3);
    Ok(())
}

fn between_contexts(l: &mut Lab) -> Run {
    let (one, two, second) = (l.alloc(64)?, l.alloc(64)?, l.second_context()?);
    ask!(l, "one context" => OK, cuMemcpyPeer(one, l.context, two, l.context, 64));
    ask!(l, "the wrong context", cuMemcpyPeer(one, second, two, l.context, 64));
    ask!(l, "0 bytes", cuMemcpyPeer(one, l.context, two, l.context, 0));
    ask!(l, "null contexts", cuMemcpyPeer(one, ptr::null_mut(), two, ptr::null_mut(), 64));
    ask!(l, "from 0", cuMemcpyPeer(one, l.context, 0, l.context, 64));
    ask!(l, "in stream order" => OK, cuMemcpyPeerAsync(one, l.context, two, l.context, 64, ptr::null_mut()));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    Ok(())
}

/// A copy of 4 rows of 16 bytes from device memory to device memory.
fn of(from: CUdeviceptr, to: CUdeviceptr) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        srcMemoryType: T::CU_MEMORYTYPE_DEVICE,
        srcDevice: from,
        srcPitch: 64,
        dstMemoryType: T::CU_MEMORYTYPE_DEVICE,
        dstDevice: to,
        dstPitch: 32,
        WidthInBytes: 16,
        Height: 4,
        ..Default::default()
    }
}

fn rows(l: &mut Lab) -> Run {
    let (from, to) = (l.alloc(4096)?, l.alloc(4096)?);
    need!(l, cuMemsetD8_v2(from, 3, 4096))?;
    need!(l, cuMemsetD8_v2(to, 0, 4096))?;
    ask!(l, "rows" => OK, cuMemcpy2D_v2(&of(from, to)));
    l.bytes::<4>("end of a row", to + 14);
    ask!(l, "at any pitch" => OK, cuMemcpy2DUnaligned_v2(&of(from, to)));
    ask!(l, "in stream order" => OK, cuMemcpy2DAsync_v2(&of(from, to), ptr::null_mut()));
    ask!(l, "at an offset" => OK, cuMemcpy2D_v2(&CUDA_MEMCPY2D { srcXInBytes: 4, srcY: 1, dstXInBytes: 8, ..of(from, to) }));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    l.bytes::<4>("end of a moved row", to + 22);
    Ok(())
}

fn bad_rows(l: &mut Lab) -> Run {
    let (from, to) = (l.alloc(4096)?, l.alloc(4096)?);
    let good = of(from, to);
    for (label, copy) in [
        ("source pitch 0", CUDA_MEMCPY2D { srcPitch: 0, ..good }),
        ("source pitch 0, one row", CUDA_MEMCPY2D { srcPitch: 0, Height: 1, ..good }),
        ("source pitch 8", CUDA_MEMCPY2D { srcPitch: 8, ..good }),
        ("source pitch 17", CUDA_MEMCPY2D { srcPitch: 17, ..good }),
        ("destination pitch 0", CUDA_MEMCPY2D { dstPitch: 0, ..good }),
        ("destination pitch 8", CUDA_MEMCPY2D { dstPitch: 8, ..good }),
        ("an enormous pitch", CUDA_MEMCPY2D { srcPitch: 1 << 40, ..good }),
        ("pitch and offset too small", CUDA_MEMCPY2D { dstXInBytes: 20, ..good }),
        ("width 0", CUDA_MEMCPY2D { WidthInBytes: 0, ..good }),
        ("height 0", CUDA_MEMCPY2D { Height: 0, ..good }),
        ("source 0", CUDA_MEMCPY2D { srcDevice: 0, ..good }),
        ("destination 0", CUDA_MEMCPY2D { dstDevice: 0, ..good }),
        ("source type 0", CUDA_MEMCPY2D { srcMemoryType: T(0), ..good }),
        ("unknown source type", CUDA_MEMCPY2D { srcMemoryType: T(77), ..good }),
        ("array without an array", CUDA_MEMCPY2D { srcMemoryType: T::CU_MEMORYTYPE_ARRAY, ..good }),
        ("past the end", CUDA_MEMCPY2D { Height: 1 << 20, ..good }),
    ] {
        ask!(l, label, cuMemcpy2D_v2(&copy));
        ask!(l, format!("{label}, at any pitch"), cuMemcpy2DUnaligned_v2(&copy));
    }
    ask!(l, "no description", cuMemcpy2D_v2(ptr::null()));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    Ok(())
}

fn rows_of_kinds(l: &mut Lab) -> Run {
    let (memory, host, mut heap) = (l.alloc(4096)?, l.host(4096)?, vec![1_u8; 4096]);
    let good = of(memory, memory + 2048);
    let heap = heap.as_mut_ptr().cast::<c_void>();
    let from_host = CUDA_MEMCPY2D { srcMemoryType: T::CU_MEMORYTYPE_HOST, srcHost: heap, ..good };
    ask!(l, "from the heap" => OK, cuMemcpy2D_v2(&from_host));
    ask!(l, "from a null host address", cuMemcpy2D_v2(&CUDA_MEMCPY2D { srcHost: ptr::null(), ..from_host }));
    let to_host = CUDA_MEMCPY2D { dstMemoryType: T::CU_MEMORYTYPE_HOST, dstHost: heap, ..good };
    ask!(l, "to the heap" => OK, cuMemcpy2D_v2(&to_host));
    let both = CUDA_MEMCPY2D { srcMemoryType: T::CU_MEMORYTYPE_HOST, srcHost: host.cast(), ..to_host };
    ask!(l, "host to host", cuMemcpy2D_v2(&both));
    let unified = T::CU_MEMORYTYPE_UNIFIED;
    let any = CUDA_MEMCPY2D { srcMemoryType: unified, dstMemoryType: unified, ..good };
    ask!(l, "unified", cuMemcpy2D_v2(&any));
    ask!(l, "unified from pinned memory", cuMemcpy2D_v2(&CUDA_MEMCPY2D { srcDevice: host as CUdeviceptr, ..any }));
    ask!(l, "unified from the heap", cuMemcpy2D_v2(&CUDA_MEMCPY2D { srcDevice: heap as CUdeviceptr, ..any }));
    Ok(())
}

fn between_devices(l: &mut Lab) -> Run {
    let (here, mut there, mut other) = (l.alloc(4096)?, 0, ptr::null_mut());
    need!(l, cuDevicePrimaryCtxRetain(&mut other, 1))?;
    l.finally(|l| drop(call!(l, cuDevicePrimaryCtxRelease_v2(1))));
    need!(l, cuCtxPushCurrent_v2(other))?;
    need!(l, cuMemAlloc_v2(&mut there, 4096))?;
    need!(l, cuCtxPopCurrent_v2(ptr::null_mut()))?;
    ask!(l, "cuMemcpyPeer" => OK, cuMemcpyPeer(here, l.context, there, other, 64));
    ask!(l, "cuMemcpyPeer with contexts exchanged", cuMemcpyPeer(here, other, there, l.context, 64));
    ask!(l, "cuMemcpyDtoD", cuMemcpyDtoD_v2(here, there, 64));
    ask!(l, "cuMemcpy", cuMemcpy(here, there, 64));
    ask!(l, "memset", cuMemsetD8_v2(there, 1, 64));
    ask!(l, "to the host", cuMemcpyDtoH_v2([0_u8; 4].as_mut_ptr().cast(), there, 4));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    let mut able = 7;
    ask!(l, "can access" => OK, cuDeviceCanAccessPeer(&mut able, 0, 1));
    l.say("can access is", able);
    ask!(l, "enable with flags", cuCtxEnablePeerAccess(other, 1));
    ask!(l, "disable before", cuCtxDisablePeerAccess(other));
    ask!(l, "enable", cuCtxEnablePeerAccess(other, 0));
    ask!(l, "enable again", cuCtxEnablePeerAccess(other, 0));
    ask!(l, "memset with access", cuMemsetD8_v2(there, 1, 64));
    ask!(l, "disable", cuCtxDisablePeerAccess(other));
    ask!(l, "free the other device's memory", cuMemFree_v2(there));
    Ok(())
}

/// A copy of 2 planes of 3 rows of 16 bytes from device memory to device memory.
fn planes(l: &mut Lab) -> Run {
    let (from, to) = (l.alloc(4096)?, l.alloc(4096)?);
    let good = CUDA_MEMCPY3D {
        srcMemoryType: T::CU_MEMORYTYPE_DEVICE,
        srcDevice: from,
        srcPitch: 64,
        srcHeight: 4,
        dstMemoryType: T::CU_MEMORYTYPE_DEVICE,
        dstDevice: to,
        dstPitch: 32,
        dstHeight: 3,
        WidthInBytes: 16,
        Height: 3,
        Depth: 2,
        ..Default::default()
    };
    need!(l, cuMemsetD8_v2(from, 3, 4096))?;
    need!(l, cuMemsetD8_v2(to, 0, 4096))?;
    ask!(l, "planes" => OK, cuMemcpy3DAsync_v2(&good, ptr::null_mut()));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    l.bytes::<4>("end of the second plane", to + 3 * 32 + 2 * 32 + 14);
    ask!(l, "no planes" => OK, cuMemcpy3DAsync_v2(&CUDA_MEMCPY3D { Depth: 0, ..good }, ptr::null_mut()));
    ask!(l, "planes lower than their rows", cuMemcpy3DAsync_v2(&CUDA_MEMCPY3D { srcHeight: 2, ..good }, ptr::null_mut()));
    ask!(l, "no descriptor" => VALUE, cuMemcpy3DAsync_v2(ptr::null(), ptr::null_mut()));
    Ok(())
}
