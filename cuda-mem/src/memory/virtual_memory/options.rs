//! Options of virtual memory.

use super::physical::{Granularity, PhysicalLocation, PhysicalOptions};
use crate::Device;
use cuda_sys::CUdeviceptr;

/// Options of a [`VirtualMemory`](super::VirtualMemory). Its constructor determines where the memory lies.
///
/// ```
/// use cuda_mem::memory::{Granularity, VirtualOptions};
/// let mut options = VirtualOptions::default();
/// options.granularity = Granularity::Minimum;
/// options.alignment = 1 << 30;
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VirtualOptions {
    /// Other processes may import the physical memory by a file descriptor.
    pub shareable: bool,
    /// Other devices of the machine may be allowed to access the memory over PCIe (GPUDirect RDMA).
    pub gpu_direct_rdma: bool,
    /// The unit to which sizes are rounded up.
    pub granularity: Granularity,
    /// Devices, besides the context's own, that may read and write the memory.
    pub peers: Vec<Device>,
    /// The preferred start address of allocations, a multiple of the granularity; 0 for any.
    pub address_hint: CUdeviceptr,
    /// The alignment of allocations in bytes: a power of two; 0 for the granularity.
    pub alignment: usize,
}

impl VirtualOptions {
    pub(super) fn physical(&self, location: PhysicalLocation) -> PhysicalOptions {
        PhysicalOptions {
            location,
            shareable: self.shareable,
            gpu_direct_rdma: self.gpu_direct_rdma,
            granularity: self.granularity,
        }
    }
}
