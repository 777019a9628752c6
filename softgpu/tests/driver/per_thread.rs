//! The per-thread forms of functions: the null stream is the calling thread's own default stream.

use crate::common::{Machine, machine};
use crate::cu;
use cuda_sys::*;
use softgpu::Settings;
use std::ffi::CStr;
use std::ptr;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

const NOT_READY: u32 = 600;
const UNSUPPORTED: u32 = 900;

/// Calls the per-thread form of a function by its name and type. Returns the number of the answer.
macro_rules! own {
    ($name:literal: fn($($type:ty),*), $($argument:expr),* $(,)?) => {
        {
            let address = softgpu::cuda_symbol($name);
            assert!(!address.is_null(), "{:?}", $name);
            // SAFETY: the form has the signature of its function, and the arguments are valid for the call.
            unsafe {
                let form = std::mem::transmute::<*const _, unsafe extern "C" fn($($type),*) -> CUresult>(address);
                form($($argument),*).0
            }
        }
    };
}

/// Work that ends when the test sends a message or drops the sender.
fn block(m: &Machine, stream: CUstream) -> Sender<()> {
    let (open, gate) = channel();
    m.launch(stream, move || {
        let _: Result<(), _> = gate.recv();
    });
    open
}

fn query_own() -> u32 {
    own!(c"cuStreamQuery_ptsz": fn(CUstream), ptr::null_mut())
}

#[test]
fn the_null_stream_is_the_threads_own() {
    let m = machine(Settings::default());
    let mut context = ptr::null_mut();
    assert_eq!(cu!(m, cuCtxGetCurrent(&mut context)), 0);
    let context = context.expose_provenance();
    let gate = block(&m, CU_STREAM_PER_THREAD);
    assert_eq!(query_own(), NOT_READY);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            assert_eq!(cu!(m, cuCtxSetCurrent(ptr::with_exposed_provenance_mut(context))), 0);
            assert_eq!(query_own(), 0);
            assert_eq!(cu!(m, cuStreamQuery(ptr::null_mut())), NOT_READY, "the legacy stream waits for all");
        });
    });
    let mut id = 0;
    assert_eq!(own!(c"cuStreamGetId_ptsz": fn(CUstream, *mut u64), ptr::null_mut(), &mut id), 0);
    assert_eq!(id, 15);
    assert_eq!(own!(c"cuStreamGetId_ptsz": fn(CUstream, *mut u64), CU_STREAM_LEGACY, &mut id), 0);
    assert_eq!(id, 7);
    drop(gate);
    assert_eq!(own!(c"cuStreamSynchronize_ptsz": fn(CUstream), ptr::null_mut()), 0);
    m.finish();
}

#[test]
fn synchronous_calls_wait_for_the_own_stream_alone() {
    let m = machine(Settings::default());
    let (other, memory) = (m.stream(0), m.alloc(64));
    m.write(memory, &[0; 64]);
    let gate = block(&m, other);
    // The legacy forms would wait for the other stream, which is blocked.
    let mut bytes = [0_u8; 64];
    assert_eq!(own!(c"cuMemsetD8_v2_ptds": fn(CUdeviceptr, u8, usize), memory, 5, 64), 0);
    let read = |bytes: &mut [u8]| {
        own!(
            c"cuMemcpyDtoH_v2_ptds": fn(*mut u8, CUdeviceptr, usize),
            bytes.as_mut_ptr(), memory, bytes.len()
        )
    };
    assert_eq!(read(&mut bytes), 0);
    assert_eq!(bytes, [5; 64]);
    drop(gate);

    let gate = block(&m, CU_STREAM_PER_THREAD);
    let queued = own!(c"cuMemsetD8Async_ptsz": fn(CUdeviceptr, u8, usize, CUstream), memory, 6, 64, ptr::null_mut());
    assert_eq!(queued, 0);
    std::thread::scope(|threads| {
        threads.spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            drop(gate);
        });
        assert_eq!(read(&mut bytes), 0);
    });
    assert_eq!(bytes, [6; 64]);
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(other)), 0);
    m.finish();
}

#[test]
fn the_own_stream_captures_and_takes_batches() {
    let m = machine(Settings::default());
    let (memory, none) = (m.alloc(64), ptr::null_mut());
    m.write(memory, &[1; 64]);
    let (mut to, mut from, mut size, mut first) = (memory + 32, memory, 32_usize, 0_usize);
    let order = CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    let mut attributes = CUmemcpyAttributes { srcAccessOrder: order, ..Default::default() };
    let answer = cu!(m, cuMemcpyBatchAsync_v2(&mut to, &mut from, &mut size, 1, &mut attributes, &mut first, 1, none));
    assert_eq!(answer, 1, "the legacy stream takes no batch");
    let answer = own!(
        c"cuMemcpyBatchAsync_v2_ptsz": fn(
            *mut CUdeviceptr, *mut CUdeviceptr, *mut usize, usize, *mut CUmemcpyAttributes, *mut usize, usize, CUstream
        ),
        &mut to, &mut from, &mut size, 1, &mut attributes, &mut first, 1, none
    );
    assert_eq!(answer, 0);

    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    type Mode = CUstreamCaptureMode;
    assert_eq!(own!(c"cuStreamBeginCapture_v2_ptsz": fn(CUstream, Mode), none, mode), 0);
    let fill = || own!(c"cuMemsetD8Async_ptsz": fn(CUdeviceptr, u8, usize, CUstream), memory, 9, 64, none);
    assert_eq!(fill(), 0);
    let mut graph = ptr::null_mut();
    assert_eq!(own!(c"cuStreamEndCapture_ptsz": fn(CUstream, *mut CUgraph), none, &mut graph), 0);
    assert_eq!(m.read(memory, 64), [1; 64], "the fill is recorded, not done");
    let executable = m.ready(graph, 0);
    assert_eq!(own!(c"cuGraphLaunch_ptsz": fn(CUgraphExec, CUstream), executable, none), 0);
    assert_eq!(m.read(memory, 64), [9; 64]);

    assert_eq!(own!(c"cuStreamBeginCapture_v2_ptsz": fn(CUstream, Mode), none, mode), 0);
    assert_eq!(own!(c"cuMemsetD8_v2_ptds": fn(CUdeviceptr, u8, usize), memory, 5, 64), UNSUPPORTED);
    assert_eq!(own!(c"cuStreamEndCapture_ptsz": fn(CUstream, *mut CUgraph), none, &mut graph), 901);
    assert_eq!(cu!(m, cuGraphExecDestroy(executable)), 0);
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
    m.finish();
}

#[test]
fn cu_get_proc_address_finds_the_form_by_its_flag() {
    let m = machine(Settings { without: vec!["cuEventRecord".into()], ..Settings::default() });
    let ask = |name: &CStr, release, flags| {
        let (mut address, mut status) = (ptr::null_mut(), CUdriverProcAddressQueryResult(9));
        assert_eq!(cu!(m, cuGetProcAddress_v2(name.as_ptr(), &mut address, release, flags, &mut status)), 0);
        (address.cast_const(), status.0)
    };
    for (name, release, legacy, own) in [
        (c"cuMemcpyHtoD", 12000, c"cuMemcpyHtoD_v2", c"cuMemcpyHtoD_v2_ptds"),
        (c"cuStreamGetCaptureInfo", 12000, c"cuStreamGetCaptureInfo_v2", c"cuStreamGetCaptureInfo_v2_ptsz"),
        (c"cuStreamGetCaptureInfo", 12030, c"cuStreamGetCaptureInfo_v3", c"cuStreamGetCaptureInfo_v3_ptsz"),
        (c"cuMemAlloc", 12000, c"cuMemAlloc_v2", c"cuMemAlloc_v2"),
        (c"cuProfilerStart", 12000, c"cuProfilerStart", c"cuProfilerStart"),
    ] {
        assert_eq!(ask(name, release, 0), (softgpu::cuda_symbol(legacy), 0), "{name:?}");
        assert_eq!(ask(name, release, 1), (softgpu::cuda_symbol(legacy), 0), "{name:?}");
        assert_eq!(ask(name, release, 2), (softgpu::cuda_symbol(own), 0), "{name:?}");
        assert!(!softgpu::cuda_symbol(own).is_null());
    }
    assert_eq!(ask(c"cuEventRecord", 12000, 2), (ptr::null(), 1));
    assert!(softgpu::cuda_symbol(c"cuEventRecord_ptsz").is_null(), "its function is left out");
    assert!(softgpu::cuda_symbol(c"cuMemAlloc_v2_ptsz").is_null());
    m.finish();
}
