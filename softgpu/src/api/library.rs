//! Libraries: device code for all contexts, and its kernels.

use super::launch::{known_parameters, told_of_parameters};
use super::module::{finish, image_at, image_of_file, list, variable};
use crate::call::{Result, driver_calls, ensure, put};
use crate::state::Global;
use crate::state::contexts::current;
use crate::state::modules::{Image, Kernel, Library, Log, Module, Refused, is_lazy};
use cuda_sys::{
    CUdevice, CUdeviceptr, CUfunc_cache, CUfunction, CUfunction_attribute, CUjit_option, CUkernel, CUlibrary,
    CUlibraryOption, CUmodule, CUresult,
};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

driver_calls! {
    |global: &'static Global|

    /// Makes a library of PTX or a cubin. Wrong code is refused at its first use, because the driver loads it only then, unless
    /// CUDA_MODULE_LOADING is EAGER. Of the options, those for texts have an effect.
    fn cuLibraryLoadData[Started](
        library: *mut CUlibrary,
        code: *const c_void,
        jitOptions: *mut CUjit_option,
        jitOptionsValues: *mut *mut c_void,
        numJitOptions: c_uint,
        libraryOptions: *mut CUlibraryOption,
        libraryOptionValues: *mut *mut c_void,
        numLibraryOptions: c_uint,
    ) {
        ensure(!library.is_null() && !code.is_null())?;
        ensure(numLibraryOptions == 0 || !libraryOptions.is_null())?;
        let log = Log::of(jitOptions, jitOptionsValues, numJitOptions)?;
        load(global, library, image_at(code), &log)
    }

    /// As cuLibraryLoadData, from a file.
    fn cuLibraryLoadFromFile[Started](
        library: *mut CUlibrary,
        fileName: *const c_char,
        jitOptions: *mut CUjit_option,
        jitOptionsValues: *mut *mut c_void,
        numJitOptions: c_uint,
        libraryOptions: *mut CUlibraryOption,
        libraryOptionValues: *mut *mut c_void,
        numLibraryOptions: c_uint,
    ) {
        ensure(!library.is_null() && !fileName.is_null())?;
        ensure(numLibraryOptions == 0 || !libraryOptions.is_null())?;
        let log = Log::of(jitOptions, jitOptionsValues, numJitOptions)?;
        load(global, library, image_of_file(fileName), &log)
    }

    /// Unloads a library, after all work of the contexts that use it.
    fn cuLibraryUnload[Uncaptured](library: CUlibrary) {
        let library = global.libraries.remove(library.addr() as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        library.unload(global);
        Ok(())
    }

    /// Finds a kernel of a library.
    fn cuLibraryGetKernel[Started](pKernel: *mut CUkernel, library: CUlibrary, name: *const c_char) {
        ensure(!pKernel.is_null() && !name.is_null())?;
        let library = Library::find(global, library.addr() as u64)?;
        let name = CStr::from_ptr(name).to_bytes();
        ensure(!name.is_empty())?;
        let handle = library.kernel(name).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        put(pKernel, ptr::without_provenance_mut(handle as usize))
    }

    /// Returns the number of a library's kernels.
    fn cuLibraryGetKernelCount[Started](count: *mut c_uint, lib: CUlibrary) {
        put(count, Library::find(global, lib.addr() as u64)?.kernels.len() as c_uint)
    }

    /// Returns some of a library's kernels.
    fn cuLibraryEnumerateKernels[Started](kernels: *mut CUkernel, numKernels: c_uint, lib: CUlibrary) {
        list(&Library::find(global, lib.addr() as u64)?.kernels, kernels.cast(), numKernels)
    }

    /// Returns the library's module in the current context.
    fn cuLibraryGetModule[Started](pMod: *mut CUmodule, library: CUlibrary) {
        ensure(!pMod.is_null())?;
        let handle = Library::find(global, library.addr() as u64)?.module(global, &current(global)?)?;
        put(pMod, ptr::without_provenance_mut(handle as usize))
    }

    /// Finds a variable of a library in the current context.
    fn cuLibraryGetGlobal[Started](
        dptr: *mut CUdeviceptr,
        bytes: *mut usize,
        library: CUlibrary,
        name: *const c_char,
    ) {
        ensure(!name.is_null())?;
        let library = Library::find(global, library.addr() as u64)?;
        let module = Module::find(global, library.module(global, &current(global)?)?)?;
        variable(module.variable(CStr::from_ptr(name).to_bytes()), dptr, bytes)
    }

    /// Finds a managed variable of a library.
    fn cuLibraryGetManaged[Started](
        dptr: *mut CUdeviceptr,
        bytes: *mut usize,
        library: CUlibrary,
        name: *const c_char,
    ) {
        ensure(!name.is_null())?;
        let library = Library::find(global, library.addr() as u64)?;
        variable(library.managed(CStr::from_ptr(name).to_bytes()), dptr, bytes)
    }

    /// Returns a kernel's function in the current context.
    fn cuKernelGetFunction[Started](pFunc: *mut CUfunction, kernel: CUkernel) {
        ensure(!pFunc.is_null())?;
        let handle = find(global, kernel)?.function(global, &current(global)?)?;
        put(pFunc, ptr::without_provenance_mut(handle as usize))
    }

    /// Returns the library of a kernel.
    fn cuKernelGetLibrary[Started](pLib: *mut CUlibrary, kernel: CUkernel) {
        put(pLib, ptr::without_provenance_mut(find(global, kernel)?.library as usize))
    }

    /// Returns an attribute of a kernel on a device.
    fn cuKernelGetAttribute[Started](
        pi: *mut c_int,
        attrib: CUfunction_attribute,
        kernel: CUkernel,
        dev: CUdevice,
    ) {
        ensure(!pi.is_null())?;
        let (kernel, (device, _)) = (find(global, kernel)?, global.device(dev)?);
        put(pi, kernel.attributes(device).get(attrib, kernel.signature(), kernel.image())?)
    }

    /// Sets an attribute of a kernel on a device.
    fn cuKernelSetAttribute[Started](attrib: CUfunction_attribute, val: c_int, kernel: CUkernel, dev: CUdevice) {
        let (kernel, (device, _)) = (find(global, kernel)?, global.device(dev)?);
        kernel.attributes(device).set(attrib, val, kernel.signature())
    }

    /// Checks its arguments. softgpu has no caches.
    fn cuKernelSetCacheConfig[Started](kernel: CUkernel, config: CUfunc_cache, dev: CUdevice) {
        find(global, kernel)?;
        global.device(dev)?;
        ensure(config.0 <= CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL.0)
    }

    /// Returns the name of a kernel. It ends with the library.
    fn cuKernelGetName[Started](name: *mut *const c_char, hfunc: CUkernel) {
        put(name, find(global, hfunc)?.name.as_ptr())
    }

    /// Returns the number of parameters.
    fn cuKernelGetParamCount[Started](kernel: CUkernel, paramCount: *mut usize) {
        put(paramCount, known_parameters(global, find(global, kernel)?.signature())?.len())
    }

    /// Returns the place and the size of a parameter.
    fn cuKernelGetParamInfo[Started](
        kernel: CUkernel,
        paramIndex: usize,
        paramOffset: *mut usize,
        paramSize: *mut usize,
    ) {
        told_of_parameters(global, find(global, kernel)?.signature(), paramIndex, paramOffset, paramSize)
    }
}

/// Makes a library of an image. If the image is wrong, its first use says so, unless images are loaded at once.
///
/// # Safety
///
/// `out` and the places of the log are writable.
unsafe fn load(global: &Global, out: *mut CUlibrary, image: core::result::Result<Image, Refused>, log: &Log) -> Result {
    let found = image.as_ref().err().is_none_or(|refused| refused.code != CUresult::CUDA_ERROR_FILE_NOT_FOUND);
    let (image, refused) = match image {
        Err(refused) if is_lazy() && found => (Ok(Image::default()), Some(refused)),
        image => (image, None),
    };
    // SAFETY: by this function's contract.
    let image = Arc::new(unsafe { finish(image, log) }?);
    let handle = Library::load(global, image, refused)?;
    // SAFETY: by this function's contract.
    unsafe { put(out, ptr::without_provenance_mut(handle as usize)) }
}

fn find(global: &Global, kernel: CUkernel) -> Result<Arc<Kernel>> {
    global.kernels.get(kernel.addr() as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}
