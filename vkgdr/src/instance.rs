//! The Vulkan instance, and what it reports about the physical devices.

use std::ffi::CStr;

use ash::vk;

use crate::error::Error;
use crate::library::{self, Kind, VulkanLibrary};
use crate::trace;

/// Functions that are called later without another check that they exist.
const REQUIRED: [&CStr; 8] = [
    c"vkEnumeratePhysicalDevices",
    c"vkGetPhysicalDeviceProperties2",
    c"vkGetPhysicalDeviceMemoryProperties",
    c"vkGetPhysicalDeviceQueueFamilyProperties",
    c"vkGetPhysicalDeviceExternalBufferProperties",
    c"vkEnumerateDeviceExtensionProperties",
    c"vkCreateDevice",
    c"vkGetDeviceProcAddr",
];

/// One `VkInstance`. It lives until the cache and its last device release it.
pub(crate) struct Instance {
    raw: ash::Instance,
    pub(crate) library: String,
    #[cfg_attr(not(feature = "describe"), expect(dead_code, reason = "only `describe` reads it"))]
    pub(crate) kind: Kind,
    /// The version that the library offers. It may exceed 1.1, the version that this crate requests.
    #[cfg_attr(not(feature = "describe"), expect(dead_code, reason = "only `describe` reads it"))]
    pub(crate) version: u32,
}

/// The identity of a physical device.
pub(crate) struct Identity {
    pub(crate) handle: vk::PhysicalDevice,
    pub(crate) name: String,
    pub(crate) uuid: [u8; 16],
    pub(crate) properties: vk::PhysicalDeviceProperties,
}

/// Whether a device can export and import memory as an opaque file descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpaqueFd {
    /// The device has `VK_KHR_external_memory_fd`.
    pub(crate) extension: bool,
    pub(crate) exportable: bool,
    #[cfg_attr(not(feature = "describe"), expect(dead_code, reason = "only `describe` reads it"))]
    pub(crate) importable: bool,
}

impl Instance {
    /// Opens a Vulkan library and creates an instance of version 1.1. It enables no layers or extensions.
    pub(crate) fn create(library: &str) -> Result<Self, Error> {
        let VulkanLibrary { name, kind, entry } = trace::step("open Vulkan library", || library::open(library))?;
        // SAFETY: the entry's functions belong to a loaded Vulkan library.
        let version = unsafe { entry.try_enumerate_instance_version() }
            .map_err(|code| Error::vulkan("vkEnumerateInstanceVersion failed", code))?
            .unwrap_or(vk::API_VERSION_1_0);
        if version < vk::API_VERSION_1_1 {
            return Err(Error::vulkan(
                format!("{name} offers Vulkan {}; 1.1 is needed", version_text(version)),
                vk::Result::ERROR_INCOMPATIBLE_DRIVER,
            ));
        }
        let application = vk::ApplicationInfo::default()
            .application_name(c"vkgdr")
            .engine_name(c"vkgdr")
            .api_version(vk::API_VERSION_1_1);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        let raw = trace::step("vkCreateInstance", || {
            // SAFETY: `info` and what it points to live across the call.
            unsafe { entry.create_instance(&info, None) }
        })
        .map_err(|code| creation_failed(&name, code))?;
        let handle = raw.handle();
        let has = |function: &CStr| {
            // SAFETY: the instance is alive, and the name ends with a zero byte.
            unsafe { entry.get_instance_proc_addr(handle, function.as_ptr()) }.is_some()
        };
        // Check vkDestroyInstance first: without it, the instance could not be dropped.
        library::require(&[c"vkDestroyInstance"], &name, has)?;
        let instance = Self { raw, library: name, kind, version };
        library::require(&REQUIRED, &instance.library, has)?;
        Ok(instance)
    }

    pub(crate) fn raw(&self) -> &ash::Instance {
        &self.raw
    }

    /// Lists all physical devices of Vulkan 1.1 and later.
    pub(crate) fn devices(&self) -> Result<Vec<Identity>, Error> {
        let handles = trace::step("vkEnumeratePhysicalDevices", || {
            // SAFETY: the instance is alive.
            unsafe { self.raw.enumerate_physical_devices() }
        })
        .map_err(|code| Error::vulkan("listing the Vulkan devices failed", code))?;
        Ok(handles.into_iter().filter_map(|handle| self.identify(handle)).collect())
    }

    fn identify(&self, handle: vk::PhysicalDevice) -> Option<Identity> {
        // SAFETY: `handle` came from this instance.
        let version = unsafe { self.raw.get_physical_device_properties(handle) }.api_version;
        if version < vk::API_VERSION_1_1 {
            return None;
        }
        let mut ids = vk::PhysicalDeviceIDProperties::default();
        let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut ids);
        // SAFETY: `handle` came from this instance and is of Vulkan 1.1, which has this function and structure.
        unsafe { self.raw.get_physical_device_properties2(handle, &mut all) };
        let properties = all.properties;
        Some(Identity { handle, name: text(&properties.device_name), uuid: ids.device_uuid, properties })
    }

    /// Returns the memory types and heaps of a device.
    pub(crate) fn memory(&self, device: &Identity) -> vk::PhysicalDeviceMemoryProperties {
        // SAFETY: the handle came from this instance.
        unsafe { self.raw.get_physical_device_memory_properties(device.handle) }
    }

    /// Returns the capabilities and the number of queues of each of a device's queue families.
    pub(crate) fn queue_families(&self, device: &Identity) -> Vec<(vk::QueueFlags, u32)> {
        // SAFETY: the handle came from this instance.
        unsafe { self.raw.get_physical_device_queue_family_properties(device.handle) }
            .iter()
            .map(|family| (family.queue_flags, family.queue_count))
            .collect()
    }

    /// Returns the names of a device's extensions.
    pub(crate) fn extensions(&self, device: &Identity) -> Result<Vec<String>, Error> {
        // SAFETY: the handle came from this instance.
        let extensions = unsafe { self.raw.enumerate_device_extension_properties(device.handle) }
            .map_err(|code| Error::vulkan("listing the device's extensions failed", code))?;
        Ok(extensions.iter().map(|extension| text(&extension.extension_name)).collect())
    }

    /// Returns what the device can do with opaque file descriptors.
    pub(crate) fn opaque_fd(&self, device: &Identity, extensions: &[String]) -> OpaqueFd {
        let info = vk::PhysicalDeviceExternalBufferInfo::default()
            .usage(vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST)
            .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        let mut answer = vk::ExternalBufferProperties::default();
        // SAFETY: the handle came from this instance and is of Vulkan 1.1, which has this function.
        unsafe {
            self.raw.get_physical_device_external_buffer_properties(device.handle, &info, &mut answer);
        }
        let features = answer.external_memory_properties.external_memory_features;
        let name = ash::khr::external_memory_fd::NAME.to_string_lossy();
        OpaqueFd {
            extension: extensions.iter().any(|extension| *extension == name),
            exportable: features.contains(vk::ExternalMemoryFeatureFlags::EXPORTABLE),
            importable: features.contains(vk::ExternalMemoryFeatureFlags::IMPORTABLE),
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: every device holds a reference to its instance, so no device is left. The handle is not used again.
        trace::step("vkDestroyInstance", || unsafe {
            self.raw.destroy_instance(None);
        });
    }
}

fn creation_failed(library: &str, code: vk::Result) -> Error {
    let what = if code == vk::Result::ERROR_INCOMPATIBLE_DRIVER {
        format!(
            "{library} found no Vulkan driver; NVIDIA's comes with its display driver (nvidia_icd.json in \
             /usr/share/vulkan/icd.d or /etc/vulkan/icd.d, or named by VK_DRIVER_FILES), and in a container needs \
             `graphics` in NVIDIA_DRIVER_CAPABILITIES"
        )
    } else {
        format!("vkCreateInstance of {library} failed")
    };
    Error::vulkan(what, code)
}

/// "major.minor.patch" of a Vulkan version number.
pub(crate) fn version_text(version: u32) -> String {
    format!("{}.{}.{}", vk::api_version_major(version), vk::api_version_minor(version), vk::api_version_patch(version))
}

/// Reads one of Vulkan's fixed character arrays.
pub(crate) fn text(array: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> =
        array.iter().map(|character| character.to_ne_bytes()[0]).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
