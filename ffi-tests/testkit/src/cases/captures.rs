//! Stream capture: which calls are recorded, which are refused, what invalidates a capture, and where it ends.

use super::lab::codes::*;
use super::lab::{Lab, Run, Stop, text};
use cuda_mem::cuda_sys::*;
use std::ffi::c_void;
use std::ptr;

cases! {
    Shared begin_and_end,
    Shared information,
    Shared recorded_calls,
    Shared pageable_copies,
    Shared unsafe_calls,
    Shared unsafe_calls_of_another_thread,
    Shared calls_in_relaxed_mode,
    Shared calls_of_a_relaxed_thread,
    Shared questions_about_captured_work,
    Shared questions_about_a_capturing_stream,
    Shared events_outside,
    Shared forks_and_joins,
    Shared two_captures,
    Shared the_legacy_stream,
    Shared the_threads_own_stream,
    Shared the_end_elsewhere,
    Shared external_events,
    Alone a_reached_stream_destroyed,
    Alone a_stream_destroyed_while_it_captures,
}

pub(super) const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
const THREAD: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
const MODES: [(&str, CUstreamCaptureMode); 3] = [("global", GLOBAL), ("thread", THREAD), ("relaxed", RELAXED)];

/// Begins a capture, which ends with the case at the latest.
pub(super) fn begin(l: &mut Lab, stream: CUstream, mode: CUstreamCaptureMode) -> Run {
    need!(l, cuStreamBeginCapture_v2(stream, mode))?;
    l.finally(move |l| discard(l, stream));
    Ok(())
}

/// Ends a capture, if there is one, and destroys its graph.
pub(super) fn discard(l: &mut Lab, stream: CUstream) {
    let mut graph = ptr::null_mut();
    if call!(l, cuStreamEndCapture(stream, &mut graph)) == Ok(OK) && !graph.is_null() {
        let _ = call!(l, cuGraphDestroy(graph));
    }
}

/// Ends a capture; the graph ends with the case.
pub(super) fn end(l: &mut Lab, stream: CUstream) -> Result<CUgraph, Stop> {
    let mut graph = ptr::null_mut();
    need!(l, cuStreamEndCapture(stream, &mut graph))?;
    l.finally(move |l| drop(call!(l, cuGraphDestroy(graph))));
    Ok(graph)
}

/// Records the state of a capture, and ends it.
fn settle(l: &mut Lab, label: &str, stream: CUstream) {
    let (mut status, mut graph) = (CUstreamCaptureStatus(77), ptr::null_mut());
    let asked = call!(l, cuStreamIsCapturing(stream, &mut status));
    l.say(format!("{label}: status"), if asked == Ok(OK) { status.0.to_string() } else { text(asked) });
    ask!(l, format!("{label}: end"), cuStreamEndCapture(stream, &mut graph));
    if !graph.is_null() {
        let mut count = 99;
        let _ = call!(l, cuGraphGetNodes(graph, ptr::null_mut(), &mut count));
        l.say(format!("{label}: nodes"), count);
        let _ = call!(l, cuGraphDestroy(graph));
    }
    let after = call!(l, cuStreamSynchronize(stream));
    l.check(format!("{label}: the stream afterwards"), text(after), text(Ok(OK)));
}

fn begin_and_end(l: &mut Lab) -> Run {
    let stream = l.stream(1)?;
    let mut graph = ptr::null_mut();
    ask!(l, "end without a capture", cuStreamEndCapture(stream, &mut graph));
    ask!(l, "an unknown mode", cuStreamBeginCapture_v2(stream, CUstreamCaptureMode(77)));
    discard(l, stream);
    for (name, mode) in MODES {
        begin(l, stream, mode)?;
        ask!(l, format!("{name}: begin again"), cuStreamBeginCapture_v2(stream, mode));
        settle(l, name, stream);
    }
    begin(l, stream, GLOBAL)?;
    ask!(l, "end without a result", cuStreamEndCapture(stream, ptr::null_mut()));
    settle(l, "after that", stream);
    Ok(())
}

fn information(l: &mut Lab) -> Run {
    let (stream, memory) = (l.stream(1)?, l.alloc(64)?);
    let (mut status, mut id, mut graph, mut nodes, mut count) =
        (CUstreamCaptureStatus(77), 0, ptr::null_mut(), ptr::null(), 99);
    begin(l, stream, GLOBAL)?;
    for made in 0..3 {
        ask!(
            l,
            format!("after {made}") => OK,
            cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut graph, &mut nodes, &mut count)
        );
        l.check(format!("after {made}: status"), status.0, 1);
        l.check(format!("after {made}: an id and a graph"), id > 0 && !graph.is_null(), true);
        l.check(format!("after {made}: nodes to follow"), count, u32::from(made > 0));
        let mut all = 99;
        ask!(l, format!("after {made}: all nodes") => OK, cuGraphGetNodes(graph, ptr::null_mut(), &mut all));
        l.check(format!("after {made}: number of nodes"), all, made);
        need!(l, cuMemsetD8Async(memory, 1, 64, stream))?;
    }
    let mut room = [ptr::dangling_mut(); 5];
    let mut count = room.len();
    ask!(l, "nodes into more room" => OK, cuGraphGetNodes(graph, room.as_mut_ptr(), &mut count));
    l.say("nodes given", count);
    l.say("nulls given", room.iter().filter(|node| node.is_null()).count());
    count = 2;
    ask!(l, "nodes into less room", cuGraphGetNodes(graph, room.as_mut_ptr(), &mut count));
    l.say("nodes given then", count);
    ask!(l, "nodes without a count", cuGraphGetNodes(graph, ptr::null_mut(), ptr::null_mut()));
    settle(l, "at the end", stream);
    Ok(())
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

fn recorded_calls(l: &mut Lab) -> Run {
    let (stream, memory, host) = (l.stream(1)?, l.alloc(4096)?, l.host(4096)?);
    need!(l, cuMemsetD8_v2(memory, 0, 64))?;
    begin(l, stream, GLOBAL)?;
    ask!(l, "memset" => OK, cuMemsetD8Async(memory, 7, 64, stream));
    ask!(l, "memset of rows" => OK, cuMemsetD2D8Async(memory, 512, 7, 16, 2, stream));
    ask!(l, "to the device" => OK, cuMemcpyHtoDAsync_v2(memory + 64, host.cast(), 64, stream));
    ask!(l, "to the host" => OK, cuMemcpyDtoHAsync_v2(host.cast(), memory, 64, stream));
    ask!(l, "between any" => OK, cuMemcpyAsync(memory + 128, memory, 64, stream));
    ask!(l, "within the device" => OK, cuMemcpyDtoDAsync_v2(memory + 128, memory, 64, stream));
    ask!(l, "nothing" => OK, cuMemcpyDtoDAsync_v2(memory + 128, memory, 0, stream));
    ask!(l, "host function" => OK, cuLaunchHostFunc(stream, Some(nothing), ptr::null_mut()));
    ask!(l, "write of a word", cuStreamWriteValue32_v2(stream, memory, 1, 0));
    ask!(l, "wait for a word", cuStreamWaitValue32_v2(stream, memory, 1, 0));
    let mut block = 0;
    if ask!(l, "allocation" => OK, cuMemAllocAsync(&mut block, 64, stream)) {
        ask!(l, "free" => OK, cuMemFreeAsync(block, stream));
    }
    settle(l, "all", stream);
    l.bytes::<2>("nothing was done", memory);
    // Calls that may not be recordable, each in its own capture.
    let managed = l.managed(4096)?;
    begin(l, stream, GLOBAL)?;
    ask!(l, "prefetch", cuMemPrefetchAsync(managed, 4096, 0, stream));
    settle(l, "prefetch", stream);
    begin(l, stream, GLOBAL)?;
    ask!(l, "attach", cuStreamAttachMemAsync(stream, managed, 0, 1));
    settle(l, "attach", stream);
    begin(l, stream, GLOBAL)?;
    let (mut to, mut from, mut size) = (memory, memory + 128, 64);
    let mut attributes = CUmemcpyAttributes {
        srcAccessOrder: CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        ..Default::default()
    };
    ask!(l, "batch", cuMemcpyBatchAsync_v2(&mut to, &mut from, &mut size, 1, &mut attributes, &mut 0, 1, stream));
    settle(l, "batch", stream);
    Ok(())
}

fn pageable_copies(l: &mut Lab) -> Run {
    let (stream, memory) = (l.stream(1)?, l.alloc(64)?);
    let mut host = vec![0_u8; 64];
    begin(l, stream, GLOBAL)?;
    ask!(l, "from pageable memory", cuMemcpyHtoDAsync_v2(memory, host.as_ptr().cast(), 64, stream));
    settle(l, "from pageable memory", stream);
    begin(l, stream, GLOBAL)?;
    ask!(l, "to pageable memory", cuMemcpyDtoHAsync_v2(host.as_mut_ptr().cast(), memory, 64, stream));
    settle(l, "to pageable memory", stream);
    Ok(())
}

/// Objects that the unsafe calls need.
#[derive(Clone, Copy)]
struct Things {
    memory: CUdeviceptr,
    other: CUstream,
    event: CUevent,
}

fn things(l: &mut Lab) -> Result<Things, Stop> {
    let (memory, other, event) = (l.alloc(64)?, l.stream(1)?, l.event(2)?);
    need!(l, cuEventRecord(event, other))?;
    Ok(Things { memory, other, event })
}

type Call = fn(&mut Lab, &Things) -> Result<CUresult, MissingSymbol>;

/// Calls that captures may forbid. Each call cleans up after itself.
const CALLS: [(&str, Call); 15] = [
    ("cuMemAlloc", |l, _| {
        let mut memory = 0;
        let answer = call!(l, cuMemAlloc_v2(&mut memory, 64));
        if answer == Ok(OK) { call!(l, cuMemFree_v2(memory)) } else { answer }
    }),
    ("cuMemFree of null", |l, _| call!(l, cuMemFree_v2(0))),
    ("cuMemHostAlloc", |l, _| {
        let mut memory = ptr::null_mut();
        let answer = call!(l, cuMemHostAlloc(&mut memory, 64, 0));
        if answer == Ok(OK) { call!(l, cuMemFreeHost(memory)) } else { answer }
    }),
    ("cuMemAllocManaged", |l, _| {
        let mut memory = 0;
        let answer = call!(l, cuMemAllocManaged(&mut memory, 64, 1));
        if answer == Ok(OK) { call!(l, cuMemFree_v2(memory)) } else { answer }
    }),
    ("cuMemGetInfo", |l, _| call!(l, cuMemGetInfo_v2(&mut 0, &mut 0))),
    ("cuMemsetD8", |l, things| call!(l, cuMemsetD8_v2(things.memory, 1, 64))),
    ("cuMemcpyDtoD", |l, things| call!(l, cuMemcpyDtoD_v2(things.memory, things.memory + 32, 32))),
    ("cuEventQuery", |l, things| call!(l, cuEventQuery(things.event))),
    ("cuEventSynchronize", |l, things| call!(l, cuEventSynchronize(things.event))),
    ("cuStreamQuery", |l, things| call!(l, cuStreamQuery(things.other))),
    ("cuStreamSynchronize", |l, things| call!(l, cuStreamSynchronize(things.other))),
    ("cuCtxSynchronize", |l, _| call!(l, cuCtxSynchronize())),
    ("cuMemAllocAsync in another stream", |l, things| {
        let mut memory = 0;
        let answer = call!(l, cuMemAllocAsync(&mut memory, 64, things.other));
        if answer == Ok(OK) { call!(l, cuMemFreeAsync(memory, things.other)) } else { answer }
    }),
    ("cuMemPoolTrimTo", |l, _| {
        let mut pool = ptr::null_mut();
        let _ = call!(l, cuDeviceGetDefaultMemPool(&mut pool, 0));
        call!(l, cuMemPoolTrimTo(pool, 0))
    }),
    ("cuStreamCreate", |l, _| {
        let mut stream = ptr::null_mut();
        let answer = call!(l, cuStreamCreate(&mut stream, 1));
        if answer == Ok(OK) { call!(l, cuStreamDestroy_v2(stream)) } else { answer }
    }),
];

fn try_all(l: &mut Lab, mode: CUstreamCaptureMode, elsewhere: bool) -> Run {
    let (stream, things) = (l.stream(1)?, things(l)?);
    let things = &things;
    for (name, run) in CALLS {
        begin(l, stream, mode)?;
        let answer = if elsewhere {
            let (event, other) = (things.event.addr(), things.other.addr());
            let memory = things.memory;
            l.thread(move |l| {
                let _ = call!(l, cuCtxSetCurrent(l.context));
                let (event, other) = (ptr::without_provenance_mut(event), ptr::without_provenance_mut(other));
                run(l, &Things { memory, other, event })
            })
        } else {
            run(l, things)
        };
        l.code(name, answer, None);
        settle(l, name, stream);
    }
    Ok(())
}

fn unsafe_calls(l: &mut Lab) -> Run {
    try_all(l, GLOBAL, false)
}

fn unsafe_calls_of_another_thread(l: &mut Lab) -> Run {
    try_all(l, GLOBAL, true)?;
    let stream = l.stream(1)?;
    begin(l, stream, THREAD)?;
    l.thread(|l| {
        let _ = call!(l, cuCtxSetCurrent(l.context));
        ask!(l, "beside a capture of its thread only" => OK, cuMemFree_v2(0));
    });
    settle(l, "beside a capture of its thread only", stream);
    Ok(())
}

fn calls_in_relaxed_mode(l: &mut Lab) -> Run {
    try_all(l, RELAXED, false)
}

fn calls_of_a_relaxed_thread(l: &mut Lab) -> Run {
    let mut mode = RELAXED;
    need!(l, cuThreadExchangeStreamCaptureMode(&mut mode))?;
    let run = try_all(l, GLOBAL, false);
    need!(l, cuThreadExchangeStreamCaptureMode(&mut mode))?;
    run
}

fn questions_about_captured_work(l: &mut Lab) -> Run {
    let (stream, event) = (l.stream(1)?, l.event(2)?);
    type Ask = fn(&mut Lab, CUstream, CUevent) -> Result<CUresult, MissingSymbol>;
    let asks: [(&str, Ask); 5] = [
        ("cuStreamQuery", |l, stream, _| call!(l, cuStreamQuery(stream))),
        ("cuStreamSynchronize", |l, stream, _| call!(l, cuStreamSynchronize(stream))),
        ("cuCtxSynchronize", |l, _, _| call!(l, cuCtxSynchronize())),
        ("cuEventQuery", |l, _, event| call!(l, cuEventQuery(event))),
        ("cuEventSynchronize", |l, _, event| call!(l, cuEventSynchronize(event))),
    ];
    for (name, mode) in [("global", GLOBAL), ("relaxed", RELAXED)] {
        for (what, ask) in asks {
            let label = format!("{name}: {what}");
            begin(l, stream, mode)?;
            ask!(l, format!("{label}: record") => OK, cuEventRecord(event, stream));
            let answer = ask(l, stream, event);
            l.code(label.clone(), answer, None);
            settle(l, &label, stream);
        }
    }
    ask!(l, "the event after the capture", cuEventQuery(event));
    ask!(l, "a stream waits for it then", cuStreamWaitEvent(stream, event, 0));
    ask!(l, "the stream" => OK, cuStreamSynchronize(stream));
    ask!(l, "recorded again" => OK, cuEventRecord(event, stream));
    ask!(l, "and waited for" => OK, cuEventSynchronize(event));
    Ok(())
}

fn questions_about_a_capturing_stream(l: &mut Lab) -> Run {
    let (stream, event) = (l.stream(1)?, l.event(2)?);
    need!(l, cuEventRecord(event, ptr::null_mut()))?;
    type Ask = fn(&mut Lab, CUstream, CUevent) -> Result<CUresult, MissingSymbol>;
    let asks: [(&str, Ask); 9] = [
        ("cuStreamGetCtx", |l, stream, _| call!(l, cuStreamGetCtx(stream, &mut ptr::null_mut()))),
        ("cuStreamGetId", |l, stream, _| call!(l, cuStreamGetId(stream, &mut 0))),
        ("cuStreamGetFlags", |l, stream, _| call!(l, cuStreamGetFlags(stream, &mut 0))),
        ("cuStreamGetPriority", |l, stream, _| call!(l, cuStreamGetPriority(stream, &mut 0))),
        ("cuStreamGetId of the default stream", |l, _, _| call!(l, cuStreamGetId(CU_STREAM_LEGACY, &mut 0))),
        ("cuStreamQuery of the default stream", |l, _, _| call!(l, cuStreamQuery(ptr::null_mut()))),
        ("cuEventQuery of earlier work", |l, _, event| call!(l, cuEventQuery(event))),
        ("cuEventCreate", |l, _, _| {
            let mut made = ptr::null_mut();
            let answer = call!(l, cuEventCreate(&mut made, 2));
            let _ = call!(l, cuEventDestroy_v2(made));
            answer
        }),
        ("cuMemGetInfo", |l, _, _| call!(l, cuMemGetInfo_v2(&mut 0, &mut 0))),
    ];
    for (name, mode) in [("global", GLOBAL), ("relaxed", RELAXED)] {
        for (what, ask) in asks {
            let label = format!("{name}: {what}");
            begin(l, stream, mode)?;
            let answer = ask(l, stream, event);
            l.code(label.clone(), answer, None);
            settle(l, &label, stream);
        }
    }
    Ok(())
}

fn events_outside(l: &mut Lab) -> Run {
    let (stream, other, before, never) = (l.stream(1)?, l.stream(1)?, l.event(2)?, l.event(2)?);
    need!(l, cuEventRecord(before, other))?;
    begin(l, stream, GLOBAL)?;
    ask!(l, "an event that was never recorded", cuStreamWaitEvent(stream, never, 0));
    settle(l, "an event that was never recorded", stream);
    begin(l, stream, GLOBAL)?;
    ask!(l, "an event of before", cuStreamWaitEvent(stream, before, 0));
    settle(l, "an event of before", stream);
    Ok(())
}

fn forks_and_joins(l: &mut Lab) -> Run {
    let (one, two, memory) = (l.stream(1)?, l.stream(1)?, l.alloc(64)?);
    let (fork, join) = (l.event(2)?, l.event(2)?);
    for (name, work, joined) in [
        ("joined", true, true),
        ("not joined", true, false),
        ("not joined and without work", false, false),
    ] {
        begin(l, one, GLOBAL)?;
        need!(l, cuMemsetD8Async(memory, 1, 64, one))?;
        ask!(l, format!("{name}: record") => OK, cuEventRecord(fork, one));
        ask!(l, format!("{name}: wait") => OK, cuStreamWaitEvent(two, fork, 0));
        let mut status = CUstreamCaptureStatus(77);
        ask!(l, format!("{name}: the other captures") => OK, cuStreamIsCapturing(two, &mut status));
        l.say(format!("{name}: its status"), status.0);
        if work {
            need!(l, cuMemsetD8Async(memory, 2, 32, two))?;
        }
        if joined {
            ask!(l, format!("{name}: record there") => OK, cuEventRecord(join, two));
            ask!(l, format!("{name}: wait here") => OK, cuStreamWaitEvent(one, join, 0));
        }
        settle(l, name, one);
        ask!(l, format!("{name}: the other afterwards") => OK, cuStreamSynchronize(two));
    }
    Ok(())
}

fn two_captures(l: &mut Lab) -> Run {
    let (one, two, event) = (l.stream(1)?, l.stream(1)?, l.event(2)?);
    begin(l, one, RELAXED)?;
    begin(l, two, RELAXED)?;
    need!(l, cuEventRecord(event, one))?;
    ask!(l, "one waits for the other", cuStreamWaitEvent(two, event, 0));
    settle(l, "the one recorded", one);
    settle(l, "the one that waits", two);
    Ok(())
}

fn the_legacy_stream(l: &mut Lab) -> Run {
    let (blocking, free, memory) = (l.stream(0)?, l.stream(1)?, l.alloc(64)?);
    ask!(l, "begin on it", cuStreamBeginCapture_v2(ptr::null_mut(), RELAXED));
    for (name, stream) in [("beside a blocking one", blocking), ("beside a non-blocking one", free)] {
        let mut status = CUstreamCaptureStatus(77);
        begin(l, stream, RELAXED)?;
        ask!(l, format!("{name}: asked"), cuStreamIsCapturing(ptr::null_mut(), &mut status));
        settle(l, &format!("{name}: asked"), stream);
        begin(l, stream, RELAXED)?;
        ask!(l, format!("{name}: memset"), cuMemsetD8Async(memory, 1, 64, ptr::null_mut()));
        settle(l, &format!("{name}: memset"), stream);
        begin(l, stream, RELAXED)?;
        ask!(l, format!("{name}: synchronize"), cuStreamSynchronize(ptr::null_mut()));
        settle(l, &format!("{name}: synchronize"), stream);
        begin(l, stream, RELAXED)?;
        ask!(l, format!("{name}: synchronous memset"), cuMemsetD8_v2(memory, 1, 64));
        settle(l, &format!("{name}: synchronous memset"), stream);
    }
    let event = l.event(2)?;
    begin(l, free, RELAXED)?;
    need!(l, cuEventRecord(event, free))?;
    ask!(l, "it would join", cuStreamWaitEvent(ptr::null_mut(), event, 0));
    settle(l, "it would join", free);
    Ok(())
}

fn the_threads_own_stream(l: &mut Lab) -> Run {
    let (stream, memory) = (ptr::without_provenance_mut(2), l.alloc(64)?);
    begin(l, stream, GLOBAL)?;
    ask!(l, "memset" => OK, cuMemsetD8Async(memory, 1, 64, stream));
    settle(l, "the thread's own", stream);
    Ok(())
}

fn the_end_elsewhere(l: &mut Lab) -> Run {
    let (one, two, event) = (l.stream(1)?, l.stream(1)?, l.event(2)?);
    for (name, mode) in MODES {
        begin(l, one, mode)?;
        let handle = one.addr();
        l.thread(move |l| {
            let _ = call!(l, cuCtxSetCurrent(l.context));
            let mut graph = ptr::null_mut();
            let stream = ptr::without_provenance_mut(handle);
            ask!(l, format!("{name}: on another thread"), cuStreamEndCapture(stream, &mut graph));
            if !graph.is_null() {
                let _ = call!(l, cuGraphDestroy(graph));
            }
        });
        settle(l, &format!("{name}: after that"), one);
    }
    begin(l, one, GLOBAL)?;
    need!(l, cuEventRecord(event, one))?;
    need!(l, cuStreamWaitEvent(two, event, 0))?;
    ask!(l, "on a stream that joined", cuStreamEndCapture(two, &mut ptr::null_mut()));
    settle(l, "on a stream that joined", one);
    Ok(())
}

fn external_events(l: &mut Lab) -> Run {
    let (stream, event) = (l.stream(1)?, l.event(2)?);
    begin(l, stream, GLOBAL)?;
    ask!(l, "record", cuEventRecordWithFlags(event, stream, 1));
    settle(l, "record", stream);
    begin(l, stream, GLOBAL)?;
    ask!(l, "wait", cuStreamWaitEvent(stream, event, 1));
    settle(l, "wait", stream);
    Ok(())
}

/// A stream that a capture has reached is destroyed: before or after the stream of its beginning has joined it.
fn a_reached_stream_destroyed(l: &mut Lab) -> Run {
    for (label, joined) in [("joined", true), ("not joined", false)] {
        let (stream, event, memory) = (l.stream(1)?, l.event(2)?, l.alloc(64)?);
        let (mut other, mut graph) = (ptr::null_mut(), ptr::null_mut());
        need!(l, cuStreamCreate(&mut other, 1))?;
        begin(l, stream, GLOBAL)?;
        need!(l, cuEventRecord(event, stream))?;
        need!(l, cuStreamWaitEvent(other, event, 0))?;
        need!(l, cuMemsetD8Async(memory, 1, 64, other))?;
        if joined {
            need!(l, cuEventRecord(event, other))?;
            need!(l, cuStreamWaitEvent(stream, event, 0))?;
        }
        ask!(l, format!("{label}: destroy"), cuStreamDestroy_v2(other));
        ask!(l, format!("{label}: fill"), cuMemsetD8Async(memory, 2, 64, stream));
        if ask!(l, format!("{label}: end"), cuStreamEndCapture(stream, &mut graph)) {
            ask!(l, format!("{label}: destroy the graph") => OK, cuGraphDestroy(graph));
        }
    }
    Ok(())
}

fn a_stream_destroyed_while_it_captures(l: &mut Lab) -> Run {
    let mut stream = ptr::null_mut();
    need!(l, cuStreamCreate(&mut stream, 1))?;
    need!(l, cuStreamBeginCapture_v2(stream, GLOBAL))?;
    ask!(l, "destroy", cuStreamDestroy_v2(stream));
    ask!(l, "the context", cuCtxSynchronize());
    let mut memory = 0;
    if ask!(l, "allocate", cuMemAlloc_v2(&mut memory, 64)) {
        ask!(l, "free" => OK, cuMemFree_v2(memory));
    }
    Ok(())
}
