//! Virtual memory management: reserved addresses, physical memory, and mappings between them.

mod access;
mod chunk_map;
mod growth;
mod mapping;
mod options;
mod physical;
mod reservation;

use crate::driver::context::{AccessDomain, Liveness};
use crate::memory::peers::PeerSource;
use crate::memory::resource::{
    Accessibility, Block, BlockTable, MemoryResource, ResourceHandle, SharedResource, check_request,
    kind::{self, Kind},
};
use crate::{Context, Error, Feature, Result, Stream};
use access::AccessList;
use core::fmt;
use core::marker::PhantomData;
use core::ptr;
use cuda_sys::{CUdevice, CUdeviceptr};
use mapping::Mapping;
use physical::device_place;
pub(crate) use physical::round_up;
use reservation::Reservation;
use std::sync::{Arc, Weak};

pub(crate) use chunk_map::{ChunkMap, total_size};
pub use growth::Growth;
pub use options::VirtualOptions;
#[cfg(feature = "sharing")]
pub(crate) use physical::{Chunk, FILES, empty};
pub use physical::{Granularity, PhysicalLocation, PhysicalMemory, PhysicalOptions};

/// Memory by virtual memory management. Each allocation has its own addresses and its own physical memory, which other
/// processes can share, which each resource makes accessible to selected devices, and which can [grow](crate::buffer::GrowableBuffer).
/// An allocation takes about ten microseconds, and sizes are rounded up to the granularity (2 MiB on an H200). The free
/// waits for the home stream. A [`Pool`](crate::pool::Pool) over it has neither cost, and grows in place. Cheap to clone.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// use cuda_mem::memory::{VirtualMemory, VirtualOptions};
/// use cuda_mem::{Buffer, Stream};
/// let stream = Stream::new(&context)?;
/// let memory = VirtualMemory::new(&context, &VirtualOptions::default())?;
/// let buffer = Buffer::from_slice(&memory, &[1u32, 2, 3], &stream)?;
/// assert_eq!(buffer.to_vec()?, [1, 2, 3]);
/// assert_eq!(memory.physical_memory(&buffer)[0].size(), memory.granularity());
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct VirtualMemory<K: Kind = kind::Device> {
    pub(crate) inner: Arc<VirtualMemoryResource>,
    kind: PhantomData<K>,
}

pub(crate) struct VirtualMemoryResource {
    /// Itself.
    this: Weak<Self>,
    pub context: Context,
    pub physical: PhysicalOptions,
    granularity: usize,
    alignment: usize,
    address_hint: CUdeviceptr,
    /// The places that may access the memory.
    access: Arc<AccessList>,
    /// The memory, to other devices.
    domain: AccessDomain,
    accessibility: Accessibility,
    /// The mappings behind the blocks, by address.
    pub(crate) mappings: BlockTable<Mapping>,
}

impl VirtualMemory<kind::Device> {
    /// Memory of the context's device.
    ///
    /// # Errors
    ///
    /// The device or its driver does not support the options, or a peer has no path to the device:
    /// [`Error::Unsupported`]. An option has an invalid value.
    #[doc(alias("cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"))]
    pub fn new(context: &Context, options: &VirtualOptions) -> Result<Self> {
        let memory = Self::located("VirtualMemory::new", context, options, PhysicalLocation::Device)?;
        let source = PeerSource::virtual_memory(&memory.inner);
        options.peers.iter().try_for_each(|peer| source.allow_device("VirtualMemory::new", peer))?;
        Ok(memory)
    }
}

impl VirtualMemory<kind::Pinned> {
    /// Host memory that the CPU and the context's device can address. Other devices get access by
    /// [`VirtualOptions::peers`], by [`allow_access`](ResourceHandle::allow_access), or at their first copy.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// use cuda_mem::memory::{VirtualMemory, VirtualOptions};
    /// use cuda_mem::{Buffer, Stream};
    /// let stream = Stream::new(&context)?;
    /// let memory = VirtualMemory::host(&context, &VirtualOptions::default())?;
    /// let mut buffer = Buffer::<u32, _>::zeroed(&memory, 4, &stream)?;
    /// buffer.write(1..3)?.copy_from_slice(&[7, 8]); // by the CPU
    /// buffer.fill(3.., 9)?; // by the device
    /// assert_eq!(buffer.read(..)?[..], [0, 7, 8, 9]);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`new`](VirtualMemory::new).
    pub fn host(context: &Context, options: &VirtualOptions) -> Result<Self> {
        Self::located("VirtualMemory::host", context, options, PhysicalLocation::Host)
    }

    /// Memory of one NUMA node of the host that the CPU and the context's device can address.
    ///
    /// # Errors
    ///
    /// As [`new`](VirtualMemory::new). There is no such node.
    pub fn host_numa(context: &Context, node: i32, options: &VirtualOptions) -> Result<Self> {
        Self::located("VirtualMemory::host_numa", context, options, PhysicalLocation::HostNuma(node))
    }
}

impl<K: Kind> VirtualMemory<K> {
    fn located(
        call: &'static str,
        context: &Context,
        options: &VirtualOptions,
        location: PhysicalLocation,
    ) -> Result<Self> {
        let physical = options.physical(location);
        physical.check(call, context)?;
        let granularity = PhysicalMemory::granularity(context, &physical)?;
        if options.alignment != 0 && !options.alignment.is_power_of_two() {
            return Err(Error::invalid(call, "alignment", options.alignment, "it must be a power of two, or 0"));
        }
        let hint = options.address_hint as usize;
        if !hint.is_multiple_of(granularity) {
            return Err(Error::Misaligned { call, what: "address_hint", value: hint, multiple: granularity });
        }
        let on_device = location == PhysicalLocation::Device;
        let mut places = vec![device_place(context.device().raw())];
        if !on_device {
            places.extend(
                options.peers.iter().filter(|peer| *peer != context.device()).map(|peer| device_place(peer.raw())),
            );
            places.push(physical.place(context));
        }
        let make = |this: &Weak<_>| VirtualMemoryResource {
            this: this.clone(),
            context: context.clone(),
            physical,
            granularity,
            alignment: options.alignment,
            address_hint: options.address_hint,
            access: Arc::new(AccessList::new(places)),
            domain: AccessDomain::default(),
            accessibility: if on_device { Accessibility::DEVICE } else { Accessibility::BOTH },
            mappings: BlockTable::default(),
        };
        Ok(Self { inner: Arc::new_cyclic(make), kind: PhantomData })
    }

    /// Converts to kind `Any`, for programs that choose the kind at run time.
    pub fn into_any(self) -> VirtualMemory<kind::Any> {
        VirtualMemory { inner: self.inner, kind: PhantomData }
    }

    /// The unit to which sizes are rounded up, in bytes.
    pub fn granularity(&self) -> usize {
        self.inner.granularity
    }

    /// The options of the physical memory.
    pub fn physical_options(&self) -> &PhysicalOptions {
        &self.inner.physical
    }

    /// The context in which the resource works.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }
}

impl VirtualMemoryResource {
    /// The unit of physical memory, in bytes.
    pub fn granularity(&self) -> usize {
        self.granularity
    }

    /// The memory, to other devices.
    pub fn domain(&self) -> &AccessDomain {
        &self.domain
    }

    /// The contexts whose work may use the memory: the resource's own, and the primary contexts of devices that have access, or
    /// have asked for it in vain and copy through the host.
    pub fn contexts_of_users(&self) -> Result<Vec<Context>> {
        let mut contexts = vec![self.context.clone()];
        let with_access = self.access.devices();
        for device in self.context.driver().devices()? {
            if !device.has_primary_context()? {
                continue;
            }
            let context = device.primary_context()?;
            let has_asked = || context.state().peers.of(self.domain.number()).is_some();
            if context != self.context && (with_access.contains(&device.ordinal()) || has_asked()) {
                contexts.push(context);
            }
        }
        Ok(contexts)
    }

    /// Sets a device's rights to all mappings, present and future.
    pub fn set_access(&self, device: CUdevice, allowed: bool) -> Result<bool> {
        self.access.set(self.context.driver().raw(), device_place(device), allowed)
    }

    /// Reserves addresses for chunks. `size` is a multiple of the granularity.
    pub fn reserve_for_chunks(&self, call: &'static str, size: usize) -> Result<ChunkMap> {
        let alignment = if self.alignment > self.granularity { self.alignment } else { 0 };
        let reservation = Reservation::new(call, &self.context, size, alignment, self.address_hint)?;
        Ok(ChunkMap::new(reservation, self.access.clone()))
    }

    /// The block of addresses.
    pub fn block_at(&self, base: CUdeviceptr, size: usize) -> Block {
        if self.accessibility.host {
            return Block::unified(ptr::with_exposed_provenance_mut(base as usize), size);
        }
        Block::device(base, size)
    }

    /// Reserves addresses for a mapping.
    pub(crate) fn reserve(&self, call: &'static str, size: usize, alignment: usize) -> Result<Mapping> {
        let alignment = self.alignment.max(alignment);
        // The granularity is the driver's default alignment, for which it expects 0.
        let alignment = if alignment > self.granularity { alignment } else { 0 };
        let reservation = Reservation::new(call, &self.context, size, alignment, self.address_hint)?;
        let value = reservation.base() as usize;
        if !value.is_multiple_of(alignment.max(1)) {
            return Err(Error::Misaligned { call, what: "the reserved address", value, multiple: alignment });
        }
        Ok(Mapping::new(reservation, self.access.clone()))
    }

    /// Maps chunks side by side. `size` is the sum of their sizes.
    pub fn join(&self, call: &'static str, chunks: &[PhysicalMemory], size: usize) -> Result<Block> {
        let mut mapping = self.reserve(call, size, 0)?;
        chunks.iter().try_for_each(|chunk| mapping.push(chunk.clone()))?;
        Ok(self.keep(mapping))
    }

    /// Makes a chunk of physical memory for a buffer. The size is a multiple of the granularity.
    pub fn create(&self, call: &'static str, size: usize) -> Result<PhysicalMemory> {
        PhysicalMemory::create(call, &self.context, size, &self.physical, true)
    }

    /// Stores a mapping, and returns its block.
    pub(crate) fn keep(&self, mapping: Mapping) -> Block {
        let block = self.block_of(&mapping);
        self.mappings.write().insert(mapping.base(), mapping);
        block
    }

    /// The block of a mapping.
    fn block_of(&self, mapping: &Mapping) -> Block {
        self.block_at(mapping.base(), mapping.mapped()).fresh()
    }

    /// Removes and returns the mapping of a block.
    pub(crate) fn take(&self, call: &'static str, block: Block) -> Result<Mapping> {
        self.mappings.write().remove(&block.device_pointer()).ok_or_else(|| {
            let rule = "it must be a live block of this resource";
            Error::invalid(call, "block", format_args!("at {:#x}", block.device_pointer()), rule)
        })
    }
}

impl<K: Kind> Clone for VirtualMemory<K> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), kind: PhantomData }
    }
}

impl<K: Kind> fmt::Debug for VirtualMemory<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for VirtualMemoryResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualMemory")
            .field("device", &self.context.device().ordinal())
            .field("physical", &self.physical)
            .finish_non_exhaustive()
    }
}

// SAFETY: only the constructor of kind `Device` makes device memory, and the CPU has access to memory of kind `Pinned`.
unsafe impl<K: Kind> ResourceHandle for VirtualMemory<K> {
    type Kind = K;

    fn share(&self) -> SharedResource {
        self.inner.clone()
    }
}

/// Virtual memory of which a pool maps chunks, in place of allocations from its source.
#[derive(Clone, Debug)]
pub struct ChunkSource {
    pub(crate) memory: VirtualMemory<kind::Any>,
    /// The pool's source is other memory.
    pub(crate) stands_in: bool,
}

impl ChunkSource {
    /// In place of plain memory of the context's device. `None` if the device has no virtual memory.
    pub(crate) fn of_device(context: &Context) -> Option<Self> {
        // Other devices reach plain memory over PCIe, too.
        let options = VirtualOptions {
            gpu_direct_rdma: context.device().require(Feature::GpuDirectRdma).is_ok(),
            ..VirtualOptions::default()
        };
        let memory = VirtualMemory::new(context, &options).ok()?.into_any();
        Some(Self { memory, stands_in: true })
    }
}

// SAFETY: each block has its own addresses and physical memory, which last until it is deallocated.
unsafe impl MemoryResource for VirtualMemoryResource {
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        const CALL: &str = "VirtualMemory::allocate";
        check_request(CALL, (size, alignment), usize::MAX, &self.context, stream)?;
        stream.check_not_capturing(CALL)?;
        let size = round_up(CALL, size, self.granularity)?;
        let mut mapping = self.reserve(CALL, size, alignment)?;
        mapping.push(self.create(CALL, size)?)?;
        Ok(self.keep(mapping))
    }

    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        // The driver does not wait before it unmaps, so work under way would fault.
        let waited = stream.wait_before_free();
        let mut mapping = self.take("VirtualMemory::deallocate", block)?;
        mapping.is_unused = waited.is_ok();
        let unmapped = waited.and_then(|()| mapping.truncate(0));
        if unmapped.is_err() {
            // All is still mapped: keeps it for another free.
            self.keep(mapping);
        }
        unmapped
    }

    unsafe fn abandon(&self, block: Block) {
        // Mappings do not end with the context. Errors of the mapping's drop become drop errors.
        drop(self.take("VirtualMemory::abandon", block));
    }

    fn context(&self) -> &Context {
        &self.context
    }

    fn accessibility(&self) -> Accessibility {
        self.accessibility
    }

    fn peer_source(&self) -> Option<PeerSource<'_>> {
        Some(PeerSource::virtual_memory(self))
    }

    fn chunks(&self) -> Option<ChunkSource> {
        Some(ChunkSource { memory: VirtualMemory { inner: self.this.upgrade()?, kind: PhantomData }, stands_in: false })
    }

    #[cfg(feature = "sharing")]
    fn export(&self, block: Block) -> Result<crate::memory::descriptor::BlockExport> {
        use crate::memory::descriptor::{BlockExport, Descriptor, ExportKind};
        let is_whole = |mapping: &Mapping| mapping.mapped() == block.size();
        if block.size() != 0 && !self.mappings.read().get(&block.device_pointer()).is_some_and(is_whole) {
            let value = format!("{} bytes at {:#x}", block.size(), block.device_pointer());
            let rule = "it must be a whole allocation of this resource";
            return Err(Error::invalid("VirtualMemory::export", "block", value, rule));
        }
        // `VirtualMemory::export` adds the files of the exported chunks.
        let descriptor = Descriptor::new(ExportKind::VirtualMemory, &self.context)?;
        Ok(BlockExport::own(descriptor, None))
    }
}

/// For drops of objects that outlive their context: runs `end`, unless the driver has shut down.
fn end_detached(context: &Context, doing: &'static str, end: impl FnOnce(&cuda_sys::Driver) -> Result<()>) {
    if context.liveness() == Liveness::DriverGone {
        return;
    }
    match end(context.driver().raw()) {
        Err(error) if !error.is_teardown() => context.drop_errors().push(doing, error),
        _ => {}
    }
}
