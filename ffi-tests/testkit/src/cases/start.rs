//! Calls before cuInit, and in a forked child.

use super::lab::codes::*;
use super::lab::{Lab, Run, Stop, text};
use cuda_mem::cuda_sys::*;
use std::ptr;

cases! {
    Bare before_the_start,
    Bare the_start_twice,
    Alone forked_child,
    Alone forked_child_with_handles,
}

fn before_the_start(l: &mut Lab) -> Run {
    let (mut number, mut device, mut count, mut context, mut address) = (0, 0, 0, ptr::null_mut(), 0);
    ask!(l, "cuDriverGetVersion" => OK, cuDriverGetVersion(&mut number));
    ask!(l, "cuDriverGetVersion without a result" => VALUE, cuDriverGetVersion(ptr::null_mut()));
    ask!(l, "cuCtxGetDevice" => UNSTARTED, cuCtxGetDevice(&mut device));
    ask!(l, "cuDeviceGetCount" => UNSTARTED, cuDeviceGetCount(&mut count));
    ask!(l, "cuDeviceGetCount without a result", cuDeviceGetCount(ptr::null_mut()));
    ask!(l, "cuDeviceGet" => UNSTARTED, cuDeviceGet(&mut device, 0));
    ask!(l, "cuCtxGetCurrent", cuCtxGetCurrent(&mut context));
    ask!(l, "cuMemAlloc" => UNSTARTED, cuMemAlloc_v2(&mut address, 64));
    ask!(l, "cuMemFree of 0", cuMemFree_v2(0));
    ask!(l, "cuStreamQuery of the default stream", cuStreamQuery(ptr::null_mut()));
    let mut kind = 0_u32;
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    ask!(l, "cuPointerGetAttribute", cuPointerGetAttribute(ptr::from_mut(&mut kind).cast(), attribute, 4096));
    let mut name = ptr::null();
    ask!(l, "cuGetErrorName" => OK, cuGetErrorName(VALUE, &mut name));
    let (mut found, mut status) = (ptr::null_mut(), CUdriverProcAddressQueryResult(7));
    ask!(l, "cuGetProcAddress", cuGetProcAddress_v2(c"cuInit".as_ptr(), &mut found, 12000, 0, &mut status));
    l.say("cuGetProcAddress finds cuInit", !found.is_null());
    Ok(())
}

fn the_start_twice(l: &mut Lab) -> Run {
    let mut device = 0;
    ask!(l, "cuInit(1)" => VALUE, cuInit(1));
    ask!(l, "after a refused start" => UNSTARTED, cuDeviceGet(&mut device, 0));
    ask!(l, "cuInit(0)" => OK, cuInit(0));
    ask!(l, "cuInit(0) again" => OK, cuInit(0));
    ask!(l, "cuInit(1) after the start", cuInit(1));
    ask!(l, "cuDeviceGet" => OK, cuDeviceGet(&mut device, 0));
    let mut context = ptr::null_mut();
    ask!(l, "cuCtxGetCurrent" => OK, cuCtxGetCurrent(&mut context));
    l.check("no context is current", context.is_null(), true);
    Ok(())
}

/// Forks, makes calls in the child and returns their codes.
fn in_fork<const N: usize>(calls: impl FnOnce() -> [u32; N]) -> Result<[u32; N], Stop> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors. The child only makes the calls, writes their codes and ends; a
    // signal ends it if a call never returns.
    unsafe {
        if libc::pipe(ends.as_mut_ptr()) != 0 {
            return Err(Stop("pipe".to_owned()));
        }
        let child = libc::fork();
        if child == 0 {
            libc::alarm(10);
            let codes = calls();
            libc::write(ends[1], codes.as_ptr().cast(), size_of_val(&codes));
            libc::_exit(0);
        }
        libc::close(ends[1]);
        let mut codes = [u32::MAX; N];
        let read = libc::read(ends[0], codes.as_mut_ptr().cast(), size_of_val(&codes));
        libc::close(ends[0]);
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        if usize::try_from(read) == Ok(size_of_val(&codes)) {
            return Ok(codes);
        }
        use std::os::unix::process::ExitStatusExt;
        Err(Stop(format!("forked child {}", super::runner::ending(std::process::ExitStatus::from_raw(status)))))
    }
}

fn number(answer: Result<CUresult, MissingSymbol>) -> u32 {
    answer.map_or(u32::MAX, |code| code.0)
}

fn forked_child(l: &mut Lab) -> Run {
    let driver = l.driver;
    let codes = in_fork(|| {
        let (mut address, mut device, mut version) = (0, 0, 0);
        // SAFETY: results are writable.
        unsafe {
            [
                number(driver.cuMemAlloc_v2(&mut address, 64)),
                number(driver.cuInit(0)),
                number(driver.cuCtxGetDevice(&mut device)),
                number(driver.cuDeviceGet(&mut device, 0)),
                number(driver.cuDriverGetVersion(&mut version)),
                number(driver.cuCtxSynchronize()),
            ]
        }
    })?;
    let labels = ["cuMemAlloc", "cuInit", "cuCtxGetDevice", "cuDeviceGet", "cuDriverGetVersion", "cuCtxSynchronize"];
    for (label, code) in labels.into_iter().zip(codes) {
        let code = text(Ok(CUresult(code)));
        if label == "cuMemAlloc" || label == "cuInit" {
            l.check(format!("{label} in the forked child"), code, text(Ok(UNSTARTED)));
        } else {
            l.say(format!("{label} in the forked child"), code);
        }
    }
    let mut address = 0;
    ask!(l, "the parent goes on" => OK, cuMemAlloc_v2(&mut address, 64));
    need!(l, cuMemFree_v2(address))
}

fn forked_child_with_handles(l: &mut Lab) -> Run {
    let (memory, host, stream, event) = (l.alloc(64)?, l.host(64)?, l.stream(0)?, l.event(0)?);
    let driver = l.driver;
    let address = host as CUdeviceptr;
    let codes = in_fork(|| {
        let (mut kind, mut byte) = (0_u32, 0_u8);
        let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        let kind = ptr::from_mut(&mut kind).cast();
        // SAFETY: results are writable, and the handles are the parent's.
        unsafe {
            [
                number(driver.cuMemFree_v2(memory)),
                number(driver.cuMemFreeHost(address as *mut _)),
                number(driver.cuStreamQuery(stream)),
                number(driver.cuEventQuery(event)),
                number(driver.cuPointerGetAttribute(kind, attribute, memory)),
                number(driver.cuMemcpyDtoH_v2(ptr::from_mut(&mut byte).cast(), memory, 1)),
                number(driver.cuMemFreeAsync(memory, stream)),
            ]
        }
    })?;
    let labels = [
        "cuMemFree",
        "cuMemFreeHost",
        "cuStreamQuery",
        "cuEventQuery",
        "cuPointerGetAttribute",
        "cuMemcpyDtoH",
        "cuMemFreeAsync",
    ];
    for (label, code) in labels.into_iter().zip(codes) {
        l.say(format!("{label} in the forked child"), text(Ok(CUresult(code))));
    }
    ask!(l, "the parent's stream" => OK, cuStreamQuery(stream));
    Ok(())
}
