//! Devices: identity, attributes, access to each other.

use crate::call::{Result, driver_calls, ensure, put};
use crate::state::Global;
use cuda_sys::{CUdevice, CUdevice_P2PAttribute, CUdevice_attribute, CUresult, CUuuid};
use std::ffi::{CStr, c_char, c_int};

driver_calls! {
    /// Returns the device with an ordinal.
    fn cuDeviceGet[Started](device: *mut CUdevice, ordinal: c_int) {
        ensure(!device.is_null())?;
        Global::get()?.device(ordinal)?;
        put(device, ordinal)
    }

    /// Returns the number of devices.
    fn cuDeviceGetCount[Started](count: *mut c_int) {
        put(count, Global::get()?.devices.len() as c_int)
    }

    /// Writes the device's name.
    fn cuDeviceGetName[Started](name: *mut c_char, len: c_int, dev: CUdevice) {
        let (index, _) = Global::get()?.device(dev)?;
        put_text(name, len, &format!("softgpu {index} (host memory)"))
    }

    /// Returns the UUID of the device.
    fn cuDeviceGetUuid[Started](uuid: *mut CUuuid, dev: CUdevice) {
        let (index, _) = Global::get()?.device(dev)?;
        put(uuid, identity(index))
    }

    /// Returns the UUID of the device.
    fn cuDeviceGetUuid_v2[Started](uuid: *mut CUuuid, dev: CUdevice) {
        let (index, _) = Global::get()?.device(dev)?;
        put(uuid, identity(index))
    }

    /// Returns the size of the device's memory in bytes.
    fn cuDeviceTotalMem_v2[Started](bytes: *mut usize, dev: CUdevice) {
        let (_, device) = Global::get()?.device(dev)?;
        put(bytes, device.store.total as usize)
    }

    /// Returns an attribute of the device.
    fn cuDeviceGetAttribute[Started](pi: *mut c_int, attrib: CUdevice_attribute, dev: CUdevice) {
        ensure(!pi.is_null())?;
        let global = Global::get()?;
        let (index, _) = global.device(dev)?;
        let chosen = global.settings.attributes.iter().find(|(number, _)| *number == attrib.0);
        let value = chosen.map_or_else(|| attribute(attrib, index), |(_, value)| *value);
        put(pi, value.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?)
    }

    /// Writes the device's PCI address.
    fn cuDeviceGetPCIBusId[Started](pciBusId: *mut c_char, len: c_int, dev: CUdevice) {
        let (index, _) = Global::get()?.device(dev)?;
        let text = bus_id(index);
        // Unlike a name, a PCI address is never cut.
        ensure(usize::try_from(len).is_ok_and(|room| room > text.len()))?;
        put_text(pciBusId, len, &text)
    }

    /// Finds a device by its PCI address.
    fn cuDeviceGetByPCIBusId[Started](dev: *mut CUdevice, pciBusId: *const c_char) {
        ensure(!dev.is_null() && !pciBusId.is_null())?;
        let wanted = CStr::from_ptr(pciBusId).to_string_lossy().to_lowercase();
        ensure(is_bus_id(&wanted))?;
        let matches = |index: &usize| {
            let id = bus_id(*index);
            id == wanted || id.strip_prefix("0000:").is_some_and(|short| short == wanted)
                || id.strip_suffix(".0").is_some_and(|short| short == wanted)
        };
        let index = (0..Global::get()?.devices.len()).find(matches).ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)?;
        put(dev, index as CUdevice)
    }

    /// Returns whether one device can access another's memory. All devices can.
    fn cuDeviceCanAccessPeer[Started](canAccessPeer: *mut c_int, dev: CUdevice, peerDev: CUdevice) {
        ensure(!canAccessPeer.is_null())?;
        let global = Global::get()?;
        let ((one, _), (other, _)) = (global.device(dev)?, global.device(peerDev)?);
        put(canAccessPeer, c_int::from(one != other))
    }

    /// Returns an attribute of a pair of devices.
    fn cuDeviceGetP2PAttribute[Started](
        value: *mut c_int,
        attrib: CUdevice_P2PAttribute,
        srcDevice: CUdevice,
        dstDevice: CUdevice,
    ) {
        ensure(!value.is_null())?;
        let global = Global::get()?;
        let ((from, _), (to, _)) = (global.device(srcDevice)?, global.device(dstDevice)?);
        if from == to {
            return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
        }
        put(value, match attrib {
            CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK
            | CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_ACCESS_SUPPORTED
            | CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED => 0,
            CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED
            | CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED => 1,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        })
    }
}

fn bus_id(index: usize) -> String {
    format!("0000:{:02x}:00.0", index + 1)
}

/// Whether a text has the form of a PCI address: hexadecimal numbers, `[domain:]bus:device[.function]`.
fn is_bus_id(text: &str) -> bool {
    text.contains(':') && text.split([':', '.']).all(|part| u32::from_str_radix(part, 16).is_ok())
}

/// Writes a text, cut to the room in the caller's buffer.
///
/// # Safety
///
/// `out` is null or has `room` writable bytes.
unsafe fn put_text(out: *mut c_char, room: c_int, text: &str) -> Result {
    ensure(!out.is_null() && room > 0)?;
    let kept = text.len().min(room as usize - 1);
    // SAFETY: `kept` bytes and the final zero are at most `room` bytes.
    unsafe {
        out.copy_from_nonoverlapping(text.as_ptr().cast(), kept);
        out.add(kept).write(0);
    }
    Ok(())
}

/// The UUID of the CPU Vulkan device with the same ordinal, or else a constant one.
fn identity(index: usize) -> CUuuid {
    let vulkan = Global::get().ok().and_then(|global| global.vulkan()?.uuid(index));
    let bytes = vulkan.unwrap_or_else(|| {
        let mut bytes = *b"softgpu device\0\0";
        bytes[15] = index as u8;
        bytes
    });
    CUuuid { bytes: bytes.map(|byte| byte as c_char) }
}

/// An attribute of a device; `None` if CUDA 13.0 does not know it.
fn attribute(attribute: CUdevice_attribute, index: usize) -> Option<c_int> {
    use CUdevice_attribute as A;
    Some(match attribute {
        A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK | A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X => 1024,
        A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y => 1024,
        A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z => 64,
        A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X | A::CU_DEVICE_ATTRIBUTE_MAX_PITCH => c_int::MAX,
        A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y | A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z => 65535,
        A::CU_DEVICE_ATTRIBUTE_WARP_SIZE => 32,
        A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => index as c_int + 1,
        A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => 9,
        A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID => 0,
        A::CU_DEVICE_ATTRIBUTE_NUMA_ID => -1,
        A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        | A::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT
        | A::CU_DEVICE_ATTRIBUTE_GPU_OVERLAP
        | A::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY
        | A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
        | A::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY
        | A::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
        | A::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        | A::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES
        | A::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS
        | A::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR => 1,
        CUdevice_attribute(1..=147) => 0,
        _ => return None,
    })
}
