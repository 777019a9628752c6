//! Pools of the driver that several processes share.

use super::PoolExport;
use super::imports::Imports;
use super::memory::import_pool_memory;
use crate::error::call;
use crate::memory::descriptor::{
    Descriptor, DescriptorError, ExportKind, Key, PoolId, Sameness, compare, duplicate, random,
};
use crate::memory::pool::{PoolOwnership, PoolResource, PoolSharing, is_own_pool, own_pool, own_pools};
use crate::memory::resource::{Accessibility, Kind, ResourceHandle};
use crate::memory::{DevicePool, DriverPool, PinnedPool};
use crate::{Context, Error, Feature, Result, SharedBuffer, Stream};
use bytemuck::{AnyBitPattern, NoUninit};
use core::ptr;
use cuda_sys::{CUmemAccess_flags, CUmemAllocationHandleType, CUmemLocation, CUmemLocationType, CUmemoryPool};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

const FILES: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// Pools of other processes. Imports are counted, because the driver returns one handle for all imports of a pool, and
/// one call destroys it.
static IMPORTED: Imports<ImportKey, ImportedPool> = Imports::new();

/// One use of an imported pool. The end of the last one destroys the pool in this process.
struct PoolUse {
    context: Context,
    key: ImportKey,
}

impl Drop for PoolUse {
    fn drop(&mut self) {
        let end = |cuda: &cuda_sys::Driver| {
            IMPORTED.release(
                &self.key,
                |_| false,
                |pool, last| match last {
                    // SAFETY: the count guarantees that one import is destroyed once. Buffers hold the pool.
                    true => unsafe { call!(cuda.cuMemPoolDestroy(pool.raw.0)) },
                    false => Ok(()),
                },
            )
        };
        if let Err(error) = self.context.while_alive(end) {
            self.context.drop_errors().push("destroying an imported pool", error);
        }
    }
}

/// Counts one more use of an imported pool, which never ends. Holds no context.
pub(super) fn keep_for_ever(context: &Context, id: PoolId, is_of_host: bool) {
    let _ = IMPORTED.find(&(context.driver().library(), id, is_of_host), |_| ());
}

/// The library, the pool's id, and whether the export claims host memory. After a false claim, the import finds that
/// the driver returns the handle of another entry.
type ImportKey = (usize, PoolId, bool);

struct ImportedPool {
    raw: PoolHandle,
    shared: Arc<PoolSharing>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct PoolHandle(CUmemoryPool);

// SAFETY: a CUmemoryPool is a token that every thread may pass to the driver.
unsafe impl Send for PoolHandle {}

impl DevicePool {
    /// Imports a pool of another process. Memory of it can be [imported](Self::import_buffer), but not allocated.
    ///
    /// A process that already made or imported the pool gets it again. The import does not include the access of other
    /// devices: this process must [allow](Self::allow_access) it too.
    ///
    /// # Errors
    ///
    /// The export is not a pool's, belongs to another device or to host memory, or its file is of another kind.
    #[doc(alias = "cuMemPoolImportFromShareableHandle")]
    pub fn import(context: &Context, export: PoolExport) -> Result<Self> {
        Self::import_as("DevicePool::import", context, export, Accessibility::DEVICE)
    }

    /// A pool that this process made [shareable](crate::memory::DriverPoolOptions::shareable) or imported, if it still exists.
    pub fn find(context: &Context, id: PoolId) -> Option<Self> {
        if let Some(pool) = Self::own(context, id, Accessibility::DEVICE) {
            return Some(pool);
        }
        let key = (context.driver().library(), id, false);
        let (raw, shared) = IMPORTED.find(&key, |pool| (pool.raw, pool.shared.clone()))?;
        Some(Self::of_import(context, raw, shared, device_place(context), Accessibility::DEVICE))
    }
}

impl PinnedPool {
    /// Imports a pool of host memory that another process made [on a NUMA node](Self::on_numa_node). Memory of it can
    /// be [imported](Self::import_buffer), but not allocated. All devices that support it get access, as for a new
    /// pool, because the driver's import includes none.
    ///
    /// A process that already made or imported the pool gets it again.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// use cuda_mem::memory::{PinnedPool, DriverPoolOptions};
    /// let mut options = DriverPoolOptions::default();
    /// options.shareable = true;
    /// let pool = PinnedPool::on_numa_node(&context, 0, &options)?;
    /// let export = pool.export()?; // to be sent by a channel
    /// assert_eq!(export.numa_node(), Some(0));
    /// assert_eq!(PinnedPool::import(&context, export)?, pool); // here in the same process
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The export is not a pool's, belongs to another device or to device memory, or its file is of another kind.
    #[doc(alias = "cuMemPoolImportFromShareableHandle")]
    pub fn import(context: &Context, export: PoolExport) -> Result<Self> {
        let pool = Self::import_as("PinnedPool::import", context, export, Accessibility::BOTH)?;
        if pool.is_imported() {
            pool.open(&[])?;
        }
        Ok(pool)
    }
}

impl<K: Kind> DriverPool<K> {
    /// Imports a pool. `accessibility` is that of kind `K`.
    fn import_as(
        call: &'static str,
        context: &Context,
        export: PoolExport,
        accessibility: Accessibility,
    ) -> Result<Self> {
        let (file, descriptor) = export.into_parts();
        descriptor.expect(call, ExportKind::Pool, context)?;
        let place = descriptor.numa_node().map_or_else(|| device_place(context), node_place);
        let host = descriptor.numa_node().is_some();
        if host != accessibility.host {
            return Err(wrong_place(call, accessibility));
        }
        if let Some(pool) = Self::recognise(call, context, &file, descriptor.pool, accessibility)? {
            return Ok(pool);
        }
        context.device().require(Feature::SharedPools)?;
        let driver = context.driver();
        let (cuda, _current) = (driver.raw(), context.bind()?);
        let open = |mut others: &mut dyn Iterator<Item = &ImportedPool>| {
            let (mut raw, handle) = (ptr::null_mut(), ptr::without_provenance_mut(file.as_raw_fd() as usize));
            // SAFETY: `raw` is writable, and the file is open; the driver checks its kind, and does not take ownership.
            unsafe { call!(cuda.cuMemPoolImportFromShareableHandle(&mut raw, handle, FILES, 0)) }?;
            // The driver has returned a pool that is known under another id. Its other owner destroys it.
            if Iterator::any(&mut others, |other| other.raw == PoolHandle(raw)) || is_own_pool(raw) {
                return Err(DescriptorError::Conflict { call }.into());
            }
            let placed = match is_host_pool(cuda, raw) {
                Ok(found) if found == host => Ok(()),
                Ok(_) => Err(wrong_place(call, accessibility)),
                // A driver that does not support the query has no pools of host memory.
                Err(_) if !host => Ok(()),
                Err(error) => Err(error),
            };
            placed.inspect_err(|_| {
                // SAFETY: we have just imported the pool, and nobody uses it.
                if let Err(error) = unsafe { call!(cuda.cuMemPoolDestroy(raw)) } {
                    context.drop_errors().push("destroying an imported pool in the wrong place", error);
                }
            })?;
            let (id, key, process) = (descriptor.pool, Key::of(&descriptor), descriptor.process);
            Ok(ImportedPool { raw: PoolHandle(raw), shared: Arc::new(PoolSharing { id, key, process, file }) })
        };
        let key = (driver.library(), descriptor.pool, host);
        let (raw, shared) = IMPORTED.acquire(key, open, |pool| (pool.raw, pool.shared.clone()))?;
        Ok(Self::of_import(context, raw, shared, place, accessibility))
    }

    /// Imports a pool by its file alone.
    pub(super) fn import_bare(
        call: &'static str,
        context: &Context,
        file: OwnedFd,
        node: Option<i32>,
        accessibility: Accessibility,
    ) -> Result<Self> {
        let mut doubt = false;
        for own in own_pools() {
            match compare(&own.shared.file, &file) {
                Sameness::Same if own.is_of_host != accessibility.host => return Err(wrong_place(call, accessibility)),
                Sameness::Same => match own.get() {
                    Some(pool) if pool.fits(context, accessibility) => return Ok(Self::from_arc(pool)),
                    _ => return Err(DescriptorError::Conflict { call }.into()),
                },
                Sameness::Unknown => doubt = true,
                Sameness::Different => {}
            }
        }
        if doubt {
            return Err(DescriptorError::Unrecognised { call }.into());
        }
        context.device().require(Feature::SharedPools)?;
        let (driver, own) = (context.driver(), Descriptor::new(ExportKind::Pool, context)?);
        let (cuda, _current) = (driver.raw(), context.bind()?);
        let open = || {
            let (mut raw, handle) = (ptr::null_mut(), ptr::without_provenance_mut(file.as_raw_fd() as usize));
            // SAFETY: as in `import_as`.
            unsafe { call!(cuda.cuMemPoolImportFromShareableHandle(&mut raw, handle, FILES, 0)) }?;
            if is_own_pool(raw) {
                return Err(DescriptorError::Conflict { call }.into());
            }
            // Nobody else knows this id and this key, so no descriptor of the pool's memory is accepted.
            let shared = PoolSharing { id: PoolId(random()?), key: Key::new()?, process: own.process, file };
            let key = (driver.library(), shared.id, accessibility.host);
            Ok((key, ImportedPool { raw: PoolHandle(raw), shared: Arc::new(shared) }))
        };
        let same = |one: &ImportedPool, other: &ImportedPool| one.raw == other.raw;
        let (key, raw, shared) =
            IMPORTED.acquire_opened(open, same, |key, pool| (*key, pool.raw, pool.shared.clone()))?;
        let place = node.map_or_else(|| device_place(context), node_place);
        let pool = Self::of_import(context, raw, shared, place, Accessibility { host: key.2, ..accessibility });
        match is_host_pool(cuda, raw.0) {
            Ok(found) if found == accessibility.host && key.2 == found => Ok(pool),
            Err(_) if !accessibility.host && !key.2 => Ok(pool),
            Ok(_) | Err(_) => Err(wrong_place(call, accessibility)),
        }
    }

    /// Returns this process's own pool if the file belongs to one. The descriptor's claims do not count: a second
    /// import of a pool of this process would reach memory of it that has an exclusive owner.
    fn recognise(
        call: &'static str,
        context: &Context,
        file: &OwnedFd,
        id: PoolId,
        accessibility: Accessibility,
    ) -> Result<Option<Self>> {
        let mut doubt = false;
        for own in own_pools() {
            let (sameness, same_name) = (compare(&own.shared.file, file), own.shared.id == id);
            match sameness {
                Sameness::Same if own.is_of_host != accessibility.host => return Err(wrong_place(call, accessibility)),
                Sameness::Same if same_name => match own.get() {
                    Some(pool) if pool.fits(context, accessibility) => return Ok(Some(Self::from_arc(pool))),
                    Some(_) => return Err(DescriptorError::Conflict { call }.into()),
                    // Its last owner has just dropped it, so it is a pool like any other.
                    None => {}
                },
                Sameness::Different if !same_name => {}
                Sameness::Unknown => doubt = true,
                Sameness::Same | Sameness::Different => return Err(DescriptorError::Conflict { call }.into()),
            }
        }
        if doubt { Err(DescriptorError::Unrecognised { call }.into()) } else { Ok(None) }
    }

    fn own(context: &Context, id: PoolId, accessibility: Accessibility) -> Option<Self> {
        let inner = own_pool(id)?;
        inner.fits(context, accessibility).then(|| Self::from_arc(inner))
    }

    fn of_import(
        context: &Context,
        raw: PoolHandle,
        shared: Arc<PoolSharing>,
        place: CUmemLocation,
        accessibility: Accessibility,
    ) -> Self {
        let key = (context.driver().library(), shared.id, accessibility.host);
        let used = PoolOwnership::Borrowed(Some(Arc::new(PoolUse { context: context.clone(), key })));
        let mut inner = PoolResource::new(context, raw.0, used, place, accessibility);
        (inner.shareable, inner.shared) = (true, Some(shared));
        Self::from_arc(Arc::new(inner))
    }

    /// Exports the pool to other processes. Each process keeps it alive independently. [`SharedBuffer::export`] exports
    /// its memory buffer by buffer.
    ///
    /// A process that gets the export may use all memory of the pool, and others accept descriptors of it that the
    /// process makes.
    ///
    /// # Errors
    ///
    /// The pool was not made [shareable](crate::memory::DriverPoolOptions::shareable). There are too many open files.
    #[doc(alias = "cuMemPoolExportToShareableHandle")]
    pub fn export(&self) -> Result<PoolExport> {
        let inner = &self.inner;
        let shared = inner.shared("DriverPool::export")?;
        let mut descriptor = Descriptor::new(ExportKind::Pool, &inner.context)?;
        (descriptor.pool, descriptor.process) = (shared.id, shared.process);
        shared.key.put(&mut descriptor);
        descriptor.set_numa_node(inner.accessibility.host.then_some(inner.location.id));
        Ok(PoolExport::from_parts(duplicate(&shared.file)?, descriptor))
    }

    /// Imports memory of this pool: the part that another process exported by [`SharedBuffer::export`], as elements of
    /// type `T`. The other process may write it at any time, so the result is a [`SharedBuffer`].
    ///
    /// `stream` becomes the home stream. Repeated imports share one mapping; the last drop closes it when the work of
    /// all is done. In the exporting process, the result is the exported allocation itself.
    ///
    /// # Errors
    ///
    /// The descriptor is not of this pool's memory, was not made by a process that has the pool
    /// ([`DescriptorError::Forged`]), or names memory of this process that was not exported
    /// ([`DescriptorError::NotExported`]). Its part does not hold whole, aligned elements.
    #[doc(alias = "cuMemPoolImportPointer")]
    pub fn import_buffer<T>(&self, descriptor: &Descriptor, stream: &Stream) -> Result<SharedBuffer<T, K>>
    where
        T: NoUninit + AnyBitPattern,
    {
        const CALL: &str = "DriverPool::import_buffer";
        let inner = &self.inner;
        descriptor.expect(CALL, ExportKind::PoolMemory, &inner.context)?;
        let expected = self.id().unwrap_or(PoolId::NONE);
        let Some(shared) = inner.shared.as_ref().filter(|shared| shared.id == descriptor.pool) else {
            return Err(DescriptorError::WrongPool { call: CALL, found: descriptor.pool, expected }.into());
        };
        // Before any driver call: drivers crash on modified handles of pool memory.
        if !shared.key.has_signed(descriptor) {
            return Err(DescriptorError::Forged { call: CALL }.into());
        }
        let (pool, own) = (self.share(), !self.is_imported());
        SharedBuffer::import(CALL, &pool, descriptor, stream, own, || {
            import_pool_memory(CALL, pool.clone(), inner.raw, shared.key, descriptor, stream)
        })
    }

    /// The pool's id, the same in all processes that have the pool; `None` if it cannot be shared.
    pub fn id(&self) -> Option<PoolId> {
        self.inner.shared.as_ref().map(|shared| shared.id)
    }

    /// Whether another process made the pool.
    pub fn is_imported(&self) -> bool {
        matches!(self.inner.ownership, PoolOwnership::Borrowed(Some(_)))
    }
}

fn device_place(context: &Context) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: context.device().raw() }
}

fn node_place(node: i32) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, id: node }
}

/// Whether the driver has a pool's memory on the host: the CPU has access only to host pools.
fn is_host_pool(cuda: &cuda_sys::Driver, pool: CUmemoryPool) -> Result<bool> {
    let (mut flags, mut place) = (CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE, node_place(0));
    // SAFETY: `flags` is writable, the location readable, and the pool lives.
    unsafe { call!(cuda.cuMemPoolGetAccess(&mut flags, pool, &mut place)) }?;
    Ok(flags == CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
}

fn wrong_place(call: &'static str, expected: Accessibility) -> Error {
    let (found, expected) = if expected.host { ("a device", "the host") } else { ("the host", "a device") };
    DescriptorError::WrongPlace { call, found, expected }.into()
}
