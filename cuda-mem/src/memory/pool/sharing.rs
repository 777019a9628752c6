//! Pools of several processes.

use super::{DevicePool, DriverPool, Inner, Ownership, PinnedPool};
use crate::descriptor::{
    BlockExport, Descriptor, DescriptorError, ExportKind, Key, PoolId, ProcessId, Sameness, compare, duplicate, random,
};
use crate::error::call;
use crate::ipc::{Imports, PoolExport, memory};
use crate::resource::{Accessibility, Block, Kind, ResourceHandle};
use crate::{Context, Error, Feature, Result, SharedBuffer, Stream};
use bytemuck::{AnyBitPattern, NoUninit};
use core::ptr;
use cuda_sys::{
    CUmemAccess_flags, CUmemAllocationHandleType, CUmemLocation, CUmemLocationType, CUmemPoolPtrExportData,
    CUmemoryPool,
};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

const FILES: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// Pools that this process made, and that others may import.
static OWN: Mutex<BTreeMap<PoolId, Weak<Inner>>> = Mutex::new(BTreeMap::new());

/// Pools of other processes. The driver gives a pool that is imported twice the same handle, which one call destroys.
static IMPORTED: Imports<ImportKey, ImportedPool> = Imports::new();

/// The library, the pool's name, and whether its memory is the host's: what lies about that is another import, which finds
/// that the driver gives it the first one's handle.
type ImportKey = (usize, PoolId, bool);

struct ImportedPool {
    raw: Handle,
    shared: Arc<Shared>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Handle(CUmemoryPool);

// SAFETY: a CUmemoryPool is a token that every thread may pass to the driver.
unsafe impl Send for Handle {}

/// What processes that share a pool have in common.
pub(super) struct Shared {
    /// The name in all processes.
    id: PoolId,
    /// Signs descriptors of the pool's memory. It shows that a handle comes from a process that has the pool, and decides
    /// nothing about who owns the memory: all of these have it.
    key: Key,
    /// The process that made the pool.
    process: ProcessId,
    /// The driver exports no memory of a pool before the pool itself, and nothing that was imported: so each pool is
    /// exported once, when it is made, and what is sent are duplicates.
    file: OwnedFd,
}

impl Shared {
    /// Exports a pool that was just made.
    pub fn export(pool: &Inner) -> Result<Self> {
        let (cuda, mut fd) = (pool.context.driver().raw(), -1_i32);
        let place = ptr::from_mut(&mut fd).cast();
        // SAFETY: a handle of this type is an int, and `fd` is writable; the pool lives.
        unsafe { call!(cuda.cuMemPoolExportToShareableHandle(place, pool.raw, FILES, 0)) }?;
        // SAFETY: the driver made it for us.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        // Children get what they are sent, and nothing by chance.
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::CLOEXEC)
            .map_err(|error| Error::System { call: "fcntl", code: error.raw_os_error() })?;
        let process = Descriptor::new(ExportKind::Pool, &pool.context)?.process;
        Ok(Self { id: PoolId(random()?), key: Key::new()?, process, file })
    }
}

impl DevicePool {
    /// Imports a pool of another process. Memory of it can be [imported](Self::import_buffer), and not allocated.
    ///
    /// A process that has the pool already, because it made or imported it, gets it again. Access of other devices does
    /// not come with the pool: it is to be [allowed](Self::allow_access) here too.
    ///
    /// # Errors
    ///
    /// The export is not a pool's, is another device's or of the host's memory, or its file is something else; the driver
    /// refuses.
    #[doc(alias = "cuMemPoolImportFromShareableHandle")]
    pub fn import(context: &Context, export: PoolExport) -> Result<Self> {
        Self::import_as("DevicePool::import", context, export, Accessibility::DEVICE)
    }

    /// A pool that this process made [shareable](super::DriverPoolOptions::shareable) or has imported, if it is still here.
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
    /// Imports a pool of host memory that another process made [on a NUMA node](Self::on_numa_node). Memory of it can be
    /// [imported](Self::import_buffer), and not allocated. All devices that can have it are given access, as to a pool of
    /// this process: the driver brings none along.
    ///
    /// A process that has the pool already, because it made or imported it, gets it again.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
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
    /// The export is not a pool's, is another device's or of a device's memory, or its file is something else; the driver
    /// refuses.
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
    /// `accessibility` is that of kind `K`.
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
        let own: Vec<Handle> = all_own().iter().map(|own| Handle(own.raw)).collect();
        let open = |mut others: &mut dyn Iterator<Item = &ImportedPool>| {
            let (mut raw, handle) = (ptr::null_mut(), ptr::without_provenance_mut(file.as_raw_fd() as usize));
            // SAFETY: `raw` is writable, and the file is open; the driver checks what it is, and does not take it.
            unsafe { call!(cuda.cuMemPoolImportFromShareableHandle(&mut raw, handle, FILES, 0)) }?;
            // A pool that is here under another name is the other's to destroy.
            if Iterator::any(&mut others, |other| other.raw == Handle(raw)) || own.contains(&Handle(raw)) {
                return Err(DescriptorError::Conflict { call }.into());
            }
            let placed = match is_host_pool(cuda, raw) {
                Ok(found) if found == host => Ok(()),
                Ok(_) => Err(wrong_place(call, accessibility)),
                // A driver that cannot be asked has no pools of the host.
                Err(_) if !host => Ok(()),
                Err(error) => Err(error),
            };
            placed.inspect_err(|_| {
                // SAFETY: just imported, and used by nobody.
                if let Err(error) = unsafe { call!(cuda.cuMemPoolDestroy(raw)) } {
                    context.drop_errors().push("destroying a pool that was not what it seemed", error);
                }
            })?;
            let (id, key, process) = (descriptor.pool, Key::of(&descriptor), descriptor.process);
            Ok(ImportedPool { raw: Handle(raw), shared: Arc::new(Shared { id, key, process, file }) })
        };
        let key = (driver.library(), descriptor.pool, host);
        let (raw, shared) = IMPORTED.acquire(key, open, |pool| (pool.raw, pool.shared.clone()))?;
        Ok(Self::of_import(context, raw, shared, place, accessibility))
    }

    /// The pool of this process that a file is of, if it is of one. What the descriptor says of itself does not count: a
    /// second import of a pool of this process would reach memory of it that is in exclusive hands.
    fn recognise(
        call: &'static str,
        context: &Context,
        file: &OwnedFd,
        id: PoolId,
        accessibility: Accessibility,
    ) -> Result<Option<Self>> {
        let mut doubt = false;
        for own in all_own() {
            let Some(shared) = &own.shared else { continue };
            let (sameness, same_name) = (compare(&shared.file, file), shared.id == id);
            match sameness {
                Sameness::Same if own.accessibility.host != accessibility.host => {
                    return Err(wrong_place(call, accessibility));
                }
                Sameness::Same if same_name && own.fits(context, accessibility) => {
                    return Ok(Some(Self::from_arc(own)));
                }
                Sameness::Different if !same_name => {}
                Sameness::Unknown => doubt = true,
                Sameness::Same | Sameness::Different => return Err(DescriptorError::Conflict { call }.into()),
            }
        }
        if doubt { Err(DescriptorError::Unrecognised { call }.into()) } else { Ok(None) }
    }

    fn own(context: &Context, id: PoolId, accessibility: Accessibility) -> Option<Self> {
        // Upgraded under the lock, and dropped, if it is not wanted, after it: its end takes the lock.
        let inner = own().get(&id).and_then(Weak::upgrade)?;
        inner.fits(context, accessibility).then(|| Self::from_arc(inner))
    }

    fn from_arc(inner: Arc<Inner>) -> Self {
        Self { inner, kind: core::marker::PhantomData }
    }

    fn of_import(
        context: &Context,
        raw: Handle,
        shared: Arc<Shared>,
        place: CUmemLocation,
        accessibility: Accessibility,
    ) -> Self {
        let mut inner = Inner::new(context, raw.0, Ownership::Imported, place, accessibility);
        inner.shared = Some(shared);
        Self::from_inner(inner)
    }

    /// Exports the pool to other processes. Each process keeps it on its own; memory of it is exported buffer by buffer,
    /// by [`SharedBuffer::export`].
    ///
    /// Who gets it may use all memory of the pool, and the descriptors of its memory that others make with it are believed.
    ///
    /// # Errors
    ///
    /// The pool was not made [shareable](super::DriverPoolOptions::shareable); there are too many open files.
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

    /// Imports memory of this pool that another process exported by [`SharedBuffer::export`]: the part that it exported,
    /// as elements of type `T`. The other process may write it at any time, so it comes as a [`SharedBuffer`].
    ///
    /// `stream` becomes the home stream. What is imported twice is the same memory; the last one to be dropped lets go
    /// of it, when the work of all is done. In the process that exported it, it is the exported allocation itself.
    ///
    /// # Errors
    ///
    /// The descriptor is not of this pool's memory, was not made by a process that has the pool
    /// ([`DescriptorError::Forged`]), names memory of this process that was not exported ([`DescriptorError::NotExported`]), or its part does not hold whole elements, aligned; the driver refuses.
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
        // Before any call: drivers crash on handles of pools' memory that were changed.
        if !shared.key.has_signed(descriptor) {
            return Err(DescriptorError::Forged { call: CALL }.into());
        }
        let (pool, own) = (self.share(), !self.is_imported());
        SharedBuffer::import(CALL, &pool, descriptor, stream, own, || {
            memory::import_pool_memory(CALL, pool.clone(), inner.raw, shared.key, descriptor, stream)
        })
    }

    /// The pool's name in all processes that have it; none where it cannot be shared.
    pub fn id(&self) -> Option<PoolId> {
        self.inner.shared.as_ref().map(|shared| shared.id)
    }

    /// Whether another process made the pool.
    pub fn is_imported(&self) -> bool {
        self.inner.ownership == Ownership::Imported
    }
}

fn device_place(context: &Context) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: context.device().raw() }
}

fn node_place(node: i32) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, id: node }
}

/// What the driver says of where a pool's memory lies: the CPU has access to the host's, and to no other.
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

fn own() -> std::sync::MutexGuard<'static, BTreeMap<PoolId, Weak<Inner>>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All pools that this process made and others may import. To be dropped when no lock is held: their ends take the lock.
fn all_own() -> Vec<Arc<Inner>> {
    own().values().filter_map(Weak::upgrade).collect()
}

impl Inner {
    /// Whether a pool of this kind is what a context would import.
    fn fits(&self, context: &Context, accessibility: Accessibility) -> bool {
        self.accessibility == accessibility
            && self.context.driver().library() == context.driver().library()
            && (accessibility.host || self.location.id == context.device().raw())
    }

    /// Lets this process find the pool by its name.
    pub(super) fn register(self: &Arc<Self>) {
        if let Some(shared) = &self.shared {
            own().insert(shared.id, Arc::downgrade(self));
        }
    }

    pub(super) fn forget(&self) {
        if let Some(shared) = &self.shared {
            own().remove(&shared.id);
        }
    }

    /// An imported pool is another process's to allocate from, to trim and to ask.
    pub(super) fn check_own(&self, call: &'static str) -> Result<()> {
        if self.ownership == Ownership::Imported { Err(Error::ImportedPool { call }) } else { Ok(()) }
    }

    /// Ends one use of an imported pool; the last one destroys it here.
    pub(super) fn release(&self) {
        let Some(shared) = &self.shared else { return };
        let key = (self.context.driver().library(), shared.id, self.accessibility.host);
        self.context.end("destroying an imported pool", |cuda| {
            IMPORTED.release(&key, |pool, last| match last {
                // SAFETY: imported once and destroyed once: the count says so. Buffers hold the pool.
                true => unsafe { call!(cuda.cuMemPoolDestroy(pool.raw.0)) },
                false => Ok(()),
            })
        });
    }

    /// Describes a block for other processes.
    pub(super) fn describe(&self, block: Block) -> Result<BlockExport> {
        let mut descriptor = Descriptor::new(ExportKind::PoolMemory, &self.context)?;
        let shared = self.shared("SharedBuffer::export")?;
        descriptor.pool = shared.id;
        if block.size != 0 {
            let (cuda, _current) = (self.context.driver().raw(), self.context.bind()?);
            let mut data = CUmemPoolPtrExportData::default();
            // SAFETY: `data` is writable, and the block is allocated.
            unsafe { call!(cuda.cuMemPoolExportPointer(&mut data, block.device_pointer)) }?;
            descriptor.payload = data.reserved;
            descriptor.size = block.size as u64;
            descriptor.length = block.size as u64;
        }
        Ok(BlockExport::own(descriptor, Some(shared.key)))
    }

    fn shared(&self, call: &'static str) -> Result<&Shared> {
        self.shared.as_deref().ok_or(Error::InvalidArgument {
            call,
            argument: "the pool",
            value: "not shareable".into(),
            rule: "a pool is made for sharing, with `DriverPoolOptions::shareable`",
        })
    }
}
