//! NVLink and access between devices. Each pair of devices that can access each other has one link.

use crate::calls::{INVALID_ARGUMENT, Machine, NOT_SUPPORTED, Result, handle_of, nvml_calls, put, started, unit_of};
use crate::devices::{Device, PciInfo, pci_of};
use std::ffi::{c_int, c_uint};

/// The number of links that NVML knows for a device.
const MOST_LINKS: c_uint = 18;
/// What a link can do: access to the other device's memory (0), atomic operations there (2), anything at all (5). It
/// has no access to the host's memory (1, 3), and is no bridge for graphics (4).
const CAN: [c_uint; 6] = [1, 0, 1, 0, 0, 1];
/// The code for two devices that only the connection between the host's sockets joins.
const TOPOLOGY_SYSTEM: c_uint = 50;
/// The code for two devices that cannot use each other's memory.
const P2P_NOT_SUPPORTED: c_uint = 5;

nvml_calls! {
    /// Returns whether a link is up: 1.
    fn nvmlDeviceGetNvLinkState(device: Device, link: c_uint, isActive: *mut c_uint) {
        other_end(&*started()?, device, link)?;
        put(isActive, 1)
    }

    /// Returns the version of a link's protocol, as an H200 does.
    fn nvmlDeviceGetNvLinkVersion(device: Device, link: c_uint, version: *mut c_uint) {
        other_end(&*started()?, device, link)?;
        put(version, 4)
    }

    /// Returns whether a link has a capability.
    fn nvmlDeviceGetNvLinkCapability(device: Device, link: c_uint, capability: c_uint, capResult: *mut c_uint) {
        other_end(&*started()?, device, link)?;
        put(capResult, *CAN.get(capability as usize).ok_or(INVALID_ARGUMENT)?)
    }

    /// Returns the PCI address of the device at a link's other end.
    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(device: Device, link: c_uint, pci: *mut PciInfo) {
        let machine = started()?;
        let other = other_end(&machine, device, link)?;
        put(pci, pci_of(machine.devices[other].bus))
    }

    /// Returns the kind of device at a link's other end: a GPU, 0.
    fn nvmlDeviceGetNvLinkRemoteDeviceType(device: Device, link: c_uint, pNvLinkDeviceType: *mut c_uint) {
        other_end(&*started()?, device, link)?;
        put(pNvLinkDeviceType, 0)
    }

    /// Returns how far two devices are apart on the PCI bus.
    fn nvmlDeviceGetTopologyCommonAncestor(device1: Device, device2: Device, pathInfo: *mut c_uint) {
        let machine = started()?;
        let (one, other) = (unit_of(&machine, device1)?, unit_of(&machine, device2)?);
        put(pathInfo, if one == other { 0 } else { TOPOLOGY_SYSTEM })
    }

    /// Returns whether one device can use another's memory: 0 for yes.
    fn nvmlDeviceGetP2PStatus(device1: Device, device2: Device, p2pIndex: c_int, p2pStatus: *mut c_uint) {
        let machine = started()?;
        let (one, other) = (unit_of(&machine, device1)?, unit_of(&machine, device2)?);
        if one == other || !(0..=4).contains(&p2pIndex) {
            return Err(INVALID_ARGUMENT);
        }
        let can = machine.settings.peers.allow(one, other);
        put(p2pStatus, if can { 0 } else { P2P_NOT_SUPPORTED })
    }
}

/// The number of a device's links.
pub(crate) fn links_of(machine: &Machine, unit: usize) -> usize {
    (0..MOST_LINKS).filter(|link| other_end(machine, handle_of(unit), *link).is_ok()).count()
}

/// The device at the other end of a link: link 0 leads to the first other device, link 1 to the second, and so on.
fn other_end(machine: &Machine, device: Device, link: c_uint) -> Result<usize> {
    let unit = unit_of(machine, device)?;
    if link >= MOST_LINKS {
        return Err(INVALID_ARGUMENT);
    }
    let other = link as usize + usize::from(link as usize >= unit);
    let peers = machine.settings.peers;
    if other < machine.devices.len() && peers.allow(unit, other) && peers.allow(other, unit) {
        Ok(other)
    } else {
        Err(NOT_SUPPORTED)
    }
}
