//! Devices
//!
//! An ordinal names a device. Ordinals run from 0 to the number of devices minus 1.

use crate::call::{Options, Out, Outcome, fill, invalid, out, run};
use crate::library::driver;
use crate::message::text_field;
use crate::status::cudamem_status;
use core::ffi::c_char;
use core::mem::size_of;
use cuda_mem::{Device, Feature, Support, Topology};

/// What a device is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_device_info {
    /// sizeof(cudamem_device_info), set by the program.
    pub size: usize,
    /// The size of the device's memory in bytes.
    pub total_memory: u64,
    /// The device's identity: the same in every process and every API.
    pub uuid: [u8; 16],
    /// The device's name, terminated by a zero.
    pub name: [c_char; 256],
    /// The device's PCI address as domain:bus:device.function, terminated by a zero.
    pub pci_bus_id: [c_char; 32],
    /// What the device supports: support[CUDAMEM_FEATURE_...] is one of CUDAMEM_SUPPORT_... .
    pub support: [u8; 16],
    /// The host's NUMA node that is nearest to the device; -1 if the driver names none.
    pub numa_node: i64,
}

// SAFETY: numbers without padding: 8 + 8 + 16 + 256 + 32 + 16 + 8 bytes.
unsafe impl Options for cudamem_device_info {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Pools of device memory.
pub const CUDAMEM_FEATURE_DEVICE_POOLS: i32 = 0;
/// Pools of host memory.
pub const CUDAMEM_FEATURE_HOST_POOLS: i32 = 1;
/// Pools of managed memory.
pub const CUDAMEM_FEATURE_MANAGED_POOLS: i32 = 2;
/// Pools that other processes can import.
pub const CUDAMEM_FEATURE_SHARED_POOLS: i32 = 3;
/// Managed memory.
pub const CUDAMEM_FEATURE_MANAGED: i32 = 4;
/// Managed memory that CPU and device use at the same time.
pub const CUDAMEM_FEATURE_CONCURRENT_MANAGED: i32 = 5;
/// Reserving addresses and mapping physical memory to them.
pub const CUDAMEM_FEATURE_VIRTUAL_MEMORY: i32 = 6;
/// Sharing of plain allocations and events between processes.
pub const CUDAMEM_FEATURE_IPC: i32 = 7;
/// Registering host memory.
pub const CUDAMEM_FEATURE_HOST_REGISTER: i32 = 8;
/// Streams that wait for and write 32-bit words.
pub const CUDAMEM_FEATURE_STREAM_MEMORY_OPERATIONS: i32 = 9;

const FEATURES: [Feature; 10] = [
    Feature::DevicePools,
    Feature::HostPools,
    Feature::ManagedPools,
    Feature::SharedPools,
    Feature::Managed,
    Feature::ConcurrentManaged,
    Feature::VirtualMemory,
    Feature::Ipc,
    Feature::HostRegister,
    Feature::StreamMemoryOperations,
];

/// Not supported.
pub const CUDAMEM_SUPPORT_NO: u8 = 0;
/// Supported.
pub const CUDAMEM_SUPPORT_YES: u8 = 1;
/// The driver is too old to answer. The device may support it: try.
pub const CUDAMEM_SUPPORT_UNKNOWN: u8 = 2;

pub(crate) fn device(ordinal: i32) -> Outcome<Device> {
    Ok(driver()?.device(ordinal)?)
}

fn support(device: &Device) -> Outcome<[u8; 16]> {
    let mut support = [CUDAMEM_SUPPORT_NO; 16];
    for (place, feature) in support.iter_mut().zip(FEATURES) {
        *place = match device.supports(feature)? {
            Support::No => CUDAMEM_SUPPORT_NO,
            Support::Yes => CUDAMEM_SUPPORT_YES,
            Support::Unknown => CUDAMEM_SUPPORT_UNKNOWN,
        };
    }
    Ok(support)
}

/// Gets the number of devices.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_device_get_count(count: Out<'_, i32>) -> cudamem_status {
    run("cudamem_device_get_count", || {
        let count = out("count", count)?;
        count.write(i32::try_from(driver()?.device_count()?).unwrap_or(i32::MAX));
        Ok(())
    })
}

/// Describes a device. Set info->size first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_device_get_info(ordinal: i32, info: *mut cudamem_device_info) -> cudamem_status {
    run("cudamem_device_get_info", || {
        let device = device(ordinal)?;
        let answer = cudamem_device_info {
            size: size_of::<cudamem_device_info>(),
            total_memory: device.total_memory()? as u64,
            uuid: device.uuid()?.0,
            name: text_field(&device.name()?),
            pci_bus_id: text_field(&device.pci_bus_id()?),
            support: support(&device)?,
            numa_node: device.numa_node()?.map_or(-1, i64::from),
        };
        // SAFETY: the header requires NULL or `size` writable bytes.
        unsafe { fill("info", info, answer) }
    })
}

/// What one device can do with another device's memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_peer_link {
    /// sizeof(cudamem_peer_link), set by the program.
    pub size: usize,
    /// Whether the device can read and write the memory directly: 1 or 0.
    pub access: u32,
    /// Whether all its atomic operations work on that memory: 1 or 0.
    pub native_atomics: u32,
    /// The rank that the driver gives the link, relative to others; -1 if it gives none.
    pub performance_rank: i64,
}

// SAFETY: numbers without padding: 8 + 4 + 4 + 8 bytes.
unsafe impl Options for cudamem_peer_link {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Describes what device ordinal can do with the memory of device other. Set link->size first.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if both are the same device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_device_get_link(
    ordinal: i32,
    other: i32,
    link: *mut cudamem_peer_link,
) -> cudamem_status {
    run("cudamem_device_get_link", || {
        if ordinal == other {
            return Err(invalid("other", other.to_string(), "it must be another device"));
        }
        let found = device(ordinal)?.link_to(&device(other)?)?;
        let answer = cudamem_peer_link {
            size: size_of::<cudamem_peer_link>(),
            access: u32::from(found.access),
            native_atomics: u32::from(found.native_atomics),
            performance_rank: found.performance_rank.map_or(-1, i64::from),
        };
        // SAFETY: the header requires NULL or `size` writable bytes.
        unsafe { fill("link", link, answer) }
    })
}

/// Measures the rate of copies from device from to device to; -1 is page-locked memory of the host. The first call in a
/// process measures all links, by copies of 64 MiB, which takes some milliseconds for each; later calls return the same
/// numbers. It opens the primary contexts of all devices.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if there is no such link.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_device_get_rate(from: i32, to: i32, bytes_per_second: Out<'_, u64>) -> cudamem_status {
    run("cudamem_device_get_rate", || {
        let bytes_per_second = out("bytes_per_second", bytes_per_second)?;
        let side = |ordinal: i32| (ordinal != -1).then_some(ordinal);
        let rates = Topology::rates(driver()?)?;
        let Some(rate) = rates.iter().find(|rate| rate.from == side(from) && rate.to == side(to)) else {
            let rule = "it must be another device than `from`, or -1 for the host if `from` is a device";
            return Err(invalid("to", to.to_string(), rule));
        };
        bytes_per_second.write(rate.bytes_per_second);
        Ok(())
    })
}

/// Checks whether kernels of device ordinal can be given access to memory of device other. A device can always access
/// its own.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_device_can_access_peer(ordinal: i32, other: i32, can: Out<'_, bool>) -> cudamem_status {
    run("cudamem_device_can_access_peer", || {
        let can = out("can", can)?;
        can.write(device(ordinal)?.can_access_peer(&device(other)?)?);
        Ok(())
    })
}
