//! What other stand-ins for NVIDIA's libraries tell of the simulated machine.

use crate::settings::Settings;
use crate::state::Global;
use crate::state::devices::{self, uuid_text};
use crate::vulkan::Vulkan;
use cuda_sys::CUdevice_attribute;

/// One device of the simulated machine, whether the program sees it or not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceIdentity {
    /// The name, as cuDeviceGetName returns it.
    pub name: String,
    /// The UUID as text: `GPU-` and groups of hexadecimal digits.
    pub uuid: String,
    /// The number of its PCI bus. Domain, device and function are 0.
    pub bus: u32,
    /// The compute capability, major and minor.
    pub capability: (u32, u32),
}

/// Lists the devices of the machine that the settings describe.
///
/// ```
/// let machine = softgpu::machine(&softgpu::Settings::default());
/// assert_eq!(machine[1].name, "softgpu 1 (host memory)");
/// assert_eq!(machine[1].uuid, "GPU-8114d18a-5192-c30f-32a9-6430fbb54ebf");
/// ```
pub fn machine(settings: &Settings) -> Vec<DeviceIdentity> {
    let vulkan = settings.vulkan.then(Vulkan::open).flatten();
    let capability = |attribute| devices::attribute(attribute, 0).map_or(0, i32::unsigned_abs);
    let capability = (
        capability(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        capability(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    );
    let identity = |unit| DeviceIdentity {
        name: devices::name(unit),
        uuid: uuid_text(&devices::identity(unit, vulkan.as_ref())),
        bus: devices::bus(unit),
        capability,
    };
    (0..settings.devices).map(identity).collect()
}

/// The bytes of a device's memory that this process uses, for other libraries in the process. 0 before cuInit, and for
/// devices that the program does not see.
#[cfg_attr(feature = "export-symbols", unsafe(no_mangle))]
pub extern "C" fn softgpu_memory_used(unit: usize) -> u64 {
    let Ok(global) = Global::get() else { return 0 };
    let device = global.devices.iter().find(|device| device.unit == unit);
    device.map_or(0, |device| device.store.total - device.store.free())
}
