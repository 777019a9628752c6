//! Devices: count, handles, identity, memory.

use crate::calls::{
    INVALID_ARGUMENT, Machine, NOT_FOUND, Result, VERSION_MISMATCH, handle_of, nvml_calls, put, put_text, started,
    unit_of,
};
use crate::memory::used;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

/// The handle of a device.
pub type Device = *mut c_void;

/// A PCI address in the present form of NVML.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PciInfo {
    short_id: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
    subsystem_id: c_uint,
    id: [c_char; 32],
}

/// A PCI address in the older forms of NVML, which end with reserved words.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OldPciInfo<const RESERVED: usize> {
    id: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
    rest: [c_uint; RESERVED],
}

/// Memory in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// Memory in bytes, with what the driver keeps for itself.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemoryV2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// A UUID as text, or as its bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Uuid {
    version: c_uint,
    kind: c_uint,
    /// The text with its final zero, or 16 bytes.
    value: [u8; 41],
}

const UUID_V1: c_uint = size_of::<Uuid>() as c_uint | 1 << 24;
const UUID_OF_TEXT: c_uint = 1;
const UUID_OF_BYTES: c_uint = 2;

const MEMORY_V2: c_uint = size_of::<MemoryV2>() as c_uint | 2 << 24;

nvml_calls! {
    /// Returns the number of devices.
    fn nvmlDeviceGetCount(deviceCount: *mut c_uint) {
        put(deviceCount, started()?.devices.len() as c_uint)
    }

    /// Returns the number of devices.
    fn nvmlDeviceGetCount_v2(deviceCount: *mut c_uint) {
        put(deviceCount, started()?.devices.len() as c_uint)
    }

    /// Returns the device with a number.
    fn nvmlDeviceGetHandleByIndex(index: c_uint, device: *mut Device) {
        find(device, |machine| Some(index as usize).filter(|unit| *unit < machine.devices.len()), INVALID_ARGUMENT)
    }

    /// Returns the device with a number.
    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut Device) {
        find(device, |machine| Some(index as usize).filter(|unit| *unit < machine.devices.len()), INVALID_ARGUMENT)
    }

    /// Returns the device with a UUID.
    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut Device) {
        let wanted = text(uuid)?;
        find(device, |machine| machine.devices.iter().position(|device| device.uuid == wanted), NOT_FOUND)
    }

    /// Returns the device with a UUID, which is text or bytes.
    fn nvmlDeviceGetHandleByUUIDV(uuid: *const Uuid, device: *mut Device) {
        // Earlier and later releases may have a shorter structure, so its version comes first.
        if uuid.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        if (&raw const (*uuid).version).read() != UUID_V1 {
            return Err(VERSION_MISMATCH);
        }
        let Uuid { kind, value, .. } = uuid.read();
        let wanted = match kind {
            UUID_OF_TEXT => CStr::from_bytes_until_nul(&value).ok().and_then(|text| text.to_str().ok()),
            UUID_OF_BYTES => None,
            _ => return Err(INVALID_ARGUMENT),
        };
        let is_it = |uuid: &str| match wanted {
            Some(text) => uuid == text,
            None => kind == UUID_OF_BYTES && bytes_in(uuid) == value[..16],
        };
        find(device, |machine| machine.devices.iter().position(|device| is_it(&device.uuid)), NOT_FOUND)
    }

    /// Returns the device with a PCI address.
    fn nvmlDeviceGetHandleByPciBusId(pciBusId: *const c_char, device: *mut Device) {
        by_address(pciBusId, device)
    }

    /// Returns the device with a PCI address.
    fn nvmlDeviceGetHandleByPciBusId_v2(pciBusId: *const c_char, device: *mut Device) {
        by_address(pciBusId, device)
    }

    /// Writes a device's name.
    fn nvmlDeviceGetName(device: Device, name: *mut c_char, length: c_uint) {
        let machine = started()?;
        put_text(name, length as usize, &machine.devices[unit_of(&machine, device)?].name)
    }

    /// Writes a device's UUID.
    fn nvmlDeviceGetUUID(device: Device, uuid: *mut c_char, length: c_uint) {
        let machine = started()?;
        put_text(uuid, length as usize, &machine.devices[unit_of(&machine, device)?].uuid)
    }

    /// Returns a device's number.
    fn nvmlDeviceGetIndex(device: Device, index: *mut c_uint) {
        put(index, unit_of(&*started()?, device)? as c_uint)
    }

    /// Returns the number in the name of a device's file.
    fn nvmlDeviceGetMinorNumber(device: Device, minorNumber: *mut c_uint) {
        put(minorNumber, unit_of(&*started()?, device)? as c_uint)
    }

    /// Returns a device's compute capability.
    fn nvmlDeviceGetCudaComputeCapability(device: Device, major: *mut c_int, minor: *mut c_int) {
        let machine = started()?;
        let capability = machine.devices[unit_of(&machine, device)?].capability;
        put(major, capability.0 as c_int)?;
        put(minor, capability.1 as c_int)
    }

    /// Returns a device's PCI address.
    fn nvmlDeviceGetPciInfo(device: Device, pci: *mut OldPciInfo<4>) {
        put(pci, old(device)?)
    }

    /// Returns a device's PCI address.
    fn nvmlDeviceGetPciInfo_v2(device: Device, pci: *mut OldPciInfo<5>) {
        put(pci, old(device)?)
    }

    /// Returns a device's PCI address.
    fn nvmlDeviceGetPciInfo_v3(device: Device, pci: *mut PciInfo) {
        let machine = started()?;
        put(pci, pci_info(machine.devices[unit_of(&machine, device)?].bus))
    }

    /// Returns a device's memory. What it counts as used is what this process uses.
    fn nvmlDeviceGetMemoryInfo(device: Device, memory: *mut Memory) {
        let (total, used) = amounts(device)?;
        put(memory, Memory { total, free: total - used, used })
    }

    /// Returns a device's memory. What it counts as used is what this process uses.
    fn nvmlDeviceGetMemoryInfo_v2(device: Device, memory: *mut MemoryV2) {
        let (total, used) = amounts(device)?;
        let version = memory.as_ref().ok_or(INVALID_ARGUMENT)?.version;
        if version != MEMORY_V2 {
            return Err(VERSION_MISMATCH);
        }
        put(memory, MemoryV2 { version, total, reserved: 0, free: total - used, used })
    }
}

/// The bytes of a UUID's text.
fn bytes_in(uuid: &str) -> Vec<u8> {
    let digits: Vec<u32> = uuid.trim_start_matches("GPU-").chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | *digit as u8)).collect()
}

/// Writes the handle of the device that `select` names.
///
/// # Safety
///
/// `out` is null or writable.
unsafe fn find(out: *mut Device, select: impl FnOnce(&Machine) -> Option<usize>, missing: c_uint) -> Result {
    let unit = select(&*started()?).ok_or(missing)?;
    // SAFETY: by this function's contract.
    unsafe { put(out, handle_of(unit)) }
}

/// # Safety
///
/// `at` is null or a C string.
unsafe fn text<'a>(at: *const c_char) -> Result<&'a str> {
    if at.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, so a C string by this function's contract.
    unsafe { CStr::from_ptr(at) }.to_str().map_err(|_| INVALID_ARGUMENT)
}

/// # Safety
///
/// `address` is null or a C string; `out` is null or writable.
unsafe fn by_address(address: *const c_char, out: *mut Device) -> Result {
    // SAFETY: by this function's contract.
    let bus = unsafe { text(address) }.map(bus_in)?.ok_or(INVALID_ARGUMENT)?;
    // SAFETY: as above.
    unsafe { find(out, |machine| machine.devices.iter().position(|device| Some(device.bus) == bus), NOT_FOUND) }
}

/// The bus in a PCI address, `[domain:]bus:device[.function]` in hexadecimal digits; `Some(None)` if no device of
/// softgpu has the other numbers.
fn bus_in(text: &str) -> Option<Option<u32>> {
    let (address, function) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = address.rsplit(':').map(|part| u32::from_str_radix(part, 16).ok());
    let (device, bus) = (parts.next()??, parts.next()??);
    let domain = parts.next().unwrap_or(Some(0))?;
    let function = u32::from_str_radix(function, 16).ok()?;
    let is_plain = parts.next().is_none() && [device, domain, function] == [0; 3];
    Some(is_plain.then_some(bus))
}

fn pci_info(bus: u32) -> PciInfo {
    PciInfo {
        short_id: chars(&format!("0000:{bus:02X}:00.0")),
        domain: 0,
        bus,
        device: 0,
        device_id: 0,
        subsystem_id: 0,
        id: chars(&format!("00000000:{bus:02X}:00.0")),
    }
}

fn old<const RESERVED: usize>(device: Device) -> Result<OldPciInfo<RESERVED>> {
    let machine = started()?;
    let info = pci_info(machine.devices[unit_of(&machine, device)?].bus);
    let PciInfo { short_id: id, domain, bus, device, device_id, .. } = info;
    Ok(OldPciInfo { id, domain, bus, device, device_id, rest: [0; RESERVED] })
}

/// A text with zeros after it.
pub(crate) fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut chars = [0; N];
    // The last place keeps its zero.
    chars.iter_mut().take(N - 1).zip(text.bytes()).for_each(|(place, byte)| *place = byte as c_char);
    chars
}

pub(crate) fn pci_of(bus: u32) -> PciInfo {
    pci_info(bus)
}

/// The bytes of a device's memory: all, and those in use.
fn amounts(device: Device) -> Result<(u64, u64)> {
    let machine = started()?;
    let unit = unit_of(&machine, device)?;
    let total = machine.settings.memory;
    Ok((total, used(unit).min(total)))
}
