//! Streams are asynchronous, keep their order, and wait for each other as the driver's streams do.

use crate::common::{Machine, machine};
use crate::cu;
use cuda_sys::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUevent, CUstream};
use softgpu::Settings;
use std::ptr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NOT_READY: u32 = 600;

fn start() -> Machine {
    machine(Settings::default())
}

/// Work that ends when the test sends a message or drops the sender.
fn block(m: &Machine, stream: CUstream) -> Sender<()> {
    let (open, gate): (Sender<()>, Receiver<()>) = channel();
    m.launch(stream, move || {
        let _ = gate.recv();
    });
    open
}

fn event(m: &Machine) -> CUevent {
    let mut event = ptr::null_mut();
    assert_eq!(cu!(m, cuEventCreate(&mut event, 0)), 0);
    event
}

#[test]
fn work_runs_in_the_background_and_in_order() {
    let m = start();
    let (stream, memory, pinned) = (m.stream(0), m.alloc(256), m.host(256));
    let gate = block(&m, stream);
    assert_eq!(cu!(m, cuMemsetD8Async(memory, 7, 256, stream)), 0);
    assert_eq!(cu!(m, cuMemcpyDtoHAsync_v2(pinned.as_mut_ptr().cast(), memory, 256, stream)), 0);
    assert_eq!(cu!(m, cuMemsetD8Async(memory, 9, 256, stream)), 0);
    assert_eq!(cu!(m, cuStreamQuery(stream)), NOT_READY);
    assert_eq!(pinned[0], 0);
    gate.send(()).unwrap();
    assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
    assert_eq!(cu!(m, cuStreamQuery(stream)), 0);
    assert!(pinned.iter().all(|byte| *byte == 7));
    assert_eq!(m.read(memory, 256), [9; 256]);
    assert_eq!(cu!(m, cuMemFreeHost(pinned.as_mut_ptr().cast())), 0);
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    m.finish();
}

#[test]
fn pageable_memory_is_not_touched_after_the_call() {
    let m = start();
    let (stream, memory) = (m.stream(0), m.alloc(4));
    let gate = block(&m, stream);
    let mut bytes = vec![1_u8, 2, 3, 4];
    assert_eq!(cu!(m, cuMemcpyHtoDAsync_v2(memory, bytes.as_ptr().cast(), 4, stream)), 0);
    bytes.fill(0);
    gate.send(()).unwrap();
    assert_eq!(cu!(m, cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), memory, 4, stream)), 0);
    assert_eq!(bytes, [1, 2, 3, 4]);
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    m.finish();
}

#[test]
fn a_stream_waits_for_an_event_of_another_and_events_carry_time() {
    let m = start();
    let (one, two) = (m.stream(1), m.stream(1));
    let (start, end) = (event(&m), event(&m));
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |name| {
        let order = order.clone();
        move || order.lock().unwrap().push(name)
    };
    assert_eq!(cu!(m, cuEventRecord(start, one)), 0);
    let gate = block(&m, one);
    m.launch(one, note("one"));
    assert_eq!(cu!(m, cuEventRecord(end, one)), 0);
    assert_eq!(cu!(m, cuStreamWaitEvent(two, end, 0)), 0);
    m.launch(two, note("two"));
    let mut time = 0.0;
    assert_eq!(cu!(m, cuEventQuery(end)), NOT_READY);
    assert_eq!(cu!(m, cuEventElapsedTime(&mut time, start, end)), NOT_READY);
    // The wait concerns only the recording before it.
    std::thread::sleep(Duration::from_millis(10));
    assert!(order.lock().unwrap().is_empty());
    gate.send(()).unwrap();
    assert_eq!(cu!(m, cuEventSynchronize(end)), 0);
    assert_eq!(cu!(m, cuStreamSynchronize(two)), 0);
    assert_eq!(*order.lock().unwrap(), ["one", "two"]);
    assert_eq!(cu!(m, cuEventElapsedTime(&mut time, start, end)), 0);
    assert!((9.0..60_000.0).contains(&time), "{time}");
    for event in [start, end] {
        assert_eq!(cu!(m, cuEventDestroy_v2(event)), 0);
    }
    for stream in [one, two] {
        assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    }
    m.finish();
}

#[test]
fn legacy_stream_orders_with_blocking_streams_only() {
    let m = start();
    for legacy in [ptr::null_mut(), CU_STREAM_LEGACY] {
        let (blocking, free) = (m.stream(0), m.stream(1));
        let gate = block(&m, blocking);
        m.launch(legacy, || ());
        assert_eq!(cu!(m, cuStreamQuery(legacy)), NOT_READY);
        let later = m.stream(0);
        m.launch(later, || ());
        m.launch(free, || ());
        assert_eq!(cu!(m, cuStreamSynchronize(free)), 0);
        std::thread::sleep(Duration::from_millis(10));
        assert_eq!(cu!(m, cuStreamQuery(later)), NOT_READY);
        gate.send(()).unwrap();
        assert_eq!(cu!(m, cuStreamSynchronize(later)), 0);
        assert_eq!(cu!(m, cuStreamQuery(legacy)), 0);
        for stream in [blocking, free, later] {
            assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
        }
    }
    m.finish();
}

#[test]
fn a_synchronous_copy_comes_after_blocking_streams_only() {
    let m = start();
    let (blocking, free, memory) = (m.stream(0), m.stream(1), m.alloc(1));
    let never = block(&m, free);
    let gate = block(&m, blocking);
    assert_eq!(cu!(m, cuMemsetD8Async(memory, 5, 1, blocking)), 0);
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        gate.send(()).unwrap();
    });
    assert_eq!(m.read(memory, 1), [5]);
    opener.join().unwrap();
    drop(never);
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
    for stream in [blocking, free] {
        assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    }
    m.finish();
}

#[test]
fn each_thread_has_its_own_default_stream() {
    let m = start();
    let gate = block(&m, CU_STREAM_PER_THREAD);
    let mut context = ptr::null_mut();
    assert_eq!(cu!(m, cuStreamGetCtx(CU_STREAM_PER_THREAD, &mut context)), 0);
    let context = context.expose_provenance();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            assert_eq!(cu!(m, cuCtxSetCurrent(ptr::with_exposed_provenance_mut(context))), 0);
            assert_eq!(cu!(m, cuStreamQuery(CU_STREAM_PER_THREAD)), 0);
        });
    });
    assert_eq!(cu!(m, cuStreamQuery(CU_STREAM_PER_THREAD)), NOT_READY);
    gate.send(()).unwrap();
    assert_eq!(cu!(m, cuCtxSynchronize()), 0);
    m.finish();
}

#[test]
fn the_work_of_a_destroyed_stream_goes_on() {
    let m = start();
    let (stream, memory, done) = (m.stream(0), m.alloc(64), event(&m));
    let gate = block(&m, stream);
    assert_eq!(cu!(m, cuMemsetD8Async(memory, 3, 64, stream)), 0);
    assert_eq!(cu!(m, cuEventRecord(done, stream)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    gate.send(()).unwrap();
    assert_eq!(cu!(m, cuEventSynchronize(done)), 0);
    assert_eq!(m.read(memory, 64), [3; 64]);
    assert_eq!(cu!(m, cuEventDestroy_v2(done)), 0);
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
    m.finish();
}

#[test]
fn a_stream_waits_for_words_and_writes_them() {
    let m = start();
    let (stream, flags) = (m.stream(1), m.host(64));
    let at = flags.as_mut_ptr() as u64;
    assert_eq!(cu!(m, cuStreamWaitValue32_v2(stream, at + 2, 1, 0)), 1);
    assert_eq!(cu!(m, cuStreamWaitValue32_v2(stream, at, 5, 9)), 1);
    assert_eq!(cu!(m, cuStreamWaitValue32_v2(stream, at, 5, 0)), 0);
    assert_eq!(cu!(m, cuStreamWriteValue64_v2(stream, at + 8, u64::MAX, 0)), 0);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!((cu!(m, cuStreamQuery(stream)), flags[8]), (NOT_READY, 0));
    // SAFETY: the word is aligned, inside the memory, and accessed through atomics only.
    unsafe { std::sync::atomic::AtomicU32::from_ptr(flags.as_mut_ptr().cast()) }
        .store(6, std::sync::atomic::Ordering::Release);
    assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
    assert_eq!(flags[8..16], [0xff; 8]);
    // The end of a context does not wait for a word that nobody writes.
    assert_eq!(cu!(m, cuStreamWaitValue32_v2(stream, at, 1000, 1)), 0);
    softgpu::reset();
}

#[test]
fn memory_freed_in_stream_order_serves_the_work_before() {
    let m = start();
    let (stream, pinned) = (m.stream(1), m.host(4096));
    let mut memory = 0;
    assert_eq!(cu!(m, cuMemAllocAsync(&mut memory, 4096, stream)), 0);
    let gate = block(&m, stream);
    assert_eq!(cu!(m, cuMemsetD8Async(memory, 8, 4096, stream)), 0);
    assert_eq!(cu!(m, cuMemcpyDtoHAsync_v2(pinned.as_mut_ptr().cast(), memory, 4096, stream)), 0);
    assert_eq!(cu!(m, cuMemFreeAsync(memory, stream)), 0);
    let (mut pool, mut used) = (ptr::null_mut(), 0_u64);
    let attribute = cuda_sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
    assert_eq!(cu!(m, cuDeviceGetDefaultMemPool(&mut pool, 0)), 0);
    assert_eq!(cu!(m, cuMemPoolGetAttribute(pool, attribute, (&raw mut used).cast())), 0);
    assert_eq!(used, 4096);
    gate.send(()).unwrap();
    assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
    assert_eq!(cu!(m, cuMemPoolGetAttribute(pool, attribute, (&raw mut used).cast())), 0);
    assert_eq!(used, 0);
    assert!(pinned.iter().all(|byte| *byte == 8));
    assert_eq!(cu!(m, cuMemFreeHost(pinned.as_mut_ptr().cast())), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    m.finish();
}

#[test]
fn a_host_function_must_not_call_the_driver() {
    let m = start();
    let stream = m.stream(0);
    let (tell, told) = channel();
    let functions = *m.driver.functions();
    m.launch(stream, move || {
        // SAFETY: the call is refused.
        tell.send(unsafe { functions.cuCtxSynchronize.unwrap()() }.0).unwrap();
    });
    assert_eq!(told.recv().unwrap(), 800);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    m.finish();
}

#[test]
fn many_threads_use_many_streams() {
    let m = start();
    let mut context = ptr::null_mut();
    assert_eq!(cu!(m, cuCtxGetCurrent(&mut context)), 0);
    let context = context.expose_provenance();
    std::thread::scope(|threads| {
        for byte in 1..9_u8 {
            let m = &m;
            threads.spawn(move || {
                assert_eq!(cu!(m, cuCtxSetCurrent(ptr::with_exposed_provenance_mut(context))), 0);
                let stream = m.stream(u32::from(byte % 2));
                for size in [1_usize, 4096, 100_000] {
                    for _ in 0..20 {
                        let memory = m.alloc(size);
                        assert_eq!(cu!(m, cuMemsetD8Async(memory, byte, size, stream)), 0);
                        assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
                        assert_eq!(m.read(memory, size), vec![byte; size]);
                        assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
                    }
                }
                assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
            });
        }
    });
    m.finish();
}
