//! Pools and their memory by the driver's own handles: a file descriptor, and 64 bytes for each allocation.
//!
//! Programs of other libraries exchange these, such as those of cuda.core. Nothing in them can be checked. Programs that
//! both use this crate exchange [`PoolExport`](super::PoolExport) and [`Descriptor`].

use super::memory::import_pool_memory;
use crate::error::call;
use crate::memory::descriptor::{Descriptor, DescriptorError, ExportKind, duplicate};
use crate::memory::resource::{Accessibility, Kind, ResourceHandle};
use crate::memory::{DevicePool, DriverPool, PinnedPool};
use crate::{Context, Result, SharedBuffer, Stream};
use cuda_sys::{CUdeviceptr, CUmemPoolPtrExportData};
use std::os::fd::OwnedFd;

impl DevicePool {
    /// Imports a pool of another process by its file alone. Memory of it can be [imported](DriverPool::import_address), but
    /// not allocated.
    ///
    /// A process that made the pool, or imported it, gets it again.
    ///
    /// # Errors
    ///
    /// The file is not a pool's, or is that of a pool of host memory.
    #[doc(alias = "cuMemPoolImportFromShareableHandle")]
    pub fn import_file(context: &Context, file: OwnedFd) -> Result<Self> {
        Self::import_bare("DevicePool::import_file", context, file, None, Accessibility::DEVICE)
    }
}

impl PinnedPool {
    /// Imports a pool of host memory of another process by its file alone, as [`DevicePool::import_file`]. All devices that
    /// support it get access.
    ///
    /// # Errors
    ///
    /// As there.
    #[doc(alias = "cuMemPoolImportFromShareableHandle")]
    pub fn import_file(context: &Context, file: OwnedFd) -> Result<Self> {
        let pool = Self::import_bare("PinnedPool::import_file", context, file, Some(0), Accessibility::BOTH)?;
        if pool.is_imported() {
            pool.open(&[])?;
        }
        Ok(pool)
    }
}

impl<K: Kind> DriverPool<K> {
    /// The file by which other processes import the pool: a duplicate, which the caller closes.
    ///
    /// # Errors
    ///
    /// The pool was not made [shareable](crate::memory::DriverPoolOptions::shareable). There are too many open files.
    #[doc(alias = "cuMemPoolExportToShareableHandle")]
    pub fn export_file(&self) -> Result<OwnedFd> {
        duplicate(&self.inner.shared("DriverPool::export_file")?.file)
    }

    /// The driver's 64 bytes for an allocation of the pool, by its address. Another process that has the pool imports the
    /// allocation by them. The allocation stays alive until then.
    ///
    /// # Errors
    ///
    /// The pool cannot be shared; the address is not that of an allocation of it.
    #[doc(alias = "cuMemPoolExportPointer")]
    pub fn export_address(&self, address: CUdeviceptr) -> Result<[u8; 64]> {
        let inner = &self.inner;
        inner.shared("DriverPool::export_address")?;
        let (cuda, _current) = (inner.context.driver().raw(), inner.context.bind()?);
        let mut data = CUmemPoolPtrExportData::default();
        // SAFETY: `data` is writable; the driver looks the address up.
        unsafe { call!(cuda.cuMemPoolExportPointer(&mut data, address)) }?;
        Ok(data.reserved)
    }

    /// Imports an allocation of this pool of another process: its first `size` bytes, which the other process may write at
    /// any time. `stream` becomes the home stream.
    ///
    /// Repeated imports share one mapping; the last drop closes it when the work of all is done.
    ///
    /// # Errors
    ///
    /// The allocation is of another pool, or smaller than `size`
    /// ([`DescriptorError::TooLarge`]). This process made the pool.
    ///
    /// # Safety
    ///
    /// The bytes are those that [`export_address`](Self::export_address), or the driver's function itself, returned in a
    /// process that has the pool: drivers crash on others. The allocation lives until this returns.
    #[doc(alias = "cuMemPoolImportPointer")]
    pub unsafe fn import_address(&self, bytes: &[u8; 64], size: usize, stream: &Stream) -> Result<SharedBuffer<u8, K>> {
        const CALL: &str = "DriverPool::import_address";
        let inner = &self.inner;
        let shared = inner.shared(CALL)?;
        if !self.is_imported() {
            return Err(DescriptorError::OwnProcess { call: CALL, kind: ExportKind::PoolMemory }.into());
        }
        let mut descriptor = Descriptor::new(ExportKind::PoolMemory, &inner.context)?;
        (descriptor.pool, descriptor.payload) = (shared.id, *bytes);
        (descriptor.size, descriptor.length) = (size as u64, size as u64);
        let pool = self.share();
        SharedBuffer::<u8, K>::check_import(CALL, &pool, size, stream)?;
        let (resource, block) = import_pool_memory(CALL, pool, inner.raw, shared.key, &descriptor, stream)?;
        SharedBuffer::from_import(CALL, resource, block, 0, size, stream)
    }
}
