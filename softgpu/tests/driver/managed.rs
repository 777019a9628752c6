//! Managed memory, batches, semaphores, and the memory of graphs.

use crate::common::machine;
use crate::cu;
use cuda_sys::*;
use softgpu::Settings;
use std::ptr;

const VALUE: u32 = 1;

fn place(type_: CUmemLocationType, id: i32) -> CUmemLocation {
    CUmemLocation { type_, id }
}

#[test]
fn advice_and_moves_are_remembered() {
    let m = machine(Settings::default());
    let (mut at, device) = (0, m.alloc(64));
    assert_eq!(cu!(m, cuMemAllocManaged(&mut at, 4096, 1)), 0);
    let ask = |attribute| {
        let mut value = [7_i32; 1];
        let answer = cu!(m, cuMemRangeGetAttribute(value.as_mut_ptr().cast(), 4, attribute, at, 4096));
        (answer, value[0])
    };
    use CUmem_range_attribute as A;
    assert_eq!(ask(A::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION), (0, CU_DEVICE_INVALID));
    assert_eq!(cu!(m, cuMemAdvise(at, 4096, CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY, 0)), 0);
    assert_eq!(ask(A::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY), (0, 1));
    let host = place(CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST, 0);
    assert_eq!(cu!(m, cuMemAdvise_v2(at, 4096, CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host)), 0);
    assert_eq!(ask(A::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION), (0, CU_DEVICE_CPU));
    assert_eq!(cu!(m, cuMemAdvise(at, 4096, CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY, 1)), 0);
    let mut by = [0_i32; 3];
    let accessed = A::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
    assert_eq!(cu!(m, cuMemRangeGetAttribute(by.as_mut_ptr().cast(), 12, accessed, at, 1)), 0);
    assert_eq!(by, [1, CU_DEVICE_INVALID, CU_DEVICE_INVALID]);
    let stream = m.stream(0);
    assert_eq!(cu!(m, cuMemPrefetchAsync(at, 4096, 1, stream)), 0);
    assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
    assert_eq!(ask(A::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION), (0, 1));
    assert_eq!(cu!(m, cuMemPrefetchAsync(at, 4096, 9, stream)), 101);
    assert_eq!(cu!(m, cuMemPrefetchAsync(at, 4097, 0, stream)), VALUE);
    assert_eq!(cu!(m, cuMemPrefetchAsync(device, 64, 0, stream)), VALUE);
    let (mut at2, mut size, mut start, mut places) = (at, 4096, 0, [host]);
    let (at_at, size_at, start_at) = (&raw mut at2, &raw mut size, &raw mut start);
    let places_at = places.as_mut_ptr();
    assert_eq!(cu!(m, cuMemPrefetchBatchAsync(at_at, size_at, 1, places_at, start_at, 1, 0, stream)), 0);
    assert_eq!(cu!(m, cuMemDiscardBatchAsync(at_at, size_at, 1, 0, stream)), 0);
    assert_eq!(cu!(m, cuMemDiscardAndPrefetchBatchAsync(at_at, size_at, 1, places_at, start_at, 1, 0, stream)), 0);
    assert_eq!(cu!(m, cuStreamAttachMemAsync(stream, at, 0, 4)), 0);
    assert_eq!(cu!(m, cuStreamAttachMemAsync(stream, device, 0, 4)), VALUE);
    assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
    assert_eq!(ask(A::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION), (0, CU_DEVICE_CPU));
    let yes = 1_u32;
    let sync = CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    assert_eq!(cu!(m, cuPointerSetAttribute((&raw const yes).cast(), sync, device)), 0);
    let mut told = 0_u32;
    assert_eq!(cu!(m, cuPointerGetAttribute((&raw mut told).cast(), sync, device)), 0);
    assert_eq!(told, 1);
    assert_eq!((cu!(m, cuMemFree_v2(at)), cu!(m, cuMemFree_v2(device))), (0, 0));
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    m.finish();
}

#[test]
fn a_batch_names_the_copy_that_is_wrong_and_does_none() {
    let m = machine(Settings::default());
    let (a, b, stream) = (m.alloc(64), m.alloc(64), m.stream(0));
    assert_eq!((cu!(m, cuMemsetD8_v2(a, 1, 64)), cu!(m, cuMemsetD8_v2(b, 2, 64))), (0, 0));
    let (mut to, mut from, mut sizes) = ([a, a + 32], [b, b + 32], [32, 33]);
    let mut attributes = CUmemcpyAttributes {
        srcAccessOrder: CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        ..Default::default()
    };
    let (mut start, mut failed) = (0_usize, 0_usize);
    let mut run = |sizes: &mut [usize; 2], stream| {
        let (to, from, sizes) = (to.as_mut_ptr(), from.as_mut_ptr(), sizes.as_mut_ptr());
        let answer =
            cu!(m, cuMemcpyBatchAsync(to, from, sizes, 2, &mut attributes, &mut start, 1, &mut failed, stream));
        (answer, failed)
    };
    assert_eq!(run(&mut sizes, stream), (VALUE, 1));
    assert_eq!(m.read(a, 1), [1]);
    sizes[1] = 32;
    // The driver does not touch the index for the null stream.
    assert_eq!(run(&mut sizes, ptr::null_mut()), (VALUE, 1));
    assert_eq!(run(&mut sizes, stream), (0, usize::MAX));
    assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
    assert_eq!(m.read(a, 64), [2; 64]);
    assert_eq!((cu!(m, cuMemFree_v2(a)), cu!(m, cuMemFree_v2(b))), (0, 0));
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    m.finish();
}

#[test]
fn semaphores_order_streams() {
    let m = machine(Settings::default());
    // SAFETY: the call makes a new descriptor, which the import takes over.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    let mut wish = CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
        type_: CUexternalSemaphoreHandleType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD,
        ..Default::default()
    };
    let mut semaphore = ptr::null_mut();
    wish.handle.fd = 1;
    assert_eq!(cu!(m, cuImportExternalSemaphore(&mut semaphore, &wish)), 999);
    wish.handle.fd = fd;
    let timeline = CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC { type_: CUexternalSemaphoreHandleType(9), ..wish };
    assert_eq!(cu!(m, cuImportExternalSemaphore(&mut semaphore, &timeline)), 801);
    assert_eq!(cu!(m, cuImportExternalSemaphore(&mut semaphore, &wish)), 0);
    let (one, two) = (m.stream(1), m.stream(1));
    let (wait, signal) = (Default::default(), Default::default());
    for _ in 0..10 {
        assert_eq!(cu!(m, cuWaitExternalSemaphoresAsync(&semaphore, &wait, 1, two)), 0);
        assert_eq!(cu!(m, cuStreamQuery(two)), 600);
        assert_eq!(cu!(m, cuSignalExternalSemaphoresAsync(&semaphore, &signal, 1, one)), 0);
        assert_eq!(cu!(m, cuStreamSynchronize(two)), 0);
    }
    assert_eq!(cu!(m, cuDestroyExternalSemaphore(semaphore)), 0);
    assert_eq!(cu!(m, cuDestroyExternalSemaphore(semaphore)), 400);
    for stream in [one, two] {
        assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    }
    m.finish();
}

#[test]
fn graph_memory_starts_at_zero_and_only_high_marks_can_be_set() {
    let m = machine(Settings::default());
    let mut value = 7_u64;
    let at = (&raw mut value).cast();
    let high = CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH;
    assert_eq!(cu!(m, cuDeviceGetGraphMemAttribute(0, high, at)), 0);
    assert_eq!(value, 0);
    assert_eq!(cu!(m, cuDeviceSetGraphMemAttribute(0, high, at)), 0);
    let now = CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT;
    assert_eq!(cu!(m, cuDeviceSetGraphMemAttribute(0, now, at)), VALUE);
    assert_eq!((cu!(m, cuDeviceGraphMemTrim(0)), cu!(m, cuDeviceGraphMemTrim(9))), (0, 101));
    m.finish();
}

#[test]
fn seeded_delays_keep_the_order_of_a_stream() {
    for seed in 0..5 {
        let m = machine(Settings { seed: Some(seed), ..Settings::default() });
        let (stream, memory) = (m.stream(1), m.alloc(4));
        for value in 0..50 {
            assert_eq!(cu!(m, cuMemsetD32Async(memory, value, 1, stream)), 0);
        }
        assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
        assert_eq!(m.read(memory, 4), 49_u32.to_le_bytes());
        assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
        assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
        m.finish();
    }
}

#[test]
fn a_missing_wait_shows_when_work_is_delayed() {
    let m = machine(Settings { seed: Some(1), ..Settings::default() });
    let (one, two, memory) = (m.stream(1), m.stream(1), m.alloc(4));
    let pinned = m.host(4);
    let stale = (0..100_u8).filter(|round| {
        assert_eq!(cu!(m, cuMemsetD8Async(memory, *round, 4, one)), 0);
        // The missing wait: the second stream should wait for the first here.
        assert_eq!(cu!(m, cuMemcpyDtoHAsync_v2(pinned.as_mut_ptr().cast(), memory, 4, two)), 0);
        assert_eq!(cu!(m, cuStreamSynchronize(two)), 0);
        let seen = pinned[0];
        assert_eq!(cu!(m, cuStreamSynchronize(one)), 0);
        seen != *round
    });
    assert!(stale.count() > 5);
    for stream in [one, two] {
        assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    }
    assert_eq!((cu!(m, cuMemFreeHost(pinned.as_mut_ptr().cast())), cu!(m, cuMemFree_v2(memory))), (0, 0));
    m.finish();
}
