//! Locks: which calls wait for all work, which of them hold the context's lock, and the end of a thread.

use crate::common::{Machine, in_its_own_process, machine};
use crate::cu;
use cuda_sys::*;
use softgpu::Settings;
use std::ffi::c_void;
use std::process::{Child, Stdio};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

/// Long enough for a call that does not wait.
const SOON: Duration = Duration::from_millis(100);
/// Longer than anything here takes unless it hangs.
const LONG: Duration = Duration::from_secs(20);

fn become_current(m: &Machine, context: usize) {
    assert_eq!(cu!(m, cuCtxSetCurrent(ptr::without_provenance_mut(context))), 0);
}

fn current(m: &Machine) -> usize {
    let mut context = ptr::null_mut();
    assert_eq!(cu!(m, cuCtxGetCurrent(&mut context)), 0);
    context.addr()
}

fn load(m: &Machine) -> CUmodule {
    let mut module = ptr::null_mut();
    assert_eq!(cu!(m, cuModuleLoadData(&mut module, c"softgpu kernels".as_ptr().cast())), 0);
    module
}

fn find(m: &Machine, module: CUmodule, name: &std::ffi::CStr) -> CUfunction {
    let mut function = ptr::null_mut();
    assert_eq!(cu!(m, cuModuleGetFunction(&mut function, module, name.as_ptr())), 0);
    function
}

/// Whether `behind` returns while another thread is in `waiting`, which waits for a host function.
fn returns_beside(m: &Machine, waiting: impl FnOnce() + Send, behind: impl FnOnce() + Send) -> bool {
    let (context, stream) = (current(m), m.stream(1));
    let (open, gate) = mpsc::channel::<()>();
    m.launch(stream, move || gate.recv().unwrap_or_default());
    let (waited, passed) = (AtomicBool::new(false), AtomicBool::new(false));
    let returned = std::thread::scope(|threads| {
        threads.spawn(|| {
            become_current(m, context);
            waiting();
            waited.store(true, Ordering::Release);
        });
        std::thread::sleep(SOON);
        assert!(!waited.load(Ordering::Acquire), "the call did not wait for the host function");
        threads.spawn(|| {
            become_current(m, context);
            behind();
            passed.store(true, Ordering::Release);
        });
        std::thread::sleep(SOON);
        let returned = passed.load(Ordering::Acquire);
        open.send(()).unwrap();
        returned
    });
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    returned
}

#[test]
fn calls_that_wait_for_all_work_hold_the_lock_meanwhile() {
    let m = machine(Settings::default());
    let (plain, managed) = (m.alloc(64), {
        let mut address = 0;
        assert_eq!(cu!(m, cuMemAllocManaged(&mut address, 64, 1)), 0);
        address
    });
    let pinned = m.host(64).as_mut_ptr().addr();
    let mut own = vec![0u8; 4096];
    let registered = own.as_mut_ptr().addr();
    assert_eq!(cu!(m, cuMemHostRegister_v2(own.as_mut_ptr().cast(), 4096, 0)), 0);
    let at = ptr::without_provenance_mut::<c_void>;
    let free_plain = || assert_eq!(cu!(m, cuMemFree_v2(plain)), 0);
    let free_managed = || assert_eq!(cu!(m, cuMemFree_v2(managed)), 0);
    let free_pinned = || assert_eq!(cu!(m, cuMemFreeHost(at(pinned))), 0);
    let unregister = || assert_eq!(cu!(m, cuMemHostUnregister(at(registered))), 0);
    let load_more = || assert!(!load(&m).is_null());
    let waiting: [&(dyn Fn() + Sync); 5] = [&free_plain, &free_managed, &free_pinned, &unregister, &load_more];
    for wait in waiting {
        let end_a_stream = || assert_eq!(cu!(m, cuStreamDestroy_v2(m.stream(1))), 0);
        assert!(!returns_beside(&m, wait, end_a_stream));
    }
    drop(own);

    // These wait too, but without the lock.
    let module = load(&m).addr();
    let unload = || assert_eq!(cu!(m, cuModuleUnload(ptr::without_provenance_mut(module))), 0);
    let synchronize = || assert_eq!(cu!(m, cuCtxSynchronize()), 0);
    let without: [&(dyn Fn() + Sync); 2] = [&unload, &synchronize];
    for wait in without {
        let end_a_stream = || assert_eq!(cu!(m, cuStreamDestroy_v2(m.stream(1))), 0);
        assert!(returns_beside(&m, wait, end_a_stream));
    }
    m.finish();
}

#[test]
fn calls_that_need_the_lock_wait_behind_them_and_others_do_not() {
    let m = machine(Settings::default());
    let mut event = ptr::null_mut();
    assert_eq!(cu!(m, cuEventCreate(&mut event, 2)), 0);
    let (stream, idle, event) = (m.stream(1).addr(), m.stream(1).addr(), event.addr());
    let free = || assert_eq!(cu!(m, cuMemFree_v2(m.alloc(64))), 0);
    let at = |handle| -> CUstream { ptr::without_provenance_mut(handle) };
    let end_stream = || assert_eq!(cu!(m, cuStreamDestroy_v2(at(stream))), 0);
    let end_event = || assert_eq!(cu!(m, cuEventDestroy_v2(ptr::without_provenance_mut(event))), 0);
    let allocate = || assert_eq!(cu!(m, cuMemFree_v2(m.alloc(64))), 0);
    let load_more = || assert!(!load(&m).is_null());
    let need_it: [&(dyn Fn() + Sync); 4] = [&end_stream, &end_event, &allocate, &load_more];
    for behind in need_it {
        assert!(!returns_beside(&m, free, behind));
    }
    let ask = || assert_eq!(cu!(m, cuStreamQuery(at(idle))), 0);
    let wait = || assert_eq!(cu!(m, cuStreamSynchronize(at(idle))), 0);
    let do_not: [&(dyn Fn() + Sync); 2] = [&ask, &wait];
    for beside in do_not {
        assert!(returns_beside(&m, free, beside));
    }
    assert_eq!(cu!(m, cuStreamDestroy_v2(at(idle))), 0);
    m.finish();

    // Without locks no call waits behind another.
    let m = machine(Settings { locks: false, ..Settings::default() });
    let end_a_stream = || assert_eq!(cu!(m, cuStreamDestroy_v2(m.stream(1))), 0);
    let free = || assert_eq!(cu!(m, cuMemFree_v2(m.alloc(64))), 0);
    assert!(returns_beside(&m, free, end_a_stream));
    m.finish();
}

#[test]
fn other_calls_come_back_while_a_host_function_blocks() {
    let m = machine(Settings::default());
    let (blocked, module, memory) = (m.stream(1).addr(), load(&m).addr(), m.alloc(64));
    let first_use = |m: &Machine| assert!(!find(m, ptr::without_provenance_mut(module), c"fill_bytes").is_null());
    type Calls<'calls> = &'calls (dyn Fn(&Machine) + Sync);
    let calls: [(&str, Calls<'_>); 8] = [
        ("cuMemFreeAsync of memory of cuMemAlloc", &free_in_order),
        ("pools of a device", &|m| use_a_pool(m, CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE)),
        ("pools of the host", &|m| use_a_pool(m, CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST)),
        ("virtual memory", &use_virtual_memory),
        ("streams and events", &use_streams),
        ("graphs", &use_a_graph),
        ("a copy of pageable memory", &|m| m.write(memory, &[1; 64])),
        ("the first use of a kernel", &first_use),
    ];
    for (name, call) in calls {
        assert!(returns_while_blocked(&m, blocked, || call(&m)), "{name}");
    }
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(ptr::without_provenance_mut(blocked))), 0);
    m.finish();
}

fn free_in_order(m: &Machine) {
    let (stream, memory) = (m.stream(1), m.alloc(64));
    assert_eq!(cu!(m, cuMemsetD8Async(memory, 1, 64, stream)), 0);
    assert_eq!(cu!(m, cuMemFreeAsync(memory, stream)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
}

fn use_a_pool(m: &Machine, type_: CUmemLocationType) {
    let (stream, mut pool, mut block) = (m.stream(1), ptr::null_mut(), 0);
    let props = CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location: CUmemLocation { type_, id: 0 },
        ..Default::default()
    };
    assert_eq!(cu!(m, cuMemPoolCreate(&mut pool, &props)), 0);
    assert_eq!(cu!(m, cuMemAllocFromPoolAsync(&mut block, 64, pool, stream)), 0);
    assert_eq!(cu!(m, cuMemFreeAsync(block, stream)), 0);
    assert_eq!(cu!(m, cuMemPoolTrimTo(pool, 0)), 0);
    assert_eq!(cu!(m, cuMemPoolDestroy(pool)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
}

fn use_virtual_memory(m: &Machine) {
    let (size, mut handle, mut block) = (2 << 20, 0, 0);
    let location = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    let props = CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location,
        ..Default::default()
    };
    let access = CUmemAccessDesc { location, flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    assert_eq!(cu!(m, cuMemCreate(&mut handle, size, &props, 0)), 0);
    assert_eq!(cu!(m, cuMemAddressReserve(&mut block, size, 0, 0, 0)), 0);
    assert_eq!(cu!(m, cuMemMap(block, size, 0, handle, 0)), 0);
    assert_eq!(cu!(m, cuMemSetAccess(block, size, &access, 1)), 0);
    assert_eq!(cu!(m, cuMemUnmap(block, size)), 0);
    assert_eq!(cu!(m, cuMemRelease(handle)), 0);
    assert_eq!(cu!(m, cuMemAddressFree(block, size)), 0);
}

fn use_streams(m: &Machine) {
    let (stream, mut event, mut context) = (m.stream(1), ptr::null_mut(), ptr::null_mut());
    assert_eq!(cu!(m, cuEventCreate(&mut event, 2)), 0);
    assert_eq!(cu!(m, cuEventRecord(event, stream)), 0);
    assert_eq!(cu!(m, cuEventDestroy_v2(event)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    assert_eq!(cu!(m, cuDevicePrimaryCtxRetain(&mut context, 0)), 0);
    assert_eq!(cu!(m, cuDevicePrimaryCtxRelease_v2(0)), 0);
}

fn use_a_graph(m: &Machine) {
    let (stream, mut graph, mut executable) = (m.stream(1), ptr::null_mut(), ptr::null_mut());
    assert_eq!(cu!(m, cuStreamBeginCapture_v2(stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)), 0);
    m.launch(stream, || ());
    assert_eq!(cu!(m, cuStreamEndCapture(stream, &mut graph)), 0);
    assert_eq!(cu!(m, cuGraphInstantiateWithFlags(&mut executable, graph, 0)), 0);
    assert_eq!(cu!(m, cuGraphDestroy(graph)), 0);
    assert_eq!(cu!(m, cuGraphLaunch(executable, stream)), 0);
    assert_eq!(cu!(m, cuGraphExecDestroy(executable)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
}

/// Whether a call returns while a host function blocks a stream.
fn returns_while_blocked(m: &Machine, stream: usize, call: impl FnOnce() + Send) -> bool {
    let (context, stream): (_, CUstream) = (current(m), ptr::without_provenance_mut(stream));
    let (open, gate) = mpsc::channel::<()>();
    m.launch(stream, move || gate.recv().unwrap_or_default());
    let returned = AtomicBool::new(false);
    let soon = std::thread::scope(|threads| {
        threads.spawn(|| {
            become_current(m, context);
            call();
            returned.store(true, Ordering::Release);
        });
        let begin = Instant::now();
        while !returned.load(Ordering::Acquire) && begin.elapsed() < 20 * SOON {
            std::thread::sleep(SOON / 100);
        }
        let soon = returned.load(Ordering::Acquire);
        open.send(()).unwrap();
        soon
    });
    assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
    soon
}

#[test]
fn a_stream_that_needs_a_channel_waits_with_the_lock() {
    let m = machine(Settings { channels: 4, ..Settings::default() });
    let made = Mutex::new(Vec::new());
    let create = || made.lock().unwrap().push(m.stream(1).addr());
    let destroy = |stream| assert_eq!(cu!(m, cuStreamDestroy_v2(ptr::without_provenance_mut(stream))), 0);
    (0..3).for_each(|_| create());
    let use_an_event = || {
        let mut event = ptr::null_mut();
        assert_eq!(cu!(m, cuEventCreate(&mut event, 2)), 0);
        assert_eq!(cu!(m, cuEventDestroy_v2(event)), 0);
    };
    // The stream with the host function is the fourth, so the next one needs a channel.
    assert!(!returns_beside(&m, create, use_an_event));
    // The context keeps its two channels.
    made.lock().unwrap().drain(..).for_each(destroy);
    create();
    let blocked = made.lock().unwrap()[0];
    assert!(returns_while_blocked(&m, blocked, || (0..7).for_each(|_| create())));
    // Work of another context delays no stream of this one.
    let (context, other) = (current(&m), m.context(0));
    let elsewhere = m.stream(1).addr();
    become_current(&m, context);
    assert!(returns_while_blocked(&m, elsewhere, create));
    made.lock().unwrap().drain(..).for_each(destroy);
    assert_eq!(cu!(m, cuCtxDestroy_v2(other)), 0);
    m.finish();
}

#[test]
fn by_default_43_streams_share_a_channel() {
    let m = machine(Settings::default());
    let streams = [(); 43].map(|()| m.stream(1).addr());
    let end = |stream| assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    assert!(!returns_while_blocked(&m, streams[0], || end(m.stream(1))));
    assert!(returns_while_blocked(&m, streams[0], || end(m.stream(1))));
    streams.into_iter().for_each(|stream| end(ptr::without_provenance_mut(stream)));
    m.finish();
}

#[test]
fn stream_destroy_waits_after_its_frees_of_plain_memory() {
    let m = machine(Settings::default());
    let (blocked, context) = (m.stream(1).addr(), current(&m));
    let from_pool = || {
        let mut address = 0;
        assert_eq!(cu!(m, cuMemAllocAsync(&mut address, 64, ptr::null_mut())), 0);
        address
    };
    // A stream with a free behind the blocked stream's work.
    let free_behind = |address| {
        let (stream, mut event) = (m.stream(1), ptr::null_mut());
        assert_eq!(cu!(m, cuEventCreate(&mut event, 2)), 0);
        assert_eq!(cu!(m, cuEventRecord(event, ptr::without_provenance_mut(blocked))), 0);
        assert_eq!(cu!(m, cuStreamWaitEvent(stream, event, 0)), 0);
        assert_eq!(cu!(m, cuEventDestroy_v2(event)), 0);
        assert_eq!(cu!(m, cuMemFreeAsync(address, stream)), 0);
        stream.addr()
    };
    let end = |stream| assert_eq!(cu!(m, cuStreamDestroy_v2(ptr::without_provenance_mut(stream))), 0);
    let (plain, of_pool) = (m.alloc(64), from_pool());
    assert!(!returns_while_blocked(&m, blocked, || end(free_behind(plain))));
    assert!(returns_while_blocked(&m, blocked, || end(free_behind(of_pool))));
    // Also for later work, after a free that is done, unless the stream was synchronized since.
    let work_behind = |is_synchronized| {
        let (stream, mut event) = (m.stream(1), ptr::null_mut());
        assert_eq!(cu!(m, cuMemFreeAsync(m.alloc(64), stream)), 0);
        if is_synchronized {
            assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
        }
        assert_eq!(cu!(m, cuStreamQuery(stream)), 0);
        assert_eq!(cu!(m, cuEventCreate(&mut event, 2)), 0);
        assert_eq!(cu!(m, cuEventRecord(event, ptr::without_provenance_mut(blocked))), 0);
        assert_eq!(cu!(m, cuStreamWaitEvent(stream, event, 0)), 0);
        assert_eq!(cu!(m, cuEventDestroy_v2(event)), 0);
        stream.addr()
    };
    assert!(!returns_while_blocked(&m, blocked, || end(work_behind(false))));
    assert!(returns_while_blocked(&m, blocked, || end(work_behind(true))));
    // The call holds the lock.
    let plain = m.alloc(64);
    let use_an_event = || {
        let stream = free_behind(plain);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                become_current(&m, context);
                end(stream);
            });
            std::thread::sleep(SOON);
            let mut event = ptr::null_mut();
            assert_eq!(cu!(m, cuEventCreate(&mut event, 2)), 0);
            assert_eq!(cu!(m, cuEventDestroy_v2(event)), 0);
        });
    };
    assert!(!returns_while_blocked(&m, blocked, use_an_event));
    end(blocked);
    m.finish();
}

/// Starts an ignored test in a process of its own.
fn start(test: &str, locks: &str) -> Child {
    let mut program = in_its_own_process(module_path!(), test);
    program.env("SOFTGPU_TEST_LOCKS", locks);
    program.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// Whether a process succeeds within `limit`. Kills it otherwise.
fn ends_within(child: &mut Child, limit: Duration) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < limit {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    false
}

/// A deadlock of three threads. The first frees pinned memory, and so waits for a host function on the second. The
/// third makes a stream before it lets the host function return.
#[test]
#[ignore = "may hang: a test below runs it"]
fn part_deadlock() {
    let locks = std::env::var("SOFTGPU_TEST_LOCKS").unwrap() == "1";
    let m = machine(Settings { locks, ..Settings::default() });
    let (pinned, context) = (m.host(64).as_mut_ptr().addr(), current(&m));
    let stream = m.stream(1);
    let (open, gate) = mpsc::channel::<()>();
    m.launch(stream, move || gate.recv().unwrap_or_default());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            become_current(&m, context);
            assert_eq!(cu!(m, cuMemFreeHost(ptr::without_provenance_mut(pinned))), 0);
        });
        std::thread::sleep(SOON);
        let other = m.stream(1);
        open.send(()).unwrap();
        assert_eq!(cu!(m, cuStreamDestroy_v2(other)), 0);
    });
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    m.finish();
}

#[test]
fn driver_locks_deadlock_a_free_with_a_blocked_host_function() {
    assert!(ends_within(&mut start("part_deadlock", "0"), LONG), "without locks it ends");
    assert!(!ends_within(&mut start("part_deadlock", "1"), Duration::from_secs(2)), "with locks it hangs");
}

#[test]
fn a_thread_ends_after_the_work_of_its_default_stream() {
    let m = machine(Settings::default());
    let context = current(&m);
    let (open, gate) = mpsc::channel::<()>();
    let ended = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let worker = threads.spawn(|| {
            become_current(&m, context);
            m.launch(CU_STREAM_PER_THREAD, move || gate.recv().unwrap_or_default());
        });
        threads.spawn(|| {
            worker.join().unwrap();
            ended.store(true, Ordering::Release);
        });
        std::thread::sleep(SOON);
        assert!(!ended.load(Ordering::Acquire), "the thread ended before its stream");
        open.send(()).unwrap();
    });
    assert!(ended.load(Ordering::Acquire));
    m.finish();
}

#[test]
#[ignore = "ends the process: a test below runs it"]
fn part_exit() {
    static MACHINE: AtomicPtr<Machine> = AtomicPtr::new(ptr::null_mut());
    extern "C" fn at_exit() {
        // SAFETY: the machine was leaked below.
        let m = unsafe { &*MACHINE.load(Ordering::Acquire) };
        // This is not the thread of the test.
        assert_eq!(current(m), 0);
        let mut context = ptr::null_mut();
        assert_eq!(cu!(m, cuDevicePrimaryCtxRetain(&mut context, 0)), 0);
        assert_eq!(cu!(m, cuCtxSetCurrent(context)), 0);
        assert_eq!(current(m), context.addr());
        let memory = m.alloc(64);
        assert_eq!(cu!(m, cuMemsetD8Async(memory, 1, 64, CU_STREAM_PER_THREAD)), 0);
        assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
        println!("freed at exit");
    }
    MACHINE.store(Box::leak(Box::new(machine(Settings::default()))), Ordering::Release);
    // SAFETY: the function takes no arguments, and does not unwind while its assertions hold.
    assert_eq!(unsafe { libc::atexit(at_exit) }, 0);
}

#[test]
fn the_driver_serves_functions_of_atexit() {
    let mut child = start("part_exit", "1");
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut said).unwrap();
    assert!(ends_within(&mut child, LONG), "{said}");
    assert!(said.contains("freed at exit"), "{said}");
}

#[test]
fn the_host_lends_no_more_memory_than_it_has() {
    let m = machine(Settings::default());
    // SAFETY: these calls only return numbers.
    let whole = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) * libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let (mut host, mut managed) = (ptr::null_mut(), 0);
    for size in [whole + 1, 1 << 46] {
        assert_eq!(cu!(m, cuMemHostAlloc(&mut host, size, 0)), CUresult::CUDA_ERROR_OUT_OF_MEMORY.0);
        assert_eq!(cu!(m, cuMemAllocHost_v2(&mut host, size)), CUresult::CUDA_ERROR_OUT_OF_MEMORY.0);
        assert_eq!(cu!(m, cuMemAllocManaged(&mut managed, size, 1)), CUresult::CUDA_ERROR_OUT_OF_MEMORY.0);
    }
    // Pinned and managed memory share the limit, and freed memory can be allocated again.
    for _ in 0..2 {
        assert_eq!(cu!(m, cuMemHostAlloc(&mut host, whole / 3 * 2, 0)), 0);
        assert_eq!(cu!(m, cuMemAllocManaged(&mut managed, whole / 2, 1)), CUresult::CUDA_ERROR_OUT_OF_MEMORY.0);
        assert_eq!(cu!(m, cuMemFreeHost(host)), 0);
        assert_eq!(cu!(m, cuMemAllocManaged(&mut managed, whole / 2, 1)), 0);
        assert_eq!(cu!(m, cuMemFree_v2(managed)), 0);
    }
    m.finish();
}
