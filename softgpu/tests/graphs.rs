//! Stream capture and graphs: what is recorded, what is refused, and the memory that graphs allocate.
#![allow(
    clippy::unwrap_used,
    clippy::macro_metavars_in_unsafe,
    reason = "a test may panic; its calls into the table are all unsafe"
)]

mod common;

use common::{Machine, machine};
use cuda_sys::{
    CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUgraphMem_attribute, CUresult, CUstream, CUstreamCaptureMode,
    CUstreamCaptureStatus,
};
use softgpu::{Kind, Misuse, Settings};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
const THREAD: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
const MODES: [CUstreamCaptureMode; 3] = [GLOBAL, THREAD, RELAXED];

const VALUE: u32 = CUresult::CUDA_ERROR_INVALID_VALUE.0;
const UNSUPPORTED: u32 = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.0;
const INVALIDATED: u32 = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED.0;

impl Machine {
    fn begin(&self, stream: CUstream, mode: CUstreamCaptureMode) {
        assert_eq!(cu!(self, cuStreamBeginCapture_v2(stream, mode)), 0);
    }

    fn end(&self, stream: CUstream) -> CUgraph {
        let mut graph = ptr::null_mut();
        assert_eq!(cu!(self, cuStreamEndCapture(stream, &mut graph)), 0);
        graph
    }

    /// Ends a capture that was lost.
    fn lost(&self, stream: CUstream) {
        let mut graph = ptr::dangling_mut();
        assert_eq!(cu!(self, cuStreamEndCapture(stream, &mut graph)), INVALIDATED);
        assert!(graph.is_null());
        assert_eq!(self.status(stream), 0);
    }

    fn status(&self, stream: CUstream) -> u32 {
        let mut status = CUstreamCaptureStatus(77);
        assert_eq!(cu!(self, cuStreamIsCapturing(stream, &mut status)), 0);
        status.0
    }

    fn instantiate(&self, graph: CUgraph, flags: u64) -> CUgraphExec {
        let mut executable = ptr::null_mut();
        assert_eq!(cu!(self, cuGraphInstantiateWithFlags(&mut executable, graph, flags)), 0);
        executable
    }

    /// Makes a graph executable, and ends the graph.
    fn ready(&self, graph: CUgraph, flags: u64) -> CUgraphExec {
        let executable = self.instantiate(graph, flags);
        assert_eq!(cu!(self, cuGraphDestroy(graph)), 0);
        executable
    }

    fn run(&self, executable: CUgraphExec, stream: CUstream) {
        assert_eq!(cu!(self, cuGraphLaunch(executable, stream)), 0);
        assert_eq!(cu!(self, cuStreamSynchronize(stream)), 0);
    }

    fn nodes(&self, graph: CUgraph) -> usize {
        let mut count = 99;
        assert_eq!(cu!(self, cuGraphGetNodes(graph, ptr::null_mut(), &mut count)), 0);
        count
    }

    fn event(&self) -> CUevent {
        let mut event = ptr::null_mut();
        assert_eq!(cu!(self, cuEventCreate(&mut event, 2)), 0);
        event
    }

    fn allocate(&self, size: usize, stream: CUstream) -> CUdeviceptr {
        let mut address = 0;
        assert_eq!(cu!(self, cuMemAllocAsync(&mut address, size, stream)), 0);
        address
    }

    /// Adds 1 to 32-bit words by a kernel.
    fn increment(&self, memory: CUdeviceptr, count: u64, stream: CUstream) {
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        let mut relaxed = RELAXED;
        cu!(self, cuThreadExchangeStreamCaptureMode(&mut relaxed));
        assert_eq!(cu!(self, cuModuleLoadData(&mut module, c"softgpu kernels".as_ptr().cast())), 0);
        cu!(self, cuThreadExchangeStreamCaptureMode(&mut relaxed));
        assert_eq!(cu!(self, cuModuleGetFunction(&mut function, module, c"increment_u32".as_ptr())), 0);
        let (mut memory, mut count) = (memory, count);
        let mut parameters = [(&raw mut memory).cast::<c_void>(), (&raw mut count).cast()];
        let parameters = parameters.as_mut_ptr();
        let none = ptr::null_mut();
        assert_eq!(cu!(self, cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, none)), 0);
    }

    /// Used, most used, reserved, most reserved.
    fn graph_memory(&self) -> [u64; 4] {
        [0, 1, 2, 3].map(|which| {
            let mut value = 99_u64;
            let attribute = CUgraphMem_attribute(which);
            assert_eq!(cu!(self, cuDeviceGetGraphMemAttribute(0, attribute, (&raw mut value).cast())), 0);
            value
        })
    }
}

/// A machine whose last test of capture has left nothing but what a context ends.
fn done(m: Machine) {
    for which in [1, 3] {
        assert_eq!(
            cu!(m, cuDeviceSetGraphMemAttribute(0, CUgraphMem_attribute(which), ptr::from_mut(&mut 0_u64).cast())),
            0
        );
    }
    m.finish();
}

#[test]
fn what_is_captured_runs_at_each_launch_and_not_before() {
    for mode in MODES {
        let m = machine(Settings::default());
        let (stream, memory) = (m.stream(1), m.alloc(64));
        m.write(memory, &[0; 64]);
        m.begin(stream, mode);
        assert_eq!(m.status(stream), 1);
        for _ in 0..3 {
            m.increment(memory, 1, stream);
        }
        let graph = m.end(stream);
        assert_eq!((m.status(stream), m.nodes(graph)), (0, 3));
        assert_eq!(m.read(memory, 1), [0]);
        let executable = m.ready(graph, 0);
        m.run(executable, stream);
        assert_eq!(m.read(memory, 1), [3]);
        m.run(executable, stream);
        assert_eq!(m.read(memory, 1), [6]);
        assert_eq!(cu!(m, cuGraphExecDestroy(executable)), 0);
        assert_eq!(cu!(m, cuGraphLaunch(executable, stream)), VALUE);
        assert_eq!(cu!(m, cuGraphExecDestroy(executable)), VALUE);
        done(m);
    }
}

#[test]
fn copies_fills_words_and_host_functions_are_done_again_with_what_memory_then_holds() {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn count(_: *mut c_void) {
        COUNT.fetch_add(1, Ordering::SeqCst);
    }
    let m = machine(Settings::default());
    let (stream, memory) = (m.stream(1), m.alloc(64));
    // Pageable memory: at each launch it is touched anew.
    let (mut input, mut output) = (vec![0_u8; 8], vec![0_u8; 16]);
    m.begin(stream, GLOBAL);
    assert_eq!(cu!(m, cuMemsetD8Async(memory, 9, 64, stream)), 0);
    assert_eq!(cu!(m, cuMemcpyHtoDAsync_v2(memory, input.as_ptr().cast(), 8, stream)), 0);
    assert_eq!(cu!(m, cuStreamWriteValue32_v2(stream, memory + 8, 0x0404_0404, 0)), 0);
    assert_eq!(cu!(m, cuLaunchHostFunc(stream, Some(count), ptr::null_mut())), 0);
    assert_eq!(cu!(m, cuMemcpyDtoHAsync_v2(output.as_mut_ptr().cast(), memory, 16, stream)), 0);
    let executable = m.ready(m.end(stream), 0);
    for round in 1..=2 {
        input.fill(round);
        m.run(executable, stream);
        assert_eq!(output[..8], [round; 8]);
        assert_eq!(output[8..], [4, 4, 4, 4, 9, 9, 9, 9]);
        assert_eq!(COUNT.load(Ordering::SeqCst), u32::from(round));
    }
    done(m);
}

#[test]
fn events_carry_a_capture_to_other_streams_which_must_be_joined_again() {
    let m = machine(Settings::default());
    let (one, two, memory) = (m.stream(1), m.stream(1), m.alloc(8));
    let (fork, join) = (m.event(), m.event());
    for joined in [true, false] {
        m.write(memory, &[0; 8]);
        m.begin(one, GLOBAL);
        assert_eq!(cu!(m, cuMemsetD8Async(memory, 1, 8, one)), 0);
        assert_eq!(cu!(m, cuEventRecord(fork, one)), 0);
        assert_eq!((m.status(two), cu!(m, cuStreamWaitEvent(two, fork, 0)), m.status(two)), (0, 0, 1));
        assert_eq!(cu!(m, cuMemsetD8Async(memory, 2, 4, two)), 0);
        // It ends where it began.
        if joined {
            assert_eq!(cu!(m, cuEventRecord(join, two)), 0);
            assert_eq!(cu!(m, cuStreamWaitEvent(one, join, 0)), 0);
            let graph = m.end(one);
            assert_eq!((m.nodes(graph), m.status(two)), (2, 0));
            m.run(m.ready(graph, 0), one);
            assert_eq!(m.read(memory, 8), [2, 2, 2, 2, 1, 1, 1, 1]);
        } else {
            let mut graph = ptr::dangling_mut();
            let unjoined = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED.0;
            assert_eq!((cu!(m, cuStreamEndCapture(one, &mut graph)), graph.is_null()), (unjoined, true));
        }
        assert_eq!((m.status(one), m.status(two)), (0, 0));
        assert_eq!(cu!(m, cuStreamSynchronize(two)), 0);
    }
    done(m);
}

#[test]
fn the_capture_of_a_stream_is_told_with_its_graph_and_its_last_nodes() {
    let m = machine(Settings::default());
    let (stream, memory) = (m.stream(1), m.alloc(8));
    m.begin(stream, RELAXED);
    let (mut status, mut id, mut graph) = (CUstreamCaptureStatus(77), 0, ptr::null_mut());
    let (mut nodes, mut count) = (ptr::null(), 99);
    for made in 0..3 {
        let info = cu!(m, cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut graph, &mut nodes, &mut count));
        assert_eq!((info, status.0, count), (0, 1, usize::from(made > 0)));
        assert!(id > 0 && !graph.is_null());
        if made > 0 {
            let (mut all, mut room) = ([ptr::null_mut(); 4], 4);
            assert_eq!(cu!(m, cuGraphGetNodes(graph, all.as_mut_ptr(), &mut room)), 0);
            assert_eq!((room, all[room].is_null()), (made, true));
            // SAFETY: the driver's array, of one element here, lives until the stream's next call.
            assert_eq!(unsafe { nodes.read() }, all[made - 1]);
        }
        assert_eq!(cu!(m, cuMemsetD8Async(memory, 1, 8, stream)), 0);
    }
    // While it is recorded it is not the program's to end.
    assert_eq!(cu!(m, cuGraphDestroy(graph)), VALUE);
    assert_eq!(m.end(stream), graph);
    assert_eq!((cu!(m, cuGraphDestroy(graph)), cu!(m, cuGraphDestroy(graph))), (0, VALUE));
    done(m);
}

#[test]
fn unsafe_calls_are_refused_by_mode_and_thread_and_lose_the_capture() {
    let m = machine(Settings::default());
    let (stream, mut context) = (m.stream(1), ptr::null_mut());
    assert_eq!(cu!(m, cuCtxGetCurrent(&mut context)), 0);
    let context = context.addr();
    let allocate = |m: &Machine| {
        let mut memory = 0;
        let answer = cu!(m, cuMemAlloc_v2(&mut memory, 64));
        if answer == 0 {
            assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
        }
        answer
    };
    for (mode, here, there) in [(GLOBAL, UNSUPPORTED, UNSUPPORTED), (THREAD, UNSUPPORTED, 0), (RELAXED, 0, 0)] {
        for other in [false, true] {
            m.begin(stream, mode);
            let answer = if other {
                std::thread::scope(|scope| {
                    let thread = scope.spawn(|| {
                        assert_eq!(cu!(m, cuCtxSetCurrent(ptr::without_provenance_mut(context))), 0);
                        allocate(&m)
                    });
                    thread.join().unwrap()
                })
            } else {
                allocate(&m)
            };
            assert_eq!(answer, if other { there } else { here });
            assert_eq!(m.status(stream), if answer == 0 { 1 } else { 2 });
            if answer == 0 {
                assert_eq!(cu!(m, cuGraphDestroy(m.end(stream))), 0);
            } else {
                m.lost(stream);
            }
        }
    }
    // A thread that says so may.
    m.begin(stream, GLOBAL);
    let mut mode = RELAXED;
    assert_eq!(cu!(m, cuThreadExchangeStreamCaptureMode(&mut mode)), 0);
    assert_eq!((mode, allocate(&m)), (GLOBAL, 0));
    assert_eq!(cu!(m, cuThreadExchangeStreamCaptureMode(&mut mode)), 0);
    assert_eq!(cu!(m, cuGraphDestroy(m.end(stream))), 0);
    done(m);
}

#[test]
fn what_asks_about_or_waits_for_recorded_work_is_refused_in_every_mode() {
    type Ask = fn(&Machine, CUstream, CUevent) -> u32;
    let captured = CUresult::CUDA_ERROR_CAPTURED_EVENT.0;
    let asks: [(Ask, u32); 5] = [
        (|m, stream, _| cu!(m, cuStreamQuery(stream)), UNSUPPORTED),
        (|m, stream, _| cu!(m, cuStreamSynchronize(stream)), UNSUPPORTED),
        (|m, _, _| cu!(m, cuCtxSynchronize()), UNSUPPORTED),
        (|m, _, event| cu!(m, cuEventQuery(event)), captured),
        (|m, _, event| cu!(m, cuEventSynchronize(event)), captured),
    ];
    for mode in MODES {
        let m = machine(Settings::default());
        let (stream, event) = (m.stream(1), m.event());
        for (ask, code) in asks {
            m.begin(stream, mode);
            assert_eq!(cu!(m, cuEventRecord(event, stream)), 0);
            assert_eq!((ask(&m, stream, event), m.status(stream)), (code, 2));
            assert_eq!(cu!(m, cuLaunchHostFunc(stream, Some(nothing), ptr::null_mut())), INVALIDATED);
            m.lost(stream);
        }
        done(m);
    }
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

#[test]
fn dependencies_that_would_cross_the_border_of_a_capture_are_refused_by_name() {
    let m = machine(Settings::default());
    let (one, two, memory) = (m.stream(1), m.stream(1), m.alloc(8));
    let (inside, outside) = (m.event(), m.event());
    assert_eq!(cu!(m, cuEventRecord(outside, two)), 0);
    m.begin(one, RELAXED);
    assert_eq!(cu!(m, cuStreamWaitEvent(one, m.event(), 0)), 0);
    let isolation = CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION.0;
    assert_eq!(cu!(m, cuStreamWaitEvent(one, outside, 0)), isolation);
    m.lost(one);
    // Two captures do not become one.
    m.begin(one, RELAXED);
    m.begin(two, RELAXED);
    assert_eq!(cu!(m, cuEventRecord(inside, one)), 0);
    assert_eq!(cu!(m, cuStreamWaitEvent(two, inside, 0)), CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE.0);
    m.lost(one);
    m.lost(two);
    // Nor does a blocking stream's go on with the legacy default stream.
    let blocking = m.stream(0);
    m.begin(blocking, RELAXED);
    let implicit = CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT.0;
    let mut status = CUstreamCaptureStatus(0);
    assert_eq!(cu!(m, cuStreamIsCapturing(ptr::null_mut(), &mut status)), implicit);
    assert_eq!(m.status(blocking), 1);
    assert_eq!(cu!(m, cuMemsetD8Async(memory, 1, 8, ptr::null_mut())), implicit);
    m.lost(blocking);
    m.begin(blocking, RELAXED);
    assert_eq!(cu!(m, cuMemsetD8_v2(memory, 1, 8)), implicit);
    m.lost(blocking);
    assert_eq!(cu!(m, cuStreamBeginCapture_v2(ptr::null_mut(), RELAXED)), UNSUPPORTED);
    done(m);
}

#[test]
fn a_capture_ends_on_its_stream_and_its_thread() {
    let m = machine(Settings::default());
    let (one, two, fork) = (m.stream(1), m.stream(1), m.event());
    let mut graph = ptr::null_mut();
    let state = CUresult::CUDA_ERROR_ILLEGAL_STATE.0;
    assert_eq!(cu!(m, cuStreamEndCapture(one, &mut graph)), state);
    assert_eq!(cu!(m, cuStreamBeginCapture_v2(one, CUstreamCaptureMode(3))), VALUE);
    m.begin(one, GLOBAL);
    assert_eq!(cu!(m, cuStreamBeginCapture_v2(one, GLOBAL)), state);
    let handle = one.addr();
    let elsewhere = std::thread::scope(|scope| {
        let end = || cu!(m, cuStreamEndCapture(ptr::without_provenance_mut(handle), &mut ptr::null_mut()));
        scope.spawn(end).join().unwrap()
    });
    assert_eq!((elsewhere, m.status(one)), (CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD.0, 1));
    assert_eq!(cu!(m, cuEventRecord(fork, one)), 0);
    assert_eq!(cu!(m, cuStreamWaitEvent(two, fork, 0)), 0);
    let unmatched = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED.0;
    assert_eq!(cu!(m, cuStreamEndCapture(two, &mut graph)), unmatched);
    m.lost(one);
    // A stream that is destroyed takes its capture along.
    let three = m.stream(1);
    m.begin(three, GLOBAL);
    assert_eq!(softgpu::ledger().count(Kind::Graph), 1);
    assert_eq!((cu!(m, cuStreamDestroy_v2(three)), softgpu::ledger().count(Kind::Graph)), (0, 0));
    assert_eq!(cu!(m, cuCtxSynchronize()), 0);
    done(m);
}

#[test]
fn memory_of_a_graph_has_one_address_and_is_there_from_launch_to_free() {
    for mode in MODES {
        let m = machine(Settings::default());
        let (stream, out) = (m.stream(1), m.alloc(64));
        m.write(out, &[0; 64]);
        m.begin(stream, mode);
        let block = m.allocate(64, stream);
        assert_eq!(m.allocate(0, stream), 0);
        assert_eq!(cu!(m, cuMemcpyDtoDAsync_v2(block, out, 64, stream)), 0);
        for _ in 0..3 {
            m.increment(block, 16, stream);
        }
        assert_eq!(cu!(m, cuMemcpyDtoDAsync_v2(out, block, 64, stream)), 0);
        assert_eq!(cu!(m, cuMemFreeAsync(block, stream)), 0);
        let graph = m.end(stream);
        assert_eq!(m.nodes(graph), 7);
        assert_eq!(m.graph_memory(), [0; 4]);
        let executable = m.instantiate(graph, 0);
        // One at a time.
        let mut second = ptr::null_mut();
        assert_eq!(cu!(m, cuGraphInstantiateWithFlags(&mut second, graph, 0)), VALUE);
        m.run(executable, stream);
        assert_eq!(m.read(out, 4), [3, 0, 0, 0]);
        m.run(executable, stream);
        assert_eq!(m.read(out, 4), [6, 0, 0, 0]);
        assert_eq!(softgpu::ledger().count(Kind::GraphMemory), 0);
        assert_eq!(cu!(m, cuGraphExecDestroy(executable)), 0);
        m.ready(graph, 0);
        assert!(softgpu::misuse().is_empty(), "{:?}", softgpu::misuse());
        done(m);
    }
}

#[test]
fn memory_that_a_graph_does_not_free_stays_until_it_is_freed() {
    let m = machine(Settings::default());
    let stream = m.stream(1);
    m.begin(stream, GLOBAL);
    let block = m.allocate(4096, stream);
    assert_eq!(cu!(m, cuMemsetD8Async(block, 7, 4096, stream)), 0);
    let executable = m.ready(m.end(stream), 0);
    // Its address is nobody's before a launch.
    let mut bytes = [0_u8; 4];
    assert_eq!(cu!(m, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), block, 4)), VALUE);
    for asynchronous in [true, false] {
        m.run(executable, stream);
        assert_eq!((m.read(block, 2), softgpu::ledger().count(Kind::GraphMemory)), (vec![7, 7], 1));
        // It is live: another launch would give the address twice.
        assert_eq!(cu!(m, cuGraphLaunch(executable, stream)), VALUE);
        let freed = if asynchronous { cu!(m, cuMemFreeAsync(block, stream)) } else { cu!(m, cuMemFree_v2(block)) };
        assert_eq!((freed, cu!(m, cuStreamSynchronize(stream))), (0, 0));
        assert_eq!((cu!(m, cuMemFreeAsync(block, stream)), cu!(m, cuMemFree_v2(block))), (VALUE, VALUE));
    }
    let named: Vec<_> = softgpu::misuse().iter().map(|report| report.misuse).collect();
    let twice = [Misuse::DoubleFree; 2];
    assert_eq!(named, [&[Misuse::UseAfterFree], &twice[..], &twice[..]].concat());
    // What is live outlives what made it.
    m.run(executable, stream);
    assert_eq!(cu!(m, cuGraphExecDestroy(executable)), 0);
    assert_eq!((m.read(block, 1), cu!(m, cuMemFree_v2(block))), (vec![7], 0));
    assert_eq!(cu!(m, cuMemGetAddressRange_v2(ptr::null_mut(), ptr::null_mut(), block)), 500);
    done(m);
}

#[test]
fn with_auto_free_a_launch_takes_back_what_the_one_before_left() {
    let m = machine(Settings::default());
    let (stream, input) = (m.stream(1), m.alloc(64));
    m.begin(stream, GLOBAL);
    let output = m.allocate(64, stream);
    assert_eq!(cu!(m, cuMemcpyDtoDAsync_v2(output, input, 64, stream)), 0);
    m.increment(output, 16, stream);
    let executable = m.ready(m.end(stream), 1);
    for round in [0, 5] {
        m.write(input, &[round; 64]);
        m.run(executable, stream);
        assert_eq!(m.read(output, 4), [round + 1, round, round, round]);
        let used = m.graph_memory()[0];
        assert!(used > 0 && used == m.graph_memory()[1]);
    }
    // Without waiting in between, too.
    for _ in 0..20 {
        assert_eq!(cu!(m, cuGraphLaunch(executable, stream)), 0);
    }
    assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
    assert_eq!((m.read(output, 1), cu!(m, cuMemFreeAsync(output, stream))), (vec![6], 0));
    assert!(softgpu::misuse().is_empty(), "{:?}", softgpu::misuse());
    done(m);
}

#[test]
fn attributes_tell_of_graph_memory_and_high_marks_stay_until_they_are_reset() {
    let m = machine(Settings { memory: 1 << 20, ..Settings::default() });
    let (stream, mut free) = (m.stream(1), 0);
    m.begin(stream, GLOBAL);
    let block = m.allocate(1 << 19, stream);
    let executable = m.ready(m.end(stream), 0);
    m.run(executable, stream);
    let [used, used_high, reserved, reserved_high] = m.graph_memory();
    assert_eq!((used, used_high), (1 << 19, 1 << 19));
    assert!(reserved >= used && reserved_high == reserved);
    assert_eq!((cu!(m, cuMemGetInfo_v2(&mut free, ptr::null_mut())), free), (0, 1 << 19));
    // What is freed stays with the graphs, and what is live is not trimmed.
    assert_eq!((cu!(m, cuDeviceGraphMemTrim(0)), m.graph_memory()[0]), (0, 1 << 19));
    assert_eq!((cu!(m, cuMemFree_v2(block)), m.graph_memory()[0]), (0, 1 << 19));
    assert_eq!(cu!(m, cuDeviceGraphMemTrim(0)), 0);
    assert_eq!(m.graph_memory(), [0, used_high, 0, reserved_high]);
    assert_eq!((cu!(m, cuMemGetInfo_v2(&mut free, ptr::null_mut())), free), (0, 1 << 20));
    for which in [1, 3] {
        let attribute = CUgraphMem_attribute(which);
        assert_eq!(cu!(m, cuDeviceSetGraphMemAttribute(0, attribute, ptr::from_mut(&mut 1_u64).cast())), VALUE);
        assert_eq!(cu!(m, cuDeviceSetGraphMemAttribute(0, attribute, ptr::from_mut(&mut 0_u64).cast())), 0);
    }
    assert_eq!(m.graph_memory(), [0; 4]);
    // A launch that has no room says so, and leaves nothing.
    let all = m.alloc(1 << 20);
    assert_eq!(cu!(m, cuGraphLaunch(executable, stream)), CUresult::CUDA_ERROR_OUT_OF_MEMORY.0);
    assert_eq!((cu!(m, cuMemFree_v2(all)), m.graph_memory()), (0, [0; 4]));
    m.run(executable, stream);
    assert_eq!(cu!(m, cuMemFree_v2(block)), 0);
    done(m);
}

#[test]
fn memory_that_is_not_a_graphs_is_not_freed_by_one_and_no_block_twice() {
    let m = machine(Settings::default());
    let (stream, plain) = (m.stream(1), m.allocate(64, ptr::null_mut()));
    m.begin(stream, RELAXED);
    assert_eq!((cu!(m, cuMemFreeAsync(plain, stream)), m.status(stream)), (VALUE, 2));
    m.lost(stream);
    m.begin(stream, RELAXED);
    let block = m.allocate(64, stream);
    assert_eq!((cu!(m, cuMemFreeAsync(block, stream)), cu!(m, cuMemFreeAsync(block, stream))), (0, VALUE));
    m.lost(stream);
    // The address went with the capture.
    assert_eq!(cu!(m, cuMemGetAddressRange_v2(ptr::null_mut(), ptr::null_mut(), block)), 500);
    assert_eq!(cu!(m, cuMemFree_v2(plain)), 0);
    done(m);
}

#[test]
fn a_launch_after_its_memory_was_freed_is_a_misuse_that_breaks_the_context() {
    let m = machine(Settings::default());
    let (stream, memory) = (m.stream(1), m.alloc(64));
    m.begin(stream, GLOBAL);
    assert_eq!(cu!(m, cuMemsetD8Async(memory, 1, 64, stream)), 0);
    let executable = m.ready(m.end(stream), 0);
    // A graph that is only kept is no work that uses the memory.
    assert_eq!((cu!(m, cuMemFree_v2(memory)), softgpu::misuse().len()), (0, 0));
    assert_eq!(cu!(m, cuGraphLaunch(executable, stream)), 0);
    assert_eq!(softgpu::misuse().iter().map(|report| report.misuse).collect::<Vec<_>>(), [Misuse::UseAfterFree]);
    assert_eq!(cu!(m, cuStreamSynchronize(stream)), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS.0);
    m.finish();
}

#[test]
fn graphs_are_in_the_ledger_and_launches_of_one_follow_each_other() {
    let m = machine(Settings { seed: Some(3), ..Settings::default() });
    let (one, two, memory) = (m.stream(1), m.stream(1), m.alloc(4));
    m.write(memory, &[0; 4]);
    m.begin(one, GLOBAL);
    m.increment(memory, 1, one);
    let graph = m.end(one);
    let executable = m.instantiate(graph, 0);
    let ledger = softgpu::ledger();
    assert_eq!((ledger.count(Kind::Graph), ledger.count(Kind::ExecutableGraph)), (1, 1));
    for _ in 0..10 {
        for stream in [one, two] {
            assert_eq!(cu!(m, cuGraphLaunch(executable, stream)), 0);
        }
    }
    // Ending it does not end its launches.
    assert_eq!((cu!(m, cuGraphExecDestroy(executable)), cu!(m, cuGraphDestroy(graph))), (0, 0));
    assert_eq!((cu!(m, cuStreamSynchronize(one)), cu!(m, cuStreamSynchronize(two))), (0, 0));
    assert_eq!(m.read(memory, 1), [20]);
    let ledger = softgpu::ledger();
    assert_eq!((ledger.count(Kind::Graph), ledger.count(Kind::ExecutableGraph)), (0, 0));
    done(m);
}

#[test]
fn a_graph_is_launched_within_a_capture_as_one_node() {
    let m = machine(Settings::default());
    let (stream, memory) = (m.stream(1), m.alloc(4));
    m.write(memory, &[0; 4]);
    m.begin(stream, GLOBAL);
    m.increment(memory, 1, stream);
    m.increment(memory, 1, stream);
    let inner = m.ready(m.end(stream), 0);
    m.begin(stream, GLOBAL);
    assert_eq!(cu!(m, cuGraphLaunch(inner, stream)), 0);
    m.increment(memory, 1, stream);
    let graph = m.end(stream);
    assert_eq!(m.nodes(graph), 2);
    m.run(m.ready(graph, 0), stream);
    assert_eq!(m.read(memory, 1), [3]);
    done(m);
}
