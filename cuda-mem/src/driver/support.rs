//! Capabilities of a device and its driver.

use crate::{Device, Error, Result};
use cuda_sys::{CUdevice_attribute as Attribute, CUresult, Capability};

/// Whether a device and its driver support a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Support {
    /// They support it.
    Yes,
    /// They do not support it.
    No,
    /// The driver is too old to answer. The feature may still work: try it.
    Unknown,
}

/// An optional feature of a device or its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// Pools of device memory.
    DevicePools,
    /// Pools of host memory.
    HostPools,
    /// Pools of one NUMA node's host memory.
    HostNumaPools,
    /// Pools of managed memory.
    ManagedPools,
    /// Pools that other processes can import.
    SharedPools,
    /// Managed memory.
    Managed,
    /// Managed memory that CPU and device use at the same time.
    ConcurrentManaged,
    /// Reserving addresses and mapping physical memory to them.
    VirtualMemory,
    /// Virtual memory management of host memory.
    HostVirtualMemory,
    /// Virtual memory management of one NUMA node's memory.
    HostNumaVirtualMemory,
    /// Physical memory that other processes can import.
    SharedPhysicalMemory,
    /// Physical memory that other devices of the machine access over PCIe.
    GpuDirectRdma,
    /// Sharing of plain allocations and events between processes.
    Ipc,
    /// Registering memory of the host.
    HostRegister,
    /// Registering memory of the host that devices only read.
    ReadOnlyHostRegister,
    /// Streams that wait for and write 32-bit words.
    StreamMemoryOperations,
    /// Streams that wait for and write 64-bit words.
    StreamMemoryOperations64,
    /// Streams that wait for a word with [`Comparison::NotAllBits`](crate::signal::Comparison::NotAllBits).
    StreamWaitNotAllBits,
}

struct Needs {
    name: &'static str,
    needs: &'static str,
    /// The functions that the driver must have.
    capability: Option<Capability>,
    /// The device attribute that must not be 0. (In the mask of handle types, 1 means file descriptors.)
    attribute: Option<Attribute>,
}

impl Feature {
    /// All features.
    pub const ALL: [Feature; 18] = [
        Feature::DevicePools,
        Feature::HostPools,
        Feature::HostNumaPools,
        Feature::ManagedPools,
        Feature::SharedPools,
        Feature::Managed,
        Feature::ConcurrentManaged,
        Feature::VirtualMemory,
        Feature::HostVirtualMemory,
        Feature::HostNumaVirtualMemory,
        Feature::SharedPhysicalMemory,
        Feature::GpuDirectRdma,
        Feature::Ipc,
        Feature::HostRegister,
        Feature::ReadOnlyHostRegister,
        Feature::StreamMemoryOperations,
        Feature::StreamMemoryOperations64,
        Feature::StreamWaitNotAllBits,
    ];

    fn needs(self) -> Needs {
        let of = |name, needs, capability, attribute| Needs { name, needs, capability, attribute };
        let pools = Some(Capability::MemoryPools);
        match self {
            Feature::DevicePools => of(
                "a pool of device memory",
                "CUDA 11.2 and a device with memory pools",
                pools,
                Some(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED),
            ),
            Feature::HostPools => of(
                "a pool of host memory",
                "CUDA 12.6 and a device with host memory pools",
                pools,
                Some(Attribute::CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED),
            ),
            Feature::HostNumaPools => of(
                "a pool of a NUMA node's memory",
                "CUDA 12.6 and a device with host NUMA memory pools",
                pools,
                Some(Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED),
            ),
            Feature::ManagedPools => of(
                "a pool of managed memory",
                "CUDA 13.0 and a device with concurrent managed access",
                Some(Capability::LocatedPools),
                Some(Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS),
            ),
            Feature::SharedPools => of(
                "a pool that other processes import",
                "a device whose pools can be exported as file descriptors",
                pools,
                Some(Attribute::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES),
            ),
            Feature::Managed => of(
                "managed memory",
                "a device with managed memory",
                None,
                Some(Attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY),
            ),
            Feature::ConcurrentManaged => of(
                "managed memory that CPU and device use at the same time",
                "a device with concurrent managed access (not under Windows or WSL)",
                None,
                Some(Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS),
            ),
            Feature::VirtualMemory => of(
                "virtual memory management",
                "CUDA 10.2 and a device with virtual memory management",
                Some(Capability::VirtualMemory),
                Some(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
            ),
            Feature::HostVirtualMemory => of(
                "virtual memory management of host memory",
                "CUDA 12.6 and a device with host virtual memory management",
                Some(Capability::VirtualMemory),
                Some(Attribute::CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
            ),
            Feature::HostNumaVirtualMemory => of(
                "virtual memory management of a NUMA node's memory",
                "CUDA 12.2 and a device with host NUMA virtual memory management",
                Some(Capability::VirtualMemory),
                Some(Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
            ),
            Feature::SharedPhysicalMemory => of(
                "physical memory that other processes import",
                "a device whose physical memory can be exported as file descriptors",
                Some(Capability::VirtualMemory),
                Some(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
            ),
            Feature::GpuDirectRdma => of(
                "physical memory for GPUDirect RDMA",
                "a device with GPUDirect RDMA for virtual memory management",
                Some(Capability::VirtualMemory),
                Some(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED),
            ),
            Feature::Ipc => of(
                "sharing an allocation with another process",
                "CUDA 11.0 and a device with IPC events",
                Some(Capability::Ipc),
                Some(Attribute::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED),
            ),
            Feature::HostRegister => of(
                "registering memory of the host",
                "a device that supports it",
                None,
                Some(Attribute::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED),
            ),
            Feature::ReadOnlyHostRegister => of(
                "registering memory of the host that devices only read",
                "CUDA 11.1 and a device that supports it",
                None,
                Some(Attribute::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED),
            ),
            Feature::StreamMemoryOperations => of(
                "a stream that waits for or writes a word",
                "CUDA 11.7",
                Some(Capability::StreamMemoryOperations),
                None,
            ),
            Feature::StreamMemoryOperations64 => of(
                "a stream that waits for or writes a word of 64 bits",
                "CUDA 11.7 and a device with 64-bit stream memory operations; words of 32 bits need none",
                Some(Capability::StreamMemoryOperations),
                Some(Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS),
            ),
            Feature::StreamWaitNotAllBits => of(
                "a stream that waits for a clear bit",
                "CUDA 11.7 and a device whose streams wait by NOR; the other comparisons need none",
                Some(Capability::StreamMemoryOperations),
                Some(Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR),
            ),
        }
    }
}

impl Device {
    /// Whether the device and its driver support a feature.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    ///
    /// ```
    /// let driver = cuda_mem::Driver::software()?; // softgpu; a GPU: Driver::load()
    /// use cuda_mem::{Feature, Support};
    /// assert_eq!(driver.device(0)?.supports(Feature::DevicePools)?, Support::Yes);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    #[doc(alias = "cuDeviceGetAttribute")]
    pub fn supports(&self, feature: Feature) -> Result<Support> {
        let needs = feature.needs();
        if needs.capability.is_some_and(|capability| !self.driver().raw().supports(capability)) {
            return Ok(Support::No);
        }
        let Some(attribute) = needs.attribute else { return Ok(Support::Yes) };
        Ok(match self.attribute(attribute) {
            Ok(0) => Support::No,
            Ok(_) => Support::Yes,
            Err(error) if error.driver_code() == Some(CUresult::CUDA_ERROR_INVALID_VALUE) => Support::Unknown,
            Err(error) => return Err(error),
        })
    }

    /// Returns an error if the device lacks the feature. If the answer is unknown, the later driver call decides.
    pub(crate) fn require(&self, feature: Feature) -> Result<()> {
        match self.supports(feature)? {
            Support::Yes | Support::Unknown => Ok(()),
            Support::No => {
                let Needs { name, needs, .. } = feature.needs();
                let needs = match self.driver().is_software() {
                    true => {
                        format!("{needs}; this driver is softgpu: set SOFTGPU_VERSION, or SOFTGPU_ATTRIBUTES").into()
                    }
                    false => needs.into(),
                };
                Err(Error::Unsupported { feature: name, needs })
            }
        }
    }
}
