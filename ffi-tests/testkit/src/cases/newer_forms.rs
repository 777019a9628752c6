//! The newer forms of functions that changed their arguments.

use super::captures::{GLOBAL, begin, discard};
use super::lab::codes::*;
use super::lab::{Lab, Run, Stop};
use cuda_mem::cuda_sys::*;
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

cases! {
    Shared contexts_with_parameters,
    Shared contexts_by_name,
    Alone contexts_that_ended,
    Alone a_wait_for_an_ended_context,
    Shared streams,
    Shared captures,
    Shared host_functions,
    Shared found_by_release,
    Shared found_by_the_first_form,
}

fn contexts_with_parameters(l: &mut Lab) -> Run {
    let (mut context, mut part, mut params) =
        (ptr::null_mut(), CUexecAffinityParam::default(), CUctxCreateParams::default());
    let mut share = CUctxCigParam { sharedDataType: CUcigDataType::CIG_DATA_TYPE_NV_BLOB, ..Default::default() };
    if ask!(l, "v3 without parts" => OK, cuCtxCreate_v3(&mut context, ptr::null_mut(), 0, 0, 0)) {
        ask!(l, "v3 without parts: destroy" => OK, cuCtxDestroy_v2(context));
    }
    ask!(l, "v3 without a device" => DEVICE, cuCtxCreate_v3(&mut context, ptr::null_mut(), 0, 0, 99));
    ask!(l, "v3 with a null part", cuCtxCreate_v3(&mut context, ptr::null_mut(), 1, 0, 0));
    ask!(l, "v3 with -1 parts", cuCtxCreate_v3(&mut context, &mut part, -1, 0, 0));
    part.param.smCount.val = 1;
    if ask!(l, "v3 with a part", cuCtxCreate_v3(&mut context, &mut part, 1, 0, 0)) {
        ask!(l, "v3 with a part: destroy" => OK, cuCtxDestroy_v2(context));
    }
    if ask!(l, "v4 without parameters" => OK, cuCtxCreate_v4(&mut context, ptr::null_mut(), 0, 0)) {
        ask!(l, "v4 without parameters: destroy" => OK, cuCtxDestroy_v2(context));
    }
    if ask!(l, "v4 with empty parameters", cuCtxCreate_v4(&mut context, &mut params, 0, 0)) {
        ask!(l, "v4 with empty parameters: destroy" => OK, cuCtxDestroy_v2(context));
    }
    params.cigParams = &mut share;
    ask!(l, "v4 for a graphics API without its data", cuCtxCreate_v4(&mut context, &mut params, 0, 0));
    params = CUctxCreateParams { execAffinityParams: &mut part, numExecAffinityParams: 1, ..params };
    ask!(l, "v4 with both", cuCtxCreate_v4(&mut context, &mut params, 0, 0));
    Ok(())
}

fn contexts_by_name(l: &mut Lab) -> Run {
    let mut device = 7;
    ask!(l, "the current device" => OK, cuCtxGetDevice_v2(&mut device, ptr::null_mut()));
    l.check("the current device is", device, 0);
    ask!(l, "the device of a context" => OK, cuCtxGetDevice_v2(&mut device, l.context));
    ask!(l, "without a result", cuCtxGetDevice_v2(ptr::null_mut(), ptr::null_mut()));
    ask!(l, "wait for the current context" => OK, cuCtxSynchronize_v2(ptr::null_mut()));
    let other = l.second_context()?;
    ask!(l, "wait for another context" => OK, cuCtxSynchronize_v2(other));
    need!(l, cuCtxSetCurrent(ptr::null_mut()))?;
    ask!(l, "wait for no context" => CONTEXT, cuCtxSynchronize_v2(ptr::null_mut()));
    ask!(l, "the device of no context" => CONTEXT, cuCtxGetDevice_v2(&mut device, ptr::null_mut()));
    ask!(l, "wait for a context that is not current", cuCtxSynchronize_v2(other));
    ask!(l, "the device of a context that is not current", cuCtxGetDevice_v2(&mut device, other));
    Ok(())
}

fn ended_context(l: &mut Lab) -> Result<CUcontext, Stop> {
    let mut context = ptr::null_mut();
    need!(l, cuCtxCreate_v2(&mut context, 0, 0))?;
    need!(l, cuCtxDestroy_v2(context))?;
    Ok(context)
}

fn contexts_that_ended(l: &mut Lab) -> Run {
    let (context, mut device) = (ended_context(l)?, 7);
    ask!(l, "the device of an ended context", cuCtxGetDevice_v2(&mut device, context));
    Ok(())
}

fn a_wait_for_an_ended_context(l: &mut Lab) -> Run {
    let context = ended_context(l)?;
    ask!(l, "wait for an ended context", cuCtxSynchronize_v2(context));
    Ok(())
}

fn streams(l: &mut Lab) -> Run {
    let (stream, mut context, mut green) = (l.stream(0)?, ptr::null_mut(), ptr::dangling_mut());
    ask!(l, "context" => OK, cuStreamGetCtx_v2(stream, &mut context, &mut green));
    l.check("it is the current one", context == l.context, true);
    l.say("its green context is null", green.is_null());
    ask!(l, "without a place for a green context", cuStreamGetCtx_v2(stream, &mut context, ptr::null_mut()));
    ask!(l, "without a place for a context", cuStreamGetCtx_v2(stream, ptr::null_mut(), &mut green));
    ask!(l, "of the default stream", cuStreamGetCtx_v2(ptr::null_mut(), &mut context, &mut green));
    Ok(())
}

fn captures(l: &mut Lab) -> Run {
    let (stream, memory) = (l.stream(1)?, l.alloc(64)?);
    let (mut status, mut id, mut graph) = (CUstreamCaptureStatus(7), 7, ptr::null_mut());
    let (mut nodes, mut edges, mut count) = (ptr::null(), ptr::dangling(), 7);
    let nowhere = ptr::null_mut();
    let mut tell = |l: &mut Lab, label: &str| {
        let (status, id, graph) = (&mut status, &mut id, &mut graph);
        let (nodes, edges, count) = (&mut nodes, &mut edges, &mut count);
        ask!(l, label, cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, edges, count));
        l.say(format!("{label}: status"), status.0);
        l.say(format!("{label}: nodes"), *count);
        l.say(format!("{label}: data of edges is null"), edges.is_null());
    };
    tell(l, "no capture");
    begin(l, stream, GLOBAL)?;
    tell(l, "empty capture");
    need!(l, cuMemsetD8Async(memory, 1, 64, stream))?;
    tell(l, "one node");
    let answer = "without places";
    let mut status = CUstreamCaptureStatus(7);
    ask!(
        l,
        answer,
        cuStreamGetCaptureInfo_v3(
            stream,
            &mut status,
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut()
        )
    );
    ask!(
        l,
        "nodes without data of edges",
        cuStreamGetCaptureInfo_v3(stream, &mut status, nowhere, ptr::null_mut(), &mut nodes, ptr::null_mut(), &mut count)
    );
    discard(l, stream);
    Ok(())
}

fn host_functions(l: &mut Lab) -> Run {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn count(_: *mut c_void) {
        COUNT.fetch_add(1, Ordering::SeqCst);
    }
    let stream = l.stream(1)?;
    for mode in [0, 1, 2] {
        ask!(l, format!("mode {mode}"), cuLaunchHostFunc_v2(stream, Some(count), ptr::null_mut(), mode));
    }
    ask!(l, "wait" => OK, cuStreamSynchronize(stream));
    l.say("calls", COUNT.load(Ordering::SeqCst));
    Ok(())
}

fn found_by_release(l: &mut Lab) -> Run {
    let forms: [(&CStr, [i32; 2]); 6] = [
        (c"cuCtxCreate", [11030, 11040]),
        (c"cuCtxCreate", [12040, 12050]),
        (c"cuStreamGetCaptureInfo", [12020, 12030]),
        (c"cuStreamGetCtx", [12040, 12050]),
        (c"cuCtxGetDevice", [12090, 13000]),
        (c"cuCtxSynchronize", [12090, 13000]),
    ];
    for (name, releases) in forms {
        let label = format!("{} of {} and {}", name.to_string_lossy(), releases[0], releases[1]);
        let [old, new] = releases.map(|release| {
            let (mut found, mut status) = (ptr::null_mut(), CUdriverProcAddressQueryResult(7));
            ask!(l, label.clone(), cuGetProcAddress_v2(name.as_ptr(), &mut found, release, 0, &mut status));
            l.say(format!("{label}: status"), status.0);
            found
        });
        l.say(format!("{label} differ"), old != new);
    }
    Ok(())
}

fn found_by_the_first_form(l: &mut Lab) -> Run {
    let (mut first, mut second, mut status) = (ptr::null_mut(), ptr::null_mut(), CUdriverProcAddressQueryResult(7));
    ask!(l, "found" => OK, cuGetProcAddress(c"cuMemAlloc".as_ptr(), &mut first, 12000, 0));
    need!(l, cuGetProcAddress_v2(c"cuMemAlloc".as_ptr(), &mut second, 12000, 0, &mut status))?;
    l.check("the same as by the second form", first == second, true);
    first = ptr::without_provenance_mut(8);
    ask!(l, "unknown name", cuGetProcAddress(c"cuNoSuchFunction".as_ptr(), &mut first, 12000, 0));
    l.say("unknown name: result is null", first.is_null());
    ask!(l, "name before it came", cuGetProcAddress(c"cuMemPoolCreate".as_ptr(), &mut first, 11010, 0));
    ask!(l, "unknown flags", cuGetProcAddress(c"cuMemAlloc".as_ptr(), &mut first, 12000, 0x100));
    Ok(())
}
