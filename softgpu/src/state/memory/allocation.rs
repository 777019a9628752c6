//! Allocations: their addresses, their origin, and the storage of their bytes.

use super::graph_memory::GraphBlock;
use super::map::Use;
use super::mirror::Mirror;
use super::notes::Notes;
use super::virtual_memory::Mapped;
use crate::call::Result;
use crate::state::Global;
use crate::state::backing::Charge;
use crate::state::backing::Mapping;
use crate::state::checks::races::access::Domain;
use crate::state::checks::races::{self, Remembered};
use crate::state::contexts::Context;
use crate::state::handle::next_sequence;
use crate::state::pools::{Place, Pool, Share};
use crate::sync::lock;
use crate::vulkan;
use cuda_sys::CUresult;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

/// The calls that make an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// cuMemAlloc, cuMemAllocPitch.
    Device,
    /// cuMemAllocHost, cuMemHostAlloc.
    Host,
    /// cuMemHostRegister.
    Registered,
    /// cuMemAllocManaged.
    Managed,
    /// cuMemAllocAsync, cuMemAllocFromPoolAsync.
    Pool,
    /// cuExternalMemoryGetMappedBuffer, and the device side of vkgdr memory.
    Mapped,
    /// cuMemMap.
    Virtual,
    /// cuIpcOpenMemHandle.
    Ipc,
    /// cuMemAllocAsync, cuMemAllocFromPoolAsync, while the stream captures into a graph.
    Graph,
    /// A variable of a module.
    Variable,
    /// A managed variable of a module or a library.
    ManagedVariable,
}

/// The storage of an allocation's bytes.
#[derive(Debug)]
pub(crate) enum Storage {
    /// A mapping of our own.
    Own(Mapping),
    /// A mapping of our own, unknown to the program, which has another address that it cannot touch.
    Hidden { shown: Mapping, own: Mapping },
    /// Physical memory at reserved addresses.
    Virtual(Mapped),
    /// Memory of a CPU Vulkan device.
    Vulkan(vulkan::Imported),
    /// The caller's memory.
    Caller(usize),
    /// A part of other storage, which ends with its last part.
    Part { whole: Arc<Storage>, offset: usize },
}

impl Storage {
    /// Storage for memory that only devices may use. If `hidden` is set, the program cannot touch its address.
    pub(crate) fn device(own: Mapping, size: usize, hidden: bool) -> io::Result<Self> {
        Ok(if hidden { Storage::Hidden { shown: Mapping::untouchable(size)?, own } } else { Storage::Own(own) })
    }

    /// The address that the program knows.
    pub(super) fn base(&self) -> usize {
        match self {
            Storage::Own(mapping) => mapping.base(),
            Storage::Hidden { shown, .. } => shown.base(),
            Storage::Virtual(mapped) => mapped.base,
            Storage::Vulkan(imported) => imported.base(),
            Storage::Caller(base) => *base,
            Storage::Part { whole, offset } => whole.base() + offset,
        }
    }

    /// The address at which softgpu accesses the bytes.
    fn access(&self) -> usize {
        match self {
            Storage::Hidden { own, .. } => own.base(),
            Storage::Virtual(mapped) => mapped.access,
            Storage::Part { whole, offset } => whole.access() + offset,
            shown => shown.base(),
        }
    }
}

/// An allocation. Queued work holds it, so its pages outlive a free that comes too early.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) sequence: u64,
    pub(crate) base: u64,
    /// The address at which softgpu accesses the bytes: `base`, unless the program must not touch them.
    pub(crate) access: usize,
    pub(crate) size: usize,
    pub(crate) origin: Origin,
    pub(crate) device: usize,
    /// The context whose end frees it.
    pub(crate) context: Option<Arc<Context>>,
    pub(crate) pool: Option<Arc<Pool>>,
    /// Its part of a graph, if a graph allocates it.
    pub(crate) graph: Option<Arc<GraphBlock>>,
    /// The flags of the call that made it.
    pub(crate) flags: u32,
    /// Its offset in the pool's file, if the pool has one.
    pub(crate) file_offset: Option<u64>,
    /// The CPU's side, if that is separate storage.
    pub(crate) mirror: Option<Arc<Mirror>>,
    /// Properties that were set after the allocation.
    pub(crate) notes: Mutex<Notes>,
    /// How many queued copies, fills and kernels have yet to write it.
    pub(crate) writers: AtomicUsize,
    held: BlockResources,
}

/// What goes back when an allocation is dropped: pages to the system, and their size to the device and the pool.
#[derive(Debug)]
pub(crate) struct BlockResources {
    /// Dropped before the storage, whose addresses others may get then.
    _orders: Remembered,
    storage: Storage,
    charge: Option<Charge>,
    share: Option<Share>,
}

impl Allocation {
    /// An allocation that neither a context nor a pool nor a graph owns yet.
    fn bare(sequence: u64, origin: Origin, device: usize, size: usize, storage: Storage) -> Self {
        let access = storage.access();
        let orders = Remembered(access..access + size);
        Self {
            sequence,
            base: storage.base() as u64,
            access,
            size,
            origin,
            device,
            context: None,
            pool: None,
            graph: None,
            flags: 0,
            file_offset: None,
            mirror: None,
            notes: Mutex::default(),
            writers: AtomicUsize::new(0),
            held: BlockResources { _orders: orders, storage, charge: None, share: None },
        }
    }

    /// An allocation that ends with its context.
    pub(crate) fn new(
        context: &Arc<Context>,
        origin: Origin,
        size: usize,
        storage: Storage,
        charge: Option<Charge>,
    ) -> Self {
        let mut block = Self::bare(next_sequence(), origin, context.device, size, storage);
        block.context = Some(context.clone());
        block.held.charge = charge;
        block
    }

    /// A variable of a module, which ends with its context, or of a library.
    pub(crate) fn variable(
        context: Option<&Arc<Context>>,
        device: usize,
        origin: Origin,
        size: usize,
        storage: Storage,
        charge: Charge,
    ) -> Self {
        let mut block = Self::bare(next_sequence(), origin, device, size, storage);
        block.context = context.cloned();
        block.held.charge = Some(charge);
        block
    }

    /// Allocates from a pool.
    pub(crate) fn from_pool(global: &Global, pool: &Arc<Pool>, size: usize) -> Result<Arc<Self>> {
        let (mapping, charge, share) = pool.take(global, size)?;
        let hidden = pool.place == Place::Device && global.settings.strict;
        let storage = Storage::device(mapping, size, hidden).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let mut block = Self::pooled(pool, size, storage);
        block.file_offset = share.offset();
        block.held.charge = charge;
        block.held.share = Some(share);
        Ok(global.memory.insert(block))
    }

    /// Memory of a pool, owned by no context.
    pub(crate) fn pooled(pool: &Arc<Pool>, size: usize, storage: Storage) -> Self {
        let mut block = Self::bare(next_sequence(), Origin::Pool, pool.device, size, storage);
        block.pool = Some(pool.clone());
        block
    }

    /// Notes that the memory comes with contents that others wrote.
    pub(crate) fn note_contents(&self) {
        races::wrote(&(self.access..self.access + self.size));
    }

    pub(crate) fn with_contents(self) -> Self {
        self.note_contents();
        self
    }

    /// Its pool, if it is of one.
    pub(crate) fn pool(&self) -> Option<&Pool> {
        self.held.share.as_ref().map(Share::pool)
    }

    /// Where its pool says that it starts; 0 if it is of no pool.
    pub(crate) fn start_in_pool(&self) -> u64 {
        self.held.share.as_ref().map_or(0, Share::start)
    }

    /// A mapping of physical memory, owned by no context.
    pub(crate) fn placed(device: usize, size: usize, mapped: Mapped) -> Self {
        Self::bare(next_sequence(), Origin::Virtual, device, size, Storage::Virtual(mapped))
    }

    /// An allocation of a graph, owned by no context.
    pub(crate) fn of_graph(block: &Arc<GraphBlock>, device: usize, size: usize, storage: Storage) -> Self {
        let mut allocation = Self::bare(block.sequence, Origin::Graph, device, size, storage);
        allocation.graph = Some(block.clone());
        allocation
    }

    /// The physical memory of a mapping.
    pub(crate) fn mapped(&self) -> Option<&Mapped> {
        match &self.held.storage {
            Storage::Virtual(mapped) => Some(mapped),
            _ => None,
        }
    }

    /// The memory as a file, into which the first call moves it. Work that uses it must be done by then.
    pub(crate) fn file(&self) -> Result<Arc<OwnedFd>> {
        let mut notes = lock(&self.notes);
        if let Some(file) = &notes.file {
            return Ok(file.clone());
        }
        let (Storage::Own(own) | Storage::Hidden { own, .. }) = &self.held.storage else {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        };
        let full = |_: io::Error| CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let room = crate::state::backing::rounded(self.size).map_err(full)?;
        let file = crate::state::backing::named_file("softgpu-device", room as u64).map_err(full)?;
        let copy = Mapping::shared(file.as_fd(), 0, self.size).map_err(full)?;
        let from = ptr::with_exposed_provenance::<u8>(self.access);
        let to = ptr::with_exposed_provenance_mut::<u8>(copy.base());
        // SAFETY: both are as long as the allocation, and distinct mappings that live here.
        unsafe { ptr::copy_nonoverlapping(from, to, self.size) };
        own.place(own.base(), room, file.as_fd(), libc::PROT_READ | libc::PROT_WRITE).map_err(full)?;
        let file = Arc::new(file);
        notes.file = Some(file.clone());
        Ok(file)
    }

    pub(crate) fn allows(&self, device: usize, purpose: Use) -> bool {
        let right = if purpose == Use::Write { 2 } else { 1 };
        match (&self.pool, self.origin) {
            (Some(pool), _) => pool.allows(device, right),
            (None, Origin::Virtual) => lock(&self.notes).rights_of_device(device).0 & right != 0,
            _ => true,
        }
    }

    /// Whether a context's device may access the memory: its own, the host's, or an enabled peer's. Pools and mappings
    /// check access themselves. Memory of another process is mapped for the device for which it was opened, and for no
    /// peer of it.
    pub(crate) fn is_reached_by(&self, context: &Context) -> bool {
        if self.origin == Origin::Ipc {
            return self.device == context.device;
        }
        let plain = self.pool.is_none()
            && matches!(self.origin, Origin::Device | Origin::Variable)
            && self.device != context.device;
        let enabled = |other: &Arc<Context>| lock(&context.peers).contains(&other.life());
        !plain || self.context.as_ref().is_none_or(enabled)
    }

    /// With which memory it is accessed by other devices; `None` if no call changes that.
    pub(crate) fn domain(&self) -> Option<Domain> {
        match (&self.pool, self.origin, &self.context) {
            _ if self.is_host_accessible() => None,
            (Some(pool), ..) => Some(Domain::Pool(pool.sequence)),
            (None, Origin::Virtual, _) => Some(Domain::Virtual(self.sequence)),
            (None, Origin::Device | Origin::Variable, Some(context)) => Some(Domain::Plain(context.life())),
            _ => None,
        }
    }

    pub(crate) fn mirrored(self, mirror: &Arc<Mirror>) -> Self {
        Self { mirror: Some(mirror.clone()), ..self }
    }

    pub(crate) fn flagged(self, flags: u32) -> Self {
        Self { flags, ..self }
    }

    pub(crate) fn is_host(&self) -> bool {
        match &self.pool {
            Some(pool) => pool.is_host(),
            None => {
                matches!(self.origin, Origin::Host | Origin::Registered)
                    || self.mapped().is_some_and(|mapped| mapped.physical.is_host())
            }
        }
    }

    /// Whether it is a variable of a module.
    pub(crate) fn is_variable(&self) -> bool {
        matches!(self.origin, Origin::Variable | Origin::ManagedVariable)
    }

    /// Whether it is managed memory, from wherever.
    pub(crate) fn is_managed(&self) -> bool {
        matches!(self.origin, Origin::Managed | Origin::ManagedVariable)
            || self.pool.as_ref().is_some_and(|pool| pool.is_managed())
            || self.graph.as_ref().is_some_and(|graph| graph.managed)
    }

    /// Whether the CPU may use its addresses.
    pub(crate) fn is_host_accessible(&self) -> bool {
        self.is_host() || self.is_managed()
    }
}
