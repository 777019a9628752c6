//! What a shareable pool has in all processes. `ipc` exports and imports the pools.

use super::PoolResource;
use crate::error::call;
use crate::locks::{Mutex, MutexGuard};
use crate::memory::descriptor::{BlockExport, Descriptor, ExportKind, Key, PoolId, ProcessId, adopt, random};
use crate::memory::resource::{Accessibility, Block};
use crate::{Context, Error, Result};
use core::ptr;
use cuda_sys::{CUmemAllocationHandleType, CUmemPoolPtrExportData, CUmemoryPool};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

const FILES: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// Pools that this process made and that other processes may import. A pool leaves the list before the driver ends it.
static OWN: Mutex<BTreeMap<PoolId, OwnPool>> = Mutex::new(BTreeMap::new());

/// A pool of this process as others compare it. It does not keep the pool alive: a thread that looks for a pool would keep
/// those that their owners drop meanwhile.
#[derive(Clone)]
pub(crate) struct OwnPool {
    pool: Weak<PoolResource>,
    pub shared: Arc<PoolSharing>,
    pub is_of_host: bool,
    raw: usize,
}

impl OwnPool {
    /// The pool, if it lives.
    pub fn get(&self) -> Option<Arc<PoolResource>> {
        self.pool.upgrade()
    }
}

/// The data of a pool that all its processes have.
pub(crate) struct PoolSharing {
    /// The same in all processes.
    pub id: PoolId,
    /// Signs descriptors of the pool's memory. A signature proves that the descriptor comes from a process that has the
    /// pool. It does not prove who owns the memory, because all these processes have the key.
    pub key: Key,
    /// The process that made the pool.
    pub process: ProcessId,
    /// The driver exports memory of a pool only after the pool itself, and no imported pool. So each pool is exported
    /// once, when it is made, and processes get duplicates of this file.
    pub file: OwnedFd,
}

impl PoolSharing {
    /// Exports a new pool.
    pub fn export(pool: &PoolResource) -> Result<Self> {
        let (cuda, mut fd) = (pool.context.driver().raw(), -1_i32);
        let place = ptr::from_mut(&mut fd).cast();
        // SAFETY: a handle of this type is an int, and `fd` is writable; the pool lives.
        unsafe { call!(cuda.cuMemPoolExportToShareableHandle(place, pool.raw, FILES, 0)) }?;
        // SAFETY: the driver has made the file descriptor for us.
        let file = unsafe { adopt(fd) }?;
        let process = Descriptor::new(ExportKind::Pool, &pool.context)?.process;
        Ok(Self { id: PoolId(random()?), key: Key::new()?, process, file })
    }
}

fn registered() -> MutexGuard<'static, BTreeMap<PoolId, OwnPool>> {
    OWN.lock()
}

/// The pool of an id, if this process made it.
pub(crate) fn own_pool(id: PoolId) -> Option<Arc<PoolResource>> {
    // The drop of a pool takes the lock. So the upgrade happens under the lock, but a drop only after it.
    registered().get(&id).and_then(OwnPool::get)
}

/// All shareable pools that this process made.
pub(crate) fn own_pools() -> Vec<OwnPool> {
    registered().values().cloned().collect()
}

/// Whether a handle is that of such a pool. Handles recur after the end of a pool.
pub(crate) fn is_own_pool(raw: CUmemoryPool) -> bool {
    registered().values().any(|own| own.raw == raw.addr())
}

impl PoolResource {
    /// Whether this pool is of the kind and on the device that an import in `context` would have.
    pub(crate) fn fits(&self, context: &Context, accessibility: Accessibility) -> bool {
        self.accessibility == accessibility
            && self.context.driver().library() == context.driver().library()
            && (accessibility.host || self.location.id == context.device().raw())
    }

    /// Registers the pool, so that this process finds it by its id.
    pub(super) fn register(self: &Arc<Self>) {
        if let Some(shared) = &self.shared {
            let (pool, shared, is_of_host) = (Arc::downgrade(self), shared.clone(), self.accessibility.host);
            registered().insert(shared.id, OwnPool { pool, shared, is_of_host, raw: self.raw.addr() });
        }
    }

    pub(super) fn forget(&self) {
        if let Some(shared) = &self.shared {
            let own = registered().remove(&shared.id);
            // Closes the file, without the lock.
            drop(own);
        }
    }

    /// Describes a block for other processes.
    pub(super) fn describe(&self, block: Block) -> Result<BlockExport> {
        let mut descriptor = Descriptor::new(ExportKind::PoolMemory, &self.context)?;
        let shared = self.shared("SharedBuffer::export")?;
        descriptor.pool = shared.id;
        if block.size() != 0 {
            let (cuda, _current) = (self.context.driver().raw(), self.context.bind()?);
            let mut data = CUmemPoolPtrExportData::default();
            // SAFETY: `data` is writable, and the block is allocated.
            unsafe { call!(cuda.cuMemPoolExportPointer(&mut data, block.device_pointer())) }?;
            descriptor.payload = data.reserved;
            descriptor.size = block.size() as u64;
            descriptor.length = block.size() as u64;
        }
        Ok(BlockExport::own(descriptor, Some(shared.key)))
    }

    pub(crate) fn shared(&self, call: &'static str) -> Result<&PoolSharing> {
        let rule = "the pool must be made with `DriverPoolOptions::shareable`";
        self.shared.as_deref().ok_or_else(|| Error::invalid(call, "the pool", "not shareable", rule))
    }
}
