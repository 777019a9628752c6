//! Whether cudarc has loaded the library that this crate uses. Handles of one library mean nothing to another.

use crate::error::call;
use crate::{Driver, Error, Result};
use ::cudarc::driver::{CudaContext, sys};
use core::ptr;
use cuda_sys::CUcontext;

/// Checks that a context of cudarc belongs to a driver's library.
pub(super) fn check_same(call: &'static str, driver: &Driver, context: &CudaContext) -> Result<()> {
    if is_same(driver, context)? {
        return Ok(());
    }
    let value = format!("of another library than {}", driver.provider().library);
    let rule = "cudarc and cuda-mem must load the same libcuda: unset CUDA_MEM_LIBCUDA, or let LD_LIBRARY_PATH begin \
                with a folder where that library has the names libcuda.so and libcuda.so.1";
    Err(Error::invalid(call, "the CudaContext", value, rule))
}

/// cudarc names its library nowhere. But what cudarc makes current is current for us only in the same library.
fn is_same(driver: &Driver, context: &CudaContext) -> Result<bool> {
    let theirs: CUcontext = context.cu_ctx().cast();
    let mut popped = Vec::new();
    // The context is usually current, maybe several times.
    while current(driver)? == theirs
        && let Some(one) = pop()
    {
        popped.push(one);
    }
    let mut same = false;
    if current(driver)? != theirs && push(context.cu_ctx()) {
        same = current(driver)? == theirs;
        pop();
    }
    // Each was current before.
    let restored = popped.into_iter().rev().all(push);
    Ok(same && restored)
}

fn current(driver: &Driver) -> Result<CUcontext> {
    let (cuda, mut current) = (driver.raw(), ptr::null_mut());
    // SAFETY: `current` is writable.
    unsafe { call!(cuda.cuCtxGetCurrent(&mut current)) }?;
    Ok(current)
}

/// Pops cudarc's current context, if there is one.
fn pop() -> Option<sys::CUcontext> {
    let mut popped = ptr::null_mut();
    // SAFETY: `popped` is writable, and cudarc has loaded its library.
    let code = unsafe { sys::cuCtxPopCurrent_v2(&mut popped) };
    (code == sys::CUresult::CUDA_SUCCESS && !popped.is_null()).then_some(popped)
}

/// Makes a context of cudarc's library current. Whether that worked.
fn push(context: sys::CUcontext) -> bool {
    // SAFETY: the context is alive: a CudaContext holds it, or it was current just now.
    unsafe { sys::cuCtxPushCurrent_v2(context) == sys::CUresult::CUDA_SUCCESS }
}
