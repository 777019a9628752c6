//! Memory of a CPU Vulkan driver, seen from CUDA.

use crate::common::machine;
use crate::cu;
use ash::{Entry, khr, vk};
use cuda_sys::{CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUexternalMemoryHandleType};
use softgpu::Settings;
use std::ptr;

/// The first CPU device, or the reason why there is none.
fn cpu_device(entry: &Entry) -> Result<(ash::Instance, vk::PhysicalDevice, [u8; 16]), String> {
    let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_1);
    let wish = vk::InstanceCreateInfo::default().application_info(&application);
    // SAFETY: the structure is well formed, and the entry outlives the instance.
    let instance = unsafe { entry.create_instance(&wish, None) }
        .map_err(|error| format!("no Vulkan driver ({error}): apt-get install mesa-vulkan-drivers"))?;
    // SAFETY: the instance is alive.
    for physical in unsafe { instance.enumerate_physical_devices() }.unwrap_or_default() {
        let mut id = vk::PhysicalDeviceIDProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut id);
        // SAFETY: the handle belongs to the instance.
        unsafe { instance.get_physical_device_properties2(physical, &mut properties) };
        if properties.properties.device_type == vk::PhysicalDeviceType::CPU {
            return Ok((instance, physical, id.device_uuid));
        }
    }
    Err("no CPU Vulkan device: apt-get install mesa-vulkan-drivers".to_owned())
}

fn skip(reason: &str) {
    assert!(std::env::var_os("CUDA_MEM_REQUIRE_VULKAN").is_none_or(|value| value != "1"), "{reason}");
    eprintln!("skipped: {reason}");
}

#[test]
fn cuda_and_vulkan_of_one_uuid_share_the_exported_memory() {
    // SAFETY: the library is the system's Vulkan loader.
    let entry = match unsafe { Entry::load() } {
        Ok(entry) => entry,
        Err(error) => return skip(&format!("no Vulkan loader ({error}): apt-get install libvulkan1")),
    };
    let (instance, physical, uuid) = match cpu_device(&entry) {
        Ok(found) => found,
        Err(reason) => return skip(&reason),
    };
    let m = machine(Settings { vulkan: true, ..Settings::default() });
    let mut identity = cuda_sys::CUuuid::default();
    assert_eq!(cu!(m, cuDeviceGetUuid_v2(&mut identity, 0)), 0);
    assert_eq!(identity.bytes.map(|byte| byte as u8), uuid);

    let size = 65536_u64;
    // SAFETY: the Vulkan calls get well formed structures and live handles, and the memory stays mapped while it is
    // used.
    unsafe {
        let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
        let names = [khr::external_memory_fd::NAME.as_ptr()];
        let wish = vk::DeviceCreateInfo::default().queue_create_infos(&queues).enabled_extension_names(&names);
        let device = instance.create_device(physical, &wish, None).unwrap();
        let external = khr::external_memory_fd::Device::new(&instance, &device);
        let kind = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(kind);
        let wish = vk::MemoryAllocateInfo::default().allocation_size(size).push_next(&mut export);
        let memory = device.allocate_memory(&wish, None).unwrap();
        let mapped = device.map_memory(memory, 0, size, vk::MemoryMapFlags::empty()).unwrap().cast::<u8>();
        let fd = vk::MemoryGetFdInfoKHR::default().memory(memory).handle_type(kind);
        let fd = external.get_memory_fd(&fd).unwrap();

        let (mut imported, mut address, mut second) = (ptr::null_mut(), 0, 0);
        let mut wish = CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
            type_: CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
            size,
            ..Default::default()
        };
        wish.handle.fd = fd;
        assert_eq!(cu!(m, cuImportExternalMemory(&mut imported, &wish)), 0);
        let range = CUDA_EXTERNAL_MEMORY_BUFFER_DESC { size, ..Default::default() };
        let rest = CUDA_EXTERNAL_MEMORY_BUFFER_DESC { offset: 4096, size: 100, ..Default::default() };
        assert_eq!(cu!(m, cuExternalMemoryGetMappedBuffer(&mut address, imported, &range)), 0);
        assert_eq!(cu!(m, cuExternalMemoryGetMappedBuffer(&mut second, imported, &rest)), 0);
        mapped.add(4096).write(42);
        assert_eq!((m.read(address + 4096, 1), m.read(second, 1)), (vec![42], vec![42]));
        assert_eq!(cu!(m, cuMemsetD8_v2(address, 9, size as usize)), 0);
        assert_eq!((mapped.read(), mapped.add(size as usize - 1).read()), (9, 9));
        for address in [address, second] {
            assert_eq!(cu!(m, cuMemFree_v2(address)), 0);
        }
        assert_eq!(cu!(m, cuDestroyExternalMemory(imported)), 0);
        device.unmap_memory(memory);
        device.free_memory(memory, None);
        device.destroy_device(None);
        instance.destroy_instance(None);
    }
    m.finish();
}
