//! Calls that concern the whole driver or a context: visible devices, limits, callbacks, private tables.

use crate::common::graphs::{GLOBAL, UNSUPPORTED, VALUE};
use crate::common::{machine, unstarted};
use crate::cu;
use cuda_sys::*;
use softgpu::Settings;
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

#[test]
fn the_current_contexts_flags_are_set() {
    let m = machine(Settings::default());
    let (context, mut flags) = (m.context(0), 0);
    assert_eq!(cu!(m, cuCtxSetFlags(CUctx_flags::CU_CTX_SCHED_YIELD.0)), 0);
    assert_eq!(cu!(m, cuCtxGetFlags(&mut flags)), 0);
    assert_eq!(flags, CUctx_flags::CU_CTX_SCHED_YIELD.0);
    assert_eq!(cu!(m, cuCtxSetFlags(3)), 1);
    assert_eq!(cu!(m, cuCtxDestroy_v2(context)), 0);
    m.finish();
}

#[test]
fn texts_of_errors_are_those_that_the_driver_prints() {
    let m = machine(Settings::default());
    for (code, expected) in [
        (CUresult::CUDA_SUCCESS, c"no error"),
        (CUresult::CUDA_ERROR_INVALID_VALUE, c"invalid argument"),
        (CUresult::CUDA_ERROR_NOT_INITIALIZED, c"initialization error"),
        (CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, c"an illegal memory access was encountered"),
    ] {
        let mut text = ptr::null();
        assert_eq!(cu!(m, cuGetErrorString(code, &mut text)), 0);
        // SAFETY: the driver's texts live as long as it.
        assert_eq!(unsafe { CStr::from_ptr(text) }, expected);
    }
    m.finish();
}

#[test]
fn the_program_sees_the_devices_that_it_is_given() {
    let m = machine(Settings { devices: 4, visible: Some("3,1,7,0".into()), ..Settings::default() });
    let (mut count, mut name, mut uuid, mut bus) = (0, [0; 64], CUuuid::default(), [0; 16]);
    assert_eq!(cu!(m, cuDeviceGetCount(&mut count)), 0);
    assert_eq!(count, 2);
    let mut uuids = Vec::new();
    for (device, unit) in [(0, 3), (1, 1)] {
        assert_eq!(cu!(m, cuDeviceGetName(name.as_mut_ptr(), 64, device)), 0);
        // SAFETY: the driver ended the text with a zero.
        assert_eq!(unsafe { CStr::from_ptr(name.as_ptr()) }.to_str(), Ok(&*format!("softgpu {unit} (host memory)")));
        assert_eq!(cu!(m, cuDeviceGetUuid_v2(&mut uuid, device)), 0);
        uuids.push(uuid.bytes);
        assert_eq!(cu!(m, cuDeviceGetPCIBusId(bus.as_mut_ptr(), 16, device)), 0);
        let mut found = -1;
        assert_eq!(cu!(m, cuDeviceGetByPCIBusId(&mut found, bus.as_ptr())), 0);
        assert_eq!(found, device);
        let mut number = 0;
        assert_eq!(
            cu!(m, cuDeviceGetAttribute(&mut number, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device)),
            0
        );
        assert_eq!(number, unit + 1);
    }
    assert!(uuids[0].iter().zip(uuids[1]).all(|(one, other)| *one != other), "{uuids:?}");
    let mut found = -1;
    assert_eq!(cu!(m, cuDeviceGetByPCIBusId(&mut found, c"0000:01:00.0".as_ptr())), 101, "device 0 is hidden");
    assert_eq!(cu!(m, cuDeviceGet(&mut found, 2)), 101);
    m.finish();

    let uuid = "GPU-8114d18a-5192-c30f-32a9-6430fbb54ebf".to_owned();
    let m = machine(Settings { visible: Some(uuid), ..Settings::default() });
    assert_eq!(cu!(m, cuDeviceGetCount(&mut count)), 0);
    assert_eq!(cu!(m, cuDeviceGetPCIBusId(bus.as_mut_ptr(), 16, 0)), 0);
    assert_eq!((count, bus[6]), (1, b'2' as _));
    m.finish();
    for list in ["", "9", "-1", "GPU-00"] {
        let m = unstarted(Settings { visible: Some(list.into()), ..Settings::default() });
        assert_eq!(cu!(m, cuInit(0)), CUresult::CUDA_ERROR_NO_DEVICE.0, "{list:?}");
        assert_eq!(cu!(m, cuDeviceGetCount(&mut count)), 3);
    }
}

#[test]
fn contexts_have_limits() {
    let m = machine(Settings::default());
    let get = |limit| {
        let mut value = 77;
        (cu!(m, cuCtxGetLimit(&mut value, CUlimit(limit))), value)
    };
    let usual = [(0, 1024), (0, 8_650_752), (0, 8 << 20), (215, 77), (0, 2048), (0, 64), (0, 9_830_400), (0, 232_448)];
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(get), usual);
    assert_eq!([8, 9, 10, 99].map(get), [(0, 0), (215, 77), (VALUE, 77), (VALUE, 77)]);
    assert_eq!(cu!(m, cuCtxGetLimit(ptr::null_mut(), CUlimit(0))), VALUE);
    for (limit, value, answer) in [(3, 4, 215), (5, 129, VALUE), (7, 1, 215), (99, 1, VALUE)] {
        assert_eq!(cu!(m, cuCtxSetLimit(CUlimit(limit), value)), answer, "limit {limit}");
    }
    let l2 = 3_276_800;
    for (limit, value, kept) in [(0, 4096, 4096), (2, 16 << 20, 16 << 20), (5, 32, 32), (6, l2 + 1, 2 * l2), (6, 0, 0)]
    {
        assert_eq!(cu!(m, cuCtxSetLimit(CUlimit(limit), value)), 0);
        assert_eq!(get(limit), (0, kept));
    }
    let other = m.context(0);
    assert_eq!(get(0), (0, 1024), "each context has its own");
    assert_eq!(cu!(m, cuCtxDestroy_v2(other)), 0);
    assert_eq!(get(0), (0, 4096));
    assert_eq!(cu!(m, cuDevicePrimaryCtxReset_v2(0)), 0);
    let mut context = ptr::null_mut();
    assert_eq!(cu!(m, cuDevicePrimaryCtxRetain(&mut context, 0)), 0);
    assert_eq!(get(0), (0, 1024), "a new life begins with the defaults");
    assert_eq!(cu!(m, cuDevicePrimaryCtxRelease_v2(0)), 0);
    m.finish();
}

#[test]
fn callbacks_run_in_stream_order_with_their_stream() {
    struct Seen {
        calls: AtomicUsize,
        stream: AtomicUsize,
        status: AtomicUsize,
    }
    unsafe extern "C" fn see(stream: CUstream, status: CUresult, data: *mut c_void) {
        // SAFETY: the test passes its `Seen`, which outlives the call.
        let seen = unsafe { &*data.cast::<Seen>() };
        seen.stream.store(stream.addr(), Ordering::Relaxed);
        seen.status.store(status.0 as usize, Ordering::Relaxed);
        seen.calls.fetch_add(1, Ordering::Release);
    }
    let m = machine(Settings::default());
    let stream = m.stream(1);
    let seen = Seen { calls: AtomicUsize::new(0), stream: AtomicUsize::new(0), status: AtomicUsize::new(9) };
    let data = ptr::from_ref(&seen).cast_mut().cast();
    assert_eq!(cu!(m, cuStreamAddCallback(stream, None, data, 0)), VALUE);
    assert_eq!(cu!(m, cuStreamAddCallback(stream, Some(see), data, 1)), VALUE);
    let (open, gate) = channel::<()>();
    m.launch(stream, move || {
        let _ = gate.recv();
    });
    assert_eq!(cu!(m, cuStreamAddCallback(stream, Some(see), data, 0)), 0);
    assert_eq!(seen.calls.load(Ordering::Acquire), 0);
    drop(open);
    assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
    let told = [&seen.calls, &seen.stream, &seen.status].map(|value| value.load(Ordering::Acquire));
    assert_eq!(told, [1, stream.addr(), 0]);
    m.begin(stream, GLOBAL);
    assert_eq!(cu!(m, cuStreamAddCallback(stream, Some(see), data, 0)), UNSUPPORTED);
    m.lost(stream);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    m.finish();
}

#[test]
fn a_graph_is_instantiated_with_parameters_and_uploaded() {
    let m = machine(Settings::default());
    let (stream, memory) = (m.stream(1), m.alloc(8));
    m.begin(stream, GLOBAL);
    assert_eq!(cu!(m, cuMemsetD8Async(memory, 3, 8, stream)), 0);
    let graph = m.end(stream);
    let mut executable = ptr::null_mut();
    let failed = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_ERROR;
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS { flags: 1 << 20, ..Default::default() };
    assert_eq!(cu!(m, cuGraphInstantiateWithParams(&mut executable, graph, ptr::null_mut())), VALUE);
    assert_eq!(cu!(m, cuGraphInstantiateWithParams(&mut executable, graph, &mut params)), VALUE);
    assert_eq!((params.result_out, executable), (failed, ptr::null_mut()));
    let nowhere = ptr::without_provenance_mut(0x5550);
    params = CUDA_GRAPH_INSTANTIATE_PARAMS { flags: 2, hUploadStream: nowhere, ..params };
    assert_eq!(cu!(m, cuGraphInstantiateWithParams(&mut executable, graph, &mut params)), 400);
    params = CUDA_GRAPH_INSTANTIATE_PARAMS { hUploadStream: stream, hErrNode_out: ptr::dangling_mut(), ..params };
    assert_eq!(cu!(m, cuGraphInstantiateWithParams(&mut executable, graph, &mut params)), 0);
    assert_eq!((params.result_out.0, params.hErrNode_out), (0, ptr::null_mut()));
    assert_eq!(cu!(m, cuGraphUpload(executable, stream)), 0);
    assert_eq!(cu!(m, cuGraphUpload(ptr::null_mut(), stream)), VALUE);
    m.run(executable, stream);
    assert_eq!(m.read(memory, 8), [3; 8]);
    assert_eq!(cu!(m, cuGraphExecDestroy(executable)), 0);
    assert_eq!(cu!(m, cuGraphDestroy(graph)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
    m.finish();
}

#[test]
fn private_tables_are_refused() {
    let m = unstarted(Settings::default());
    let (mut table, id) = (ptr::dangling(), CUuuid { bytes: [7; 16] });
    assert_eq!(cu!(m, cuGetExportTable(&mut table, &id)), VALUE);
    assert!(table.is_null());
    assert_eq!(cu!(m, cuGetExportTable(ptr::null_mut(), ptr::null())), VALUE);
}

#[test]
fn profiling_needs_a_context_and_does_nothing() {
    let m = machine(Settings { without: vec!["cuProfilerStop".into()], ..Settings::default() });
    let start = softgpu::cuda_symbol(c"cuProfilerStart");
    assert!(!start.is_null() && softgpu::cuda_symbol(c"cuProfilerStop").is_null());
    // SAFETY: the function takes no argument.
    let start = unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn() -> CUresult>(start) };
    let mut context = ptr::null_mut();
    // SAFETY: as above.
    assert_eq!(unsafe { start() }.0, 0);
    assert_eq!(cu!(m, cuCtxPopCurrent_v2(&mut context)), 0);
    // SAFETY: as above.
    assert_eq!(unsafe { start() }.0, 201);
    m.finish();
}
