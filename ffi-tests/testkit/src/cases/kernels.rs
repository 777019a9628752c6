//! Modules and kernels: the calls that a driver without a compiler can answer.

use super::lab::codes::*;
use super::lab::{DEVICE_0, HOST, Lab, NO_HANDLES, READ_WRITE, Run, Stop, access, place, pool_of};
use cuda_mem::cuda_sys::*;
use std::ffi::{CString, c_void};
use std::ptr;

cases! {
    Shared images,
    Shared functions,
    Shared launches,
    Alone on_a_host_pool_without_access,
    Alone on_a_numa_pool_without_access,
    Alone on_a_host_pool_with_access,
    Alone on_an_address_of_nobody,
    Alone function_of_null,
}

fn image() -> Result<CString, Stop> {
    CString::new(include_str!("../kernels.ptx")).map_err(|error| Stop(error.to_string()))
}

/// The kernel that doubles bytes.
fn kernel(l: &mut Lab) -> Result<CUfunction, Stop> {
    let (image, mut module, mut function) = (image()?, ptr::null_mut(), ptr::null_mut());
    need!(l, cuModuleLoadData(&mut module, image.as_ptr().cast()))?;
    l.finally(move |l| drop(call!(l, cuModuleUnload(module))));
    need!(l, cuModuleGetFunction(&mut function, module, c"double_bytes".as_ptr()))?;
    Ok(function)
}

fn images(l: &mut Lab) -> Run {
    let (image, mut module) = (image()?, ptr::null_mut());
    ask!(l, "text that is no code", cuModuleLoadData(&mut module, c"nonsense".as_ptr().cast()));
    ask!(l, "empty text", cuModuleLoadData(&mut module, c"".as_ptr().cast()));
    ask!(l, "null", cuModuleLoadData(&mut module, ptr::null()));
    ask!(l, "without a result", cuModuleLoadData(ptr::null_mut(), image.as_ptr().cast()));
    ask!(l, "unload null", cuModuleUnload(ptr::null_mut()));
    if ask!(l, "code", cuModuleLoadData(&mut module, image.as_ptr().cast())) {
        ask!(l, "unload", cuModuleUnload(module));
    }
    Ok(())
}

fn functions(l: &mut Lab) -> Run {
    let (image, mut module, mut function) = (image()?, ptr::null_mut(), ptr::null_mut());
    need!(l, cuModuleLoadData(&mut module, image.as_ptr().cast()))?;
    l.finally(move |l| drop(call!(l, cuModuleUnload(module))));
    ask!(l, "known name" => OK, cuModuleGetFunction(&mut function, module, c"double_bytes".as_ptr()));
    ask!(l, "unknown name", cuModuleGetFunction(&mut function, module, c"nobody".as_ptr()));
    ask!(l, "empty name", cuModuleGetFunction(&mut function, module, c"".as_ptr()));
    ask!(l, "no name", cuModuleGetFunction(&mut function, module, ptr::null()));
    ask!(l, "no result", cuModuleGetFunction(ptr::null_mut(), module, c"double_bytes".as_ptr()));
    Ok(())
}

fn function_of_null(l: &mut Lab) -> Run {
    let mut function = ptr::null_mut();
    ask!(l, "no module", cuModuleGetFunction(&mut function, ptr::null_mut(), c"double_bytes".as_ptr()));
    let null = ptr::null_mut();
    ask!(
        l,
        "launch null",
        cuLaunchKernel(ptr::null_mut(), 1, 1, 1, 1, 1, 1, 0, null, ptr::null_mut(), ptr::null_mut())
    );
    Ok(())
}

/// Doubles bytes. Records the launch and the end of the work.
fn double(l: &mut Lab, label: &str, mut memory: CUdeviceptr, blocks: u32, threads: u32, shared: u32) -> Run {
    let (function, mut length) = (kernel(l)?, 4_u64);
    let mut arguments: [*mut c_void; 2] = [ptr::from_mut(&mut memory).cast(), ptr::from_mut(&mut length).cast()];
    let (stream, list, none) = (ptr::null_mut(), arguments.as_mut_ptr(), ptr::null_mut());
    if ask!(l, label, cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared, stream, list, none)) {
        ask!(l, format!("{label}: wait"), cuCtxSynchronize());
    }
    Ok(())
}

fn launches(l: &mut Lab) -> Run {
    let memory = l.alloc(64)?;
    need!(l, cuMemsetD8_v2(memory, 3, 64))?;
    double(l, "one block", memory, 1, 32, 0)?;
    l.bytes::<5>("bytes", memory);
    double(l, "no blocks", memory, 0, 32, 0)?;
    double(l, "no threads", memory, 1, 0, 0)?;
    double(l, "too many threads", memory, 1, 4096, 0)?;
    double(l, "too much shared memory", memory, 1, 32, 1 << 30)?;
    let function = kernel(l)?;
    let (null, none) = (ptr::null_mut(), ptr::null_mut());
    ask!(l, "no arguments", cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, null, none, ptr::null_mut()));
    ask!(l, "the context", cuCtxSynchronize());
    Ok(())
}

fn on_a_pool(l: &mut Lab, location: CUmemLocation, allowed: bool) -> Run {
    let pool = l.pool(&pool_of(location, NO_HANDLES))?;
    let block = l.block(pool, 4096, ptr::null_mut())?;
    if allowed {
        need!(l, cuMemPoolSetAccess(pool, &access(DEVICE_0, READ_WRITE), 1))?;
    }
    // SAFETY: host memory of this case.
    unsafe { (block as *mut u8).write_volatile(3) };
    double(l, "kernel", block, 1, 32, 0)?;
    // SAFETY: as above; the work has ended.
    l.say("the CPU sees", unsafe { (block as *mut u8).read_volatile() });
    let mut memory = 0;
    ask!(l, "the context goes on", cuMemAlloc_v2(&mut memory, 64));
    Ok(())
}

fn on_a_host_pool_without_access(l: &mut Lab) -> Run {
    on_a_pool(l, HOST, false)
}

fn on_a_numa_pool_without_access(l: &mut Lab) -> Run {
    on_a_pool(l, place(CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, 0), false)
}

fn on_a_host_pool_with_access(l: &mut Lab) -> Run {
    on_a_pool(l, HOST, true)
}

fn on_an_address_of_nobody(l: &mut Lab) -> Run {
    double(l, "kernel", 0xdead_0000, 1, 32, 0)?;
    let (mut memory, mut stream, mut kind) = (0, ptr::null_mut(), 0_u32);
    ask!(l, "then cuMemAlloc", cuMemAlloc_v2(&mut memory, 64));
    ask!(l, "then cuMemFree of 0", cuMemFree_v2(0));
    ask!(l, "then cuCtxSynchronize", cuCtxSynchronize());
    ask!(l, "then cuStreamCreate", cuStreamCreate(&mut stream, 0));
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    ask!(l, "then cuPointerGetAttribute", cuPointerGetAttribute(ptr::from_mut(&mut kind).cast(), attribute, 4096));
    ask!(l, "then cuDevicePrimaryCtxReset", cuDevicePrimaryCtxReset_v2(0));
    ask!(l, "then cuMemAlloc after the reset", cuMemAlloc_v2(&mut memory, 64));
    Ok(())
}
