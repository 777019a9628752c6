//! Modules: device code in the current context.

use crate::call::{Result, driver_calls, ensure, offer, put};
use crate::state::Global;
use crate::state::contexts::current;
use crate::state::kernels;
use crate::state::modules::{Image, Log, Module, Refused, bytes_at, is_lazy};
use cuda_sys::{CUdeviceptr, CUfunction, CUjit_option, CUmodule, CUmoduleLoadingMode, CUresult};
use std::ffi::{CStr, OsStr, c_char, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

driver_calls! {
    |global: &'static Global|

    /// Loads PTX or a cubin from a file. Waits for all work of the context.
    fn cuModuleLoad[Uncaptured](module: *mut CUmodule, fname: *const c_char) {
        ensure(!module.is_null() && !fname.is_null())?;
        load(global, module, image_of_file(fname), &Log::none())
    }

    /// Loads PTX or a cubin: its kernels and its variables. Waits for all work of the context.
    fn cuModuleLoadData[Uncaptured](module: *mut CUmodule, image: *const c_void) {
        ensure(!module.is_null() && !image.is_null())?;
        load(global, module, image_at(image), &Log::none())
    }

    /// As cuModuleLoadData. Of the options, those for texts have an effect.
    fn cuModuleLoadDataEx[Uncaptured](
        module: *mut CUmodule,
        image: *const c_void,
        numOptions: c_uint,
        options: *mut CUjit_option,
        optionValues: *mut *mut c_void,
    ) {
        ensure(!module.is_null() && !image.is_null())?;
        let log = Log::of(options, optionValues, numOptions)?;
        load(global, module, image_at(image), &log)
    }

    /// Refuses a fatbin, whose form is not documented. Loads other images as cuModuleLoadData.
    fn cuModuleLoadFatBinary[Uncaptured](module: *mut CUmodule, fatCubin: *const c_void) {
        ensure(!module.is_null() && !fatCubin.is_null())?;
        load(global, module, image_at(fatCubin), &Log::none())
    }

    /// Unloads a module after all work of its context. The module of a library stays.
    fn cuModuleUnload[Uncaptured](hmod: CUmodule) {
        let handle = hmod.addr() as u64;
        if Module::find(global, handle)?.of_library {
            return Err(CUresult::CUDA_ERROR_NOT_PERMITTED);
        }
        let module = global.modules.remove(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        module.context.synchronize();
        module.unload(global);
        Ok(())
    }

    /// Returns whether functions are loaded at their first use.
    fn cuModuleGetLoadingMode[Started](mode: *mut CUmoduleLoadingMode) {
        put(mode, match is_lazy() {
            true => CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING,
            false => CUmoduleLoadingMode::CU_MODULE_EAGER_LOADING,
        })
    }

    /// Finds a kernel of a module.
    fn cuModuleGetFunction[Locked](hfunc: *mut CUfunction, hmod: CUmodule, name: *const c_char) {
        ensure(!hfunc.is_null() && !name.is_null())?;
        let module = Module::find(global, hmod.addr() as u64)?;
        let name = CStr::from_ptr(name).to_bytes();
        ensure(!name.is_empty())?;
        let handle = module.function(name).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        put(hfunc, ptr::without_provenance_mut(handle as usize))
    }

    /// Returns the number of a module's kernels.
    fn cuModuleGetFunctionCount[Started](count: *mut c_uint, mod_: CUmodule) {
        put(count, Module::find(global, mod_.addr() as u64)?.functions.len() as c_uint)
    }

    /// Returns some of a module's kernels.
    fn cuModuleEnumerateFunctions[Started](functions: *mut CUfunction, numFunctions: c_uint, mod_: CUmodule) {
        list(&Module::find(global, mod_.addr() as u64)?.functions, functions.cast(), numFunctions)
    }

    /// Finds a variable of a module.
    fn cuModuleGetGlobal_v2[Locked](
        dptr: *mut CUdeviceptr,
        bytes: *mut usize,
        hmod: CUmodule,
        name: *const c_char,
    ) {
        ensure(!name.is_null())?;
        let module = Module::find(global, hmod.addr() as u64)?;
        variable(module.variable(CStr::from_ptr(name).to_bytes()), dptr, bytes)
    }
}

/// Loads an image into the current context.
///
/// # Safety
///
/// `out` and the places of the log are writable.
unsafe fn load(global: &Global, out: *mut CUmodule, image: core::result::Result<Image, Refused>, log: &Log) -> Result {
    // SAFETY: by this function's contract.
    let image = unsafe { finish(image, log) };
    let context = current(global)?;
    let handle = Module::load(global, &context, Arc::new(image?))?;
    context.finish();
    // SAFETY: by this function's contract.
    unsafe { put(out, ptr::without_provenance_mut(handle as usize)) }
}

/// Writes the place of a variable that was found.
///
/// # Safety
///
/// Both pointers are null or writable.
pub(super) unsafe fn variable(found: Option<(u64, usize)>, address: *mut CUdeviceptr, size: *mut usize) -> Result {
    let (base, bytes) = found.ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
    // SAFETY: by this function's contract.
    unsafe {
        offer(address, base);
        offer(size, bytes);
    }
    Ok(())
}

/// Writes handles, as many as there are and as there is room for.
///
/// # Safety
///
/// The array is null or has `room` elements.
pub(super) unsafe fn list(handles: &[u64], out: *mut *mut c_void, room: c_uint) -> Result {
    ensure(!out.is_null() || room == 0)?;
    for (place, handle) in handles.iter().take(room as usize).enumerate() {
        // SAFETY: by this function's contract.
        unsafe { out.add(place).write(ptr::without_provenance_mut(*handle as usize)) };
    }
    Ok(())
}

/// Reads an image in memory.
///
/// # Safety
///
/// As for [`bytes_at`].
pub(super) unsafe fn image_at(image: *const c_void) -> core::result::Result<Image, Refused> {
    // SAFETY: by this function's contract.
    kernels::read(unsafe { bytes_at(image.cast()) }?)
}

/// Reads an image in a file.
///
/// # Safety
///
/// The name is a C string.
pub(super) unsafe fn image_of_file(name: *const c_char) -> core::result::Result<Image, Refused> {
    // SAFETY: by this function's contract.
    kernels::read(&bytes_of_file(unsafe { CStr::from_ptr(name) })?)
}

pub(super) fn bytes_of_file(name: &CStr) -> core::result::Result<Vec<u8>, Refused> {
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    std::fs::read(path).map_err(|error| {
        let text = format!("softgpu: the file {} with device code cannot be read: {error}", path.display());
        Refused::new(CUresult::CUDA_ERROR_FILE_NOT_FOUND, text)
    })
}

/// Writes the text of a refusal into the log. Returns its code.
///
/// # Safety
///
/// The places of the log are writable.
pub(super) unsafe fn finish<T>(outcome: core::result::Result<T, Refused>, log: &Log) -> Result<T> {
    let text = outcome.as_ref().err().map_or("", |refused| &refused.text);
    // SAFETY: by this function's contract.
    unsafe { log.write(text) };
    outcome.map_err(|refused| refused.code)
}
