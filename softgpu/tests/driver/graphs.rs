//! Stream capture and graphs: which work is recorded or refused, how a capture ends, what a launch does.

use crate::common::graphs::{GLOBAL, INVALIDATED, MODES, RELAXED, THREAD, UNSUPPORTED, VALUE, done};
use crate::common::{Machine, machine};
use crate::cu;
use cuda_sys::{CUevent, CUresult, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus};
use softgpu::{Kind, Settings};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

const UNJOINED: u32 = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED.0;

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
fn graph_launch_repeats_its_operations_on_current_memory() {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn count(_: *mut c_void) {
        COUNT.fetch_add(1, Ordering::SeqCst);
    }
    let m = machine(Settings::default());
    let (stream, memory) = (m.stream(1), m.alloc(64));
    // Each launch reads and writes pageable memory again.
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
fn events_extend_a_capture_to_streams_that_must_be_rejoined() {
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
        // A capture ends on the stream on which it began.
        if joined {
            assert_eq!(cu!(m, cuEventRecord(join, two)), 0);
            assert_eq!(cu!(m, cuStreamWaitEvent(one, join, 0)), 0);
            let graph = m.end(one);
            assert_eq!((m.nodes(graph), m.status(two)), (2, 0));
            m.run(m.ready(graph, 0), one);
            assert_eq!(m.read(memory, 8), [2, 2, 2, 2, 1, 1, 1, 1]);
        } else {
            let mut graph = ptr::dangling_mut();
            assert_eq!((cu!(m, cuStreamEndCapture(one, &mut graph)), graph.is_null()), (UNJOINED, true));
        }
        assert_eq!((m.status(one), m.status(two)), (0, 0));
        assert_eq!(cu!(m, cuStreamSynchronize(two)), 0);
    }
    done(m);
}

#[test]
fn a_capture_goes_on_without_a_stream_that_was_destroyed() {
    let m = machine(Settings::default());
    let (one, memory, event) = (m.stream(1), m.alloc(8), m.event());
    assert_eq!(cu!(m, cuMemsetD8_v2(memory, 0, 8)), 0);
    for joined in [true, false] {
        let two = m.stream(1);
        m.begin(one, GLOBAL);
        assert_eq!(cu!(m, cuEventRecord(event, one)), 0);
        assert_eq!(cu!(m, cuStreamWaitEvent(two, event, 0)), 0);
        assert_eq!(cu!(m, cuMemsetD8Async(memory, 1, 8, two)), 0);
        if joined {
            assert_eq!(cu!(m, cuEventRecord(event, two)), 0);
            assert_eq!(cu!(m, cuStreamWaitEvent(one, event, 0)), 0);
        }
        assert_eq!(cu!(m, cuStreamDestroy_v2(two)), 0);
        assert_eq!(cu!(m, cuMemsetD8Async(memory, 2, 4, one)), 0);
        if joined {
            m.run(m.ready(m.end(one), 0), one);
            assert_eq!(m.read(memory, 8), [2, 2, 2, 2, 1, 1, 1, 1]);
        } else {
            let mut graph = ptr::dangling_mut();
            assert_eq!((cu!(m, cuStreamEndCapture(one, &mut graph)), graph.is_null()), (UNJOINED, true));
        }
    }
    done(m);
}

#[test]
fn capture_info_reports_the_graph_and_its_last_nodes() {
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
            // SAFETY: the driver's array has one element here, and is valid until the stream's next call.
            assert_eq!(unsafe { nodes.read() }, all[made - 1]);
        }
        assert_eq!(cu!(m, cuMemsetD8Async(memory, 1, 8, stream)), 0);
    }
    // The program cannot destroy a graph while a stream records it.
    assert_eq!(cu!(m, cuGraphDestroy(graph)), VALUE);
    assert_eq!(m.end(stream), graph);
    assert_eq!((cu!(m, cuGraphDestroy(graph)), cu!(m, cuGraphDestroy(graph))), (0, VALUE));
    done(m);
}

#[test]
fn unsafe_calls_invalidate_a_capture_by_mode_and_thread() {
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
    // After a change of its mode, a thread may.
    m.begin(stream, GLOBAL);
    let mut mode = RELAXED;
    assert_eq!(cu!(m, cuThreadExchangeStreamCaptureMode(&mut mode)), 0);
    assert_eq!((mode, allocate(&m)), (GLOBAL, 0));
    assert_eq!(cu!(m, cuThreadExchangeStreamCaptureMode(&mut mode)), 0);
    assert_eq!(cu!(m, cuGraphDestroy(m.end(stream))), 0);
    done(m);
}

#[test]
fn queries_and_waits_on_captured_work_fail_in_every_mode() {
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
fn dependencies_across_a_capture_boundary_return_named_errors() {
    let m = machine(Settings::default());
    let (one, two, memory) = (m.stream(1), m.stream(1), m.alloc(8));
    let (inside, outside) = (m.event(), m.event());
    assert_eq!(cu!(m, cuEventRecord(outside, two)), 0);
    m.begin(one, RELAXED);
    assert_eq!(cu!(m, cuStreamWaitEvent(one, m.event(), 0)), 0);
    let isolation = CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION.0;
    assert_eq!(cu!(m, cuStreamWaitEvent(one, outside, 0)), isolation);
    m.lost(one);
    // Two captures cannot merge.
    m.begin(one, RELAXED);
    m.begin(two, RELAXED);
    assert_eq!(cu!(m, cuEventRecord(inside, one)), 0);
    assert_eq!(cu!(m, cuStreamWaitEvent(two, inside, 0)), CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE.0);
    m.lost(one);
    m.lost(two);
    // A blocking stream cannot capture beside work on the legacy default stream.
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
    // The capture has ended, and its graph is gone.
    assert_eq!((elsewhere, m.status(one)), (CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD.0, 0));
    assert_eq!(softgpu::ledger().count(Kind::Graph), 0);
    m.begin(one, GLOBAL);
    assert_eq!((cu!(m, cuStreamEndCapture(one, ptr::null_mut())), m.status(one)), (0, 0));
    assert_eq!(softgpu::ledger().count(Kind::Graph), 0);
    m.begin(one, GLOBAL);
    assert_eq!(cu!(m, cuEventRecord(fork, one)), 0);
    assert_eq!(cu!(m, cuStreamWaitEvent(two, fork, 0)), 0);
    let unmatched = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED.0;
    assert_eq!(cu!(m, cuStreamEndCapture(two, &mut graph)), unmatched);
    m.lost(one);
    // A destroyed stream ends its capture.
    let three = m.stream(1);
    m.begin(three, GLOBAL);
    assert_eq!(softgpu::ledger().count(Kind::Graph), 1);
    assert_eq!((cu!(m, cuStreamDestroy_v2(three)), softgpu::ledger().count(Kind::Graph)), (0, 0));
    assert_eq!(cu!(m, cuCtxSynchronize()), 0);
    done(m);
}

#[test]
fn ledger_lists_graphs_and_launches_of_one_graph_are_serialized() {
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
    // Destroying the graphs does not end launches under way.
    assert_eq!((cu!(m, cuGraphExecDestroy(executable)), cu!(m, cuGraphDestroy(graph))), (0, 0));
    assert_eq!((cu!(m, cuStreamSynchronize(one)), cu!(m, cuStreamSynchronize(two))), (0, 0));
    assert_eq!(m.read(memory, 1), [20]);
    let ledger = softgpu::ledger();
    assert_eq!((ledger.count(Kind::Graph), ledger.count(Kind::ExecutableGraph)), (0, 0));
    done(m);
}

#[test]
fn a_launch_is_not_recorded_and_harms_no_capture() {
    let m = machine(Settings::default());
    let (stream, memory) = (m.stream(1), m.alloc(4));
    m.write(memory, &[0; 4]);
    m.begin(stream, GLOBAL);
    m.increment(memory, 1, stream);
    m.increment(memory, 1, stream);
    let inner = m.ready(m.end(stream), 0);
    m.begin(stream, GLOBAL);
    assert_eq!((cu!(m, cuGraphLaunch(inner, stream)), m.status(stream)), (UNSUPPORTED, 1));
    m.increment(memory, 1, stream);
    let graph = m.end(stream);
    assert_eq!(m.nodes(graph), 1);
    m.run(m.ready(graph, 0), stream);
    assert_eq!(m.read(memory, 1), [1]);
    done(m);
}
