//! Memory that the driver moves between device and host.

use super::device::DRIVER_ALIGNMENT;
use crate::error::call;
use crate::lifetime::waiting::{Target, watched};
use crate::memory::resource::{
    Accessibility, Block, BlockKind, MemoryResource, ResourceHandle, SharedResource, check_request, kind, out_of_memory,
};
use crate::{Context, Feature, Result, Stream, Support};
use core::ptr;
use cuda_sys::CUmemAttach_flags;
use std::sync::Arc;

/// Which streams may use managed memory if device and CPU cannot use it at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias("CU_MEM_ATTACH_GLOBAL", "CU_MEM_ATTACH_HOST"))]
pub enum Attachment {
    /// All streams of all devices. The CPU may then not access the memory while any kernel runs.
    #[default]
    Global,
    /// No stream. The CPU may access the memory at any time. Kernels may use it after it was attached to a stream
    /// (cuStreamAttachMemAsync). Devices with concurrent managed access ignore the difference.
    Host,
}

/// Managed memory by cuMemAllocManaged. CPU and devices use the same addresses, and the driver moves the memory to the
/// processor that accesses it. Cheap to clone. A [`ManagedPool`](super::ManagedPool) is faster, if supported.
///
/// On a device without [`Feature::ConcurrentManaged`], every access by the CPU through a [`Buffer`](crate::Buffer)
/// first waits for all work of the context, because the CPU faults on managed memory while any kernel runs. The caller
/// must synchronize with other contexts of such a device.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// use cuda_mem::{Buffer, Stream, memory::{Location, ManagedMemory}};
/// let stream = Stream::new(&context)?;
/// let mut buffer = Buffer::zeroed(&ManagedMemory::new(&context)?, 1000, &stream)?;
/// buffer.write(..)?.fill(7u32); // by the CPU
/// buffer.prefetch(context.device())?;
/// assert_eq!(buffer.to_vec()?[999], 7);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "cuMemAllocManaged")]
pub struct ManagedMemory {
    inner: Arc<ManagedMemoryResource>,
}

#[derive(Debug)]
struct ManagedMemoryResource {
    context: Context,
    attachment: Attachment,
    /// Whether CPU and device may use the memory at the same time.
    concurrent: bool,
}

impl ManagedMemory {
    /// Managed memory for all streams.
    ///
    /// # Errors
    ///
    /// The device has no managed memory: [`Error::Unsupported`](crate::Error::Unsupported).
    pub fn new(context: &Context) -> Result<Self> {
        Self::with_attachment(context, Attachment::Global)
    }

    /// Managed memory with the given attachment.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_attachment(context: &Context, attachment: Attachment) -> Result<Self> {
        let device = context.device();
        device.require(Feature::Managed)?;
        let concurrent = device.supports(Feature::ConcurrentManaged)? == Support::Yes;
        Ok(Self { inner: Arc::new(ManagedMemoryResource { context: context.clone(), attachment, concurrent }) })
    }
}

// SAFETY: cuMemAllocManaged allocates the memory.
unsafe impl ResourceHandle for ManagedMemory {
    type Kind = kind::Managed;

    fn share(&self) -> SharedResource {
        self.inner.clone()
    }
}

// SAFETY: the driver's blocks do not overlap, and are valid immediately for all streams.
unsafe impl MemoryResource for ManagedMemoryResource {
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        const CALL: &str = "ManagedMemory::allocate";
        check_request(CALL, (size, alignment), DRIVER_ALIGNMENT, &self.context, stream)?;
        self.context.make_room(&CALL, size)?;
        let (cuda, _current) = (self.context.driver().raw(), self.context.bind()?);
        let flags = match self.attachment {
            Attachment::Global => CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL,
            Attachment::Host => CUmemAttach_flags::CU_MEM_ATTACH_HOST,
        };
        let mut pointer = 0;
        // SAFETY: `pointer` is writable and the context is current.
        unsafe { call!(cuda.cuMemAllocManaged(&mut pointer, size, flags.0)) }
            .map_err(|error| out_of_memory(CALL, error, size, &self.context))?;
        let block = Block::unified(ptr::with_exposed_provenance_mut(pointer as usize), size);
        Ok(block.of_kind(BlockKind::Managed).fresh())
    }

    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        // cuMemFreeAsync does not accept this memory.
        let target = Target::context(&self.context);
        // SAFETY: the caller's contract.
        let free =
            move |cuda: &cuda_sys::Driver| unsafe { watched!(target, cuda.cuMemFree_v2(block.device_pointer())) };
        self.context.free_by_waiting("freeing managed memory", block.size(), Some(stream), free)
    }

    fn context(&self) -> &Context {
        &self.context
    }

    fn accessibility(&self) -> Accessibility {
        Accessibility::MANAGED
    }

    fn is_coherent(&self, _block: Block) -> bool {
        self.concurrent
    }

    unsafe fn invalidate(&self, _start: *mut u8, _length: usize) -> Result<()> {
        // A kernel of any stream, whatever memory it uses, takes managed memory away from the CPU.
        if self.concurrent { Ok(()) } else { self.context.synchronize() }
    }
}
