//! Where memory lies.

use crate::{Device, Driver, Error, Result};
use cuda_sys::{CU_DEVICE_CPU, CUdevice, CUmemLocation, CUmemLocationType as Kind};

/// Where managed memory lies or should lie. Advice, prefetches and pools take it.
///
/// ```
/// let driver = cuda_mem::Driver::software()?; // softgpu; a GPU: Driver::load()
/// use cuda_mem::memory::Location;
/// let device = driver.device(0)?;
/// assert_eq!(Location::from(&device), Location::Device(device));
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "CUmemLocation")]
pub enum Location {
    /// Device memory.
    Device(Device),
    /// Host memory, on any NUMA node.
    Host,
    /// Host memory on the NUMA node with this number.
    HostNuma(i32),
    /// Host memory on the NUMA node of the calling thread.
    HostNumaCurrent,
}

impl From<Device> for Location {
    fn from(device: Device) -> Self {
        Location::Device(device)
    }
}

impl From<&Device> for Location {
    fn from(device: &Device) -> Self {
        Location::Device(device.clone())
    }
}

impl Location {
    /// The driver's type. Refuses a NUMA node that the machine lacks, and names its number.
    pub(crate) fn to_raw(&self, call: &'static str) -> Result<CUmemLocation> {
        let (type_, id) = match self {
            Location::Device(device) => (Kind::CU_MEM_LOCATION_TYPE_DEVICE, device.raw()),
            Location::Host => (Kind::CU_MEM_LOCATION_TYPE_HOST, 0),
            Location::HostNuma(node) => {
                check_node(call, *node)?;
                (Kind::CU_MEM_LOCATION_TYPE_HOST_NUMA, *node)
            }
            Location::HostNumaCurrent => (Kind::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0),
        };
        Ok(CUmemLocation { type_, id })
    }

    /// The number that drivers before CUDA 12.2 take, which know only devices and the host.
    pub(crate) fn to_device_number(&self) -> Result<CUdevice> {
        match self {
            Location::Device(device) => Ok(device.raw()),
            Location::Host => Ok(CU_DEVICE_CPU),
            Location::HostNuma(_) | Location::HostNumaCurrent => Err(Error::Unsupported {
                feature: "placing managed memory on a NUMA node",
                needs: "a driver of CUDA 12.2".into(),
            }),
        }
    }

    /// The driver's answer. `None` if it names no place, or if parts of the range lie in different places.
    pub(crate) fn from_raw(driver: &Driver, location: CUmemLocation) -> Result<Option<Self>> {
        Ok(match location.type_ {
            Kind::CU_MEM_LOCATION_TYPE_DEVICE => Some(Location::Device(driver.device(location.id)?)),
            Kind::CU_MEM_LOCATION_TYPE_HOST => Some(Location::Host),
            Kind::CU_MEM_LOCATION_TYPE_HOST_NUMA => Some(Location::HostNuma(location.id)),
            Kind::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Some(Location::HostNumaCurrent),
            _ => None,
        })
    }

    /// The place that older driver queries name by a number. `None` if the number names no place.
    pub(crate) fn from_device_number(driver: &Driver, number: CUdevice) -> Result<Option<Self>> {
        Ok(match number {
            CU_DEVICE_CPU => Some(Location::Host),
            number if number >= 0 => Some(Location::Device(driver.device(number)?)),
            _ => None,
        })
    }
}

/// Checks that the machine has a NUMA node. If the system does not report nodes, the driver must check.
pub(crate) fn check_node(call: &'static str, node: i32) -> Result<()> {
    let known = super::host::has_node(node);
    if node >= 0 && known != Some(false) {
        return Ok(());
    }
    Err(Error::invalid(call, "node", node, "it must be one of the host's NUMA nodes (numactl --hardware lists them)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_not_there_is_refused_by_its_number() {
        for node in [-1, i32::MIN, 4096] {
            let error = Location::HostNuma(node).to_raw("test").unwrap_err();
            assert!(matches!(&error, Error::InvalidArgument { value, .. } if **value == *node.to_string()), "{error}");
        }
        assert_eq!(Location::HostNuma(0).to_raw("test").map(|location| location.id), Ok(0));
    }

    #[test]
    fn old_drivers_know_devices_and_the_host() {
        assert_eq!(Location::Host.to_device_number(), Ok(CU_DEVICE_CPU));
        assert!(matches!(Location::HostNuma(0).to_device_number(), Err(Error::Unsupported { .. })));
        assert!(matches!(Location::HostNumaCurrent.to_device_number(), Err(Error::Unsupported { .. })));
    }
}
