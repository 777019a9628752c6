//! Injected faults, counted calls, the trace, errors that stay, older drivers, missing functions.

use crate::common::{Machine, in_its_own_process, machine, unstarted};
use crate::cu;
use cuda_sys::{
    CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemcpyAttributes,
    CUmemcpySrcAccessOrder, CUresult, Driver,
};
use softgpu::{Fault, Settings, When};
use std::ffi::CStr;
use std::ptr;
use vkgdr_sys::Functions;

const OUT_OF_MEMORY: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;

fn ask(m: &Machine) -> u32 {
    let (mut free, mut total) = (0, 0);
    cu!(m, cuMemGetInfo_v2(&mut free, &mut total))
}

/// A small program that frees what it has made when a call fails.
fn program(m: &Machine) -> u32 {
    let (mut at, mut stream) = (0, ptr::null_mut());
    let made = cu!(m, cuMemAlloc_v2(&mut at, 64));
    if made != 0 {
        return made;
    }
    let mut answer = cu!(m, cuStreamCreate(&mut stream, 0));
    if answer == 0 {
        answer = cu!(m, cuMemsetD8Async(at, 1, 64, stream));
        // A free that fails is repeated.
        while cu!(m, cuStreamDestroy_v2(stream)) != 0 {}
    }
    while cu!(m, cuMemFree_v2(at)) != 0 {}
    answer
}

#[test]
fn each_call_fails_in_turn_and_nothing_is_left() {
    let m = machine(Settings::default());
    softgpu::count_calls(true);
    assert_eq!(program(&m), 0);
    let calls = softgpu::calls();
    assert_eq!((calls, softgpu::calls_of("cuMemAlloc_v2"), softgpu::calls_of("cuInit")), (5, 1, 0));
    softgpu::count_calls(false);
    for k in 1..=calls {
        softgpu::faults([Fault::any(k, OUT_OF_MEMORY)]);
        program(&m);
        assert_eq!(softgpu::injected(), 1);
        softgpu::faults([]);
        assert_eq!(softgpu::ledger().len(), 1, "call {k}: {}", softgpu::ledger());
    }
    m.finish();
}

#[test]
fn faults_meet_one_function_one_call_or_every_kth_one() {
    let m = machine(Settings::default());
    let every = Fault { when: When::Every(2), ..Fault::call("cuMemGetInfo_v2", 1, CUresult::CUDA_ERROR_UNKNOWN) };
    softgpu::faults([every]);
    assert_eq!([ask(&m), ask(&m), ask(&m), ask(&m)], [0, 999, 0, 999]);
    softgpu::faults(softgpu::faults_from("cuMemAlloc_v2:1=2+").unwrap());
    let mut at = 0;
    // The call does its work, and still answers an error.
    assert_eq!(cu!(m, cuMemAlloc_v2(&mut at, 64)), 2);
    softgpu::faults([]);
    assert_eq!(cu!(m, cuMemFree_v2(at)), 0);
    m.finish();
}

#[test]
fn c_programs_set_faults_as_text() {
    let m = machine(Settings::default());
    // SAFETY: each text ends with 0.
    let set = |text: &'static CStr| unsafe { softgpu::softgpu_faults(text.as_ptr()) };
    assert_eq!(set(c"cuMemGetInfo_v2:2=999, any:4=2"), 2);
    assert_eq!([ask(&m), ask(&m), ask(&m), ask(&m)], [0, 999, 0, 2]);
    assert_eq!((softgpu::softgpu_injected(), set(c"cuMemGetInfo:1=2")), (2, -1));
    // SAFETY: a null pointer is refused.
    assert_eq!(unsafe { softgpu::softgpu_faults(ptr::null()) }, -1);
    // A text that cannot be read changes nothing.
    assert_eq!((softgpu::softgpu_injected(), set(c""), softgpu::softgpu_injected()), (2, 0, 0));
    assert_eq!(ask(&m), 0);
    m.finish();
}

#[test]
fn an_error_that_sticks_is_what_the_context_answers_to_its_end() {
    let m = machine(Settings::default());
    let context = m.context(0);
    let stream = m.stream(0);
    softgpu::faults([Fault {
        sticky: true,
        ..Fault::call("cuMemGetInfo_v2", 1, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)
    }]);
    assert_eq!([ask(&m), ask(&m)], [700, 700]);
    softgpu::faults([]);
    assert_eq!((ask(&m), cu!(m, cuStreamSynchronize(stream)), cu!(m, cuCtxSynchronize())), (700, 700, 700));
    let (mut count, mut popped) = (0, ptr::null_mut());
    assert_eq!(cu!(m, cuDeviceGetCount(&mut count)), 0);
    assert_eq!(cu!(m, cuCtxPopCurrent_v2(&mut popped)), 0);
    // Other contexts work, but a stream of the failed one does not.
    assert_eq!((ask(&m), cu!(m, cuStreamQuery(stream))), (0, 700));
    assert_eq!(cu!(m, cuCtxDestroy_v2(context)), 0);
    m.finish();
}

#[test]
fn an_error_sticks_only_to_a_context_that_is_current() {
    let m = machine(Settings::default());
    let context = m.context(0);
    softgpu::faults(softgpu::faults_from("cuDeviceGetCount:1=700!").unwrap());
    let count = || {
        let mut count = 0;
        cu!(m, cuDeviceGetCount(&mut count))
    };
    assert_eq!(cu!(m, cuCtxSetCurrent(ptr::null_mut())), 0);
    assert_eq!((count(), cu!(m, cuCtxSetCurrent(context)), ask(&m)), (700, 0, 0));
    softgpu::faults(softgpu::faults_from("cuMemAlloc_v2:1=CUDA_ERROR_OUT_OF_MEMORY,cuMemAlloc_v2:2=700!").unwrap());
    let mut at = 0;
    let mut allocate = || cu!(m, cuMemAlloc_v2(&mut at, 64));
    assert_eq!([allocate(), ask(&m), allocate(), ask(&m)], [2, 0, 700, 700]);
    softgpu::faults([]);
    assert_eq!(cu!(m, cuCtxDestroy_v2(context)), 0);
    m.finish();
}

#[test]
fn calls_are_traced_with_arguments_and_results() {
    let m = machine(Settings::default());
    softgpu::trace(2);
    let mut at = 0;
    assert_eq!(cu!(m, cuMemAlloc_v2(&mut at, 64)), 0);
    assert_eq!(cu!(m, cuMemFree_v2(at)), 0);
    assert_eq!(cu!(m, cuMemFree_v2(at)), 1);
    let calls = softgpu::take_trace();
    softgpu::trace(0);
    let text: Vec<_> = calls.iter().map(ToString::to_string).collect();
    assert_eq!(text, [format!("cuMemFree_v2({at}) = 0"), format!("cuMemFree_v2({at}) = 1")]);
    m.finish();
}

#[test]
fn driver_lacks_newer_functions_and_functions_listed_as_missing() {
    let m = unstarted(Settings { version: 11020, without: vec!["cuMemPoolCreate".into()], ..Settings::default() });
    // SAFETY: softgpu's functions have the signatures that cuda-sys states.
    let driver = unsafe { Driver::from_resolver("softgpu", &mut softgpu::cuda_symbol) };
    assert_eq!(driver.provider().version.unwrap().number(), 11020);
    assert!(driver.has("cuMemAllocAsync") && !driver.has("cuMemPoolCreate") && !driver.has("cuCtxGetId"));
    assert!(!driver.has("cuMemcpyBatchAsync") && !driver.has("cuGetProcAddress_v2"));
    drop(m);
    let m = machine(Settings { version: 13020, ..Settings::default() });
    let missing = cuda_sys::Functions::SYMBOLS.iter().find(|symbol| !m.driver.has(symbol.name.to_str().unwrap()));
    assert_eq!(missing, None);
    m.finish();
}

#[test]
fn newer_driver_reports_pool_properties_and_accepts_copy_hints() {
    let known = [13000, 13020].map(|version| {
        let m = machine(Settings { version, ..Settings::default() });
        let props = CUmemPoolProps {
            allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            location: CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 },
            maxSize: 1 << 20,
            ..Default::default()
        };
        let mut pool = ptr::null_mut();
        assert_eq!(cu!(m, cuMemPoolCreate(&mut pool, &props)), 0);
        let answers: Vec<_> = (9..=14)
            .map(|attribute| {
                let mut value = 0_u64;
                let at = ptr::from_mut(&mut value).cast();
                (cu!(m, cuMemPoolGetAttribute(pool, CUmemPool_attribute(attribute), at)), value)
            })
            .collect();
        assert_eq!(cu!(m, cuMemPoolDestroy(pool)), 0);
        if version > 13000 {
            let (memory, stream) = (m.alloc(8), m.stream(1));
            m.write(memory, &[1, 2, 3, 4, 0, 0, 0, 0]);
            let order = CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
            let mut hints = CUmemcpyAttributes { srcAccessOrder: order, ..Default::default() };
            assert_eq!(cu!(m, cuMemcpyWithAttributesAsync(memory + 4, memory, 4, &mut hints, stream)), 0);
            assert_eq!(cu!(m, cuStreamSynchronize(stream)), 0);
            assert_eq!(m.read(memory, 8), [1, 2, 3, 4, 1, 2, 3, 4]);
            hints.srcAccessOrder = CUmemcpySrcAccessOrder(9);
            assert_eq!(cu!(m, cuMemcpyWithAttributesAsync(memory + 4, memory, 4, &mut hints, stream)), 1);
        } else {
            assert!(!m.driver.has("cuMemcpyWithAttributesAsync"));
        }
        m.finish();
        answers
    });
    assert_eq!(known[0], [(1, 0); 6]);
    // The values: pinned memory, no handles, ID 0, a device, 32 MiB, no hardware decompression.
    assert_eq!(known[1], [(0, 1), (0, 0), (0, 0), (0, 1), (0, 32 << 20), (0, 0)]);
}

#[test]
fn vkgdr_functions_fail_when_wanted_and_say_so() {
    let m = machine(Settings::default());
    // SAFETY: softgpu's functions have the signatures that vkgdr-sys states.
    let vkgdr = unsafe { Functions::fill(&mut |symbol| softgpu::vkgdr_symbol(symbol.name)) };
    softgpu::faults(softgpu::faults_from("vkgdr_open:1=-3,vkgdr_memory_alloc:1=2").unwrap());
    // SAFETY: the functions check their arguments, and the texts are C strings of ours.
    unsafe {
        let (open, last) = (vkgdr.vkgdr_open.unwrap(), vkgdr.vkgdr_last_error.unwrap());
        let error = || std::ffi::CString::from(std::ffi::CStr::from_ptr(last())).into_string().unwrap();
        assert!(open(0, 0).is_null());
        assert_eq!(error(), "vkgdr_open fails: a test injected this fault (VK_ERROR_INITIALIZATION_FAILED)");
        let g = open(0, 0);
        assert!(vkgdr.vkgdr_memory_alloc.unwrap()(g, 64, 0).is_null());
        assert_eq!(error(), "vkgdr_memory_alloc fails: a test injected this fault (CUDA_ERROR_OUT_OF_MEMORY)");
        let memory = vkgdr.vkgdr_memory_alloc.unwrap()(g, 64, 0);
        vkgdr.vkgdr_memory_free.unwrap()(memory);
        vkgdr.vkgdr_close.unwrap()(g);
    }
    assert_eq!(softgpu::injected(), 2);
    softgpu::faults([]);
    m.finish();
}

#[test]
#[ignore = "the test below runs it with an environment"]
fn part_environment() {
    let m = machine(Settings::default());
    let memory = m.alloc(64);
    std::thread::scope(|scope| {
        let second = || assert_eq!(cu!(m, cuMemAlloc_v2(&mut 0, 64)), 2);
        std::thread::Builder::new().name("another".to_owned()).spawn_scoped(scope, second).unwrap();
    });
    assert_eq!((cu!(m, cuMemFree_v2(memory)), cu!(m, cuMemFree_v2(memory))), (0, 1));
    m.finish();
}

#[test]
fn reports_are_appended_to_a_file() {
    let file = std::env::temp_dir().join(format!("softgpu-report-{}", std::process::id()));
    std::fs::write(&file, "before\n").unwrap();
    let mut program = in_its_own_process(module_path!(), "part_environment");
    let ended = program.env("SOFTGPU_FAIL", "cuMemAlloc_v2:2=2").env("SOFTGPU_REPORT", &file).output().unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && !errors.contains("double free"), "{errors}");
    let lines = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(lines.starts_with("before\ndouble free: 0x") && lines.lines().count() == 2, "{lines}");
}

#[test]
fn the_environment_asks_for_faults_a_trace_and_reports() {
    let trace = std::env::temp_dir().join(format!("softgpu-trace-{}", std::process::id()));
    let mut program = in_its_own_process(module_path!(), "part_environment");
    program.env("SOFTGPU_FAIL", "cuMemAlloc_v2:2=2").env("SOFTGPU_TRACE", &trace).env("SOFTGPU_REPORT", "1");
    let ended = program.output().unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{errors}");
    assert!(errors.contains("softgpu: double free: 0x"), "{errors}");
    let lines = std::fs::read_to_string(&trace).unwrap();
    std::fs::remove_file(&trace).unwrap();
    assert!(lines.contains("\nanother: cuMemAlloc_v2(0x") && lines.contains(", 64) = 2\n"), "{lines}");
}
