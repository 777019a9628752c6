//! The lives of contexts, the driver and their objects.

use super::{CONTEXT, DESTROYED, DEVICE, HANDLE, NOT_STARTED, VALUE};
use crate::common::{machine, unstarted};
use crate::cu;
use cuda_sys::*;
use softgpu::Settings;
use std::ptr;

#[test]
fn nothing_works_before_the_start_and_the_flags_are_checked() {
    let m = unstarted(Settings::default());
    let mut device = 0;
    assert_eq!(cu!(m, cuCtxGetDevice(&mut device)), NOT_STARTED);
    assert_eq!(cu!(m, cuInit(1)), VALUE);
    assert_eq!(cu!(m, cuCtxGetDevice(&mut device)), NOT_STARTED);
    assert_eq!((cu!(m, cuInit(0)), cu!(m, cuInit(0))), (0, 0));
}

#[test]
fn devices_are_checked() {
    let m = machine(Settings::default());
    let (mut device, mut count, mut number, mut uuid) = (7, 0, 0, CUuuid::default());
    assert_eq!(cu!(m, cuDeviceGetCount(&mut count)), 0);
    assert_eq!(count, 2);
    assert_eq!(cu!(m, cuDeviceGet(&mut device, -1)), DEVICE);
    assert_eq!(cu!(m, cuDeviceGet(&mut device, 99)), DEVICE);
    assert_eq!(cu!(m, cuDeviceGet(ptr::null_mut(), 0)), VALUE);
    assert_eq!(cu!(m, cuDeviceGetUuid_v2(&mut uuid, -1)), DEVICE);
    assert_eq!(cu!(m, cuDeviceGetAttribute(&mut number, CUdevice_attribute(9999), 0)), VALUE);
    let pitch = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_PITCH;
    assert_eq!(cu!(m, cuDeviceGetAttribute(&mut number, pitch, 99)), DEVICE);
    assert_eq!(cu!(m, cuDeviceGetAttribute(&mut number, pitch, 0)), 0);
    let mut other = CUuuid::default();
    assert_eq!((cu!(m, cuDeviceGetUuid(&mut uuid, 0)), cu!(m, cuDeviceGetUuid(&mut other, 1))), (0, 0));
    assert_ne!(uuid.bytes, other.bytes);
    let mut id = [0; 16];
    assert_eq!(cu!(m, cuDeviceGetPCIBusId(id.as_mut_ptr(), 16, 1)), 0);
    assert_eq!(cu!(m, cuDeviceGetByPCIBusId(&mut device, id.as_ptr())), 0);
    assert_eq!(device, 1);
    m.finish();
}

#[test]
fn each_thread_has_its_own_stack_of_contexts() {
    let m = machine(Settings::default());
    let mut primary = ptr::null_mut();
    assert_eq!(cu!(m, cuCtxGetCurrent(&mut primary)), 0);
    let second = m.context(1);
    let (mut device, mut now) = (-1, ptr::null_mut());
    assert_eq!(cu!(m, cuCtxGetDevice(&mut device)), 0);
    assert_eq!(device, 1);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut now = ptr::dangling_mut();
            assert_eq!(cu!(m, cuCtxGetCurrent(&mut now)), 0);
            assert!(now.is_null());
        });
    });
    assert_eq!(cu!(m, cuCtxPopCurrent_v2(&mut now)), 0);
    assert_eq!(now, second);
    assert_eq!(cu!(m, cuCtxGetCurrent(&mut now)), 0);
    assert_eq!(now, primary);
    assert_eq!(cu!(m, cuCtxDestroy_v2(second)), 0);
    m.finish();
}

#[test]
fn context_destroy_frees_its_objects_and_later_calls_fail() {
    let m = machine(Settings::default());
    let context = m.context(0);
    let block = m.alloc(64);
    let stream = m.stream(0);
    let mut event = ptr::null_mut();
    assert_eq!(cu!(m, cuEventCreate(&mut event, 0)), 0);
    // The copy below stays on the stack, as on another thread's stack.
    assert_eq!(cu!(m, cuCtxPushCurrent_v2(context)), 0);
    assert_eq!(cu!(m, cuCtxDestroy_v2(context)), 0);
    assert_eq!(softgpu::ledger().len(), 1, "{}", softgpu::ledger());
    let mut more = 0;
    assert_eq!(cu!(m, cuMemAlloc_v2(&mut more, 64)), DESTROYED);
    assert_eq!(cu!(m, cuCtxPopCurrent_v2(ptr::null_mut())), 0);
    // The context can still be pushed, but calls in it are refused.
    let (mut number, mut now) = (0, ptr::null_mut());
    assert_eq!(cu!(m, cuCtxPushCurrent_v2(context)), 0);
    assert_eq!(cu!(m, cuMemAlloc_v2(&mut more, 64)), DESTROYED);
    assert_eq!(cu!(m, cuMemFree_v2(block)), DESTROYED);
    assert_eq!(cu!(m, cuCtxPopCurrent_v2(&mut now)), 0);
    assert_eq!(now, context);
    assert_eq!(cu!(m, cuCtxDestroy_v2(context)), CONTEXT);
    assert_eq!(cu!(m, cuCtxGetId(context, &mut number)), DESTROYED);
    assert_eq!(cu!(m, cuCtxDestroy_v2(ptr::without_provenance_mut(0x1234))), CONTEXT);
    assert_eq!(cu!(m, cuMemFree_v2(block)), VALUE);
    assert_eq!(cu!(m, cuStreamSynchronize(stream)), HANDLE);
    assert_eq!(cu!(m, cuEventQuery(event)), HANDLE);
    m.finish();
}

#[test]
fn a_primary_context_lives_while_it_is_retained() {
    let m = machine(Settings::default());
    let (mut flags, mut active, mut context) = (0, 0, ptr::null_mut());
    assert_eq!(cu!(m, cuDevicePrimaryCtxGetState(1, &mut flags, &mut active)), 0);
    assert_eq!(active, 0);
    assert_eq!(cu!(m, cuDevicePrimaryCtxRelease_v2(1)), CONTEXT);
    for _ in 0..2 {
        assert_eq!(cu!(m, cuDevicePrimaryCtxRetain(&mut context, 1)), 0);
    }
    assert_eq!(softgpu::ledger().count(softgpu::Kind::PrimaryContext), 2);
    assert_eq!(cu!(m, cuCtxDestroy_v2(context)), CONTEXT);
    assert_eq!(cu!(m, cuDevicePrimaryCtxRelease_v2(1)), 0);
    assert_eq!(cu!(m, cuCtxPushCurrent_v2(context)), 0);
    m.alloc(64);
    assert_eq!(cu!(m, cuDevicePrimaryCtxRelease_v2(1)), 0);
    assert_eq!(cu!(m, cuCtxSynchronize()), DESTROYED);
    assert_eq!(cu!(m, cuCtxPopCurrent_v2(ptr::null_mut())), 0);
    m.finish();
}

#[test]
fn a_flag_that_every_context_has_is_taken_and_not_returned() {
    let m = machine(Settings::default());
    let (context, mut flags) = (m.context(0), 77);
    assert_eq!(cu!(m, cuCtxSetFlags(8)), 0);
    assert_eq!((cu!(m, cuCtxGetFlags(&mut flags)), flags), (0, 0));
    assert_eq!(cu!(m, cuCtxSetFlags(0x14)), 0);
    assert_eq!((cu!(m, cuCtxGetFlags(&mut flags)), flags), (0, 0x14));
    assert_eq!(cu!(m, cuCtxDestroy_v2(context)), 0);
    m.finish();
}

#[test]
fn error_texts_are_those_that_programs_match() {
    let m = machine(Settings::default());
    for (code, expected) in [(1, c"invalid argument"), (5, c"profiler disabled while using external profiling tool")] {
        let mut text = ptr::null();
        assert_eq!(cu!(m, cuGetErrorString(CUresult(code), &mut text)), 0);
        // SAFETY: the driver returned a static C string.
        assert_eq!(unsafe { std::ffi::CStr::from_ptr(text) }, expected);
    }
    m.finish();
}

#[test]
fn an_ended_driver_answers_so() {
    let m = machine(Settings::default());
    softgpu::shut_down(true);
    let (mut address, mut name) = (0, ptr::null());
    assert_eq!(cu!(m, cuMemAlloc_v2(&mut address, 64)), 4);
    assert_eq!(cu!(m, cuInit(0)), 4);
    assert_eq!(cu!(m, cuGetErrorName(CUresult(4), &mut name)), 0);
    // SAFETY: the driver returned a static C string.
    assert_eq!(unsafe { std::ffi::CStr::from_ptr(name) }, c"CUDA_ERROR_DEINITIALIZED");
    assert_eq!(cu!(m, cuGetErrorName(CUresult(31337), &mut name)), VALUE);
    assert!(name.is_null());
    softgpu::shut_down(false);
    m.finish();
}

#[test]
fn a_reset_gives_what_was_left_and_makes_every_handle_stale() {
    let m = machine(Settings::default());
    let (block, stream) = (m.alloc(64), m.stream(0));
    let left = softgpu::reset();
    assert_eq!(left.len(), 3, "{left}");
    assert_eq!(left.count(softgpu::Kind::DeviceMemory), 1);
    assert!(left.to_string().contains("DeviceMemory"), "{left}");
    assert_eq!(cu!(m, cuMemFree_v2(block)), NOT_STARTED);
    assert_eq!(cu!(m, cuInit(0)), 0);
    assert_eq!(cu!(m, cuStreamQuery(stream)), HANDLE);
    assert_eq!(cu!(m, cuMemFree_v2(block)), VALUE);
    assert!(softgpu::ledger().is_empty());
}

#[test]
fn a_forked_child_has_no_driver() {
    let m = machine(Settings::default());
    // SAFETY: the child only makes calls that answer at once, and exits without running anything else.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            let (mut address, functions) = (0, softgpu::FUNCTIONS);
            let alloc = functions.cuMemAlloc_v2.map_or(0, |alloc| alloc(&mut address, 64).0);
            let init = functions.cuInit.map_or(0, |init| init(0).0);
            libc::_exit(if alloc == NOT_STARTED && init == NOT_STARTED { 0 } else { 1 });
        }
        child
    };
    let mut status = -1;
    // SAFETY: the child is ours.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    m.finish();
}
