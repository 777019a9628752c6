//! Plain device memory.

use super::in_order::free_in_order;
use super::peers::PeerSource;
use super::virtual_memory::ChunkSource;
use crate::error::call;
use crate::lifetime::waiting::{Target, watched};
use crate::memory::resource::{
    Accessibility, Block, MemoryResource, ResourceHandle, SharedResource, check_request, kind, out_of_memory,
};
use crate::{Context, Feature, Result, Stream, Support};
use std::sync::{Arc, OnceLock};

/// The alignment of the driver's allocations, in bytes.
pub(crate) const DRIVER_ALIGNMENT: usize = 256;

/// Device memory by cuMemAlloc: a driver call of several microseconds. Legacy IPC handles can share this memory. Most
/// programs want a [`DevicePool`](super::DevicePool). Cheap to clone.
///
/// A free is queued on the home stream by cuMemFreeAsync, and waits for nothing. An allocation that finds too little memory
/// waits up to 10 seconds for the queued frees, if these would suffice. On devices without pools (before CUDA 11.2), a
/// free waits for the whole device.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
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
    /// Whether the driver frees this memory in stream order. Known from the first allocation on.
    frees_in_order: OnceLock<bool>,
}

impl DeviceMemory {
    /// Device memory of a context.
    pub fn new(context: &Context) -> Self {
        Self { inner: Arc::new(DeviceMemoryResource { context: context.clone(), frees_in_order: OnceLock::new() }) }
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
        if self.frees_in_order.get().is_none() {
            let support = self.context.device().supports(Feature::DevicePools)?;
            let _ = self.frees_in_order.set(support == Support::Yes);
        }
        if self.frees_in_order.get() == Some(&true) {
            self.context.free_postponed();
        } else {
            self.context.make_room(&CALL, size)?;
        }
        let (cuda, _current) = (self.context.driver().raw(), self.context.bind()?);
        let allocate = || {
            let mut pointer = 0;
            // SAFETY: `pointer` is writable and the context is current.
            unsafe { call!(cuda.cuMemAlloc_v2(&mut pointer, size)) }.map(|()| pointer)
        };
        let refuse = |error| out_of_memory(CALL, error, size, &self.context);
        let pointer = self.context.with_room(Some(size), allocate, refuse)?;
        Ok(Block::device(pointer, size).fresh())
    }

    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        const DOING: &str = "freeing device memory";
        if self.frees_in_order.get() == Some(&true) {
            // SAFETY: the caller's contract.
            return unsafe { free_in_order(&self.context, DOING, block, stream) };
        }
        let target = Target::context(&self.context);
        // SAFETY: the caller's contract.
        let free =
            move |cuda: &cuda_sys::Driver| unsafe { watched!(target, cuda.cuMemFree_v2(block.device_pointer())) };
        self.context.free_by_waiting(DOING, block.size(), Some(stream), free)
    }

    fn context(&self) -> &Context {
        &self.context
    }

    fn accessibility(&self) -> Accessibility {
        Accessibility::DEVICE
    }

    fn peer_source(&self) -> Option<PeerSource<'_>> {
        Some(PeerSource::plain(&self.context))
    }

    fn chunks(&self) -> Option<ChunkSource> {
        ChunkSource::of_device(&self.context)
    }

    #[cfg(feature = "sharing")]
    fn export(&self, block: Block) -> Result<crate::memory::descriptor::BlockExport> {
        use crate::memory::descriptor::{BlockExport, Descriptor, ExportKind, from_driver};
        let mut descriptor = Descriptor::new(ExportKind::DeviceMemory, &self.context)?;
        if block.size() == 0 {
            return Ok(BlockExport::own(descriptor, None));
        }
        self.context.device().require(crate::Feature::Ipc)?;
        let (cuda, _current) = (self.context.driver().raw(), self.context.bind()?);
        let (mut handle, mut base, mut size) = (cuda_sys::CUipcMemHandle::default(), 0, 0);
        // SAFETY: `handle` is writable, and the block is allocated.
        unsafe { call!(cuda.cuIpcGetMemHandle(&mut handle, block.device_pointer())) }?;
        // The handle names the whole allocation, whatever address in it was given.
        // SAFETY: `base` and `size` are writable.
        unsafe { call!(cuda.cuMemGetAddressRange_v2(&mut base, &mut size, block.device_pointer())) }?;
        descriptor.payload = from_driver(handle.reserved);
        descriptor.size = size as u64;
        descriptor.offset = block.device_pointer() - base;
        descriptor.length = block.size() as u64;
        Ok(BlockExport::own(descriptor, None))
    }
}
