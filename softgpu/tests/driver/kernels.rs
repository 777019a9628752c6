//! Built-in kernels: loaded by name, run in stream order, stopped at wrong addresses.

use crate::common::{Machine, machine};
use crate::cu;
use cuda_sys::{CUfunction, CUmodule, CUstream};
use softgpu::{Misuse, Settings};
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

fn load(m: &Machine, image: &CStr) -> (u32, CUmodule) {
    let mut module = ptr::null_mut();
    (cu!(m, cuModuleLoadData(&mut module, image.as_ptr().cast())), module)
}

fn function(m: &Machine, module: CUmodule, name: &CStr) -> CUfunction {
    let mut function = ptr::null_mut();
    assert_eq!(cu!(m, cuModuleGetFunction(&mut function, module, name.as_ptr())), 0);
    function
}

fn launch(m: &Machine, function: CUfunction, threads: u32, stream: CUstream, values: &mut [u64]) -> u32 {
    let mut places: Vec<*mut c_void> = values.iter_mut().map(|value| ptr::from_mut(value).cast()).collect();
    let (blocks, at) = (threads.div_ceil(256), places.as_mut_ptr());
    cu!(m, cuLaunchKernel(function, blocks, 1, 1, 256, 1, 1, 0, stream, at, ptr::null_mut()))
}

#[test]
fn kernels_work_in_stream_order_with_the_values_of_the_launch() {
    for strict in [false, true] {
        let m = machine(Settings { strict, ..Settings::default() });
        let (answer, module) = load(&m, c"softgpu kernels");
        assert_eq!(answer, 0);
        let (memory, stream) = (m.alloc(1024), m.stream(0));
        let mut values = [memory, 1024, 3];
        assert_eq!(launch(&m, function(&m, module, c"fill_bytes"), 1024, stream, &mut values), 0);
        values = [0; 3];
        assert_eq!(values[0], 0);
        assert_eq!(launch(&m, function(&m, module, c"double_bytes"), 512, stream, &mut [memory, 1024]), 0);
        assert_eq!(launch(&m, function(&m, module, c"increment_u32"), 1024, stream, &mut [memory + 1020, 1]), 0);
        assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
        let bytes = m.read(memory, 1024);
        assert!(bytes[..512].iter().all(|byte| *byte == 6) && bytes[512..1020].iter().all(|byte| *byte == 3));
        assert_eq!(bytes[1020..], [4, 3, 3, 3]);
        assert_eq!(cu!(m, cuModuleUnload(module)), 0);
        assert_eq!(cu!(m, cuModuleUnload(module)), 400);
        assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
        assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
        m.finish();
    }
}

#[test]
fn a_kernel_waits_for_the_cpu_and_answers_it() {
    let m = machine(Settings::default());
    let (_, module) = load(&m, c"softgpu kernels: answer spin_until");
    let (pinned, stream) = (m.host(64), m.stream(1));
    let at = pinned.as_mut_ptr();
    // SAFETY: the words are in pinned memory, which is freed after the last use.
    let (question, answer) = unsafe { (AtomicU32::from_ptr(at.cast()), AtomicU32::from_ptr(at.add(32).cast())) };
    let rounds = 200;
    let mut values = [at as u64, at as u64 + 32, rounds];
    assert_eq!(launch(&m, function(&m, module, c"answer"), 1, stream, &mut values), 0);
    for number in 1..=rounds as u32 {
        question.store(number, Ordering::Release);
        while answer.load(Ordering::Acquire) != number {
            std::thread::yield_now();
        }
    }
    assert_eq!(launch(&m, function(&m, module, c"spin_until"), 1, stream, &mut [at as u64, 7]), 0);
    assert_eq!(cu!(m, cuStreamQuery(stream)), 600);
    question.store(7, Ordering::Release);
    assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
    assert_eq!(cu!(m, cuModuleUnload(module)), 0);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    assert_eq!(cu!(m, cuMemFreeHost(at.cast())), 0);
    m.finish();
}

#[test]
fn a_wrong_address_is_the_contexts_error_from_then_on() {
    let m = machine(Settings::default());
    let context = m.context(0);
    let (_, module) = load(&m, c"softgpu kernels");
    let memory = m.alloc(64);
    let double = function(&m, module, c"double_bytes");
    assert_eq!(launch(&m, double, 100, ptr::null_mut(), &mut [memory, 65]), 0);
    assert_eq!(cu!(m, cuCtxSynchronize()), 700);
    let mut more = 0;
    assert_eq!(cu!(m, cuMemAlloc_v2(&mut more, 64)), 700);
    assert_eq!(cu!(m, cuMemFree_v2(memory)), 700);
    assert!(softgpu::misuse().iter().any(|report| report.misuse == Misuse::WrongAddress && report.address == memory));
    assert_eq!(cu!(m, cuCtxDestroy_v2(context)), 0);
    m.finish();
}

#[test]
fn images_functions_and_launches_are_checked() {
    let m = machine(Settings::default());
    assert_eq!(load(&m, c"softgpu kernels: matmul").0, 209);
    assert_eq!(load(&m, c"\x50\xed\x55\xba").0, 209);
    assert_eq!(load(&m, c"what is this").0, 200);
    let (answer, module) = load(&m, c".version 6.4\n.visible .entry double_bytes(.param .u64 a) { ret; }");
    assert_eq!(answer, 0);
    let mut none = ptr::null_mut();
    assert_eq!(cu!(m, cuModuleGetFunction(&mut none, module, c"answer".as_ptr())), 500);
    let double = function(&m, module, c"double_bytes");
    let no = ptr::null_mut();
    for (grid, block, shared) in [(0, 1, 0), (1, 0, 0), (1, 1025, 0), (1, 1, 1 << 20)] {
        let mut values: [*mut c_void; 2] = [ptr::null_mut(); 2];
        let at = values.as_mut_ptr();
        assert_eq!(cu!(m, cuLaunchKernel(double, grid, 1, 1, block, 1, 1, shared, no, at, ptr::null_mut())), 1);
    }
    assert_eq!(cu!(m, cuLaunchKernel(double, 1, 1, 1, 1, 1, 1, 0, no, ptr::null_mut(), ptr::null_mut())), 1);
    assert_eq!(softgpu::ledger().count(softgpu::Kind::Module), 1);
    assert_eq!(cu!(m, cuModuleUnload(module)), 0);
    m.finish();
}
