//! Physical memory: bytes without an address.

use super::end_detached;
use crate::error::call;
use crate::memory::resource::out_of_memory;
use crate::{Context, Error, Feature, Result};
use core::fmt;
use cuda_sys::{
    CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationType,
    CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType,
};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Where physical memory lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PhysicalLocation {
    /// On the context's device.
    #[default]
    Device,
    /// In the host's memory.
    Host,
    /// In the memory of one NUMA node of the host.
    HostNuma(i32),
}

impl PhysicalLocation {
    #[cfg(feature = "sharing")]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Device => "the device",
            Self::Host => "the host",
            Self::HostNuma(_) => "one NUMA node of the host",
        }
    }
}

/// The unit of physical memory. Sizes are rounded up to it, and mappings begin at multiples of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Granularity {
    /// The unit that the driver recommends for speed.
    #[default]
    Recommended,
    /// The smallest unit that the driver accepts.
    Minimum,
}

/// Options of physical memory.
///
/// ```
/// use cuda_mem::memory::{PhysicalLocation, PhysicalOptions};
/// let mut options = PhysicalOptions::default();
/// options.location = PhysicalLocation::HostNuma(0);
/// options.shareable = true;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PhysicalOptions {
    /// Where the memory lies.
    pub location: PhysicalLocation,
    /// Other processes may import it by a file descriptor. Host memory then needs a NUMA node.
    pub shareable: bool,
    /// Other devices of the machine may be allowed to access it over PCIe (GPUDirect RDMA).
    pub gpu_direct_rdma: bool,
    /// The unit to which its size is rounded up.
    pub granularity: Granularity,
}

/// Physical memory: bytes that have no address until they are mapped, once or several times. Cheap to clone. The bytes
/// live as long as a clone or a mapping.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// use cuda_mem::memory::{PhysicalMemory, PhysicalOptions};
/// let chunk = PhysicalMemory::new(&context, 1000, &PhysicalOptions::default())?;
/// assert_eq!(chunk.size(), PhysicalMemory::granularity(&context, &PhysicalOptions::default())?);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone)]
pub struct PhysicalMemory {
    pub(crate) inner: Arc<Chunk>,
}

pub(crate) struct Chunk {
    pub context: Context,
    pub raw: CUmemGenericAllocationHandle,
    pub size: usize,
    pub options: PhysicalOptions,
    /// A resource made the memory for a buffer, which may have exclusive access.
    #[cfg_attr(not(feature = "sharing"), expect(dead_code, reason = "only exports read it"))]
    pub of_buffer: bool,
    /// The file of an import, kept for exports: the driver does not export imported memory.
    #[cfg_attr(not(feature = "sharing"), expect(dead_code, reason = "only exports read it"))]
    pub file: Option<OwnedFd>,
}

pub(crate) const FILES: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

impl PhysicalMemory {
    /// Allocates at least `size` bytes of physical memory.
    ///
    /// # Errors
    ///
    /// The device or its driver does not support the options: [`Error::Unsupported`]. `size` is 0. There is not enough
    /// memory: [`Error::OutOfMemory`].
    #[doc(alias = "cuMemCreate")]
    pub fn new(context: &Context, size: usize, options: &PhysicalOptions) -> Result<Self> {
        const CALL: &str = "PhysicalMemory::new";
        options.check(CALL, context)?;
        if size == 0 {
            return Err(empty(CALL));
        }
        let size = round_up(CALL, size, Self::granularity(context, options)?)?;
        Self::create(CALL, context, size, options, false)
    }

    /// Allocates physical memory, of a rounded size and with checked options.
    pub(super) fn create(
        name: &'static str,
        context: &Context,
        size: usize,
        options: &PhysicalOptions,
        of_buffer: bool,
    ) -> Result<Self> {
        let (cuda, properties) = (context.driver().raw(), options.properties(context));
        let create = || {
            let mut raw = 0;
            // SAFETY: `raw` is writable, the properties are readable.
            unsafe { call!(cuda.cuMemCreate(&mut raw, size, &properties, 0)) }.map(|()| raw)
        };
        let raw = context.with_room(Some(size), create, |error| out_of_memory(name, error, size, context))?;
        let (context, options) = (context.clone(), *options);
        Ok(Self { inner: Arc::new(Chunk { context, raw, size, options, of_buffer, file: None }) })
    }

    /// The unit to which sizes are rounded up, in bytes (2 MiB on an H200).
    ///
    /// # Errors
    ///
    /// The driver has no virtual memory management.
    #[doc(alias = "cuMemGetAllocationGranularity")]
    pub fn granularity(context: &Context, options: &PhysicalOptions) -> Result<usize> {
        let (cuda, mut unit) = (context.driver().raw(), 0);
        let properties = options.properties(context);
        let which = match options.granularity {
            Granularity::Recommended => CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
            Granularity::Minimum => CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM,
        };
        // SAFETY: `unit` is writable, the properties are readable.
        unsafe { call!(cuda.cuMemGetAllocationGranularity(&mut unit, &properties, which)) }?;
        Ok(unit.max(1))
    }

    /// The size in bytes: the requested size, rounded up.
    pub fn size(&self) -> usize {
        self.inner.size
    }

    /// The options: where the memory lies, and whether it can be shared.
    pub fn options(&self) -> &PhysicalOptions {
        &self.inner.options
    }

    /// The context on whose device it was allocated.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The driver's handle. It lives as long as this value and its clones.
    pub fn raw(&self) -> CUmemGenericAllocationHandle {
        self.inner.raw
    }
}

impl PartialEq for PhysicalMemory {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for PhysicalMemory {}

impl fmt::Debug for PhysicalMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PhysicalMemory")
            .field("raw", &format_args!("{:#x}", self.inner.raw))
            .field("size", &self.inner.size)
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        end_detached(&self.context, "releasing physical memory", |cuda| {
            // SAFETY: the handle is ours and released once; mappings keep the bytes alive.
            unsafe { call!(cuda.cuMemRelease(self.raw)) }
        });
    }
}

impl PhysicalOptions {
    /// Checks that the device supports the options.
    pub(super) fn check(&self, call: &'static str, context: &Context) -> Result<()> {
        let device = context.device();
        device.require(Feature::VirtualMemory)?;
        match self.location {
            PhysicalLocation::Device => {}
            PhysicalLocation::Host => device.require(Feature::HostVirtualMemory)?,
            PhysicalLocation::HostNuma(_) => device.require(Feature::HostNumaVirtualMemory)?,
        }
        if self.gpu_direct_rdma {
            device.require(Feature::GpuDirectRdma)?;
        }
        if self.shareable {
            device.require(Feature::SharedPhysicalMemory)?;
        }
        if self.shareable && self.location == PhysicalLocation::Host {
            let rule = "shareable host memory must lie on one NUMA node: use host_numa or PhysicalLocation::HostNuma";
            return Err(Error::invalid(call, "shareable", "true", rule));
        }
        Ok(())
    }

    /// The location as a structure of the driver.
    pub(super) fn place(&self, context: &Context) -> CUmemLocation {
        match self.location {
            PhysicalLocation::Device => device_place(context.device().raw()),
            PhysicalLocation::Host => CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST, id: 0 },
            PhysicalLocation::HostNuma(node) => {
                CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, id: node }
            }
        }
    }

    /// The type of the handles that other processes import.
    pub(crate) fn handle_type(&self) -> CUmemAllocationHandleType {
        if self.shareable { FILES } else { CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE }
    }

    fn properties(&self, context: &Context) -> CUmemAllocationProp {
        let mut properties = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: self.handle_type(),
            location: self.place(context),
            ..Default::default()
        };
        properties.allocFlags.gpuDirectRDMACapable = u8::from(self.gpu_direct_rdma);
        properties
    }
}

pub(crate) fn empty(call: &'static str) -> Error {
    let rule = "physical memory has at least one byte";
    Error::invalid(call, "size", "0", rule)
}

/// A device as a location.
pub(super) fn device_place(device: i32) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

/// Rounds a size up to a multiple of the granularity.
pub(crate) fn round_up(call: &'static str, size: usize, granularity: usize) -> Result<usize> {
    let rounded = size.checked_next_multiple_of(granularity).filter(|size| *size <= isize::MAX as usize);
    rounded.ok_or_else(|| {
        let rule = "the size, rounded up to the granularity, must fit into isize";
        Error::invalid(call, "size", format_args!("{size} bytes"), rule)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_and_impossible_ones_refused() -> Result<()> {
        assert_eq!(round_up("t", 1, 2 << 20)?, 2 << 20);
        assert_eq!(round_up("t", 2 << 20, 2 << 20)?, 2 << 20);
        assert_eq!(round_up("t", (2 << 20) + 1, 2 << 20)?, 4 << 20);
        for size in [isize::MAX as usize, usize::MAX - 5, usize::MAX] {
            assert!(matches!(round_up("t", size, 2 << 20), Err(Error::InvalidArgument { argument: "size", .. })));
        }
        Ok(())
    }
}
