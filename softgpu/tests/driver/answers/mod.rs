//! Invalid and unusual calls get the answers that were recorded from a real driver (CUDA 13.0).

mod forms;
mod lifetimes;

use crate::common::machine;
use crate::cu;
use cuda_sys::*;
use softgpu::Settings;
use std::ptr;

const VALUE: u32 = 1;
const MEMORY: u32 = 2;
const NOT_STARTED: u32 = 3;
const DEVICE: u32 = 101;
const CONTEXT: u32 = 201;
const DESTROYED: u32 = 709;
const HANDLE: u32 = 400;

#[test]
fn without_a_context_frees_work_and_the_rest_is_refused() {
    let m = machine(Settings::default());
    let (one, two) = (m.alloc(64), m.alloc(64));
    let stream = m.stream(0);
    let mut context = ptr::null_mut();
    assert_eq!(cu!(m, cuCtxPopCurrent_v2(&mut context)), 0);
    let (mut address, mut device, mut now) = (0, 0, ptr::null_mut());
    assert_eq!(cu!(m, cuMemAlloc_v2(&mut address, 64)), CONTEXT);
    assert_eq!(cu!(m, cuCtxGetDevice(&mut device)), CONTEXT);
    assert_eq!(cu!(m, cuCtxPopCurrent_v2(ptr::null_mut())), CONTEXT);
    assert_eq!(cu!(m, cuCtxSynchronize()), CONTEXT);
    assert_eq!(cu!(m, cuMemcpyDtoH_v2([0_u8; 4].as_mut_ptr().cast(), one, 4)), CONTEXT);
    assert_eq!(cu!(m, cuMemFree_v2(0)), 0);
    assert_eq!(cu!(m, cuMemFree_v2(one)), 0);
    assert_eq!(cu!(m, cuMemFreeAsync(two, stream)), 0);
    assert_eq!(cu!(m, cuMemFree_v2(two)), VALUE);
    assert_eq!(cu!(m, cuCtxGetCurrent(&mut now)), 0);
    assert!(now.is_null());
    assert_eq!(cu!(m, cuCtxPushCurrent_v2(ptr::null_mut())), VALUE);
    assert_eq!(cu!(m, cuCtxPushCurrent_v2(context)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    m.finish();
}

#[test]
fn allocations_check_sizes_flags_and_places() {
    let m = machine(Settings::default());
    let (mut address, mut host) = (1, ptr::dangling_mut());
    assert_eq!(cu!(m, cuMemAlloc_v2(&mut address, 0)), VALUE);
    assert_eq!(cu!(m, cuMemAlloc_v2(ptr::null_mut(), 64)), VALUE);
    assert_eq!(cu!(m, cuMemAlloc_v2(&mut address, 1 << 60)), MEMORY);
    assert_eq!(cu!(m, cuMemAlloc_v2(&mut address, usize::MAX)), MEMORY);
    assert_eq!(cu!(m, cuMemHostAlloc(&mut host, 0, 0)), 0);
    assert!(host.is_null());
    assert_eq!(cu!(m, cuMemAllocHost_v2(&mut host, 0)), 0);
    assert!(host.is_null());
    assert_eq!(cu!(m, cuMemHostAlloc(&mut host, 64, 0x100)), VALUE);
    assert_eq!(cu!(m, cuMemAllocManaged(&mut address, 0, 1)), VALUE);
    assert_eq!(cu!(m, cuMemAllocManaged(&mut address, 64, 0)), VALUE);
    assert_eq!(cu!(m, cuMemAllocAsync(&mut address, 0, ptr::null_mut())), 0);
    assert_eq!(address, 0);
    assert_eq!(cu!(m, cuMemFreeAsync(0, ptr::null_mut())), 0);
    m.finish();
}

#[test]
fn frees_check_what_they_free() {
    let m = machine(Settings::default());
    let block = m.alloc(64);
    assert_eq!(cu!(m, cuMemFree_v2(0x1234_5678)), VALUE);
    assert_eq!(cu!(m, cuMemFree_v2(block + 16)), VALUE);
    assert_eq!(cu!(m, cuMemFree_v2(block)), 0);
    assert_eq!(cu!(m, cuMemFree_v2(block)), VALUE);
    assert_eq!(cu!(m, cuMemFreeHost(ptr::without_provenance_mut(0x1234_5000))), VALUE);
    assert_eq!(cu!(m, cuMemFreeHost(ptr::null_mut())), 0);
    let mut pooled = 0;
    assert_eq!(cu!(m, cuMemAllocAsync(&mut pooled, 64, ptr::null_mut())), 0);
    assert_eq!(cu!(m, cuMemFree_v2(pooled)), 0);
    assert_eq!(cu!(m, cuMemAllocAsync(&mut pooled, 64, ptr::null_mut())), 0);
    assert_eq!(cu!(m, cuMemFreeAsync(pooled, ptr::null_mut())), 0);
    assert_eq!(cu!(m, cuMemFreeAsync(pooled, ptr::null_mut())), VALUE);
    m.finish();
}

#[test]
fn copies_and_fills_check_their_ranges() {
    let m = machine(Settings::default());
    let block = m.alloc(64);
    let mut bytes: Vec<u8> = (0..64).collect();
    let from = bytes.as_ptr().cast();
    assert_eq!(cu!(m, cuMemcpyHtoD_v2(block, from, 0)), 0);
    assert_eq!(cu!(m, cuMemcpyHtoD_v2(block, from, 64)), 0);
    assert_eq!(cu!(m, cuMemcpyHtoD_v2(block, from, 4 << 20)), VALUE);
    assert_eq!(cu!(m, cuMemcpyHtoD_v2(block, ptr::null(), 4)), VALUE);
    assert_eq!(cu!(m, cuMemcpyDtoH_v2(ptr::null_mut(), block, 4)), VALUE);
    assert_eq!(cu!(m, cuMemcpyHtoD_v2(0, from, 4)), VALUE);
    assert_eq!(cu!(m, cuMemcpyDtoD_v2(block + 8, block, 32)), 0);
    assert_eq!(m.read(block, 40), [(0..8).collect::<Vec<u8>>(), (0..32).collect()].concat());
    let other: Vec<u8> = vec![9; 64];
    assert_eq!(cu!(m, cuMemcpy(bytes.as_mut_ptr() as u64, other.as_ptr() as u64, 64)), 0);
    assert_eq!(bytes, other);
    assert_eq!(cu!(m, cuMemsetD16_v2(block + 1, 7, 4)), VALUE);
    assert_eq!(cu!(m, cuMemsetD32_v2(block + 2, 7, 4)), VALUE);
    assert_eq!(cu!(m, cuMemsetD8_v2(block, 7, 0)), 0);
    assert_eq!(cu!(m, cuMemsetD32_v2(block, 0x0403_0201, 16)), 0);
    assert_eq!(m.read(block, 64), [1, 2, 3, 4].repeat(16));
    assert_eq!(cu!(m, cuMemsetD32_v2(block, 0, 17)), VALUE);
    assert_eq!(cu!(m, cuMemFree_v2(block)), 0);
    m.finish();
}

#[test]
fn rows_are_copied_and_filled_at_their_pitch() {
    let m = machine(Settings::default());
    let (mut block, mut pitch) = (0, 0);
    assert_eq!(cu!(m, cuMemAllocPitch_v2(&mut block, &mut pitch, 100, 4, 4)), 0);
    assert_eq!(pitch, 512);
    assert_eq!(cu!(m, cuMemAllocPitch_v2(&mut block, &mut pitch, 100, 4, 3)), VALUE);
    // Fresh memory has the old contents of an earlier allocation.
    assert_eq!(cu!(m, cuMemsetD8_v2(block, 0, 4 * pitch)), 0);
    assert_eq!(cu!(m, cuMemsetD2D8_v2(block, pitch, 5, 100, 4)), 0);
    assert_eq!(cu!(m, cuMemsetD2D16_v2(block, 99, 5, 100, 4)), VALUE);
    let mut out = [0_u8; 24];
    let copy = CUDA_MEMCPY2D {
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcDevice: block,
        srcPitch: pitch,
        srcXInBytes: 98,
        srcY: 1,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
        dstHost: out.as_mut_ptr().cast(),
        dstPitch: 8,
        WidthInBytes: 4,
        Height: 3,
        ..Default::default()
    };
    assert_eq!(cu!(m, cuMemcpy2D_v2(&copy)), 0);
    assert_eq!(out, *[5, 5, 0, 0, 0, 0, 0, 0].repeat(3));
    assert_eq!(cu!(m, cuMemcpy2D_v2(&CUDA_MEMCPY2D { dstPitch: 3, ..copy })), VALUE);
    assert_eq!(cu!(m, cuMemcpy2D_v2(ptr::null())), VALUE);
    assert_eq!(cu!(m, cuMemFree_v2(block)), 0);
    m.finish();
}

#[test]
fn events_and_streams_check_handles_and_flags() {
    let m = machine(Settings::default());
    let (mut event, mut untimed, mut time) = (ptr::null_mut(), ptr::null_mut(), 0.0);
    assert_eq!(cu!(m, cuEventCreate(&mut event, 0x100)), VALUE);
    assert_eq!(cu!(m, cuEventCreate(&mut event, 0)), 0);
    assert_eq!(cu!(m, cuEventCreate(&mut untimed, 2)), 0);
    assert_eq!(cu!(m, cuEventQuery(event)), 0);
    assert_eq!(cu!(m, cuEventSynchronize(event)), 0);
    assert_eq!(cu!(m, cuStreamWaitEvent(ptr::null_mut(), event, 0)), 0);
    assert_eq!(cu!(m, cuEventElapsedTime(&mut time, event, event)), HANDLE);
    assert_eq!(cu!(m, cuEventRecord(untimed, ptr::null_mut())), 0);
    assert_eq!(cu!(m, cuEventElapsedTime(&mut time, untimed, untimed)), HANDLE);
    assert_eq!(cu!(m, cuEventRecord(event, ptr::null_mut())), 0);
    assert_eq!(cu!(m, cuEventElapsedTime(&mut time, event, event)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(ptr::null_mut())), HANDLE);
    assert_eq!(cu!(m, cuEventDestroy_v2(ptr::null_mut())), HANDLE);
    let (first, second) = (m.stream(0), m.stream(0));
    let (mut one, mut two) = (0, 0);
    assert_eq!((cu!(m, cuStreamGetId(first, &mut one)), cu!(m, cuStreamGetId(second, &mut two))), (0, 0));
    assert_eq!(two, one + 1);
    for handle in [first, second] {
        assert_eq!(cu!(m, cuStreamDestroy_v2(handle)), 0);
        assert_eq!(cu!(m, cuStreamDestroy_v2(handle)), HANDLE);
    }
    for handle in [event, untimed] {
        assert_eq!(cu!(m, cuEventDestroy_v2(handle)), 0);
        assert_eq!(cu!(m, cuEventDestroy_v2(handle)), HANDLE);
    }
    m.finish();
}

#[test]
fn pools_answer_as_recorded() {
    let m = machine(Settings::default());
    let mut pool = ptr::null_mut();
    assert_eq!(cu!(m, cuDeviceGetDefaultMemPool(&mut pool, 0)), 0);
    let mut size = 7_u64;
    let at = (&raw mut size).cast();
    let attribute = |which| CUmemPool_attribute(which);
    assert_eq!(cu!(m, cuMemPoolGetAttribute(pool, attribute(4), at)), 0);
    assert_eq!(size, 0);
    let mut five = 5_u64;
    for which in [8, 7] {
        assert_eq!(cu!(m, cuMemPoolSetAttribute(pool, attribute(which), (&raw mut five).cast())), VALUE);
    }
    let place = |type_, id| CUmemLocation { type_, id };
    let device = |id| place(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id);
    let wish = |location, flags| CUmemAccessDesc { location, flags: CUmemAccess_flags(flags) };
    assert_eq!(cu!(m, cuMemPoolSetAccess(pool, &wish(device(0), 3), 1)), 0);
    assert_eq!(cu!(m, cuMemPoolSetAccess(pool, &wish(device(0), 0), 1)), DEVICE);
    assert_eq!(cu!(m, cuMemPoolDestroy(pool)), VALUE);

    let pinned = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    let props = |location| CUmemPoolProps { allocType: pinned, location, ..Default::default() };
    let limited = CUmemPoolProps { maxSize: 2 << 20, ..props(device(0)) };
    assert_eq!(cu!(m, cuMemPoolCreate(&mut pool, &limited)), 0);
    let (mut block, stream) = (0, ptr::null_mut());
    assert_eq!(cu!(m, cuMemAllocFromPoolAsync(&mut block, 64 << 20, pool, stream)), MEMORY);
    assert_eq!(cu!(m, cuMemAllocFromPoolAsync(&mut block, 0, pool, stream)), 0);
    assert_eq!(cu!(m, cuMemAllocFromPoolAsync(&mut block, 4096, pool, stream)), 0);
    assert_eq!(cu!(m, cuMemPoolDestroy(pool)), 0);
    assert_eq!(cu!(m, cuMemsetD8_v2(block, 1, 4096)), 0);
    assert_eq!(cu!(m, cuMemFreeAsync(block, stream)), 0);

    let host = place(CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST, 0);
    let posix = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    assert_eq!(cu!(m, cuMemPoolCreate(&mut pool, &CUmemPoolProps { handleTypes: posix, ..props(host) })), VALUE);
    assert_eq!(cu!(m, cuMemPoolCreate(&mut pool, &props(place(CUmemLocationType(77), 0)))), VALUE);
    assert_eq!(cu!(m, cuMemPoolCreate(&mut pool, &props(device(99)))), VALUE);
    let bad = CUmemPoolProps { allocType: CUmemAllocationType(9), ..props(host) };
    assert_eq!(cu!(m, cuMemPoolCreate(&mut pool, &bad)), VALUE);
    assert_eq!(cu!(m, cuMemPoolCreate(&mut pool, &props(host))), 0);
    let mut access = CUmemAccess_flags(9);
    assert_eq!(cu!(m, cuMemPoolGetAccess(&mut access, pool, &mut device(0))), 0);
    assert_eq!(access.0, 0);
    assert_eq!(cu!(m, cuMemAllocFromPoolAsync(&mut block, 4096, pool, stream)), 0);
    assert_eq!(cu!(m, cuMemsetD8_v2(block, 1, 4096)), VALUE);
    let mut kind = 0_u32;
    let kind_at = (&raw mut kind).cast();
    assert_eq!(cu!(m, cuPointerGetAttribute(kind_at, CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block)), 0);
    assert_eq!(kind, 1);
    assert_eq!(cu!(m, cuMemPoolSetAccess(pool, &wish(device(0), 3), 1)), 0);
    assert_eq!(cu!(m, cuMemsetD8_v2(block, 1, 4096)), 0);
    assert_eq!(cu!(m, cuMemFreeAsync(block, stream)), 0);
    assert_eq!(cu!(m, cuMemPoolDestroy(pool)), 0);
    m.finish();
}

#[test]
fn addresses_tell_what_they_are() {
    let m = machine(Settings::default());
    let block = m.alloc(1000);
    let ask = |attribute: CUpointer_attribute, address| {
        let mut value = 0_u64;
        (cu!(m, cuPointerGetAttribute((&raw mut value).cast(), attribute, address)), value)
    };
    use CUpointer_attribute as A;
    assert_eq!(ask(A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block + 999), (0, 2));
    assert_eq!(ask(A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block + 1000), (VALUE, 0));
    assert_eq!(ask(A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, block + 5), (0, block));
    assert_eq!(ask(A::CU_POINTER_ATTRIBUTE_RANGE_SIZE, block), (0, 1000));
    assert_eq!(ask(A::CU_POINTER_ATTRIBUTE_HOST_POINTER, block).0, VALUE);
    assert_eq!(ask(A::CU_POINTER_ATTRIBUTE_IS_MANAGED, block), (0, 0));
    let here = 5_u8;
    let unknown = &raw const here as u64;
    assert_eq!(ask(A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, unknown), (VALUE, 0));
    let mut kinds = [A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL];
    let (mut kind, mut device) = (7_u32, 7_i32);
    let mut places = [(&raw mut kind).cast(), (&raw mut device).cast()];
    assert_eq!(cu!(m, cuPointerGetAttributes(2, kinds.as_mut_ptr(), places.as_mut_ptr(), unknown)), 0);
    assert_eq!((kind, device), (0, -2));
    let (mut base, mut size) = (0, 0);
    assert_eq!(cu!(m, cuMemGetAddressRange_v2(&mut base, &mut size, block + 1)), 0);
    assert_eq!((base, size), (block, 1000));
    assert_eq!(cu!(m, cuMemFree_v2(block)), 0);
    m.finish();
}

#[test]
fn host_memory_is_registered_once_and_keeps_its_flags() {
    let m = machine(Settings::default());
    let mut bytes = vec![0_u8; 10_000];
    let at = bytes.as_mut_ptr().cast();
    let (mut flags, mut address) = (0, 0);
    assert_eq!(cu!(m, cuMemHostRegister_v2(at, 10_000, 0)), 0);
    assert_eq!(cu!(m, cuMemHostRegister_v2(at, 100, 0)), 712);
    assert_eq!(cu!(m, cuMemHostGetDevicePointer_v2(&mut address, at, 0)), 0);
    assert_eq!(address, at as u64);
    assert_eq!(cu!(m, cuMemsetD8_v2(address + 9_999, 3, 1)), 0);
    assert_eq!(bytes[9_999], 3);
    assert_eq!(cu!(m, cuMemHostUnregister(at)), 0);
    assert_eq!(cu!(m, cuMemHostUnregister(at)), 713);
    assert_eq!(cu!(m, cuMemHostRegister_v2(at, 0, 0)), VALUE);
    assert_eq!(cu!(m, cuMemHostRegister_v2(ptr::without_provenance_mut(4096), 1 << 40, 0)), VALUE);
    let pinned = m.host(64);
    let pinned = pinned.as_mut_ptr().cast();
    assert_eq!(cu!(m, cuMemHostGetFlags(&mut flags, pinned)), 0);
    assert_eq!(flags, CU_MEMHOSTALLOC_DEVICEMAP);
    assert_eq!(cu!(m, cuMemHostGetFlags(&mut flags, at)), VALUE);
    assert_eq!(cu!(m, cuMemFreeHost(pinned)), 0);
    m.finish();
}

#[test]
fn memory_runs_out_at_the_size_that_was_set() {
    let m = machine(Settings { memory: 1 << 20, ..Settings::default() });
    let block = m.alloc(1 << 19);
    let (mut free, mut total, mut more) = (0, 0, 0);
    assert_eq!(cu!(m, cuMemGetInfo_v2(&mut free, &mut total)), 0);
    assert_eq!((free, total), (1 << 19, 1 << 20));
    assert_eq!(cu!(m, cuMemAlloc_v2(&mut more, (1 << 19) + 1)), MEMORY);
    assert_eq!(cu!(m, cuMemAllocAsync(&mut more, (1 << 19) + 1, ptr::null_mut())), MEMORY);
    assert_eq!(cu!(m, cuMemFree_v2(block)), 0);
    let block = m.alloc(1 << 20);
    assert_eq!(cu!(m, cuMemFree_v2(block)), 0);
    m.finish();
}

/// Calls a function with zeros: more than any function has arguments, because structures are passed by value.
#[cfg(target_arch = "x86_64")]
fn call_with_zeros(address: *const std::ffi::c_void) -> u32 {
    type Any =
        unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> u32;
    // SAFETY: on x86-64 a function may get more arguments than it reads. All arguments are integers, pointers, or
    // structures on the stack.
    unsafe {
        let function = std::mem::transmute::<*const std::ffi::c_void, Any>(address);
        function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn zeros_for_all_arguments_are_answered_by_every_function() {
    for current in [true, false] {
        // The newest release, which has every function.
        let m = machine(Settings { version: 13020, ..Settings::default() });
        let mut good = Vec::new();
        for symbol in Functions::SYMBOLS {
            let mut context = ptr::null_mut();
            if current && cu!(m, cuCtxGetCurrent(&mut context)) == 0 && context.is_null() {
                assert_eq!(cu!(m, cuDevicePrimaryCtxRetain(&mut context, 0)), 0);
                assert_eq!(cu!(m, cuCtxSetCurrent(context)), 0);
            } else if !current {
                assert_eq!(cu!(m, cuCtxSetCurrent(ptr::null_mut())), 0);
            }
            if call_with_zeros(softgpu::cuda_symbol(symbol.name)) == 0 {
                good.push(symbol.name.to_str().unwrap());
            }
        }
        // These functions accept zeros: they have nothing to do, or write no result.
        for name in ["cuInit", "cuMemFree_v2", "cuMemFreeHost", "cuDeviceGraphMemTrim"] {
            assert!(good.contains(&name), "{name}: {good:?}");
        }
        let makes = ["Create", "Alloc_v2", "Import", "Export", "Get", "Load", "Open", "Map"];
        let may = ["cuCtxGetStreamPriorityRange", "cuMemGetInfo_v2", "cuStreamGetCtx_v2"];
        let bad = |name: &&&str| makes.iter().any(|make| name.contains(make)) && !may.contains(name);
        assert_eq!(good.iter().find(bad), None);
        softgpu::reset();
        drop(m);
    }
}
