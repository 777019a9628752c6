//! How virtual memory is made.

use super::physical::{Granularity, PhysicalLocation, PhysicalOptions};
use crate::Device;
use cuda_sys::CUdeviceptr;

/// How a [`VirtualMemory`](super::VirtualMemory) makes its memory. Where the memory lies is the constructor's name.
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
    /// Other processes may import the physical memory, by a file descriptor.
    pub shareable: bool,
    /// Other devices of the machine may be let reach the memory over PCIe (GPUDirect RDMA).
    pub gpu_direct_rdma: bool,
    /// What sizes are rounded up to.
    pub granularity: Granularity,
    /// Devices, besides the context's own, that may read and write the memory.
    pub peers: Vec<Device>,
    /// Where allocations should begin, if the addresses are free; 0 for anywhere. A multiple of the granularity.
    pub address_hint: CUdeviceptr,
    /// What allocations begin at a multiple of, in bytes: a power of two; 0 for the granularity.
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
