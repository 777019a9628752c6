//! Modules and kernels.

use crate::call::{driver_calls, ensure, put};
use crate::state::Global;
use crate::state::contexts::current;
use crate::state::kernels::{Launch, Module, threads};
use crate::state::streams::Stream;
use cuda_sys::{CUfunction, CUmodule, CUresult, CUstream};
use std::ffi::{CStr, c_char, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

driver_calls! {
    |global: &'static Global|

    /// Loads text that names built-in kernels: PTX, or `softgpu kernels`. Waits for all work of the context.
    fn cuModuleLoadData[Uncaptured](module: *mut CUmodule, image: *const c_void) {
        ensure(!module.is_null() && !image.is_null())?;
        let context = current(global)?;
        // Recognises binaries by their first two bytes, with which no text begins. Reads no further.
        let begin = |first, second| {
            image.cast::<u8>().read() == first && image.cast::<u8>().add(1).read() == second
        };
        if begin(0x7f, b'E') || begin(0x50, 0xed) {
            return Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
        }
        let text = CStr::from_ptr(image.cast()).to_str().map_err(|_| CUresult::CUDA_ERROR_INVALID_IMAGE)?;
        let handle = Module::load(global, &context, text)?;
        context.finish();
        put(module, ptr::without_provenance_mut(handle as usize))
    }

    /// Unloads a module.
    fn cuModuleUnload[Uncaptured](hmod: CUmodule) {
        let module = global.modules.remove(hmod.addr() as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        module.context.synchronize();
        module.unload(global);
        Ok(())
    }

    /// Finds a kernel of a module.
    fn cuModuleGetFunction[Locked](hfunc: *mut CUfunction, hmod: CUmodule, name: *const c_char) {
        ensure(!hfunc.is_null() && !name.is_null())?;
        let module = global.modules.get(hmod.addr() as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let name = CStr::from_ptr(name).to_bytes();
        ensure(!name.is_empty())?;
        let found = module.functions.iter().find(|(known, _)| known.as_bytes() == name);
        let (_, handle) = found.ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        put(hfunc, ptr::without_provenance_mut(*handle as usize))
    }

    /// Runs a kernel in stream order, with the present values of the parameters.
    fn cuLaunchKernel[Locked, cuLaunchKernel_ptsz](
        f: CUfunction,
        gridDimX: c_uint,
        gridDimY: c_uint,
        gridDimZ: c_uint,
        blockDimX: c_uint,
        blockDimY: c_uint,
        blockDimZ: c_uint,
        sharedMemBytes: c_uint,
        hStream: CUstream,
        kernelParams: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let function = global.functions.get(f.addr() as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let stream = Stream::find(global, hStream)?;
        if !Arc::ptr_eq(&function.context, &stream.context) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let threads =
            threads([gridDimX, gridDimY, gridDimZ], [blockDimX, blockDimY, blockDimZ], sharedMemBytes)?;
        ensure(!kernelParams.is_null() && extra.is_null())?;
        let mut values = Vec::new();
        for (n, size) in function.builtin.parameters().iter().enumerate() {
            let at = kernelParams.add(n).read();
            ensure(!at.is_null())?;
            match size {
                4 => values.push(u64::from(at.cast::<u32>().read_unaligned())),
                _ => values.extend((0..size / 8).map(|word| at.cast::<u64>().add(word).read_unaligned())),
            }
        }
        let launch = Launch { builtin: function.builtin, threads, values, context: stream.context.clone() };
        launch.begin(&stream)
    }
}
