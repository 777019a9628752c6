//! The devices of a machine, and which of them can access each other's memory.

use crate::error::call;
use crate::{Device, Driver, Result};
use core::fmt;
use cuda_sys::{CUdevice_P2PAttribute as Attribute, CUdevice_attribute, CUresult};

/// The devices that a driver shows, and the link of each ordered pair. A value: it changes no more.
///
/// It prints as a matrix of letters: `d` for direct access, `a` for direct access with atomic operations, `h` for copies
/// through the host.
///
/// ```
/// let driver = cuda_mem::Driver::software()?; // softgpu; a GPU: Driver::load()
/// use cuda_mem::Topology;
/// let topology = Topology::of(&driver)?;
/// print!("{topology}");
/// for link in topology.links() {
///     println!("device {} accesses device {}: {}", link.device, link.other, link.access);
/// }
/// assert!(topology.is_mesh()); // softgpu's devices by default
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    devices: Vec<DeviceSite>,
    links: Vec<PeerLink>,
}

/// A device's place in the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceSite {
    /// The device's ordinal in this process.
    pub ordinal: i32,
    /// Its name.
    pub name: Box<str>,
    /// Its PCI address, as domain:bus:device.function.
    pub pci_bus_id: Box<str>,
    /// The host's NUMA node that is nearest to it; `None` if the driver names none.
    pub numa_node: Option<i32>,
}

/// What one device can do with another device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerLink {
    /// The device that accesses.
    pub device: i32,
    /// The device that holds the memory.
    pub other: i32,
    /// Whether it can read and write the memory directly.
    pub access: bool,
    /// Whether all its atomic operations work on that memory.
    pub native_atomics: bool,
    /// The rank that the driver gives the link, relative to others; `None` if it gives none.
    pub performance_rank: Option<i32>,
}

impl Topology {
    /// Asks a driver for its devices and their links.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias("cuDeviceGetP2PAttribute", "cuDeviceCanAccessPeer"))]
    pub fn of(driver: &Driver) -> Result<Self> {
        let devices = driver.devices()?;
        let sites = devices.iter().map(site).collect::<Result<_>>()?;
        let mut links = Vec::new();
        for device in &devices {
            for other in devices.iter().filter(|other| *other != device) {
                links.push(link(device, other)?);
            }
        }
        Ok(Self { devices: sites, links })
    }

    /// The devices, by their ordinals.
    pub fn devices(&self) -> &[DeviceSite] {
        &self.devices
    }

    /// The links of all ordered pairs of devices.
    pub fn links(&self) -> &[PeerLink] {
        &self.links
    }

    /// What a device can do with another device's memory. `None` if there is no such pair.
    pub fn link(&self, device: i32, other: i32) -> Option<&PeerLink> {
        self.links.iter().find(|link| link.device == device && link.other == other)
    }

    /// Whether each device can access every other one. `true` for one device.
    pub fn is_mesh(&self) -> bool {
        self.links.iter().all(|link| link.access)
    }

    /// An order of all devices in which each device can access the next one, and the last one the first, so that data can go
    /// round without the host. `None` if there is no such order, or fewer than two devices.
    ///
    /// ```
    /// let driver = cuda_mem::Driver::software()?; // softgpu; a GPU: Driver::load()
    /// let ring = cuda_mem::Topology::of(&driver)?.ring();
    /// assert_eq!(ring, Some(vec![0, 1]));
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn ring(&self) -> Option<Vec<i32>> {
        let ordinals: Vec<i32> = self.devices.iter().map(|device| device.ordinal).collect();
        let (first, rest) = ordinals.split_first().filter(|(_, rest)| !rest.is_empty())?;
        let can = |device: i32, other: i32| self.link(device, other).is_some_and(|link| link.access);
        let (mut order, mut left, mut steps) = (vec![*first], rest.to_vec(), MOST_STEPS);
        closes(&can, &mut order, &mut left, &mut steps).then_some(order)
    }
}

/// The most steps of the search for a ring. Machines have few devices, or regular links, where the search never turns back.
const MOST_STEPS: usize = 100_000;

/// Extends `order` by all of `left`, each of which its predecessor can access.
fn closes(can: &dyn Fn(i32, i32) -> bool, order: &mut Vec<i32>, left: &mut Vec<i32>, steps: &mut usize) -> bool {
    let (Some(&first), Some(&last)) = (order.first(), order.last()) else { return false };
    if left.is_empty() {
        return can(last, first);
    }
    for at in 0..left.len() {
        if *steps == 0 {
            return false;
        }
        *steps -= 1;
        if !can(last, left[at]) {
            continue;
        }
        order.push(left.remove(at));
        if closes(can, order, left, steps) {
            return true;
        }
        left.insert(at, order.pop().unwrap_or_default());
    }
    false
}

impl Device {
    /// The host's NUMA node that is nearest to the device; `None` if the driver names none.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    pub fn numa_node(&self) -> Result<Option<i32>> {
        let node = known(self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID))?;
        Ok(node.filter(|node| *node >= 0))
    }

    /// What this device can do with another device's memory. [`Topology`] has the links of all devices.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuDeviceGetP2PAttribute")]
    pub fn link_to(&self, other: &Device) -> Result<PeerLink> {
        link(self, other)
    }
}

fn site(device: &Device) -> Result<DeviceSite> {
    Ok(DeviceSite {
        ordinal: device.ordinal(),
        name: device.name()?.into(),
        pci_bus_id: device.pci_bus_id()?.into(),
        numa_node: device.numa_node()?,
    })
}

fn link(device: &Device, other: &Device) -> Result<PeerLink> {
    let access = device.can_access_peer(other)?;
    let ask = |attribute| {
        let (cuda, mut value) = (device.driver().raw(), 0);
        // SAFETY: `value` is writable.
        known(
            unsafe { call!(cuda.cuDeviceGetP2PAttribute(&mut value, attribute, device.raw(), other.raw())) }
                .map(|()| value),
        )
    };
    Ok(PeerLink {
        device: device.ordinal(),
        other: other.ordinal(),
        access,
        native_atomics: access && ask(Attribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)? == Some(1),
        performance_rank: ask(Attribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)?,
    })
}

/// The answer of a driver, unless it does not know the question.
fn known(answer: Result<i32>) -> Result<Option<i32>> {
    match answer {
        Err(error) if error.driver_code() == Some(CUresult::CUDA_ERROR_INVALID_VALUE) => Ok(None),
        other => other.map(Some),
    }
}

/// The matrix, with a line for each device, and what its letters mean. They are what the driver reports.
impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.devices.iter().map(|device| device.ordinal.to_string().len()).max().unwrap_or(1);
        write!(f, "{:width$}", "")?;
        self.devices.iter().try_for_each(|device| write!(f, " {:>width$}", device.ordinal))?;
        writeln!(f)?;
        for device in &self.devices {
            write!(f, "{:>width$}", device.ordinal)?;
            for other in &self.devices {
                let letter = match self.link(device.ordinal, other.ordinal) {
                    None => "-",
                    Some(PeerLink { access: false, .. }) => "h",
                    Some(PeerLink { native_atomics: false, .. }) => "d",
                    Some(_) => "a",
                };
                write!(f, " {letter:>width$}")?;
            }
            let node = device.numa_node.map_or_else(|| "no node named".to_owned(), |node| format!("NUMA node {node}"));
            writeln!(f, "  {}, {node}, {}", device.pci_bus_id, device.name)?;
        }
        writeln!(f, "a: direct, with all atomic operations; d: direct, without some; h: through the host")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(devices: i32, access: impl Fn(i32, i32) -> bool) -> Topology {
        let site = |ordinal| DeviceSite {
            ordinal,
            name: "GPU".into(),
            pci_bus_id: format!("0000:0{ordinal}:00.0").into(),
            numa_node: (ordinal > 0).then_some(ordinal - 1),
        };
        let pairs = (0..devices).flat_map(|device| (0..devices).map(move |other| (device, other)));
        let link = |(device, other)| PeerLink {
            device,
            other,
            access: access(device, other),
            native_atomics: access(device, other) && device < other,
            performance_rank: Some(0),
        };
        let links = pairs.filter(|(device, other)| device != other).map(link).collect();
        Topology { devices: (0..devices).map(site).collect(), links }
    }

    #[test]
    fn the_matrix_names_each_pair() {
        let text = of(3, |device, other| device + other != 3).to_string();
        let expected = "  0 1 2
0 - a a  0000:00:00.0, no node named, GPU
1 d - h  0000:01:00.0, NUMA node 0, GPU
2 d h -  0000:02:00.0, NUMA node 1, GPU
a: direct, with all atomic operations; d: direct, without some; h: through the host
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_ring_is_found_where_there_is_one() {
        assert_eq!(of(4, |_, _| true).ring(), Some(vec![0, 1, 2, 3]));
        assert!(of(4, |_, _| true).is_mesh());
        // A cycle in one direction that skips about.
        let next = |device, other| [2, 3, 1, 0][device as usize] == other;
        assert_eq!(of(4, next).ring(), Some(vec![0, 2, 1, 3]));
        assert_eq!(of(4, |device, other| device / 2 == other / 2).ring(), None);
        assert_eq!(of(3, |device, other| device < other).ring(), None);
        assert!(!of(3, |device, other| device < other).is_mesh());
        assert_eq!((of(1, |_, _| true).ring(), of(0, |_, _| true).ring()), (None, None));
        assert!(of(1, |_, _| true).is_mesh());
        // Two meshes of 20 without a path between them: the search gives up after steps that take Miri minutes.
        if !cfg!(miri) {
            assert_eq!(of(40, |device, other| device / 20 == other / 20).ring(), None);
        }
    }

    #[test]
    fn pairs_are_found_by_their_ordinals() {
        let topology = of(2, |device, _| device == 1);
        assert!(topology.link(1, 0).is_some_and(|link| link.access));
        assert!(topology.link(0, 1).is_some_and(|link| !link.access));
        assert_eq!((topology.link(0, 0), topology.link(0, 2)), (None, None));
    }
}
