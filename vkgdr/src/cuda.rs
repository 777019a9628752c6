//! The CUDA side: finds the requested device and imports Vulkan's memory.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Deref;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use cuda_sys::{
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUcontext, CUdevice, CUdeviceptr,
    CUexternalMemory, CUexternalMemoryHandleType, CUresult, CUuuid, Driver, MissingSymbol,
};

use crate::error::{self, Error};

/// Returns a CUDA function by name, or NULL. The library passes `user`, the pointer that it got together with this
/// function.
pub type Resolver = unsafe extern "C" fn(user: *mut c_void, name: *const c_char) -> *mut c_void;

/// The functions that every import needs.
const REQUIRED: [&str; 8] = [
    "cuCtxGetDevice",
    "cuCtxGetCurrent",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuImportExternalMemory",
    "cuExternalMemoryGetMappedBuffer",
    "cuDestroyExternalMemory",
    "cuMemFree_v2",
];

/// The CUDA driver that a handle works with.
#[derive(Clone)]
pub(crate) enum Cuda {
    /// The driver that cuda-sys found.
    System(&'static Driver),
    /// The driver whose functions the program supplied.
    Given(Arc<Driver>),
}

impl Deref for Cuda {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        match self {
            Self::System(driver) => driver,
            Self::Given(driver) => driver,
        }
    }
}

impl Cuda {
    /// Loads the system's CUDA driver.
    pub(crate) fn load() -> Result<Self, Error> {
        let driver = Driver::load().map_err(|error| Error::LibraryNotFound(error.to_string()))?;
        Self::System(driver).complete()
    }

    /// Takes the driver's functions from `resolver`.
    ///
    /// # Safety
    ///
    /// `resolver` is safe to call with `user`. The functions that it returns belong to the CUDA driver and stay valid
    /// as long as the handles do.
    pub(crate) unsafe fn given(resolver: Resolver, user: *mut c_void) -> Result<Self, Error> {
        let mut find = |name: &CStr| {
            // SAFETY: the caller's contract; the name ends with a zero byte.
            unsafe { resolver(user, name.as_ptr()) }.cast_const()
        };
        // SAFETY: by the caller's contract, the resolver returns the driver's functions.
        let driver = unsafe { Driver::from_resolver("the CUDA driver given", &mut find) };
        Self::Given(Arc::new(driver)).complete()
    }

    fn complete(self) -> Result<Self, Error> {
        let missing: Vec<&str> = REQUIRED.into_iter().filter(|name| !self.has(name)).collect();
        if missing.is_empty() {
            return Ok(self);
        }
        Err(Error::LibraryNotFound(format!(
            "{} lacks {}; CUDA 10.0 or later is needed",
            self.provider().library,
            missing.join(", ")
        )))
    }

    /// Returns the device of the calling thread's current context.
    pub(crate) fn current_device(&self) -> Result<CUdevice, Error> {
        let mut device: CUdevice = -1;
        // SAFETY: `device` is writable.
        check(unsafe { self.cuCtxGetDevice(&mut device) }, || {
            "there is no usable current CUDA context: cuCtxGetDevice failed".into()
        })?;
        Ok(device)
    }

    /// Returns a device's UUID. For a MIG device this is the UUID of its slice.
    pub(crate) fn uuid(&self, device: CUdevice) -> Result<[u8; 16], Error> {
        let mut uuid = CUuuid { bytes: [0; 16] };
        let result = if self.has("cuDeviceGetUuid_v2") {
            // SAFETY: `uuid` is writable.
            unsafe { self.cuDeviceGetUuid_v2(&mut uuid, device) }
        } else {
            // SAFETY: `uuid` is writable.
            unsafe { self.cuDeviceGetUuid(&mut uuid, device) }
        };
        check(result, || format!("asking for the UUID of CUDA device {device} failed"))?;
        Ok(uuid.bytes.map(|byte| byte.to_ne_bytes()[0]))
    }

    /// Returns the calling thread's current context, with its number if the driver can tell it.
    fn current_context(&self) -> Result<Context, Error> {
        let mut handle: CUcontext = ptr::null_mut();
        // SAFETY: `handle` is writable.
        check(unsafe { self.cuCtxGetCurrent(&mut handle) }, || "cuCtxGetCurrent failed".into())?;
        Ok(Context { handle, number: self.context_number(handle) })
    }

    fn context_number(&self, handle: CUcontext) -> Option<u64> {
        let mut number = 0;
        // SAFETY: the function checks the handle; `number` is writable.
        match unsafe { self.cuCtxGetId(handle, &mut number) } {
            Ok(CUresult::CUDA_SUCCESS) => Some(number),
            _ => None,
        }
    }
}

/// The context that was current when memory was imported.
struct Context {
    handle: CUcontext,
    /// Distinguishes this context from a later context at the same address.
    number: Option<u64>,
}

/// Vulkan's memory as CUDA sees it.
pub(crate) struct CudaMapping {
    cuda: Cuda,
    context: Context,
    external: CUexternalMemory,
    /// 0 until mapped.
    pub(crate) pointer: CUdeviceptr,
}

impl CudaMapping {
    /// Imports the allocation behind `fd`, `allocated` bytes long, into the current context and maps its first `size`
    /// bytes.
    pub(crate) fn import(cuda: &Cuda, fd: OwnedFd, allocated: u64, size: u64) -> Result<Self, Error> {
        let mut handle = CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
            type_: CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
            size: allocated,
            ..Default::default()
        };
        handle.handle.fd = fd.as_raw_fd();
        let mut mapping =
            Self { cuda: cuda.clone(), context: cuda.current_context()?, external: ptr::null_mut(), pointer: 0 };
        // SAFETY: the structure describes an open descriptor; the result is writable.
        let result = unsafe { cuda.cuImportExternalMemory(&mut mapping.external, &handle) };
        check(result, || format!("importing {size} bytes of Vulkan memory into CUDA failed: cuImportExternalMemory"))?;
        // From here on CUDA owns the descriptor.
        let _: c_int = fd.into_raw_fd();
        let buffer = CUDA_EXTERNAL_MEMORY_BUFFER_DESC { offset: 0, size, ..Default::default() };
        // SAFETY: `external` was imported above and holds at least `size` bytes; the result is writable.
        let result = unsafe { cuda.cuExternalMemoryGetMappedBuffer(&mut mapping.pointer, mapping.external, &buffer) };
        check(result, || {
            format!("mapping {size} bytes of Vulkan memory into CUDA failed: cuExternalMemoryGetMappedBuffer")
        })?;
        Ok(mapping)
    }

    /// Returns whether the driver still has the context in which the memory was imported. If the driver cannot tell,
    /// this returns true, and the push reports a missing context.
    fn context_lives(&self) -> bool {
        match self.context.number {
            Some(number) => self.cuda.context_number(self.context.handle) == Some(number),
            None => true,
        }
    }

    fn release(&mut self) -> Result<(), Error> {
        if self.external.is_null() || !self.context_lives() {
            return Ok(());
        }
        let cuda = &self.cuda;
        // SAFETY: the context was current when the memory was imported. The driver checks whether it still exists.
        let pushed = unsafe { cuda.cuCtxPushCurrent_v2(self.context.handle) };
        check(pushed, || "making the memory's CUDA context current failed: cuCtxPushCurrent".into())?;
        let freed = match self.pointer {
            0 => Ok(CUresult::CUDA_SUCCESS),
            // SAFETY: this object owns the mapping, and this is its only release.
            pointer => unsafe { cuda.cuMemFree_v2(pointer) },
        };
        // SAFETY: this object owns the import, its one mapping is gone, and this is its only release.
        let destroyed = unsafe { cuda.cuDestroyExternalMemory(self.external) };
        let mut popped = ptr::null_mut();
        // SAFETY: this pops the context pushed above; the result is writable.
        let restored = unsafe { cuda.cuCtxPopCurrent_v2(&mut popped) };
        check(freed, || "freeing the CUDA mapping failed: cuMemFree".into())?;
        check(destroyed, || "cuDestroyExternalMemory failed".into())?;
        check(restored, || "cuCtxPopCurrent failed".into())
    }
}

impl Drop for CudaMapping {
    fn drop(&mut self) {
        match self.release() {
            Ok(()) => {}
            // The driver shut down, or the context ended first. Either has already released the mapping.
            Err(Error::Cuda { code, .. }) if gone(CUresult(code)) => {}
            Err(error) => error::set(&error),
        }
    }
}

/// Returns whether a code says that a context, or the whole driver, no longer exists.
fn gone(code: CUresult) -> bool {
    matches!(
        code,
        CUresult::CUDA_ERROR_DEINITIALIZED
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUresult::CUDA_ERROR_INVALID_CONTEXT
    )
}

fn check(result: Result<CUresult, MissingSymbol>, what: impl FnOnce() -> String) -> Result<(), Error> {
    match result {
        Ok(CUresult::CUDA_SUCCESS) => Ok(()),
        Ok(code) => Err(Error::Cuda {
            what: what(),
            code: code.0,
            name: code.name().map_or_else(|| format!("CUresult {}", code.0), String::from),
        }),
        Err(missing) => Err(Error::LibraryNotFound(missing.to_string())),
    }
}
