//! Errors of access between devices.

/// Why a device does not access another device's memory directly. Copies between the two go through the host, which works
/// and is slow. `cuda-mem doctor` and [`Topology`](crate::Topology) show which devices can access each other.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The machine has no path between the devices.
    #[error(
        "{call}: device {device} has no path to the memory of device {owner}: `cuda-mem doctor` and `nvidia-smi topo -p2p r` \
         show the pairs that have one; copies go through the host"
    )]
    NoPath {
        /// The function.
        call: &'static str,
        /// The device that would access the memory.
        device: i32,
        /// The device that holds the memory.
        owner: i32,
    },

    /// The device accesses as many others as it can.
    #[error(
        "{call}: device {device} cannot access the memory of device {owner} too, because it accesses as many devices as it \
         can: deny it access to another device first"
    )]
    TooMany {
        /// The function.
        call: &'static str,
        /// The device that would access the memory.
        device: i32,
        /// The device that holds the memory.
        owner: i32,
    },

    /// The driver gave access, but a small copy that used it changed nothing, or wrote something else. The
    /// access was taken back.
    #[error(
        "{call}: the driver let device {device} access the memory of device {owner}, but a test copy did not arrive, so \
         the access was taken back: look for an IOMMU or PCIe ACS that redirects transfers between devices"
    )]
    Unverified {
        /// The function.
        call: &'static str,
        /// The device that would access the memory.
        device: i32,
        /// The device that holds the memory.
        owner: i32,
    },

    /// A copy was to go directly, and would go through the host.
    #[error(
        "{call}: a copy from device {owner} to device {device} would go through the host: allow device {device} to access \
         the memory, or do without `require_direct`"
    )]
    ThroughHost {
        /// The function.
        call: &'static str,
        /// The destination's device, which would read the source.
        device: i32,
        /// The source's device.
        owner: i32,
    },
}
