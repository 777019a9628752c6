//! Events: flags, states, times, and handles for other processes.

use super::lab::codes::*;
use super::lab::{Lab, Run, Stop};
use cuda_mem::cuda_sys::*;
use std::ptr;

cases! {
    Shared flags,
    Shared never_recorded,
    Shared recorded,
    Shared elapsed,
    Shared elapsed_refused,
    Shared null_arguments,
    Shared handles,
    Shared bad_flags_of_calls,
    Alone destroyed_twice,
    Alone destroyed_and_queried,
    Alone destroyed_and_recorded,
}

fn flags(l: &mut Lab) -> Run {
    for flags in 0..=8_u32 {
        let mut event = ptr::null_mut();
        if ask!(l, format!("flags {flags}"), cuEventCreate(&mut event, flags)) {
            need!(l, cuEventDestroy_v2(event))?;
        }
    }
    let mut event = ptr::null_mut();
    ask!(l, "unknown flags" => VALUE, cuEventCreate(&mut event, 0x100));
    ask!(l, "all flags", cuEventCreate(&mut event, u32::MAX));
    Ok(())
}

fn never_recorded(l: &mut Lab) -> Run {
    let (event, stream) = (l.event(0)?, l.stream(0)?);
    ask!(l, "query" => OK, cuEventQuery(event));
    ask!(l, "synchronize" => OK, cuEventSynchronize(event));
    ask!(l, "wait" => OK, cuStreamWaitEvent(stream, event, 0));
    ask!(l, "the stream" => OK, cuStreamSynchronize(stream));
    Ok(())
}

fn recorded(l: &mut Lab) -> Run {
    let (event, stream, other) = (l.event(2)?, l.stream(1)?, l.stream(1)?);
    let host = l.host(64)?.cast::<u32>();
    let address = host as CUdeviceptr;
    need!(l, cuStreamWaitValue32_v2(stream, address, 1, 1))?;
    ask!(l, "record" => OK, cuEventRecord(event, stream));
    let not_ready = CUresult::CUDA_ERROR_NOT_READY;
    ask!(l, "query before its work" => not_ready, cuEventQuery(event));
    ask!(l, "wait on another stream" => OK, cuStreamWaitEvent(other, event, 0));
    ask!(l, "the other stream waits" => not_ready, cuStreamQuery(other));
    // SAFETY: pinned memory of this case.
    unsafe { host.write_volatile(1) };
    ask!(l, "synchronize" => OK, cuEventSynchronize(event));
    ask!(l, "query after its work" => OK, cuEventQuery(event));
    ask!(l, "the other stream goes on" => OK, cuStreamSynchronize(other));
    ask!(l, "record on the default stream" => OK, cuEventRecord(event, ptr::null_mut()));
    ask!(l, "the context" => OK, cuCtxSynchronize());
    Ok(())
}

fn elapsed(l: &mut Lab) -> Run {
    let (start, end, stream) = (l.event(0)?, l.event(0)?, l.stream(0)?);
    need!(l, cuEventRecord(start, stream))?;
    need!(l, cuEventRecord(end, stream))?;
    need!(l, cuStreamSynchronize(stream))?;
    let mut time = -1.0;
    ask!(l, "first form" => OK, cuEventElapsedTime(&mut time, start, end));
    l.check("not negative", time >= 0.0, true);
    ask!(l, "second form" => OK, cuEventElapsedTime_v2(&mut time, start, end));
    ask!(l, "of one event" => OK, cuEventElapsedTime(&mut time, start, start));
    l.check("no time", time, 0.0_f32);
    ask!(l, "backwards" => OK, cuEventElapsedTime(&mut time, end, start));
    l.say("not positive", time <= 0.0);
    Ok(())
}

fn elapsed_refused(l: &mut Lab) -> Run {
    let (start, end, plain, stream) = (l.event(0)?, l.event(0)?, l.event(2)?, l.stream(0)?);
    let mut time = 0.0;
    ask!(l, "neither was recorded" => HANDLE, cuEventElapsedTime(&mut time, start, end));
    need!(l, cuEventRecord(start, stream))?;
    need!(l, cuEventRecord(plain, stream))?;
    ask!(l, "the end was not recorded", cuEventElapsedTime(&mut time, start, end));
    need!(l, cuStreamSynchronize(stream))?;
    ask!(l, "without timing" => HANDLE, cuEventElapsedTime(&mut time, start, plain));
    ask!(l, "without a result", cuEventElapsedTime(ptr::null_mut(), start, start));
    ask!(l, "second form: neither was recorded", cuEventElapsedTime_v2(&mut time, end, end));
    ask!(l, "second form: without timing", cuEventElapsedTime_v2(&mut time, plain, start));
    let host = l.host(64)?.cast::<u32>();
    let address = host as CUdeviceptr;
    need!(l, cuStreamWaitValue32_v2(stream, address, 1, 1))?;
    need!(l, cuEventRecord(end, stream))?;
    ask!(l, "the end has not passed" => CUresult::CUDA_ERROR_NOT_READY, cuEventElapsedTime(&mut time, start, end));
    // SAFETY: pinned memory of this case.
    unsafe { host.write_volatile(1) };
    need!(l, cuStreamSynchronize(stream))
}

fn null_arguments(l: &mut Lab) -> Run {
    let (event, mut time) = (l.event(0)?, 0.0);
    ask!(l, "create without a result", cuEventCreate(ptr::null_mut(), 0));
    ask!(l, "destroy" => HANDLE, cuEventDestroy_v2(ptr::null_mut()));
    ask!(l, "query", cuEventQuery(ptr::null_mut()));
    ask!(l, "synchronize", cuEventSynchronize(ptr::null_mut()));
    ask!(l, "record", cuEventRecord(ptr::null_mut(), ptr::null_mut()));
    ask!(l, "wait", cuStreamWaitEvent(ptr::null_mut(), ptr::null_mut(), 0));
    ask!(l, "elapsed from null", cuEventElapsedTime(&mut time, ptr::null_mut(), event));
    ask!(l, "elapsed to null", cuEventElapsedTime(&mut time, event, ptr::null_mut()));
    Ok(())
}

fn handles(l: &mut Lab) -> Run {
    let mut handle = CUipcEventHandle::default();
    for flags in [0, 2, 4, 6, 7] {
        let mut event = ptr::null_mut();
        if ask!(l, format!("flags {flags}: create"), cuEventCreate(&mut event, flags)) {
            ask!(l, format!("flags {flags}: handle"), cuIpcGetEventHandle(&mut handle, event));
            need!(l, cuEventDestroy_v2(event))?;
        }
    }
    let (event, mut opened) = (l.event(6)?, ptr::null_mut());
    need!(l, cuIpcGetEventHandle(&mut handle, event))?;
    ask!(l, "open in the same process", cuIpcOpenEventHandle(&mut opened, handle));
    ask!(l, "open a forged handle", cuIpcOpenEventHandle(&mut opened, CUipcEventHandle::default()));
    ask!(l, "open without a result", cuIpcOpenEventHandle(ptr::null_mut(), handle));
    ask!(l, "handle without a result", cuIpcGetEventHandle(ptr::null_mut(), event));
    ask!(l, "handle of null", cuIpcGetEventHandle(&mut handle, ptr::null_mut()));
    Ok(())
}

fn bad_flags_of_calls(l: &mut Lab) -> Run {
    let (event, stream) = (l.event(0)?, l.stream(0)?);
    ask!(l, "record" => OK, cuEventRecordWithFlags(event, stream, 0));
    ask!(l, "record outside a capture as external", cuEventRecordWithFlags(event, stream, 1));
    ask!(l, "record with unknown flags", cuEventRecordWithFlags(event, stream, 0x100));
    ask!(l, "wait outside a capture as external", cuStreamWaitEvent(stream, event, 1));
    ask!(l, "wait with unknown flags", cuStreamWaitEvent(stream, event, 0x100));
    ask!(l, "the stream" => OK, cuStreamSynchronize(stream));
    Ok(())
}

fn ended(l: &mut Lab) -> Result<CUevent, Stop> {
    let mut event = ptr::null_mut();
    need!(l, cuEventCreate(&mut event, 0))?;
    need!(l, cuEventDestroy_v2(event))?;
    Ok(event)
}

fn destroyed_twice(l: &mut Lab) -> Run {
    let event = ended(l)?;
    ask!(l, "destroy again", cuEventDestroy_v2(event));
    Ok(())
}

fn destroyed_and_queried(l: &mut Lab) -> Run {
    let event = ended(l)?;
    ask!(l, "query", cuEventQuery(event));
    Ok(())
}

fn destroyed_and_recorded(l: &mut Lab) -> Run {
    let (event, stream) = (ended(l)?, l.stream(0)?);
    ask!(l, "record", cuEventRecord(event, stream));
    Ok(())
}
