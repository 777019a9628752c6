//! Memory of CPU Vulkan drivers. softgpu imports their opaque file descriptors into a Vulkan device of its own and maps
//! them, so a CUDA address here refers to the exporter's memory.

use crate::call::Result;
use ash::{Entry, Instance, khr, vk};
use cuda_sys::CUresult;
use once_cell::sync::OnceCell;
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

/// The machine's CPU Vulkan devices. The instance and the devices live until the process ends.
pub(crate) struct Vulkan {
    _entry: Entry,
    instance: Instance,
    devices: Vec<Device>,
}

struct Device {
    physical: vk::PhysicalDevice,
    uuid: [u8; 16],
    logical: OnceCell<Arc<Logical>>,
}

struct Logical {
    device: ash::Device,
    /// The first memory type that the CPU can map coherently.
    memory_type: u32,
}

impl fmt::Debug for Vulkan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.devices.iter().map(|device| device.uuid)).finish()
    }
}

impl Vulkan {
    /// Finds the CPU devices. `None` without a Vulkan loader, a driver or such a device.
    pub(crate) fn open() -> Option<Self> {
        // SAFETY: the library is the system's Vulkan loader.
        let entry = unsafe { Entry::load() }.ok()?;
        let application = vk::ApplicationInfo::default().application_name(c"softgpu").api_version(vk::API_VERSION_1_1);
        let wish = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: `wish` is well formed; the instance is used while `entry` lives.
        let instance = unsafe { entry.create_instance(&wish, None) }.ok()?;
        // SAFETY: the instance is alive.
        let all = unsafe { instance.enumerate_physical_devices() }.unwrap_or_default();
        let devices: Vec<_> = all.into_iter().filter_map(|physical| Device::look(&instance, physical)).collect();
        if devices.is_empty() {
            // SAFETY: nothing made from the instance is in use.
            unsafe { instance.destroy_instance(None) };
            return None;
        }
        Some(Self { _entry: entry, instance, devices })
    }

    pub(crate) fn uuid(&self, index: usize) -> Option<[u8; 16]> {
        self.devices.get(index).map(|device| device.uuid)
    }

    /// Imports `size` bytes of memory of a device. The caller keeps the descriptor.
    pub(crate) fn import(&self, index: usize, fd: BorrowedFd<'_>, size: u64) -> Result<Imported> {
        let device = self.devices.get(index).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let logical = device.logical(&self.instance)?.clone();
        let copy = fd.try_clone_to_owned().map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
        logical.import(copy, size)
    }
}

impl Device {
    fn look(instance: &Instance, physical: vk::PhysicalDevice) -> Option<Self> {
        let mut id = vk::PhysicalDeviceIDProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut id);
        // SAFETY: the handle came from this instance, whose version is 1.1.
        unsafe { instance.get_physical_device_properties2(physical, &mut properties) };
        let is_cpu = properties.properties.device_type == vk::PhysicalDeviceType::CPU;
        is_cpu.then_some(Self { physical, uuid: id.device_uuid, logical: OnceCell::new() })
    }

    fn logical(&self, instance: &Instance) -> Result<&Arc<Logical>> {
        self.logical.get_or_try_init(|| {
            let priorities = [1.0];
            let queue = [vk::DeviceQueueCreateInfo::default().queue_priorities(&priorities)];
            let extensions = [khr::external_memory_fd::NAME.as_ptr()];
            let wish = vk::DeviceCreateInfo::default().queue_create_infos(&queue).enabled_extension_names(&extensions);
            // SAFETY: the handle came from this instance; `wish` is well formed; a device has queue family 0.
            let device = unsafe { instance.create_device(self.physical, &wish, None) }.map_err(answer)?;
            // SAFETY: as above.
            let memory = unsafe { instance.get_physical_device_memory_properties(self.physical) };
            let wanted = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
            let types = memory.memory_types_as_slice();
            let found = types.iter().position(|kind| kind.property_flags.contains(wanted));
            let memory_type = found.ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)? as u32;
            Ok(Arc::new(Logical { device, memory_type }))
        })
    }
}

impl Logical {
    fn import(self: Arc<Self>, fd: OwnedFd, size: u64) -> Result<Imported> {
        let kind = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
        let mut import = vk::ImportMemoryFdInfoKHR::default().handle_type(kind).fd(fd.as_raw_fd());
        let wish = vk::MemoryAllocateInfo::default()
            .allocation_size(size)
            .memory_type_index(self.memory_type)
            .push_next(&mut import);
        // SAFETY: `wish` is well formed and the extension is enabled.
        let memory = unsafe { self.device.allocate_memory(&wish, None) }.map_err(answer)?;
        // The driver owns the descriptor from here on.
        let _ = fd.into_raw_fd();
        // SAFETY: the memory belongs to this device, can be mapped, and is not mapped yet.
        let mapped = unsafe { self.device.map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()) };
        match mapped {
            Ok(address) => Ok(Imported { logical: self, memory, base: address.expose_provenance(), offset: 0 }),
            Err(error) => {
                // SAFETY: nothing uses the memory.
                unsafe { self.device.free_memory(memory, None) };
                Err(answer(error))
            }
        }
    }
}

fn answer(error: vk::Result) -> CUresult {
    match error {
        vk::Result::ERROR_OUT_OF_HOST_MEMORY | vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY
        }
        vk::Result::ERROR_INVALID_EXTERNAL_HANDLE => CUresult::CUDA_ERROR_INVALID_VALUE,
        _ => CUresult::CUDA_ERROR_UNKNOWN,
    }
}

/// Memory of another Vulkan device, imported and mapped. Dropping the value frees it.
pub(crate) struct Imported {
    logical: Arc<Logical>,
    memory: vk::DeviceMemory,
    base: usize,
    offset: u64,
}

impl Imported {
    /// The same memory from an offset on.
    pub(crate) fn at(mut self, offset: u64) -> Self {
        self.offset = offset;
        self
    }

    pub(crate) fn base(&self) -> usize {
        self.base + self.offset as usize
    }
}

impl fmt::Debug for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Imported").field("base", &self.base).field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        // SAFETY: this value owns the memory, and every user of its address holds the value.
        unsafe {
            self.logical.device.unmap_memory(self.memory);
            self.logical.device.free_memory(self.memory, None);
        }
    }
}
