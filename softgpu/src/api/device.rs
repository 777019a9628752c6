//! Devices: identity, attributes, access to each other.

use crate::call::{Result, driver_calls, ensure, put};
use crate::state::Global;
use crate::state::devices::{self, Device, attribute, bus, identity};
use cuda_sys::{CUdevice, CUdevice_P2PAttribute, CUdevice_attribute, CUresult, CUuuid};
use std::ffi::{CStr, c_char, c_int};

driver_calls! {
    |global: &'static Global|

    /// Returns the device with an ordinal.
    fn cuDeviceGet[Started](device: *mut CUdevice, ordinal: c_int) {
        ensure(!device.is_null())?;
        global.device(ordinal)?;
        put(device, ordinal)
    }

    /// Returns the number of devices.
    fn cuDeviceGetCount[Started](count: *mut c_int) {
        put(count, global.devices.len() as c_int)
    }

    /// Writes the device's name.
    fn cuDeviceGetName[Started](name: *mut c_char, len: c_int, dev: CUdevice) {
        let (_, device) = global.device(dev)?;
        put_text(name, len, &devices::name(device.unit))
    }

    /// Returns the UUID of the device.
    fn cuDeviceGetUuid[Started](uuid: *mut CUuuid, dev: CUdevice) {
        put(uuid, uuid_of(global, dev)?)
    }

    /// Returns the UUID of the device.
    fn cuDeviceGetUuid_v2[Started](uuid: *mut CUuuid, dev: CUdevice) {
        put(uuid, uuid_of(global, dev)?)
    }

    /// Returns the size of the device's memory in bytes.
    fn cuDeviceTotalMem_v2[Started](bytes: *mut usize, dev: CUdevice) {
        let (_, device) = global.device(dev)?;
        put(bytes, device.store.total as usize)
    }

    /// Returns an attribute of the device.
    fn cuDeviceGetAttribute[Started](pi: *mut c_int, attrib: CUdevice_attribute, dev: CUdevice) {
        ensure(!pi.is_null())?;
        let (_, device) = global.device(dev)?;
        let chosen = global.settings.attributes.iter().find(|(number, _)| *number == attrib.0);
        let value = chosen.map_or_else(|| attribute(attrib, device.unit), |(_, value)| *value);
        put(pi, value.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?)
    }

    /// Writes the device's PCI address.
    fn cuDeviceGetPCIBusId[Started](pciBusId: *mut c_char, len: c_int, dev: CUdevice) {
        let (_, device) = global.device(dev)?;
        let text = bus_id(device);
        // Unlike a name, a PCI address is never cut.
        ensure(usize::try_from(len).is_ok_and(|room| room > text.len()))?;
        put_text(pciBusId, len, &text)
    }

    /// Finds a device by its PCI address.
    fn cuDeviceGetByPCIBusId[Started](dev: *mut CUdevice, pciBusId: *const c_char) {
        ensure(!dev.is_null() && !pciBusId.is_null())?;
        let wanted = CStr::from_ptr(pciBusId).to_string_lossy().to_lowercase();
        ensure(is_bus_id(&wanted))?;
        let matches = |device: &Device| {
            let id = bus_id(device);
            id == wanted || id.strip_prefix("0000:").is_some_and(|short| short == wanted)
                || id.strip_suffix(".0").is_some_and(|short| short == wanted)
        };
        let index = global.devices.iter().position(matches).ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)?;
        put(dev, index as CUdevice)
    }

    /// Returns whether one device can access another's memory.
    fn cuDeviceCanAccessPeer[Started](canAccessPeer: *mut c_int, dev: CUdevice, peerDev: CUdevice) {
        ensure(!canAccessPeer.is_null())?;
        let ((one, _), (other, _)) = (global.device(dev)?, global.device(peerDev)?);
        put(canAccessPeer, c_int::from(global.reaches(one, other)))
    }

    /// Returns an attribute of a pair of devices.
    fn cuDeviceGetP2PAttribute[Started](
        value: *mut c_int,
        attrib: CUdevice_P2PAttribute,
        srcDevice: CUdevice,
        dstDevice: CUdevice,
    ) {
        ensure(!value.is_null())?;
        let ((from, _), (to, _)) = (global.device(srcDevice)?, global.device(dstDevice)?);
        if from == to {
            return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
        }
        put(value, match attrib {
            CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK
            | CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_ACCESS_SUPPORTED
            | CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED => 0,
            CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED
            | CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED => {
                c_int::from(global.reaches(from, to))
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        })
    }
}

fn bus_id(device: &Device) -> String {
    format!("0000:{:02x}:00.0", bus(device.unit))
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

fn uuid_of(global: &Global, device: CUdevice) -> Result<CUuuid> {
    let bytes = identity(global.device(device)?.1.unit, global.vulkan());
    Ok(CUuuid { bytes: bytes.map(|byte| byte as c_char) })
}
