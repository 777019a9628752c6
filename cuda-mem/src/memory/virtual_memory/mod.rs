//! Virtual memory management: addresses, physical memory, and the one mapped at the other.

mod growable;
mod growth;
mod mapping;
mod options;
mod physical;
mod reservation;
mod sharing;

use crate::buffer::Access;
use crate::context::Liveness;
use crate::descriptor::{BlockExport, Descriptor, ExportKind};
use crate::resource::{
    Accessibility, Block, MemoryResource, ResourceHandle, SharedResource,
    kind::{self, Kind},
};
use crate::{Buffer, Context, Error, Result, Stream};
use core::fmt;
use core::marker::PhantomData;
use core::ptr;
use cuda_sys::{CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc};
use mapping::Mapping;
use physical::{device_place, round_up};
use reservation::Reservation;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use growable::GrowableBuffer;
pub use growth::Growth;
pub use options::VirtualOptions;
pub use physical::{Granularity, PhysicalLocation, PhysicalMemory, PhysicalOptions};

/// Memory by virtual memory management: physical memory of its own behind each allocation, at addresses of its own, so
/// that it can be shared with other processes, be given to other devices one resource at a time, and
/// [grow](GrowableBuffer). An allocation takes some ten microseconds, and sizes are rounded up to the granularity (2 MiB
/// on an H200). The free waits for the home stream. Cheap to clone.
///
/// ```
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
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
    inner: Arc<Inner>,
    kind: PhantomData<K>,
}

struct Inner {
    context: Context,
    physical: PhysicalOptions,
    granularity: usize,
    alignment: usize,
    address_hint: CUdeviceptr,
    /// Who may use the memory.
    access: Vec<CUmemAccessDesc>,
    accessibility: Accessibility,
    /// What is behind each block, by its address.
    mappings: Mutex<BTreeMap<CUdeviceptr, Mapping>>,
}

impl VirtualMemory<kind::Device> {
    /// Memory of the context's device.
    ///
    /// # Errors
    ///
    /// The device or its driver cannot do what the options say, or a peer has no path to the device:
    /// [`Error::Unsupported`]; an option's value cannot be; the driver refuses.
    #[doc(alias("cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"))]
    pub fn new(context: &Context, options: &VirtualOptions) -> Result<Self> {
        let memory = Self::located("VirtualMemory::new", context, options, PhysicalLocation::Device)?;
        options.peers.iter().try_for_each(|peer| peer.require_peer_access(context.device()))?;
        Ok(memory)
    }
}

impl VirtualMemory<kind::Pinned> {
    /// Memory of the host, which the CPU and the context's device address.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
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

    /// Memory of one NUMA node of the host, which the CPU and the context's device address.
    ///
    /// # Errors
    ///
    /// As [`new`](VirtualMemory::new); there is no such node.
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
            return Err(Error::InvalidArgument {
                call,
                argument: "alignment",
                value: options.alignment.to_string().into(),
                rule: "it must be a power of two, or 0",
            });
        }
        let hint = options.address_hint as usize;
        if !hint.is_multiple_of(granularity) {
            return Err(Error::Misaligned { call, what: "address_hint", value: hint, multiple: granularity });
        }
        let on_device = location == PhysicalLocation::Device;
        let mut places = vec![device_place(context.device().raw())];
        places
            .extend(options.peers.iter().filter(|peer| *peer != context.device()).map(|peer| device_place(peer.raw())));
        if !on_device {
            places.push(physical.place(context));
        }
        let flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let inner = Inner {
            context: context.clone(),
            physical,
            granularity,
            alignment: options.alignment,
            address_hint: options.address_hint,
            access: places.into_iter().map(|location| CUmemAccessDesc { location, flags }).collect(),
            accessibility: if on_device { Accessibility::DEVICE } else { Accessibility::BOTH },
            mappings: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner), kind: PhantomData })
    }

    /// Maps physical memory at an address of its own, where it may have other addresses already: the chunks side by side,
    /// as one buffer, which this resource lets its devices use.
    ///
    /// # Errors
    ///
    /// There are no chunks, or one lies elsewhere than this resource's memory; the stream captures, or is of another
    /// device; the driver refuses.
    ///
    /// # Safety
    ///
    /// The same bytes may be reached by other buffers and other processes: whoever uses them keeps the order, and no CPU
    /// slice of them is held while another writes.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// # use cuda_mem::memory::{VirtualMemory, VirtualOptions};
    /// # use cuda_mem::{Buffer, Stream};
    /// # let stream = Stream::new(&context)?;
    /// let memory = VirtualMemory::new(&context, &VirtualOptions::default())?;
    /// let buffer = Buffer::from_slice(&memory, b"one memory, two addresses", &stream)?;
    /// // SAFETY: both buffers are used in order of one stream.
    /// let alias = unsafe { memory.map(&memory.physical_memory(&buffer), &stream) }?;
    /// assert_ne!(alias.device_pointer(), buffer.device_pointer());
    /// assert_eq!(alias.to_vec()?[..25], buffer.to_vec()?);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    #[doc(alias = "cuMemMap")]
    pub unsafe fn map(&self, chunks: &[PhysicalMemory], stream: &Stream) -> Result<Buffer<u8, K>> {
        const CALL: &str = "VirtualMemory::map";
        let inner = &self.inner;
        let refusal =
            |value: String, rule| Error::InvalidArgument { call: CALL, argument: "chunks", value: value.into(), rule };
        let elsewhere = |chunk: &&PhysicalMemory| {
            chunk.options().location != inner.physical.location || chunk.context().device() != inner.context.device()
        };
        if let Some(chunk) = chunks.iter().find(elsewhere) {
            return Err(refusal(format!("{chunk:?}"), "they must lie where this resource's memory does"));
        }
        let size = chunks.iter().try_fold(0usize, |size, chunk| size.checked_add(chunk.size()));
        let Some(size) = size.filter(|size| *size != 0) else {
            return Err(refusal(format!("{} chunks", chunks.len()), "there must be one, and all must have addresses"));
        };
        stream.check_not_capturing(CALL)?;
        let block = inner.join(CALL, chunks, size)?;
        // SAFETY: the block is this resource's and new; its bytes have values, as all memory of the driver's.
        let buffer = unsafe { Buffer::from_block(block, self, size, stream) };
        if buffer.is_err() {
            // Nobody uses it: its mapping ends here.
            drop(inner.take(CALL, block));
        }
        buffer
    }

    /// The chunks of physical memory behind a buffer's allocation, in order of their addresses; none where the buffer is
    /// not of this resource.
    pub fn physical_memory<T, A: Access>(&self, buffer: &Buffer<T, K, A>) -> Vec<PhysicalMemory> {
        let address = buffer.device_pointer();
        let mappings = self.inner.mappings();
        let found = mappings.range(..=address).next_back().map(|(_, mapping)| mapping);
        let found = found.filter(|mapping| address - mapping.base() < mapping.reserved() as CUdeviceptr);
        found.map_or_else(Vec::new, |mapping| mapping.chunks().to_vec())
    }

    /// Forgets the kind: for programs that choose it at run time.
    pub fn into_any(self) -> VirtualMemory<kind::Any> {
        VirtualMemory { inner: self.inner, kind: PhantomData }
    }

    /// What sizes are rounded up to, in bytes.
    pub fn granularity(&self) -> usize {
        self.inner.granularity
    }

    /// How the physical memory is made.
    pub fn physical_options(&self) -> &PhysicalOptions {
        &self.inner.physical
    }

    /// The context that the resource works in.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }
}

impl Inner {
    /// Reserves addresses for a mapping.
    fn reserve(&self, call: &'static str, size: usize, alignment: usize) -> Result<Mapping> {
        let alignment = self.alignment.max(alignment);
        // The granularity is the driver's own alignment, and its word for that is 0.
        let alignment = if alignment > self.granularity { alignment } else { 0 };
        let reservation = Reservation::new(call, &self.context, size, alignment, self.address_hint)?;
        let value = reservation.base() as usize;
        if !value.is_multiple_of(alignment.max(1)) {
            return Err(Error::Misaligned { call, what: "the reserved address", value, multiple: alignment });
        }
        Ok(Mapping::new(reservation))
    }

    /// Maps chunks side by side, which are `size` bytes together.
    fn join(&self, call: &'static str, chunks: &[PhysicalMemory], size: usize) -> Result<Block> {
        let mut mapping = self.reserve(call, size, 0)?;
        chunks.iter().try_for_each(|chunk| mapping.push(chunk.clone(), &self.access))?;
        Ok(self.keep(mapping))
    }

    /// Makes a chunk of physical memory for a buffer; the size is a multiple of the granularity.
    fn create(&self, call: &'static str, size: usize) -> Result<PhysicalMemory> {
        PhysicalMemory::create(call, &self.context, size, &self.physical, true)
    }

    /// Remembers a mapping as the one behind its block.
    fn keep(&self, mapping: Mapping) -> Block {
        let block = self.block_of(&mapping);
        self.mappings().insert(mapping.base(), mapping);
        block
    }

    /// The block that a mapping is behind.
    fn block_of(&self, mapping: &Mapping) -> Block {
        let (base, size) = (mapping.base(), mapping.mapped());
        if self.accessibility.host {
            return Block::unified(ptr::with_exposed_provenance_mut(base as usize), size);
        }
        Block::device(base, size)
    }

    /// Takes out the mapping behind a block.
    fn take(&self, call: &'static str, block: Block) -> Result<Mapping> {
        self.mappings().remove(&block.device_pointer).ok_or_else(|| Error::InvalidArgument {
            call,
            argument: "block",
            value: format!("at {:#x}", block.device_pointer).into(),
            rule: "it must be one of this resource's that was not freed",
        })
    }

    fn mappings(&self) -> MutexGuard<'_, BTreeMap<CUdeviceptr, Mapping>> {
        self.mappings.lock().unwrap_or_else(PoisonError::into_inner)
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

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualMemory")
            .field("device", &self.context.device().ordinal())
            .field("physical", &self.physical)
            .finish_non_exhaustive()
    }
}

// SAFETY: device memory is made by the constructor of kind `Device` alone, and the CPU has access to that of kind `Pinned`.
unsafe impl<K: Kind> ResourceHandle for VirtualMemory<K> {
    type Kind = K;

    fn share(&self) -> SharedResource {
        self.inner.clone()
    }
}

// SAFETY: each block has addresses and physical memory of its own, which last until it is deallocated.
unsafe impl MemoryResource for Inner {
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        const CALL: &str = "VirtualMemory::allocate";
        stream.check_not_capturing(CALL)?;
        let size = round_up(CALL, size, self.granularity)?;
        let mut mapping = self.reserve(CALL, size, alignment)?;
        mapping.push(self.create(CALL, size)?, &self.access)?;
        Ok(self.keep(mapping))
    }

    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        // The driver does not wait before it unmaps: work under way would fault.
        stream.drain()?;
        let mut mapping = self.take("VirtualMemory::deallocate", block)?;
        let unmapped = mapping.truncate(0);
        if unmapped.is_err() {
            // All of it is still there: for another try, or for the resource's end.
            self.keep(mapping);
        }
        unmapped
    }

    unsafe fn abandon(&self, block: Block) {
        // Mappings do not end with the context. Its work has ended; errors of the mapping's drop are kept.
        drop(self.take("VirtualMemory::abandon", block));
    }

    fn context(&self) -> &Context {
        &self.context
    }

    fn accessibility(&self) -> Accessibility {
        self.accessibility
    }

    fn export(&self, block: Block) -> Result<BlockExport> {
        let is_whole = |mapping: &Mapping| mapping.mapped() == block.size;
        if block.size != 0 && !self.mappings().get(&block.device_pointer).is_some_and(is_whole) {
            return Err(Error::InvalidArgument {
                call: "VirtualMemory::export",
                argument: "block",
                value: format!("{} bytes at {:#x}", block.size, block.device_pointer).into(),
                rule: "it must be a whole allocation of this resource",
            });
        }
        // `VirtualMemory::export` adds the files of the chunks that are exported.
        Ok(BlockExport::own(Descriptor::new(ExportKind::VirtualMemory, &self.context)?, None))
    }
}

/// For drops of what lives on without its context: ends it, unless the driver has shut down.
fn end_detached(context: &Context, doing: &'static str, end: impl FnOnce(&cuda_sys::Driver) -> Result<()>) {
    if context.liveness() == Liveness::DriverGone {
        return;
    }
    match end(context.driver().raw()) {
        Err(error) if !error.is_teardown() => context.drop_errors().push(doing, error),
        _ => {}
    }
}
