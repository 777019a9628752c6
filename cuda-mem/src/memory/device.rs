//! Plain device memory.

use crate::buffer::has_own_handle;
use crate::descriptor::{BlockExport, Descriptor, ExportKind};
use crate::error::call;
use crate::ipc::memory;
use crate::resource::{
    Accessibility, Block, MemoryResource, ResourceHandle, SharedResource, check_alignment, kind, out_of_memory,
};
use crate::{Context, Result, SharedBuffer, Stream};
use bytemuck::{AnyBitPattern, NoUninit};
use std::sync::Arc;

/// The alignment of the driver's allocations, in bytes.
pub(crate) const DRIVER_ALIGNMENT: usize = 256;

/// Device memory by cuMemAlloc: a driver call of several microseconds that waits for the device. Legacy IPC handles can
/// share this memory. Most programs want a [`DevicePool`](super::DevicePool). Cheap to clone.
///
/// ```
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
/// let stream = Stream::new(&context)?;
/// let buffer = Buffer::from_slice(&DeviceMemory::new(&context), &[1.5f32; 100], &stream)?;
/// assert_eq!(buffer.to_vec()?, [1.5; 100]);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "cuMemAlloc")]
pub struct DeviceMemory {
    inner: Arc<DeviceMemoryResource>,
}

#[derive(Debug)]
struct DeviceMemoryResource {
    context: Context,
}

impl DeviceMemory {
    /// Device memory of a context.
    pub fn new(context: &Context) -> Self {
        Self { inner: Arc::new(DeviceMemoryResource { context: context.clone() }) }
    }

    /// Imports memory of another process's cuMemAlloc: the part that it exported by [`SharedBuffer::export`], as
    /// elements of type `T`. The other process may write it at any time, so the result is a [`SharedBuffer`].
    ///
    /// `stream` becomes the home stream. Repeated imports share one mapping, which is closed when the last one is
    /// dropped; a drop waits for the stream. In the exporting process, the result is the exported allocation itself.
    ///
    /// # Errors
    ///
    /// The descriptor is not of such memory, belongs to another device, or contradicts the driver; its part does not
    /// hold whole, aligned elements; the driver refuses because the memory no longer exists.
    #[doc(alias("cuIpcOpenMemHandle", "cuIpcCloseMemHandle"))]
    pub fn import_buffer<T>(&self, descriptor: &Descriptor, stream: &Stream) -> Result<SharedBuffer<T, kind::Device>>
    where
        T: NoUninit + AnyBitPattern,
    {
        const CALL: &str = "DeviceMemory::import_buffer";
        let context = &self.inner.context;
        descriptor.expect(CALL, ExportKind::DeviceMemory, context)?;
        // The driver does not let a process open its own memory. A descriptor that falsely claims to be of this process
        // is refused.
        let own = has_own_handle(descriptor) || descriptor.claims_own()?;
        SharedBuffer::import(CALL, &self.share(), descriptor, stream, own, || {
            memory::import_device_memory(CALL, context, descriptor, stream)
        })
    }
}

// SAFETY: cuMemAlloc allocates the memory, on the device.
unsafe impl ResourceHandle for DeviceMemory {
    type Kind = kind::Device;

    fn share(&self) -> SharedResource {
        self.inner.clone()
    }
}

// SAFETY: the driver's blocks do not overlap, and are valid immediately for all streams.
unsafe impl MemoryResource for DeviceMemoryResource {
    fn allocate(&self, size: usize, alignment: usize, _stream: &Stream) -> Result<Block> {
        const CALL: &str = "DeviceMemory::allocate";
        check_alignment(CALL, alignment, DRIVER_ALIGNMENT)?;
        self.context.free_deferred();
        let (cuda, _current) = (self.context.driver().raw(), self.context.bind()?);
        let mut pointer = 0;
        // SAFETY: `pointer` is writable and the context is current.
        unsafe { call!(cuda.cuMemAlloc_v2(&mut pointer, size)) }
            .map_err(|error| out_of_memory(CALL, error, size, &self.context))?;
        Ok(Block::device(pointer, size))
    }

    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's contract.
        let free = move |cuda: &cuda_sys::Driver| unsafe { call!(cuda.cuMemFree_v2(block.device_pointer)) };
        self.context.free_by_waiting("freeing device memory", Some(stream), free)
    }

    fn context(&self) -> &Context {
        &self.context
    }

    fn accessibility(&self) -> Accessibility {
        Accessibility::DEVICE
    }

    fn export(&self, block: Block) -> Result<BlockExport> {
        memory::export_device_memory(&self.context, block)
    }
}
