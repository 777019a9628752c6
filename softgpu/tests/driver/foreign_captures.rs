//! softgpu reports threads that use what another thread captures.

use crate::common::graphs::{RELAXED, VALUE};
use crate::common::{Machine, machine};
use crate::cu;
use cuda_sys::{CUevent, CUresult, CUstream, CUstreamCaptureStatus};
use softgpu::{Misuse, Settings};
use std::ptr;

const CAPTURED: u32 = CUresult::CUDA_ERROR_CAPTURED_EVENT.0;
const HANDLE: u32 = CUresult::CUDA_ERROR_INVALID_HANDLE.0;

/// Runs calls on another thread.
fn elsewhere(m: &Machine, calls: impl FnOnce() + Send) {
    let mut context = ptr::null_mut();
    assert_eq!(cu!(m, cuCtxGetCurrent(&mut context)), 0);
    let context = context.addr();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            assert_eq!(cu!(m, cuCtxSetCurrent(ptr::without_provenance_mut(context))), 0);
            calls();
        });
    });
}

fn reported() -> Vec<(Misuse, &'static str)> {
    softgpu::misuse().iter().map(|report| (report.misuse, report.call)).collect()
}

type Use = fn(&Machine, CUevent, CUstream) -> (u32, &'static str);

/// The calls with an event, with their answers for an event of a capture.
const USES: [(Use, u32); 5] = [
    (|m, event, stream| (cu!(m, cuEventRecord(event, stream)), "cuEventRecord"), 0),
    (|m, event, _| (cu!(m, cuEventQuery(event)), "cuEventQuery"), CAPTURED),
    (|m, event, _| (cu!(m, cuEventSynchronize(event)), "cuEventSynchronize"), CAPTURED),
    (|m, event, _| (cu!(m, cuEventElapsedTime(&mut 0.0, event, event)), "cuEventElapsedTime"), HANDLE),
    (|m, event, stream| (cu!(m, cuStreamWaitEvent(stream, event, 0)), "cuStreamWaitEvent"), 0),
];

#[test]
fn a_use_of_an_event_that_another_thread_captures_is_reported() {
    for (use_it, answer) in USES {
        for (foreign, ended) in [(true, false), (false, false), (true, true)] {
            let m = machine(Settings { races: true, ..Settings::default() });
            let (captured, other, mut event) = (m.stream(1), m.stream(1).addr(), ptr::null_mut());
            assert_eq!(cu!(m, cuEventCreate(&mut event, 0)), 0);
            m.begin(captured, RELAXED);
            assert_eq!(cu!(m, cuEventRecord(event, captured)), 0);
            let mut graph = ptr::null_mut();
            if ended {
                graph = m.end(captured);
            }
            let event = event.addr();
            let at = ptr::without_provenance_mut::<()>;
            let call = || {
                let (told, name) = use_it(&m, at(event).cast(), at(other).cast());
                if !ended {
                    assert_eq!(told, answer, "{name}");
                }
                let wrong = foreign && !ended;
                let twice = usize::from(wrong) * if name == "cuEventElapsedTime" { 2 } else { 1 };
                assert_eq!(reported(), vec![(Misuse::ForeignCapture, name); twice], "{foreign} {ended}");
            };
            if foreign {
                elsewhere(&m, call);
            } else {
                call();
            }
            if !ended {
                let _ = cu!(m, cuStreamEndCapture(captured, &mut graph));
            }
            if !graph.is_null() {
                assert_eq!(cu!(m, cuGraphDestroy(graph)), 0);
            }
            m.finish();
        }
    }
}

#[test]
fn an_event_that_was_recorded_again_belongs_to_no_capture() {
    let m = machine(Settings { races: true, ..Settings::default() });
    let (captured, other, event) = (m.stream(1), m.stream(1), m.event());
    m.begin(captured, RELAXED);
    assert_eq!(cu!(m, cuEventRecord(event, captured)), 0);
    assert_eq!(cu!(m, cuEventRecord(event, other)), 0);
    let (event, at) = (event.addr(), ptr::without_provenance_mut::<()>);
    elsewhere(&m, || assert_eq!(cu!(m, cuEventSynchronize(at(event).cast())), 0));
    assert_eq!(reported(), []);
    let graph = m.end(captured);
    assert_eq!(cu!(m, cuStreamWaitEvent(other, at(event).cast(), 0)), 0);
    assert_eq!((cu!(m, cuGraphDestroy(graph)), cu!(m, cuGraphDestroy(graph))), (0, VALUE));
    m.finish();
}

#[test]
fn questions_that_meet_the_end_of_a_capture_are_reported() {
    type Ask = fn(&Machine, CUstream);
    let asks: [Ask; 4] = [
        |m, stream| {
            m.status(stream);
        },
        |m, stream| {
            let (mut status, mut id) = (CUstreamCaptureStatus(0), 0);
            let (graph, nodes, count) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
            cu!(m, cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, graph, nodes, count));
        },
        |m, stream| {
            cu!(m, cuStreamQuery(stream));
        },
        |m, stream| {
            cu!(m, cuStreamSynchronize(stream));
        },
    ];
    for ask in asks {
        let m = machine(Settings { races: true, ..Settings::default() });
        let stream = m.stream(1);
        let (at, address) = (ptr::without_provenance_mut::<()>, stream.addr());
        let mut met = false;
        for _ in 0..1000 {
            let end = std::sync::atomic::AtomicBool::new(false);
            m.begin(stream, RELAXED);
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    while !end.load(std::sync::atomic::Ordering::Acquire) {
                        ask(&m, at(address).cast());
                    }
                });
                std::thread::yield_now();
                let mut graph = ptr::null_mut();
                if cu!(m, cuStreamEndCapture(at(address).cast(), &mut graph)) == 0 {
                    assert_eq!(cu!(m, cuGraphDestroy(graph)), 0);
                }
                end.store(true, std::sync::atomic::Ordering::Release);
            });
            met = !reported().is_empty();
            if met {
                break;
            }
        }
        assert!(met && reported().iter().all(|(misuse, _)| *misuse == Misuse::EndOfCapture));
        m.finish();
    }
}
