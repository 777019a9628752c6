//! Streams: flags, priorities, default handles, host functions and words.

use super::captures;
use super::lab::codes::*;
use super::lab::{Lab, Run, Stop};
use cuda_mem::cuda_sys::*;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

cases! {
    Shared flags,
    Shared priorities,
    Shared default_handles,
    Shared ids,
    Shared null_results,
    Shared capture,
    Shared capture_mode,
    Shared host_functions,
    Shared callbacks,
    Shared words_written,
    Shared words_awaited,
    Shared words_at_odd_places,
    Shared words_of_host_memory,
    Shared attached_memory,
    Shared end_with_work,
    Alone destroyed_twice,
    Alone destroyed_and_queried,
    Alone destroyed_and_synchronized,
    Alone destroyed_and_used,
    Alone a_handle_of_nobody,
}

const LEGACY: CUstream = ptr::without_provenance_mut(1);
const PER_THREAD: CUstream = ptr::without_provenance_mut(2);

fn flags(l: &mut Lab) -> Run {
    for flags in [0, 1, 2, 3, 0x100, u32::MAX] {
        let (mut stream, mut seen) = (ptr::null_mut(), 99);
        if ask!(l, format!("flags {flags:#x}"), cuStreamCreate(&mut stream, flags)) {
            ask!(l, format!("flags {flags:#x}: asked") => OK, cuStreamGetFlags(stream, &mut seen));
            l.say(format!("flags {flags:#x}: are then"), seen);
            ask!(l, format!("flags {flags:#x}: destroy") => OK, cuStreamDestroy_v2(stream));
        }
    }
    ask!(l, "destroy null" => HANDLE, cuStreamDestroy_v2(ptr::null_mut()));
    ask!(l, "destroy the legacy stream", cuStreamDestroy_v2(LEGACY));
    ask!(l, "destroy the thread's stream", cuStreamDestroy_v2(PER_THREAD));
    Ok(())
}

fn priorities(l: &mut Lab) -> Run {
    for priority in [-100, -5, -4, -1, 0, 1, 100] {
        let (mut stream, mut seen) = (ptr::null_mut(), 99);
        let label = format!("priority {priority}");
        if ask!(l, label.clone(), cuStreamCreateWithPriority(&mut stream, 1, priority)) {
            ask!(l, format!("{label}: asked") => OK, cuStreamGetPriority(stream, &mut seen));
            l.say(format!("{label}: is then"), seen);
            need!(l, cuStreamDestroy_v2(stream))?;
        }
    }
    let mut stream = ptr::null_mut();
    ask!(l, "unknown flags", cuStreamCreateWithPriority(&mut stream, 0x100, 0));
    Ok(())
}

fn default_handles(l: &mut Lab) -> Run {
    let memory = l.alloc(64)?;
    for (name, stream) in [("null", ptr::null_mut()), ("legacy", LEGACY), ("per thread", PER_THREAD)] {
        let (mut number, mut flags, mut id, mut device, mut context) = (99, 99, 0, 99, ptr::null_mut());
        ask!(l, format!("{name}: query") => OK, cuStreamQuery(stream));
        ask!(l, format!("{name}: synchronize") => OK, cuStreamSynchronize(stream));
        ask!(l, format!("{name}: priority"), cuStreamGetPriority(stream, &mut number));
        l.say(format!("{name}: priority is"), number);
        ask!(l, format!("{name}: flags"), cuStreamGetFlags(stream, &mut flags));
        l.say(format!("{name}: flags are"), flags);
        ask!(l, format!("{name}: id"), cuStreamGetId(stream, &mut id));
        l.say(format!("{name}: id is"), if id < 100 { id.to_string() } else { "large".to_owned() });
        ask!(l, format!("{name}: context"), cuStreamGetCtx(stream, &mut context));
        l.check(format!("{name}: context is the current one"), context == l.context, true);
        ask!(l, format!("{name}: device"), cuStreamGetDevice(stream, &mut device));
        l.say(format!("{name}: device is"), device);
        ask!(l, format!("{name}: memset") => OK, cuMemsetD8Async(memory, 1, 64, stream));
        let mut block = 0;
        if ask!(l, format!("{name}: allocate") => OK, cuMemAllocAsync(&mut block, 64, stream)) {
            ask!(l, format!("{name}: free") => OK, cuMemFreeAsync(block, stream));
        }
        ask!(l, format!("{name}: synchronize at the end") => OK, cuStreamSynchronize(stream));
    }
    Ok(())
}

fn ids(l: &mut Lab) -> Run {
    let (one, two) = (l.stream(0)?, l.stream(0)?);
    let (mut first, mut second, mut again) = (0, 0, 0);
    ask!(l, "id" => OK, cuStreamGetId(one, &mut first));
    ask!(l, "id of the next" => OK, cuStreamGetId(two, &mut second));
    l.check("grows", second > first, true);
    l.say("grows by", second.wrapping_sub(first));
    let mut stream = ptr::null_mut();
    need!(l, cuStreamCreate(&mut stream, 0))?;
    need!(l, cuStreamGetId(stream, &mut first))?;
    need!(l, cuStreamDestroy_v2(stream))?;
    need!(l, cuStreamCreate(&mut stream, 0))?;
    need!(l, cuStreamGetId(stream, &mut again))?;
    need!(l, cuStreamDestroy_v2(stream))?;
    l.check("a recreated stream has another id", again != first, true);
    Ok(())
}

fn null_results(l: &mut Lab) -> Run {
    let stream = l.stream(0)?;
    ask!(l, "cuStreamCreate", cuStreamCreate(ptr::null_mut(), 0));
    ask!(l, "cuStreamCreateWithPriority", cuStreamCreateWithPriority(ptr::null_mut(), 0, 0));
    ask!(l, "cuStreamGetPriority", cuStreamGetPriority(stream, ptr::null_mut()));
    ask!(l, "cuStreamGetFlags", cuStreamGetFlags(stream, ptr::null_mut()));
    ask!(l, "cuStreamGetId", cuStreamGetId(stream, ptr::null_mut()));
    ask!(l, "cuStreamGetCtx", cuStreamGetCtx(stream, ptr::null_mut()));
    ask!(l, "cuStreamGetDevice", cuStreamGetDevice(stream, ptr::null_mut()));
    ask!(l, "cuStreamIsCapturing", cuStreamIsCapturing(stream, ptr::null_mut()));
    ask!(l, "cuStreamWaitEvent", cuStreamWaitEvent(stream, ptr::null_mut(), 0));
    ask!(l, "cuLaunchHostFunc", cuLaunchHostFunc(stream, None, ptr::null_mut()));
    ask!(l, "the stream" => OK, cuStreamSynchronize(stream));
    Ok(())
}

fn capture(l: &mut Lab) -> Run {
    let (stream, mut status) = (l.stream(1)?, CUstreamCaptureStatus(77));
    ask!(l, "of a new stream" => OK, cuStreamIsCapturing(stream, &mut status));
    l.check("of a new stream is", status.0, 0);
    ask!(l, "of the default stream", cuStreamIsCapturing(ptr::null_mut(), &mut status));
    let (none, nodes, graph) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    ask!(l, "information" => OK, cuStreamGetCaptureInfo_v2(stream, &mut status, none, graph, nodes, ptr::null_mut()));
    let (pool, mut memory, mut free) = (l.alloc(64)?, 0, 0);
    ask!(l, "begin" => OK, cuStreamBeginCapture_v2(stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL));
    ask!(l, "while recording", cuStreamIsCapturing(stream, &mut status));
    l.say("while recording is", status.0);
    ask!(l, "free memory", cuMemGetInfo_v2(&mut free, ptr::null_mut()));
    l.thread(|l| -> Run {
        need!(l, cuCtxSetCurrent(l.context))?;
        ask!(l, "cuMemAlloc on another thread", cuMemAlloc_v2(&mut memory, 64));
        ask!(l, "cuMemFree on another thread", cuMemFree_v2(memory));
        ask!(l, "cuEventQuery of nothing on another thread", cuEventQuery(ptr::null_mut()));
        Ok(())
    })?;
    ask!(l, "status after that", cuStreamIsCapturing(stream, &mut status));
    l.say("status after that is", status.0);
    ask!(l, "cuMemsetD8Async into the recording", cuMemsetD8Async(pool, 1, 64, stream));
    ask!(l, "cuStreamQuery of it", cuStreamQuery(stream));
    ask!(l, "cuStreamSynchronize of it", cuStreamSynchronize(stream));
    let mut graph = ptr::null_mut();
    ask!(l, "end", cuStreamEndCapture(stream, &mut graph));
    l.say("a graph", !graph.is_null());
    ask!(l, "the stream afterwards", cuStreamSynchronize(stream));
    Ok(())
}

fn capture_mode(l: &mut Lab) -> Run {
    let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    ask!(l, "exchange" => OK, cuThreadExchangeStreamCaptureMode(&mut mode));
    l.check("before", mode.0, 0);
    ask!(l, "exchange back" => OK, cuThreadExchangeStreamCaptureMode(&mut mode));
    l.check("after", mode.0, 2);
    ask!(l, "unknown mode", cuThreadExchangeStreamCaptureMode(&mut CUstreamCaptureMode(77)));
    ask!(l, "without a mode", cuThreadExchangeStreamCaptureMode(ptr::null_mut()));
    Ok(())
}

static COUNT: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn count(_: *mut c_void) {
    COUNT.fetch_add(1, Ordering::SeqCst);
}

fn callbacks(l: &mut Lab) -> Run {
    static TOLD: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
    unsafe extern "C" fn see(stream: CUstream, status: CUresult, data: *mut c_void) {
        let told = [stream.addr(), status.0 as usize, data.addr()];
        TOLD.iter().zip(told).for_each(|(place, value)| place.store(value, Ordering::SeqCst));
    }
    let (stream, data) = (l.stream(1)?, ptr::without_provenance_mut(5));
    ask!(l, "without a function", cuStreamAddCallback(stream, None, data, 0));
    ask!(l, "unknown flag", cuStreamAddCallback(stream, Some(see), data, 1));
    for (label, on) in [("a stream", stream), ("the default stream", ptr::null_mut()), ("the thread's", PER_THREAD)]
    {
        TOLD.iter().for_each(|place| place.store(99, Ordering::SeqCst));
        ask!(l, label, cuStreamAddCallback(on, Some(see), data, 0));
        ask!(l, format!("{label}: wait"), cuStreamSynchronize(on));
        let told = TOLD.each_ref().map(|place| place.load(Ordering::SeqCst));
        l.say(format!("{label}: its handle is told"), told[0] == on.addr());
        l.say(format!("{label}: state and argument"), format!("{} {}", told[1], told[2]));
    }
    captures::begin(l, stream, captures::GLOBAL)?;
    ask!(l, "in a capture", cuStreamAddCallback(stream, Some(see), data, 0));
    captures::discard(l, stream);
    Ok(())
}

fn host_functions(l: &mut Lab) -> Run {
    let stream = l.stream(0)?;
    ask!(l, "null function", cuLaunchHostFunc(stream, None, ptr::null_mut()));
    let before = COUNT.load(Ordering::SeqCst);
    for _ in 0..3 {
        ask!(l, "function" => OK, cuLaunchHostFunc(stream, Some(count), ptr::null_mut()));
    }
    ask!(l, "synchronize" => OK, cuStreamSynchronize(stream));
    l.check("it ran", COUNT.load(Ordering::SeqCst) - before, 3);
    ask!(l, "on the default stream" => OK, cuLaunchHostFunc(ptr::null_mut(), Some(count), ptr::null_mut()));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    l.check("it ran again", COUNT.load(Ordering::SeqCst) - before, 4);
    Ok(())
}

fn words_written(l: &mut Lab) -> Run {
    let (stream, memory) = (l.stream(0)?, l.alloc(64)?);
    need!(l, cuMemsetD8_v2(memory, 0, 64))?;
    for (label, flags) in [("32 bits", 0), ("32 bits without a barrier", 1), ("32 bits with unknown flags", 0x100)] {
        ask!(l, label, cuStreamWriteValue32_v2(stream, memory, 0x0102_0304, flags));
    }
    for (label, flags) in [("64 bits", 0), ("64 bits without a barrier", 1), ("64 bits with unknown flags", 0x100)] {
        ask!(l, label, cuStreamWriteValue64_v2(stream, memory + 8, 0x0102_0304_0506_0708, flags));
    }
    ask!(l, "synchronize" => OK, cuStreamSynchronize(stream));
    l.bytes::<16>("bytes", memory);
    Ok(())
}

fn words_awaited(l: &mut Lab) -> Run {
    let (stream, memory) = (l.stream(0)?, l.alloc(64)?);
    need!(l, cuMemsetD32_v2(memory, 6, 16))?;
    for (label, value, flags) in [
        ("32 bits, at least", 6, 0),
        ("32 bits, equal", 6, 1),
        ("32 bits, and", 2, 2),
        ("32 bits, nor", 1, 3),
        ("32 bits, equal, with a flush", 6, 0x4000_0001),
        ("32 bits, unknown flags", 6, 0x10),
    ] {
        if ask!(l, label, cuStreamWaitValue32_v2(stream, memory, value, flags)) {
            ask!(l, format!("{label}: synchronize") => OK, cuStreamSynchronize(stream));
        }
    }
    let whole = 0x0000_0006_0000_0006;
    for (label, value, flags) in [("64 bits, at least", whole, 0), ("64 bits, equal", whole, 1), ("64 bits, nor", 1, 3)]
    {
        if ask!(l, label, cuStreamWaitValue64_v2(stream, memory, value, flags)) {
            ask!(l, format!("{label}: synchronize") => OK, cuStreamSynchronize(stream));
        }
    }
    let other = l.stream(1)?;
    ask!(l, "a word that is not there yet" => OK, cuStreamWaitValue32_v2(stream, memory + 4, 77, 1));
    ask!(l, "query while it waits", cuStreamQuery(stream));
    ask!(l, "write it on another stream" => OK, cuStreamWriteValue32_v2(other, memory + 4, 77, 0));
    ask!(l, "then it goes on" => OK, cuStreamSynchronize(stream));
    Ok(())
}

fn words_at_odd_places(l: &mut Lab) -> Run {
    let (stream, memory) = (l.stream(0)?, l.alloc(64)?);
    need!(l, cuMemsetD8_v2(memory, 0, 64))?;
    ask!(l, "32 bits at 2: write", cuStreamWriteValue32_v2(stream, memory + 2, 1, 0));
    ask!(l, "64 bits at 4: write", cuStreamWriteValue64_v2(stream, memory + 4, 1, 0));
    ask!(l, "32 bits at 2: wait", cuStreamWaitValue32_v2(stream, memory + 2, 0, 0));
    ask!(l, "64 bits at 4: wait", cuStreamWaitValue64_v2(stream, memory + 4, 0, 0));
    ask!(l, "at 0: write", cuStreamWriteValue32_v2(stream, 0, 1, 0));
    ask!(l, "at 0: wait", cuStreamWaitValue32_v2(stream, 0, 0, 0));
    ask!(l, "at garbage: write", cuStreamWriteValue32_v2(stream, 0xdead_0000, 1, 0));
    let heap = Box::new(0_u64);
    ask!(l, "on the heap: write", cuStreamWriteValue32_v2(stream, ptr::from_ref(&*heap) as CUdeviceptr, 1, 0));
    ask!(l, "the stream goes on", cuStreamSynchronize(stream));
    Ok(())
}

fn words_of_host_memory(l: &mut Lab) -> Run {
    let (stream, host) = (l.stream(0)?, l.host(64)?.cast::<u32>());
    let address = host as CUdeviceptr;
    ask!(l, "pinned: write" => OK, cuStreamWriteValue32_v2(stream, address, 9, 0));
    ask!(l, "pinned: wait" => OK, cuStreamWaitValue32_v2(stream, address, 9, 1));
    ask!(l, "synchronize" => OK, cuStreamSynchronize(stream));
    // SAFETY: pinned memory of this case.
    l.check("pinned: the CPU sees", unsafe { host.read_volatile() }, 9);
    let managed = l.managed(64)?;
    ask!(l, "managed: write", cuStreamWriteValue32_v2(stream, managed, 9, 0));
    ask!(l, "synchronize", cuStreamSynchronize(stream));
    Ok(())
}

fn attached_memory(l: &mut Lab) -> Run {
    let (stream, managed, memory) = (l.stream(0)?, l.managed(4096)?, l.alloc(4096)?);
    ask!(l, "to the stream", cuStreamAttachMemAsync(stream, managed, 0, 4));
    ask!(l, "to the host", cuStreamAttachMemAsync(stream, managed, 0, 2));
    ask!(l, "to all", cuStreamAttachMemAsync(stream, managed, 0, 1));
    ask!(l, "with its length", cuStreamAttachMemAsync(stream, managed, 4096, 4));
    ask!(l, "with a part of it", cuStreamAttachMemAsync(stream, managed, 64, 4));
    ask!(l, "flags 0", cuStreamAttachMemAsync(stream, managed, 0, 0));
    ask!(l, "unknown flags", cuStreamAttachMemAsync(stream, managed, 0, 0x10));
    ask!(l, "on the default stream", cuStreamAttachMemAsync(ptr::null_mut(), managed, 0, 4));
    ask!(l, "device memory", cuStreamAttachMemAsync(stream, memory, 0, 4));
    ask!(l, "null", cuStreamAttachMemAsync(stream, 0, 0, 4));
    ask!(l, "the stream", cuStreamSynchronize(stream));
    Ok(())
}

fn end_with_work(l: &mut Lab) -> Run {
    let (memory, mut stream) = (l.alloc(64)?, ptr::null_mut());
    need!(l, cuStreamCreate(&mut stream, 1))?;
    ask!(l, "work" => OK, cuMemsetD8Async(memory, 8, 64, stream));
    ask!(l, "destroy" => OK, cuStreamDestroy_v2(stream));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    l.bytes::<2>("the work was done", memory);
    Ok(())
}

fn ended(l: &mut Lab) -> Result<CUstream, Stop> {
    let mut stream = ptr::null_mut();
    need!(l, cuStreamCreate(&mut stream, 0))?;
    need!(l, cuStreamDestroy_v2(stream))?;
    Ok(stream)
}

fn destroyed_twice(l: &mut Lab) -> Run {
    let stream = ended(l)?;
    ask!(l, "destroy again", cuStreamDestroy_v2(stream));
    Ok(())
}

fn destroyed_and_queried(l: &mut Lab) -> Run {
    let stream = ended(l)?;
    ask!(l, "query", cuStreamQuery(stream));
    Ok(())
}

fn destroyed_and_synchronized(l: &mut Lab) -> Run {
    let stream = ended(l)?;
    ask!(l, "synchronize", cuStreamSynchronize(stream));
    Ok(())
}

fn destroyed_and_used(l: &mut Lab) -> Run {
    let (memory, stream) = (l.alloc(64)?, ended(l)?);
    ask!(l, "memset", cuMemsetD8Async(memory, 1, 64, stream));
    Ok(())
}

fn a_handle_of_nobody(l: &mut Lab) -> Run {
    let stream: CUstream = ptr::without_provenance_mut(0x1234_5678_0000);
    ask!(l, "query", cuStreamQuery(stream));
    Ok(())
}
