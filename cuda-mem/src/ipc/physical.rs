//! Physical memory that several processes share.

use crate::error::call;
use crate::memory::descriptor::{DescriptorError, adopt, duplicate};
use crate::memory::virtual_memory::{Chunk, FILES, empty};
use crate::memory::{PhysicalLocation, PhysicalMemory, PhysicalOptions};
use crate::{Context, Error, Feature, Result};
use core::ptr;
use cuda_sys::{CUmemAllocationProp, CUmemLocationType};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

impl PhysicalMemory {
    /// Exports the memory to other processes by a file, which keeps the memory alive.
    ///
    /// # Errors
    ///
    /// The memory was not made [shareable](PhysicalOptions::shareable). It belongs to a buffer: use
    /// [`VirtualMemory::export`](crate::memory::VirtualMemory::export). There are too many open files.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// use cuda_mem::memory::{PhysicalMemory, PhysicalOptions};
    /// let mut options = PhysicalOptions::default();
    /// options.shareable = true;
    /// let chunk = PhysicalMemory::new(&context, 1000, &options)?;
    /// // In another process, which has received the size:
    /// let same = PhysicalMemory::import(&context, chunk.export()?, chunk.size())?;
    /// assert_eq!(same.options().location, chunk.options().location);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    #[doc(alias = "cuMemExportToShareableHandle")]
    pub fn export(&self) -> Result<OwnedFd> {
        if self.inner.of_buffer {
            let value = format!("{} bytes that a resource made for a buffer", self.inner.size);
            let rule = "it must be exported with the buffer, by `VirtualMemory::export`";
            return Err(Error::invalid("PhysicalMemory::export", "the memory", value, rule));
        }
        self.to_file()
    }

    /// Exports the memory, also if it belongs to a buffer.
    pub(super) fn to_file(&self) -> Result<OwnedFd> {
        if let Some(file) = &self.inner.file {
            return duplicate(file);
        }
        if !self.inner.options.shareable {
            let rule = "it must be made with `PhysicalOptions::shareable` or `VirtualOptions::shareable`";
            return Err(Error::invalid("PhysicalMemory::export", "the memory", "not shareable", rule));
        }
        let (cuda, mut fd) = (self.inner.context.driver().raw(), -1_i32);
        let place = ptr::from_mut(&mut fd).cast();
        // SAFETY: a handle of this type is an int, and `fd` is writable; the memory lives.
        unsafe { call!(cuda.cuMemExportToShareableHandle(place, self.inner.raw, FILES, 0)) }?;
        // SAFETY: the driver has made the file descriptor for us.
        unsafe { adopt(fd) }
    }

    /// Imports `size` bytes that a process [exported](Self::export). In the exporting process, the result is another
    /// handle of the same memory. The driver maps only the true size.
    ///
    /// # Errors
    ///
    /// The device cannot share physical memory. The file is of another kind, or its memory belongs to another device.
    /// The size is 0.
    #[doc(alias = "cuMemImportFromShareableHandle")]
    pub fn import(context: &Context, file: OwnedFd, size: usize) -> Result<Self> {
        const CALL: &str = "PhysicalMemory::import";
        context.device().require(Feature::SharedPhysicalMemory)?;
        if size == 0 {
            return Err(empty(CALL));
        }
        let (cuda, mut raw) = (context.driver().raw(), 0);
        let handle = ptr::without_provenance_mut(file.as_raw_fd() as usize);
        // SAFETY: `raw` is writable, and the file is open; the driver checks its kind, and does not take ownership.
        unsafe { call!(cuda.cuMemImportFromShareableHandle(&mut raw, handle, FILES)) }?;
        let options = PhysicalOptions { shareable: true, ..PhysicalOptions::default() };
        // From here on, the drop of `inner` releases the memory.
        let mut inner = Chunk { context: context.clone(), raw, size, options, of_buffer: false, file: Some(file) };
        let mut properties = CUmemAllocationProp::default();
        // SAFETY: the properties are writable, and the memory lives.
        unsafe { call!(cuda.cuMemGetAllocationPropertiesFromHandle(&mut properties, raw)) }?;
        inner.options.gpu_direct_rdma = properties.allocFlags.gpuDirectRDMACapable != 0;
        inner.options.location = match (properties.location.type_, properties.location.id) {
            (CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id) if id == context.device().raw() => {
                PhysicalLocation::Device
            }
            (CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST, _) => PhysicalLocation::Host,
            (CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, node) => PhysicalLocation::HostNuma(node),
            _ => {
                let (found, expected) = ("another device", "the context's device, or the host");
                return Err(DescriptorError::WrongPlace { call: CALL, found, expected }.into());
            }
        };
        Ok(Self { inner: Arc::new(inner) })
    }
}
