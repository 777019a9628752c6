//! Options of a pool.

use crate::Device;
use crate::memory::resource::Location;

/// Options of a pool.
///
/// ```
/// use cuda_mem::memory::DriverPoolOptions;
/// let mut options = DriverPoolOptions::default();
/// options.max_size = Some(1 << 30);
/// options.release_threshold = 256 << 20;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DriverPoolOptions {
    /// The maximum size of the pool in bytes. The driver rounds it up, and reserves twice as many addresses. `None`
    /// means the size of the device's memory; for host and managed memory it means no limit (a host pool then reserves
    /// 9 GiB of addresses, and more as it grows). `Some(usize::MAX)` means no limit.
    pub max_size: Option<usize>,
    /// How much unused memory the pool keeps when a program waits for a stream, in bytes. The driver's default is 0: it
    /// returns all unused memory to the system, which makes the next allocation slow. The default here keeps all.
    pub release_threshold: usize,
    /// Reuse memory freed on one stream for another stream whose work waits for the free by an event.
    pub reuse_follow_event_dependencies: bool,
    /// Reuse memory freed on one stream for another stream when the free is already done.
    pub reuse_allow_opportunistic: bool,
    /// Reuse memory freed on one stream for another stream, which the driver then makes wait for the free.
    pub reuse_allow_internal_dependencies: bool,
    /// Other processes may import the pool by a file descriptor, and can then access all of its memory at any time. So
    /// the CPU may copy host memory of the pool, but gets no slices of it.
    pub shareable: bool,
    /// Further devices that may read and write the memory. A device pool is always accessible to its own device, and a
    /// host pool to the context's device. If the list of a host pool is empty, all devices may access its memory.
    pub accessible_from: Vec<Device>,
    /// Where the memory of a managed pool should lie; `None` leaves that to the driver. Other pools ignore it.
    pub preferred_location: Option<Location>,
}

impl Default for DriverPoolOptions {
    fn default() -> Self {
        Self {
            max_size: None,
            release_threshold: usize::MAX,
            reuse_follow_event_dependencies: true,
            reuse_allow_opportunistic: true,
            reuse_allow_internal_dependencies: true,
            shareable: false,
            accessible_from: Vec::new(),
            preferred_location: None,
        }
    }
}
