//! The Vulkan device that is the same GPU as the CUDA device, ready to allocate memory that can be mapped and exported.

use std::ffi::CStr;
use std::sync::Arc;

use ash::vk::{self, MemoryPropertyFlags};

use crate::error::Error;
use crate::instance::{Identity, Instance};
use crate::{library, select, trace};

/// NVIDIA's PCI vendor number.
pub(crate) const NVIDIA: u32 = 0x10de;

/// Functions that are called later without another check that they exist.
const REQUIRED: [&CStr; 7] = [
    c"vkAllocateMemory",
    c"vkFreeMemory",
    c"vkMapMemory",
    c"vkUnmapMemory",
    c"vkFlushMappedMemoryRanges",
    c"vkInvalidateMappedMemoryRanges",
    c"vkGetMemoryFdKHR",
];

/// One `VkDevice`, and the memory type that was chosen for it.
pub(crate) struct Device {
    raw: ash::Device,
    fd: ash::khr::external_memory_fd::Device,
    pub(crate) name: String,
    pub(crate) uuid: [u8; 16],
    pub(crate) memory: MemoryChoice,
    pub(crate) atom: u64,
    // Declared after `raw`, because the device must be destroyed before its instance.
    _instance: Arc<Instance>,
}

/// The memory type that all allocations of a device use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryChoice {
    pub(crate) index: u32,
    pub(crate) coherent: bool,
    pub(crate) heap: u32,
    pub(crate) heap_size: u64,
}

impl Device {
    /// Creates the device whose UUID is `uuid`.
    pub(crate) fn open(instance: &Arc<Instance>, uuid: [u8; 16]) -> Result<Self, Error> {
        let found = instance.devices()?;
        let mut failure = None;
        for identity in found.iter().filter(|identity| identity.uuid == uuid) {
            match Self::create(instance, identity) {
                Ok(device) => return Ok(device),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| no_match(uuid, &found)))
    }

    fn create(instance: &Arc<Instance>, identity: &Identity) -> Result<Self, Error> {
        let name = &identity.name;
        let extensions = instance.extensions(identity)?;
        let fd = instance.opaque_fd(identity, &extensions);
        if !fd.extension {
            return Err(Error::vulkan(
                format!("the Vulkan device {name} lacks the extension VK_KHR_external_memory_fd"),
                vk::Result::ERROR_EXTENSION_NOT_PRESENT,
            ));
        }
        if !fd.exportable {
            return Err(Error::vulkan(
                format!("the Vulkan device {name} cannot export memory as an opaque file descriptor"),
                vk::Result::ERROR_FEATURE_NOT_PRESENT,
            ));
        }
        let memory = choose_memory(&instance.memory(identity)).ok_or_else(|| {
            Error::vulkan(
                format!(
                    "the Vulkan device {name} has no suitable memory type: none is both device-local and \
                     host-visible"
                ),
                vk::Result::ERROR_FEATURE_NOT_PRESENT,
            )
        })?;
        let family = select::queue_family(&instance.queue_families(identity)).ok_or_else(|| {
            Error::vulkan(format!("the Vulkan device {name} has no queue"), vk::Result::ERROR_FEATURE_NOT_PRESENT)
        })?;
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(u32::try_from(family).unwrap_or(0))
            .queue_priorities(&[1.0])];
        let enabled = [ash::khr::external_memory_fd::NAME.as_ptr()];
        let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues).enabled_extension_names(&enabled);
        let raw = trace::step("vkCreateDevice", || {
            // SAFETY: `info` and what it points to live across the call. The handle came from this instance, the device
            // has the extension, and the queue family exists and has a queue.
            unsafe { instance.raw().create_device(identity.handle, &info, None) }
        })
        .map_err(|code| Error::vulkan(format!("vkCreateDevice on {name} failed"), code))?;
        let handle = raw.handle();
        let has = |function: &CStr| {
            // SAFETY: the device is alive, and the name ends with a zero byte.
            unsafe { instance.raw().get_device_proc_addr(handle, function.as_ptr()) }.is_some()
        };
        let owner = format!("the Vulkan driver of {name}");
        // Check vkDestroyDevice first: without it, the device could not be dropped.
        library::require(&[c"vkDestroyDevice"], &owner, has)?;
        let device = Self {
            fd: ash::khr::external_memory_fd::Device::new(instance.raw(), &raw),
            raw,
            name: name.clone(),
            uuid: identity.uuid,
            memory,
            atom: identity.properties.limits.non_coherent_atom_size.max(1),
            _instance: Arc::clone(instance),
        };
        library::require(&REQUIRED, &owner, has)?;
        Ok(device)
    }

    pub(crate) fn raw(&self) -> &ash::Device {
        &self.raw
    }

    /// The functions of `VK_KHR_external_memory_fd`.
    pub(crate) fn fd(&self) -> &ash::khr::external_memory_fd::Device {
        &self.fd
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: every allocation holds a reference to its device, so no allocation is left. The handle is not used
        // again.
        trace::step("vkDestroyDevice", || unsafe {
            self.raw.destroy_device(None);
        });
    }
}

/// Chooses the memory type for a device with these memory properties.
pub(crate) fn choose_memory(memory: &vk::PhysicalDeviceMemoryProperties) -> Option<MemoryChoice> {
    let types = memory.memory_types_as_slice();
    let flags: Vec<MemoryPropertyFlags> = types.iter().map(|one| one.property_flags).collect();
    let index = select::memory_type(&flags)?;
    let heap = types[index].heap_index;
    Some(MemoryChoice {
        index: u32::try_from(index).ok()?,
        coherent: flags[index].contains(MemoryPropertyFlags::HOST_COHERENT),
        heap,
        heap_size: memory.memory_heaps.get(heap as usize)?.size,
    })
}

/// Formats a UUID as nvidia-smi prints it.
pub(crate) fn uuid_text(uuid: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

fn no_match(uuid: [u8; 16], found: &[Identity]) -> Error {
    let list: Vec<String> = found.iter().map(|one| format!("{} ({})", uuid_text(one.uuid), one.name)).collect();
    let offer = if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    let nvidia = found.iter().any(|one| one.properties.vendor_id == NVIDIA);
    let hint = if nvidia {
        "a MIG instance has no Vulkan device: use the whole GPU"
    } else {
        "NVIDIA's Vulkan driver is not among them: in a container NVIDIA_DRIVER_CAPABILITIES needs `graphics`, \
         elsewhere its nvidia_icd.json must be found (VK_DRIVER_FILES can name it); a MIG instance has no Vulkan \
         device either"
    };
    Error::NoDevice(format!(
        "no Vulkan device matching the CUDA device found: CUDA's has UUID {}, Vulkan offers {offer}; {hint}",
        uuid_text(uuid)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_device_is_described_with_what_was_found() {
        let text = no_match([0xab; 16], &[]).to_string();
        assert!(text.contains("abababab-abab-abab-abab-abababababab"));
        assert!(text.contains("offers none") && text.contains("graphics"));
    }
}
