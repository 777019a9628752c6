//! The memory that a device's graphs hold.

use crate::error::call;
use crate::{Device, Result};
use core::ptr;
use cuda_sys::CUgraphMem_attribute;

/// The memory that a device's graphs hold: what they allocated, and what they keep for their next launches.
///
/// ```
/// use cuda_mem::graph::GraphMemory;
/// # let driver = cuda_mem::Driver::software()?;
/// let memory = GraphMemory::new(&driver.device(0)?);
/// memory.trim()?;
/// memory.reset_high_marks()?;
/// assert_eq!(memory.attributes()?.used, 0); // no graph has allocated
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphMemory {
    device: Device,
}

/// How much memory a device's graphs hold, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphMemoryAttributes {
    /// What is with graphs. Memory that was freed may stay with them until it is trimmed.
    pub used: u64,
    /// The most that was used since the mark was reset.
    pub used_high: u64,
    /// What the device has set aside for graphs.
    pub reserved: u64,
    /// The most that was reserved since the mark was reset.
    pub reserved_high: u64,
}

impl GraphMemory {
    /// The memory of a device's graphs.
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone() }
    }

    /// Gives memory that no graph uses back to the system. What is live, and what a launch under way uses, stays.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    #[doc(alias = "cuDeviceGraphMemTrim")]
    pub fn trim(&self) -> Result<()> {
        let cuda = self.device.driver().raw();
        // SAFETY: the device is one of the driver's.
        unsafe { call!(cuda.cuDeviceGraphMemTrim(self.device.raw())) }
    }

    /// How much memory graphs hold, and held at most.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    #[doc(alias = "cuDeviceGetGraphMemAttribute")]
    pub fn attributes(&self) -> Result<GraphMemoryAttributes> {
        Ok(GraphMemoryAttributes {
            used: self.attribute(CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)?,
            used_high: self.attribute(CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)?,
            reserved: self.attribute(CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)?,
            reserved_high: self.attribute(CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)?,
        })
    }

    fn attribute(&self, attribute: CUgraphMem_attribute) -> Result<u64> {
        let (cuda, mut value) = (self.device.driver().raw(), 0_u64);
        // SAFETY: these attributes are 64-bit words, and `value` is one.
        unsafe {
            call!(cuda.cuDeviceGetGraphMemAttribute(self.device.raw(), attribute, ptr::from_mut(&mut value).cast()))
        }?;
        Ok(value)
    }

    /// Sets both high marks back to what is used and reserved now.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    #[doc(alias = "cuDeviceSetGraphMemAttribute")]
    pub fn reset_high_marks(&self) -> Result<()> {
        self.reset(CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)?;
        self.reset(CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
    }

    fn reset(&self, attribute: CUgraphMem_attribute) -> Result<()> {
        // The one value that a mark can be set to.
        let (cuda, mut zero) = (self.device.driver().raw(), 0_u64);
        // SAFETY: high marks are 64-bit words, and `zero` is one.
        unsafe {
            call!(cuda.cuDeviceSetGraphMemAttribute(self.device.raw(), attribute, ptr::from_mut(&mut zero).cast()))
        }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }
}
