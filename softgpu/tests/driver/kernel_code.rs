//! Code that programs register for their kernels, or export from a library.

use crate::common::{Machine, both, cubin, in_its_own_process, machine};
use crate::cu;
use cuda_sys::*;
use softgpu::{Misuse, Settings};
use std::ffi::{CStr, c_void};
use std::process::{Command, Output};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const PTX: &CStr = c"
.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 values, .param .u32 count, .param .f32 number) { ret; }
.visible .entry wait(.param .u64 nothing) { ret; }
.visible .entry nobody() { ret; }
.visible .entry puts() { ret; }
.visible .entry number() { ret; }
";

/// The function of a kernel of the module above, which the context unloads.
fn function(m: &Machine, name: &CStr) -> CUfunction {
    let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
    assert_eq!(cu!(m, cuModuleLoadData(&mut module, PTX.as_ptr().cast())), 0);
    assert_eq!(cu!(m, cuModuleGetFunction(&mut function, module, name.as_ptr())), 0);
    function
}

/// Launches `add`.
fn add(m: &Machine, function: CUfunction, stream: CUstream, mut values: u64, mut count: u32, mut number: f32) -> u32 {
    let mut list: [*mut c_void; 3] = [(&raw mut values).cast(), (&raw mut count).cast(), (&raw mut number).cast()];
    cu!(m, cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, list.as_mut_ptr(), ptr::null_mut()))
}

fn register_add() {
    softgpu::register_kernel("add", |launch| {
        let (values, count) = (launch.argument(0)?, launch.argument::<u32>(1)?);
        let number: f32 = launch.argument(2)?;
        let all: Vec<f32> = launch.read(values, count as usize)?;
        launch.write(values, &all.into_iter().map(|value| value + number).collect::<Vec<_>>())
    });
}

fn floats(m: &Machine, address: u64, count: usize) -> Vec<f32> {
    let bytes = m.read(address, 4 * count);
    bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

#[test]
fn registered_code_runs_in_stream_order_and_in_graphs() {
    register_add();
    both(|m| {
        let (add_function, stream, memory) = (function(m, c"add"), m.stream(1), m.alloc(64));
        assert_eq!(cu!(m, cuMemsetD8Async(memory, 0, 64, stream)), 0);
        assert_eq!(add(m, add_function, stream, memory, 4, 1.5), 0);
        assert_eq!(add(m, add_function, stream, memory + 4, 1, 2.0), 0);
        assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
        assert_eq!(floats(m, memory, 5), [1.5, 3.5, 1.5, 1.5, 0.0]);
        m.begin(stream, crate::common::graphs::GLOBAL);
        assert_eq!(add(m, add_function, stream, memory, 1, 10.0), 0);
        let graph = m.end(stream);
        let (mut node, mut count) = (ptr::null_mut(), 1);
        assert_eq!(cu!(m, cuGraphGetNodes(graph, &mut node, &mut count)), 0);
        let mut params = CUDA_KERNEL_NODE_PARAMS_v2::default();
        assert_eq!(cu!(m, cuGraphKernelNodeGetParams_v2(node, &mut params)), 0);
        assert_eq!((params.func, params.blockDimX), (add_function, 32));
        // SAFETY: the node has three arguments, and lives.
        assert_eq!(unsafe { params.kernelParams.add(2).read().cast::<f32>().read() }, 10.0);
        let mut second = ptr::null_mut();
        assert_eq!(cu!(m, cuGraphAddKernelNode_v2(&mut second, graph, &node, 1, &params)), 0);
        let executable = m.ready(graph, 0);
        m.run(executable, stream);
        m.run(executable, stream);
        assert_eq!(floats(m, memory, 2), [41.5, 3.5]);
        assert_eq!(cu!(m, cuGraphExecDestroy(executable)), 0);
        assert_eq!(cu!(m, cuMemFree_v2(memory)), 0);
        assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
        assert_eq!(softgpu::misuse(), []);
        unload(m);
    });
}

/// Unloads every module.
fn unload(m: &Machine) {
    for entry in softgpu::ledger().entries.iter().filter(|entry| entry.kind == softgpu::Kind::Module) {
        assert_eq!(cu!(m, cuModuleUnload(ptr::without_provenance_mut(entry.handle as usize))), 0);
    }
}

#[test]
fn a_kernel_without_code_fails_its_launch() {
    let m = machine(Settings::default());
    let (nobody, none) = (function(&m, c"nobody"), ptr::null_mut());
    assert_eq!(cu!(m, cuLaunchKernel(nobody, 1, 1, 1, 1, 1, 1, 0, none, none.cast(), none.cast())), 801);
    assert_eq!(cu!(m, cuCtxSynchronize()), 0);
    unload(&m);
    m.finish();
}

#[test]
fn memory_that_is_freed_in_stream_order_stays_for_the_launch() {
    register_add();
    let m = machine(Settings::default());
    let (add_function, stream) = (function(&m, c"add"), m.stream(1));
    let go = Arc::new(AtomicU32::new(0));
    let wait = go.clone();
    m.launch(stream, move || {
        while wait.load(Ordering::Acquire) == 0 {
            std::thread::yield_now()
        }
    });
    let memory = m.allocate(16, stream);
    assert_eq!(add(&m, add_function, stream, memory, 4, 1.0), 0);
    assert_eq!(cu!(m, cuMemFreeAsync(memory, stream)), 0);
    go.store(1, Ordering::Release);
    assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
    assert_eq!(softgpu::misuse(), []);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    unload(&m);
    m.finish();
}

#[test]
fn a_free_under_a_queued_launch_is_reported() {
    softgpu::register_kernel("wait", |_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        Ok(())
    });
    let m = machine(Settings::default());
    let (wait, stream, mut memory) = (function(&m, c"wait"), m.stream(1), m.alloc(16));
    let address = memory;
    let mut list = [(&raw mut memory).cast()];
    assert_eq!(cu!(m, cuLaunchKernel(wait, 1, 1, 1, 1, 1, 1, 0, stream, list.as_mut_ptr(), ptr::null_mut())), 0);
    assert_eq!(cu!(m, cuMemFree_v2(address)), 0);
    let reports: Vec<_> = softgpu::misuse().iter().map(|one| (one.misuse, one.address)).collect();
    assert_eq!(reports, [(Misuse::FreeWhileInUse, address)]);
    assert_eq!(cu!(m, cuStreamDestroy_v2(stream)), 0);
    unload(&m);
    m.finish();
}

#[test]
fn a_wrong_address_or_a_panic_is_the_contexts_error() {
    register_add();
    let m = machine(Settings::default());
    let context = m.context(0);
    let (add_function, memory) = (function(&m, c"add"), m.alloc(16));
    assert_eq!(add(&m, add_function, ptr::null_mut(), memory, 5, 1.0), 0);
    assert_eq!(cu!(m, cuCtxSynchronize()), 700);
    assert!(softgpu::misuse().iter().any(|one| (one.misuse, one.call) == (Misuse::WrongAddress, "add")));
    assert_eq!(cu!(m, cuCtxDestroy_v2(context)), 0);
    let context = m.context(0);
    softgpu::register_kernel("wait", |_| panic!("as intended"));
    let (wait, mut value) = (function(&m, c"wait"), 0_u64);
    let (mut list, none) = ([(&raw mut value).cast()], ptr::null_mut());
    assert_eq!(cu!(m, cuLaunchKernel(wait, 1, 1, 1, 1, 1, 1, 0, none, list.as_mut_ptr(), none.cast())), 0);
    assert_eq!(cu!(m, cuCtxSynchronize()), 719);
    assert_eq!(cu!(m, cuCtxDestroy_v2(context)), 0);
    m.finish();
}

/// The code of the kernels, as the guide shows it.
const LIBRARY: &str = r#"
#include <stddef.h>
struct softgpu_launch {
    unsigned grid[3], block[3], shared, parameters;
    void *(*memory)(const struct softgpu_launch *, unsigned long long, size_t);
    int (*set_condition)(const struct softgpu_launch *, unsigned long long, unsigned);
};
void add(void **parameters, const struct softgpu_launch *launch)
{
    unsigned count = *(unsigned *)parameters[1];
    float *values = launch->memory(launch, *(unsigned long long *)parameters[0], count * sizeof(float));
    if (values == NULL || launch->parameters != 3 || launch->block[0] != 32)
        return;
    for (unsigned n = 0; n < count; ++n)
        values[n] += *(float *)parameters[2];
}
void double_(void **parameters, const struct softgpu_launch *launch)
{
    unsigned char *value = launch->memory(launch, *(unsigned long long *)parameters[0], 1);
    if (value != NULL)
        *value = 2 * *value + *(unsigned short *)parameters[1];
}
const size_t double__parameters[] = {8, 2, 0};
const unsigned wrong_parameters[] = {8, 2, 0, 0};
const unsigned char number[16] = {0xc3};
"#;

/// Builds a library of C code, and runs a part of a test in a process that gets its path. `None` without a C compiler.
fn with_library(name: &str, code: &str, options: &[&str], part: &str) -> Option<Output> {
    let folder = std::env::temp_dir().join(format!("softgpu-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, library) = (folder.join("kernels.c"), folder.join("libkernels.so"));
    std::fs::write(&source, code).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).args(options).status();
    let output = built
        .is_ok_and(|status| status.success())
        .then(|| in_its_own_process(module_path!(), part).env("SOFTGPU_TEST_KERNELS", &library).output().unwrap());
    std::fs::remove_dir_all(folder).unwrap();
    if output.is_none() {
        println!("skipped: code in C: cc is missing: apt-get install gcc");
    }
    output
}

#[test]
fn a_library_exports_code_under_the_names_of_kernels() {
    // The second is linked for an address of its own, as a prelinked library is.
    for options in [&[][..], &["-Wl,-Ttext-segment=0x10000000"]] {
        let Some(output) = with_library("kernels", LIBRARY, options, "part_library") else { return };
        assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A library whose initialiser starts the driver, and waits for a thread that does so too.
const STARTING: &str = r#"
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
int (*start)(unsigned);
static void *other(void *unused)
{
    start(0);
    return unused;
}
__attribute__((constructor)) static void begin(void)
{
    pthread_t thread;
    start = (int (*)(unsigned))strtoull(getenv("SOFTGPU_TEST_START"), NULL, 16);
    if (start(0) != 0 || pthread_create(&thread, NULL, other, NULL) != 0 || pthread_join(thread, NULL) != 0)
        abort();
}
void nobody(void **parameters, const void *launch) {}
"#;

#[test]
fn the_library_of_kernels_may_start_the_driver_itself() {
    let Some(output) = with_library("starting", STARTING, &["-pthread"], "part_starting") else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "a part of the test above, which gives it the library"]
fn part_starting() {
    let kernels = std::env::var("SOFTGPU_TEST_KERNELS").ok();
    let start = softgpu::cuda_symbol(c"cuInit").addr();
    // SAFETY: no other thread of this process reads the environment.
    unsafe { std::env::set_var("SOFTGPU_TEST_START", format!("{start:x}")) };
    let m = machine(Settings { kernels, ..Settings::default() });
    let (nobody, none) = (function(&m, c"nobody"), ptr::null_mut());
    assert_eq!(cu!(m, cuLaunchKernel(nobody, 1, 1, 1, 1, 1, 1, 0, none, none.cast(), none.cast())), 0);
    unload(&m);
    m.finish();
}

#[test]
#[ignore = "a part of the test above, which gives it the library"]
fn part_library() {
    let kernels = std::env::var("SOFTGPU_TEST_KERNELS").ok();
    for strict in [false, true] {
        let m = machine(Settings { strict, kernels: kernels.clone(), ..Settings::default() });
        let (context, memory) = (m.context(0), m.alloc(16));
        assert_eq!(cu!(m, cuMemsetD8_v2(memory, 0, 16)), 0);
        let add_function = function(&m, c"add");
        assert_eq!(add(&m, add_function, ptr::null_mut(), memory, 3, 0.5), 0);
        assert_eq!(floats(&m, memory, 4), [0.5, 0.5, 0.5, 0.0]);
        let none = ptr::null_mut();
        // The C library's `puts` is not the code of a kernel, and neither is a variable.
        for name in [c"puts", c"number"] {
            let no_code = function(&m, name);
            assert_eq!(cu!(m, cuLaunchKernel(no_code, 1, 1, 1, 1, 1, 1, 0, none, none.cast(), none.cast())), 801);
        }
        // A kernel of a cubin, whose parameters only the library states.
        let (image, mut module, mut double) = (cubin(190, b"double_"), none, ptr::null_mut());
        assert_eq!(cu!(m, cuModuleLoadData((&raw mut module).cast(), image.as_ptr().cast())), 0);
        assert_eq!(cu!(m, cuModuleGetFunction(&mut double, module.cast(), c"double_".as_ptr())), 0);
        m.write(memory, &[20]);
        let (mut at, mut more) = (memory, 5_u16);
        let mut list = [(&raw mut at).cast(), (&raw mut more).cast()];
        assert_eq!(cu!(m, cuLaunchKernel(double, 1, 1, 1, 1, 1, 1, 0, none.cast(), list.as_mut_ptr(), none.cast())), 0);
        assert_eq!(m.read(memory, 1), [45]);
        // One whose sizes are of another type.
        let (image, mut wrong) = (cubin(190, b"wrong"), ptr::null_mut());
        assert_eq!(cu!(m, cuModuleLoadData((&raw mut module).cast(), image.as_ptr().cast())), 0);
        assert_eq!(cu!(m, cuModuleGetFunction(&mut wrong, module.cast(), c"wrong".as_ptr())), 0);
        assert_eq!(
            cu!(m, cuLaunchKernel(wrong, 1, 1, 1, 1, 1, 1, 0, none.cast(), list.as_mut_ptr(), none.cast())),
            801
        );
        assert_eq!(add(&m, add_function, none, memory, 5, 0.5), 0);
        assert_eq!(cu!(m, cuCtxSynchronize()), 700);
        assert_eq!(cu!(m, cuCtxDestroy_v2(context)), 0);
        m.finish();
    }
}
