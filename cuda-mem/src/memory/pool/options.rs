//! How a pool is made.

use crate::Device;
use crate::resource::Location;

/// How a pool is made.
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
    /// The most that the pool holds, in bytes; the driver rounds it up, and reserves address space of twice that.
    /// `None` is the size of the device's memory; for memory of the host, and managed memory, it is no limit (a pool of
    /// the host then reserves 9 GiB of addresses, and more as it grows). `Some(usize::MAX)` is no limit.
    pub max_size: Option<usize>,
    /// How much unused memory the pool keeps when the work of a stream is waited for, in bytes. The driver's own
    /// default is 0: all of it goes back to the system, and the next allocation is slow. Here pools keep all of it.
    pub release_threshold: usize,
    /// Memory freed on one stream may be given to another whose work waits for the free by an event.
    pub reuse_follow_event_dependencies: bool,
    /// Memory freed on one stream may be given to another when the free is done already.
    pub reuse_allow_opportunistic: bool,
    /// Memory freed on one stream may be given to another, which the driver then lets wait for the free.
    pub reuse_allow_internal_dependencies: bool,
    /// Other processes may import the pool, by a file descriptor. They reach all of its memory then, at any time: of the host's
    /// there are copies only, and no slices for the CPU.
    pub shareable: bool,
    /// Devices, besides the pool's own, that may read and write the memory. For a pool of host memory, which no device may
    /// address by itself: devices besides the context's; if there are none, all devices may.
    pub accessible_from: Vec<Device>,
    /// Where the memory of a managed pool should lie; `None` leaves it to the driver. Other pools do not look at it.
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
