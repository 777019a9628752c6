//! Plain device memory.

use crate::error::call;
use crate::resource::{
    Accessibility, Block, MemoryResource, ResourceHandle, SharedResource, check_request, kind, out_of_memory,
};
use crate::{Context, Result, Stream};
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
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        const CALL: &str = "DeviceMemory::allocate";
        check_request(CALL, (size, alignment), DRIVER_ALIGNMENT, &self.context, stream)?;
        self.context.free_deferred();
        let (cuda, _current) = (self.context.driver().raw(), self.context.bind()?);
        let mut pointer = 0;
        // SAFETY: `pointer` is writable and the context is current.
        unsafe { call!(cuda.cuMemAlloc_v2(&mut pointer, size)) }
            .map_err(|error| out_of_memory(CALL, error, size, &self.context))?;
        Ok(Block::device(pointer, size).fresh())
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

    #[cfg(feature = "sharing")]
    fn export(&self, block: Block) -> Result<crate::descriptor::BlockExport> {
        use crate::descriptor::{BlockExport, Descriptor, ExportKind, from_driver};
        let mut descriptor = Descriptor::new(ExportKind::DeviceMemory, &self.context)?;
        if block.size() == 0 {
            return Ok(BlockExport::own(descriptor, None));
        }
        self.context.device().require(crate::Feature::Ipc)?;
        let (cuda, _current) = (self.context.driver().raw(), self.context.bind()?);
        let (mut handle, mut base, mut size) = (cuda_sys::CUipcMemHandle::default(), 0, 0);
        // SAFETY: `handle` is writable, and the block is allocated.
        unsafe { call!(cuda.cuIpcGetMemHandle(&mut handle, block.device_pointer)) }?;
        // The handle names the whole allocation, whatever address in it was given.
        // SAFETY: `base` and `size` are writable.
        unsafe { call!(cuda.cuMemGetAddressRange_v2(&mut base, &mut size, block.device_pointer)) }?;
        descriptor.payload = from_driver(handle.reserved);
        descriptor.size = size as u64;
        descriptor.offset = block.device_pointer - base;
        descriptor.length = block.size() as u64;
        Ok(BlockExport::own(descriptor, None))
    }
}
