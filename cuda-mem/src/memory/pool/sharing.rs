//! Pools of several processes.

use super::{DevicePool, DriverPool, Inner, Ownership};
use crate::error::call;
use crate::ipc::{Descriptor, DescriptorError, ExportKind, Imports, PoolExport, PoolId, ProcessId, duplicate, memory};
use crate::memory::{Accessibility, Block, Kind, ResourceHandle};
use crate::{Context, Error, Feature, Result, SharedBuffer, Stream};
use bytemuck::AnyBitPattern;
use core::ptr;
use cuda_sys::{CUmemAllocationHandleType, CUmemLocation, CUmemLocationType, CUmemPoolPtrExportData, CUmemoryPool};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

const FILES: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// Pools that this process made, and that others may import.
static OWN: Mutex<BTreeMap<PoolId, Weak<Inner>>> = Mutex::new(BTreeMap::new());

/// Pools of other processes, by library and name. The driver gives a pool that is imported twice the same handle, which
/// one call destroys.
static IMPORTED: Imports<(usize, PoolId), ImportedPool> = Imports::new();

struct ImportedPool {
    raw: Handle,
    /// For passing it on: the driver does not export what was imported.
    file: OwnedFd,
    process: ProcessId,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Handle(CUmemoryPool);

// SAFETY: a CUmemoryPool is a token that every thread may pass to the driver.
unsafe impl Send for Handle {}

impl DevicePool {
    /// Imports a pool of another process. Memory of it can be [imported](Self::import_buffer), and not allocated.
    ///
    /// A process that has the pool already, because it made or imported it, gets it again. Access of other devices does
    /// not come with the pool: it is to be [allowed](Self::allow_access) here too.
    ///
    /// # Errors
    ///
    /// The export is not a pool's, is another device's, or its file is something else; the driver refuses.
    #[doc(alias = "cuMemPoolImportFromShareableHandle")]
    pub fn import(context: &Context, export: PoolExport) -> Result<Self> {
        const CALL: &str = "DevicePool::import";
        let (file, descriptor) = export.into_parts();
        descriptor.expect(CALL, ExportKind::Pool, context)?;
        if descriptor.is_own()?
            && let Some(pool) = Self::own(context, descriptor.pool)
        {
            return Ok(pool);
        }
        context.device().require(Feature::SharedPools)?;
        let driver = context.driver();
        let (cuda, _current) = (driver.raw(), context.bind()?);
        let open = |mut others: &mut dyn Iterator<Item = &ImportedPool>| {
            let (mut raw, handle) = (ptr::null_mut(), ptr::without_provenance_mut(file.as_raw_fd() as usize));
            // SAFETY: `raw` is writable, and the file is open; the driver checks what it is, and does not take it.
            unsafe { call!(cuda.cuMemPoolImportFromShareableHandle(&mut raw, handle, FILES, 0)) }?;
            let raw = Handle(raw);
            // A pool that is here under another name is the other's to destroy.
            if Iterator::any(&mut others, |other| other.raw == raw) {
                return Err(DescriptorError::Forged { call: CALL }.into());
            }
            Ok(ImportedPool { raw, file, process: descriptor.process })
        };
        let raw = IMPORTED.acquire((driver.library(), descriptor.pool), open, |pool| pool.raw)?;
        Ok(Self::of_import(context, raw, descriptor.pool))
    }

    /// A pool that this process made [shareable](super::PoolOptions::shareable) or has imported, if it is still here.
    pub fn find(context: &Context, id: PoolId) -> Option<Self> {
        if let Some(pool) = Self::own(context, id) {
            return Some(pool);
        }
        let raw = IMPORTED.find(&(context.driver().library(), id), |pool| pool.raw)?;
        Some(Self::of_import(context, raw, id))
    }

    fn own(context: &Context, id: PoolId) -> Option<Self> {
        // Upgraded under the lock, and dropped, if it is not wanted, after it: its end takes the lock.
        let inner = own().get(&id).and_then(Weak::upgrade)?;
        let fits = inner.accessibility == Accessibility::DEVICE
            && inner.context.driver().library() == context.driver().library()
            && inner.location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE
            && inner.location.id == context.device().raw();
        fits.then_some(Self { inner, kind: core::marker::PhantomData })
    }

    fn of_import(context: &Context, raw: Handle, id: PoolId) -> Self {
        let location =
            CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: context.device().raw() };
        Self::from_parts(context, raw.0, Ownership::Imported, location, Accessibility::DEVICE, Some(id))
    }
}

impl<K: Kind> DriverPool<K> {
    /// Exports the pool to other processes. Each process keeps it on its own; memory of it is exported buffer by buffer,
    /// by [`SharedBuffer::export`].
    ///
    /// # Errors
    ///
    /// The pool was not made [shareable](super::PoolOptions::shareable); the driver refuses.
    #[doc(alias = "cuMemPoolExportToShareableHandle")]
    pub fn export(&self) -> Result<PoolExport> {
        let inner = &self.inner;
        let id = inner.shared_id("DriverPool::export")?;
        let mut descriptor = Descriptor::new(ExportKind::Pool, &inner.context)?;
        descriptor.pool = id;
        if inner.ownership == Ownership::Imported {
            let key = (inner.context.driver().library(), id);
            let passed_on = IMPORTED.look(&key, |pool| Ok((duplicate(&pool.file)?, pool.process)));
            let (file, process) = passed_on.unwrap_or(Err(Error::ImportedPool { call: "DriverPool::export" }))?;
            descriptor.process = process;
            return Ok(PoolExport::from_parts(file, descriptor));
        }
        let (cuda, mut fd) = (inner.context.driver().raw(), -1_i32);
        let place = ptr::from_mut(&mut fd).cast();
        // SAFETY: a handle of this type is an int, and `fd` is writable; the pool lives.
        unsafe { call!(cuda.cuMemPoolExportToShareableHandle(place, inner.raw, FILES, 0)) }?;
        // SAFETY: the driver made it for us.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        // Children get what they are sent, and nothing by chance.
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::CLOEXEC)
            .map_err(|error| Error::System { call: "fcntl", code: error.raw_os_error() })?;
        Ok(PoolExport::from_parts(file, descriptor))
    }

    /// Imports memory of this pool that another process exported by [`SharedBuffer::export`]: the part that it exported,
    /// as elements of type `T`. The other process may write it at any time, so it comes as a [`SharedBuffer`].
    ///
    /// `stream` becomes the home stream. What is imported twice is the same memory; the last one to be dropped lets go
    /// of it, when the work of all is done. In the process that exported it, it is the exported allocation itself.
    ///
    /// # Errors
    ///
    /// The descriptor is not of this pool's memory, says more than the driver, or its part does not hold whole elements,
    /// aligned; the driver refuses.
    #[doc(alias = "cuMemPoolImportPointer")]
    pub fn import_buffer<T>(&self, descriptor: &Descriptor, stream: &Stream) -> Result<SharedBuffer<T, K>>
    where
        T: AnyBitPattern,
    {
        const CALL: &str = "DriverPool::import_buffer";
        let inner = &self.inner;
        descriptor.expect(CALL, ExportKind::PoolMemory, &inner.context)?;
        let expected = inner.id.unwrap_or(PoolId::NONE);
        if inner.id != Some(descriptor.pool) {
            return Err(DescriptorError::WrongPool { call: CALL, found: descriptor.pool, expected }.into());
        }
        let pool = self.share();
        SharedBuffer::import(CALL, &pool, descriptor, stream, || {
            memory::import_pool_memory(CALL, pool.clone(), inner.raw, descriptor, stream)
        })
    }

    /// The pool's name in all processes that have it; none where it cannot be shared.
    pub fn id(&self) -> Option<PoolId> {
        self.inner.id
    }

    /// Whether another process made the pool.
    pub fn is_imported(&self) -> bool {
        self.inner.ownership == Ownership::Imported
    }
}

fn own() -> std::sync::MutexGuard<'static, BTreeMap<PoolId, Weak<Inner>>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// Lets this process find the pool by its name.
    pub(super) fn register(self: &Arc<Self>) {
        if let Some(id) = self.id {
            own().insert(id, Arc::downgrade(self));
        }
    }

    pub(super) fn forget(&self) {
        if let Some(id) = self.id {
            own().remove(&id);
        }
    }

    /// An imported pool is another process's to allocate from, to trim and to ask.
    pub(super) fn check_own(&self, call: &'static str) -> Result<()> {
        if self.ownership == Ownership::Imported { Err(Error::ImportedPool { call }) } else { Ok(()) }
    }

    /// Ends one use of an imported pool; the last one destroys it here.
    pub(super) fn release(&self) {
        let Some(id) = self.id else { return };
        self.context.end("destroying an imported pool", |cuda| {
            IMPORTED.release(&(self.context.driver().library(), id), |pool, last| match last {
                // SAFETY: imported once and destroyed once: the count says so. Buffers hold the pool.
                true => unsafe { call!(cuda.cuMemPoolDestroy(pool.raw.0)) },
                false => Ok(()),
            })
        });
    }

    /// Describes a block for other processes.
    pub(super) fn describe(&self, block: Block) -> Result<Descriptor> {
        let mut descriptor = Descriptor::new(ExportKind::PoolMemory, &self.context)?;
        descriptor.pool = self.shared_id("SharedBuffer::export")?;
        if block.size == 0 {
            return Ok(descriptor);
        }
        let (cuda, _current) = (self.context.driver().raw(), self.context.bind()?);
        let mut data = CUmemPoolPtrExportData::default();
        // SAFETY: `data` is writable, and the block is allocated.
        unsafe { call!(cuda.cuMemPoolExportPointer(&mut data, block.device_pointer)) }?;
        descriptor.payload = data.reserved;
        descriptor.size = block.size as u64;
        descriptor.length = block.size as u64;
        Ok(descriptor)
    }

    fn shared_id(&self, call: &'static str) -> Result<PoolId> {
        self.id.ok_or(Error::InvalidArgument {
            call,
            argument: "the pool",
            value: "not shareable".into(),
            rule: "a pool is made for sharing, with `PoolOptions::shareable`",
        })
    }
}
