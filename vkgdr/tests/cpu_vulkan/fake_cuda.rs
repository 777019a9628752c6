//! A CUDA driver of ten functions over a Vulkan device. It imports memory into a second Vulkan device and maps it
//! there; that mapping is the device address. It counts live imports and fails on demand.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use ash::vk;
use cuda_sys::{
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUcontext, CUdevice, CUdeviceptr,
    CUexternalMemory, CUresult, CUuuid,
};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;

/// The Vulkan device that plays the GPU.
pub struct Gpu {
    // Keeps the library loaded, which holds the device's functions.
    _library: libloading::os::unix::Library,
    device: ash::Device,
    pub uuid: [u8; 16],
    imports: Mutex<HashMap<usize, u64>>,
}

static GPU: OnceLock<Option<Gpu>> = OnceLock::new();
static FAILING: Mutex<Option<(&'static str, CUresult)>> = Mutex::new(None);
static NO_CONTEXT: AtomicBool = AtomicBool::new(false);
static STACK_DEPTH: AtomicUsize = AtomicUsize::new(0);

/// The CPU Vulkan device, if there is one.
pub fn gpu() -> Option<&'static Gpu> {
    GPU.get_or_init(open_gpu).as_ref()
}

impl Gpu {
    /// Number of imports that were not destroyed.
    pub fn live(&self) -> usize {
        self.imports.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

fn open_gpu() -> Option<Gpu> {
    // SAFETY: a Vulkan library is loaded, and its functions are called as the Vulkan specification requires.
    unsafe {
        let library = libloading::os::unix::Library::new("libvulkan.so.1").ok()?;
        let get_instance_proc_addr = *library.get(b"vkGetInstanceProcAddr").ok()?;
        let entry = ash::Entry::from_static_fn(ash::StaticFn { get_instance_proc_addr });
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_1);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        let instance = entry.create_instance(&info, None).ok()?;
        let physical = instance
            .enumerate_physical_devices()
            .ok()?
            .into_iter()
            .find(|one| instance.get_physical_device_properties(*one).device_type == vk::PhysicalDeviceType::CPU)?;
        let mut ids = vk::PhysicalDeviceIDProperties::default();
        let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut ids);
        instance.get_physical_device_properties2(physical, &mut all);
        let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
        let extensions = [ash::khr::external_memory_fd::NAME.as_ptr()];
        let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues).enabled_extension_names(&extensions);
        let device = instance.create_device(physical, &info, None).ok()?;
        Some(Gpu { _library: library, device, uuid: ids.device_uuid, imports: Mutex::default() })
    }
}

/// Makes one function fail with a code until the returned value is dropped.
pub fn failing(name: &'static str, code: CUresult) -> impl Drop {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            *FAILING.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
    *FAILING.lock().unwrap_or_else(PoisonError::into_inner) = Some((name, code));
    Reset
}

/// Sets whether a context is current.
pub fn set_context(current: bool) {
    NO_CONTEXT.store(!current, Ordering::Relaxed);
}

/// Number of contexts pushed and not popped.
pub fn stack_depth() -> usize {
    STACK_DEPTH.load(Ordering::Relaxed)
}

fn fault(name: &str) -> Result<(), CUresult> {
    match *FAILING.lock().unwrap_or_else(PoisonError::into_inner) {
        Some((failing, code)) if failing == name => Err(code),
        _ => Ok(()),
    }
}

macro_rules! checked {
    ($name:literal) => {
        if let Err(code) = fault($name) {
            return code;
        }
    };
}

unsafe extern "C" fn ctx_get_device(device: *mut CUdevice) -> CUresult {
    checked!("cuCtxGetDevice");
    if NO_CONTEXT.load(Ordering::Relaxed) {
        return CUresult::CUDA_ERROR_INVALID_CONTEXT;
    }
    // SAFETY: the caller passes a writable place.
    unsafe { *device = 0 };
    SUCCESS
}

unsafe extern "C" fn ctx_get_current(context: *mut CUcontext) -> CUresult {
    checked!("cuCtxGetCurrent");
    // SAFETY: the caller passes a writable place.
    unsafe { *context = ptr::without_provenance_mut(0x1000) };
    SUCCESS
}

unsafe extern "C" fn ctx_push(_context: CUcontext) -> CUresult {
    checked!("cuCtxPushCurrent_v2");
    STACK_DEPTH.fetch_add(1, Ordering::Relaxed);
    SUCCESS
}

unsafe extern "C" fn ctx_pop(_context: *mut CUcontext) -> CUresult {
    checked!("cuCtxPopCurrent_v2");
    STACK_DEPTH.fetch_sub(1, Ordering::Relaxed);
    SUCCESS
}

unsafe extern "C" fn device_get_uuid(uuid: *mut CUuuid, device: CUdevice) -> CUresult {
    checked!("cuDeviceGetUuid_v2");
    let Some(gpu) = gpu() else { return CUresult::CUDA_ERROR_NOT_INITIALIZED };
    let bytes = match device {
        0 => gpu.uuid,
        // A device that Vulkan does not have.
        1 => [0xee; 16],
        _ => return CUresult::CUDA_ERROR_INVALID_DEVICE,
    };
    // SAFETY: the caller passes a writable place.
    unsafe { (*uuid).bytes = bytes.map(|byte| c_char::from_ne_bytes([byte])) };
    SUCCESS
}

unsafe extern "C" fn import(out: *mut CUexternalMemory, desc: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC) -> CUresult {
    checked!("cuImportExternalMemory");
    let Some(gpu) = gpu() else { return CUresult::CUDA_ERROR_NOT_INITIALIZED };
    // SAFETY: the caller passes a descriptor of this form. Vulkan owns it once the call succeeds.
    unsafe {
        let mut source = vk::ImportMemoryFdInfoKHR::default()
            .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD)
            .fd((*desc).handle.fd);
        let info = vk::MemoryAllocateInfo::default().allocation_size((*desc).size).push_next(&mut source);
        let Ok(memory) = gpu.device.allocate_memory(&info, None) else { return CUresult::CUDA_ERROR_UNKNOWN };
        let Ok(address) = gpu.device.map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()) else {
            gpu.device.free_memory(memory, None);
            return CUresult::CUDA_ERROR_MAP_FAILED;
        };
        gpu.imports.lock().unwrap_or_else(PoisonError::into_inner).insert(address.addr(), vk::Handle::as_raw(memory));
        *out = address.cast();
    }
    SUCCESS
}

unsafe extern "C" fn map(
    out: *mut CUdeviceptr,
    external: CUexternalMemory,
    _desc: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
) -> CUresult {
    checked!("cuExternalMemoryGetMappedBuffer");
    // SAFETY: the caller passes a writable place.
    unsafe { *out = external.addr() as CUdeviceptr };
    SUCCESS
}

unsafe extern "C" fn destroy(external: CUexternalMemory) -> CUresult {
    checked!("cuDestroyExternalMemory");
    let Some(gpu) = gpu() else { return CUresult::CUDA_ERROR_NOT_INITIALIZED };
    let Some(memory) = gpu.imports.lock().unwrap_or_else(PoisonError::into_inner).remove(&external.addr()) else {
        return CUresult::CUDA_ERROR_INVALID_HANDLE;
    };
    // SAFETY: the import was live, and is removed from the list.
    unsafe { gpu.device.free_memory(<vk::DeviceMemory as vk::Handle>::from_raw(memory), None) };
    SUCCESS
}

unsafe extern "C" fn mem_free(_pointer: CUdeviceptr) -> CUresult {
    checked!("cuMemFree_v2");
    SUCCESS
}

unsafe extern "C" fn driver_get_version(version: *mut c_int) -> CUresult {
    // SAFETY: the caller passes a writable place.
    unsafe { *version = 12_000 };
    SUCCESS
}

/// The function that vkgdr_open_with_cuda calls. `user` is NULL, or the name of a function to leave out.
pub unsafe extern "C" fn resolve(user: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the library passes a name; `user` is what the test passed.
    let (name, missing) = unsafe {
        let missing = (!user.is_null()).then(|| CStr::from_ptr(user.cast()).to_bytes());
        (CStr::from_ptr(name).to_bytes(), missing)
    };
    if missing == Some(name) {
        return ptr::null_mut();
    }
    let address = match name {
        b"cuDriverGetVersion" => driver_get_version as *const c_void,
        b"cuCtxGetDevice" => ctx_get_device as *const c_void,
        b"cuCtxGetCurrent" => ctx_get_current as *const c_void,
        b"cuCtxPushCurrent_v2" => ctx_push as *const c_void,
        b"cuCtxPopCurrent_v2" => ctx_pop as *const c_void,
        b"cuDeviceGetUuid_v2" => device_get_uuid as *const c_void,
        b"cuImportExternalMemory" => import as *const c_void,
        b"cuExternalMemoryGetMappedBuffer" => map as *const c_void,
        b"cuDestroyExternalMemory" => destroy as *const c_void,
        b"cuMemFree_v2" => mem_free as *const c_void,
        _ => ptr::null(),
    };
    address.cast_mut()
}
