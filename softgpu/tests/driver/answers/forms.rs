//! cuGetProcAddress and the forms of functions: the form of the requested release is found, or none.

use super::{DESTROYED, DEVICE, VALUE};
use crate::common::machine;
use crate::cu;
use cuda_sys::*;
use softgpu::Settings;
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

#[test]
fn functions_are_found_by_name_and_release() {
    let m = machine(Settings::default());
    let mut status = CUdriverProcAddressQueryResult(9);
    let mut ask = |name: &CStr, release| {
        let mut address = ptr::null_mut();
        let answer = cu!(m, cuGetProcAddress_v2(name.as_ptr(), &mut address, release, 0, &mut status));
        (answer, address.cast_const(), status.0)
    };
    assert_eq!(ask(c"cuMemAlloc", 13000), (0, softgpu::cuda_symbol(c"cuMemAlloc_v2"), 0));
    assert_eq!(ask(c"cuEventElapsedTime", 12000), (0, softgpu::cuda_symbol(c"cuEventElapsedTime"), 0));
    assert_eq!(ask(c"cuEventElapsedTime", 13000), (0, softgpu::cuda_symbol(c"cuEventElapsedTime_v2"), 0));
    assert_eq!(ask(c"cuMemPoolCreate", 11000), (0, ptr::null(), 2));
    assert_eq!(ask(c"cuNothing", 13000), (0, ptr::null(), 1));
    assert_eq!(ask(c"cuMemAlloc_v2", 13000), (0, ptr::null(), 1));
    assert_eq!(ask(c"cuMemAlloc", -1), (0, softgpu::cuda_symbol(c"cuMemAlloc_v2"), 0));
    assert_eq!(ask(c"cuMemAlloc", 99000), (VALUE, ptr::null(), 0));
    for (name, release, form) in [
        (c"cuCtxCreate", 11030, c"cuCtxCreate_v2"),
        (c"cuCtxCreate", 11040, c"cuCtxCreate_v3"),
        (c"cuCtxCreate", 12050, c"cuCtxCreate_v4"),
        (c"cuStreamGetCaptureInfo", 11000, c"cuStreamGetCaptureInfo"),
        (c"cuStreamGetCaptureInfo", 12020, c"cuStreamGetCaptureInfo_v2"),
        (c"cuStreamGetCaptureInfo", 12030, c"cuStreamGetCaptureInfo_v3"),
        (c"cuStreamGetCtx", 12040, c"cuStreamGetCtx"),
        (c"cuStreamGetCtx", 12050, c"cuStreamGetCtx_v2"),
        (c"cuCtxGetDevice", 12090, c"cuCtxGetDevice"),
        (c"cuCtxGetDevice", 13000, c"cuCtxGetDevice_v2"),
        (c"cuCtxSynchronize", 13000, c"cuCtxSynchronize_v2"),
        (c"cuLaunchHostFunc", 13000, c"cuLaunchHostFunc"),
        (c"cuGetProcAddress", 11030, c"cuGetProcAddress"),
        (c"cuGetProcAddress", 12000, c"cuGetProcAddress_v2"),
    ] {
        assert_eq!(ask(name, release), (0, softgpu::cuda_symbol(form), 0), "{name:?} of {release}");
    }
    // A driver of 13.0 refuses later releases.
    assert_eq!(ask(c"cuLaunchHostFunc", 13010), (VALUE, ptr::null(), 0));
    assert_eq!(cu!(m, cuGetProcAddress(c"cuLaunchHostFunc".as_ptr(), &mut ptr::null_mut(), 13010, 0)), VALUE);
    let mut address = ptr::null_mut();
    assert_eq!(cu!(m, cuGetProcAddress(c"cuStreamGetCtx".as_ptr(), &mut address, 12050, 0)), 0);
    assert_eq!(address.cast_const(), softgpu::cuda_symbol(c"cuStreamGetCtx_v2"));
    assert_eq!(cu!(m, cuGetProcAddress(c"cuNothing".as_ptr(), &mut address, 12050, 0)), 500);
    assert!(!address.is_null(), "it writes no result");
    m.finish();
}

#[test]
fn a_form_that_is_left_out_is_not_replaced_by_an_older_one() {
    let without = vec!["cuStreamGetCtx_v2".to_owned()];
    let m = machine(Settings { version: 13020, without, ..Settings::default() });
    let ask = |name: &CStr, release| {
        let (mut address, mut status) = (ptr::null_mut(), CUdriverProcAddressQueryResult(9));
        assert_eq!(cu!(m, cuGetProcAddress_v2(name.as_ptr(), &mut address, release, 0, &mut status)), 0);
        (address.cast_const(), status.0)
    };
    assert_eq!(ask(c"cuStreamGetCtx", 12040), (softgpu::cuda_symbol(c"cuStreamGetCtx"), 0));
    assert_eq!(ask(c"cuStreamGetCtx", 12050), (ptr::null(), 1));
    assert_eq!(ask(c"cuLaunchHostFunc", 13010), (softgpu::cuda_symbol(c"cuLaunchHostFunc_v2"), 0));
    m.finish();
}

#[test]
fn newer_forms_do_what_older_ones_do() {
    let m = machine(Settings { version: 13020, ..Settings::default() });
    let (mut context, mut device, mut found) = (ptr::null_mut(), -1, ptr::null_mut());
    let mut primary = ptr::null_mut();
    assert_eq!(cu!(m, cuCtxGetCurrent(&mut primary)), 0);

    let mut share = CUctxCigParam { sharedDataType: CUcigDataType::CIG_DATA_TYPE_NV_BLOB, ..Default::default() };
    let mut part = CUexecAffinityParam::default();
    let mut params = CUctxCreateParams { cigParams: &mut share, ..Default::default() };
    assert_eq!(cu!(m, cuCtxCreate_v4(&mut context, &mut params, 0, 1)), VALUE, "without the data of the other API");
    params = CUctxCreateParams { execAffinityParams: &mut part, numExecAffinityParams: 1, ..params };
    assert_eq!(cu!(m, cuCtxCreate_v4(&mut context, &mut params, 0, 1)), 801);
    params.cigParams = ptr::null_mut();
    assert_eq!(cu!(m, cuCtxCreate_v4(&mut context, &mut params, 0, 1)), 224);
    assert_eq!(cu!(m, cuCtxCreate_v3(&mut context, &mut part, 1, 0, 1)), 224);
    assert_eq!(cu!(m, cuCtxCreate_v3(&mut context, ptr::null_mut(), 1, 0, 1)), VALUE);
    assert_eq!(cu!(m, cuCtxCreate_v3(&mut context, ptr::null_mut(), 0, 0, 9)), DEVICE);
    for parts in [0, -1] {
        assert_eq!(cu!(m, cuCtxCreate_v3(&mut context, ptr::null_mut(), parts, 0, 1)), 0);
        assert_eq!(cu!(m, cuCtxDestroy_v2(context)), 0);
    }
    assert_eq!(cu!(m, cuCtxCreate_v4(&mut context, ptr::null_mut(), 0, 1)), 0);

    assert_eq!(cu!(m, cuCtxGetDevice_v2(&mut device, ptr::null_mut())), 0);
    assert_eq!(device, 1);
    assert_eq!(cu!(m, cuCtxGetDevice_v2(&mut device, primary)), 0);
    assert_eq!(device, 0);
    let stream = m.stream(1);
    let mut green = ptr::dangling_mut();
    assert_eq!(cu!(m, cuStreamGetCtx_v2(stream, &mut found, &mut green)), 0);
    assert_eq!((found, green), (context, ptr::null_mut()));
    green = ptr::dangling_mut();
    assert_eq!(cu!(m, cuStreamGetCtx_v2(stream, ptr::null_mut(), &mut green)), 0);
    assert!(green.is_null());

    unsafe extern "C" fn slow(done: *mut c_void) {
        thread::sleep(Duration::from_millis(30));
        // SAFETY: the test passes an atomic that outlives the call.
        unsafe { &*done.cast::<AtomicU32>() }.store(1, Ordering::Release);
    }
    let done = AtomicU32::new(0);
    let data = (&raw const done).cast_mut().cast();
    assert_eq!(cu!(m, cuLaunchHostFunc_v2(stream, Some(slow), data, 2)), VALUE);
    assert_eq!(cu!(m, cuLaunchHostFunc_v2(stream, Some(slow), data, 1)), 0);
    assert_eq!(cu!(m, cuCtxSetCurrent(primary)), 0);
    assert_eq!(cu!(m, cuCtxSynchronize_v2(context)), 0);
    assert_eq!(done.load(Ordering::Acquire), 1);

    let (mut status, mut id, mut graph) = (CUstreamCaptureStatus(9), 0, ptr::null_mut());
    let (mut nodes, mut edges, mut count) = (ptr::null(), ptr::dangling(), 9);
    let answer =
        cu!(m, cuStreamGetCaptureInfo_v3(stream, &mut status, &mut id, &mut graph, &mut nodes, &mut edges, &mut count));
    assert_eq!((answer, status.0, count, edges.is_null()), (0, 0, 9, false), "no capture: only the status is written");
    assert_eq!(cu!(m, cuStreamBeginCapture_v2(stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)), 0);
    let answer =
        cu!(m, cuStreamGetCaptureInfo_v3(stream, &mut status, &mut id, &mut graph, &mut nodes, &mut edges, &mut count));
    assert_eq!((answer, count, edges.is_null()), (0, 0, true), "no dependencies");
    assert_eq!(cu!(m, cuLaunchHostFunc(stream, Some(slow), data)), 0);
    let answer =
        cu!(m, cuStreamGetCaptureInfo_v3(stream, &mut status, &mut id, &mut graph, &mut nodes, &mut edges, &mut count));
    assert_eq!((answer, status.0, count), (0, 1, 1));
    assert!(!graph.is_null() && !nodes.is_null() && !edges.is_null());
    // SAFETY: the array has one element, and no call with the stream has ended it.
    assert_eq!(unsafe { edges.read() }, CUgraphEdgeData::default());
    let name = softgpu::cuda_symbol(c"cuStreamGetCaptureInfo");
    // SAFETY: the first form has this signature.
    let first: unsafe extern "C" fn(CUstream, *mut CUstreamCaptureStatus, *mut u64) -> CUresult =
        unsafe { std::mem::transmute(name) };
    let mut same = 0;
    // SAFETY: the results are writable.
    assert_eq!(unsafe { first(stream, &mut status, &mut same) }, CUresult::CUDA_SUCCESS);
    assert_eq!((status.0, same), (1, id));
    assert_eq!(cu!(m, cuStreamEndCapture(stream, ptr::null_mut())), 0);
    assert_eq!(cu!(m, cuCtxDestroy_v2(context)), 0);
    assert_eq!(cu!(m, cuCtxSynchronize_v2(context)), DESTROYED);
    assert_eq!(cu!(m, cuCtxGetDevice_v2(&mut device, context)), DESTROYED);
    m.finish();
}
