//! The memory of a device's graphs.

use crate::error::call;
use crate::memory::DRIVER_ALIGNMENT;
use crate::memory::resource::{
    Accessibility, Block, MemoryResource, PendingUse, ResourceHandle, SharedResource, check_request, kind,
    out_of_memory,
};
use crate::{Context, Device, Error, Result, Stream};
use core::ptr;
use cuda_sys::CUgraphMem_attribute;
use std::sync::Arc;

/// Memory that a capture allocates. Its address is fixed at the capture, and the graph allocates the memory at each
/// launch. If a buffer is dropped within the capture, the graph frees it. Otherwise the buffer holds memory from the
/// first launch until its drop, and must not be used before that launch. Cheap to clone.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// use cuda_mem::memory::GraphMemory;
/// use cuda_mem::graph::{CaptureMode, GraphOptions};
/// use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
/// let stream = Stream::new(&context)?;
/// let mut result = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&context), 4, &stream)?;
/// // SAFETY: the only buffer is dropped within its capture.
/// let memory = unsafe { GraphMemory::new(&context) };
/// let graph = stream.capture(CaptureMode::Global, |stream| {
///     let scratch = Buffer::filled(&memory, 4, 7u8, stream)?;
///     result.copy_from_buffer(0, &scratch, ..)
/// })?;
/// let executable = graph.instantiate(GraphOptions::default())?;
/// // SAFETY: `result`, the only buffer that the graph does not allocate itself, is alive.
/// unsafe { executable.launch(&stream) }?;
/// assert_eq!(result.to_vec()?, [7; 4]);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct GraphMemory {
    inner: Arc<GraphMemoryResource>,
}

#[derive(Debug)]
struct GraphMemoryResource {
    context: Context,
}

/// The memory of a device's graphs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphMemoryAttributes {
    /// Memory held by graphs, including freed memory that was not trimmed yet.
    pub used: usize,
    /// The maximum of `used` since its high mark was reset.
    pub used_high: usize,
    /// Memory that the device reserves for graphs.
    pub reserved: usize,
    /// The maximum of `reserved` since its high mark was reset.
    pub reserved_high: usize,
}

impl GraphMemory {
    /// The graph memory of the context's device.
    ///
    /// # Safety
    ///
    /// A buffer that leaves its capture is used and dropped only while its memory is live: after a launch of its graph,
    /// and before the next launch of the graph or [`auto_free_on_launch`](crate::GraphOptions::auto_free_on_launch)
    /// frees the memory. If its graph is never launched, the caller must [forget](core::mem::forget) the buffer,
    /// because another graph may get its address.
    pub unsafe fn new(context: &Context) -> Self {
        Self { inner: Arc::new(GraphMemoryResource { context: context.clone() }) }
    }

    fn device(&self) -> &Device {
        self.inner.context.device()
    }

    /// Returns memory that no graph uses to the system. Live memory, and memory of launches under way, stays.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuDeviceGraphMemTrim")]
    pub fn trim(&self) -> Result<()> {
        let cuda = self.device().driver().raw();
        // SAFETY: the device belongs to this driver.
        unsafe { call!(cuda.cuDeviceGraphMemTrim(self.device().raw())) }
    }

    /// The current and the maximum memory of graphs.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuDeviceGetGraphMemAttribute")]
    pub fn attributes(&self) -> Result<GraphMemoryAttributes> {
        Ok(GraphMemoryAttributes {
            used: self.attribute(CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)?,
            used_high: self.attribute(CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)?,
            reserved: self.attribute(CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)?,
            reserved_high: self.attribute(CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)?,
        })
    }

    fn attribute(&self, attribute: CUgraphMem_attribute) -> Result<usize> {
        let (cuda, mut value) = (self.device().driver().raw(), 0_u64);
        // SAFETY: these attributes are 64-bit words, as is `value`.
        unsafe {
            call!(cuda.cuDeviceGetGraphMemAttribute(self.device().raw(), attribute, ptr::from_mut(&mut value).cast()))
        }?;
        Ok(usize::try_from(value).unwrap_or(usize::MAX))
    }

    /// Resets both high marks to the memory used and reserved now.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuDeviceSetGraphMemAttribute")]
    pub fn reset_high_marks(&self) -> Result<()> {
        self.reset(CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)?;
        self.reset(CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
    }

    fn reset(&self, attribute: CUgraphMem_attribute) -> Result<()> {
        // The driver accepts only 0 for a mark.
        let (cuda, mut zero) = (self.device().driver().raw(), 0_u64);
        // SAFETY: high marks are 64-bit words, as is `zero`.
        unsafe {
            call!(cuda.cuDeviceSetGraphMemAttribute(self.device().raw(), attribute, ptr::from_mut(&mut zero).cast()))
        }
    }
}

// SAFETY: the memory lies on the device.
unsafe impl ResourceHandle for GraphMemory {
    type Kind = kind::Device;

    fn share(&self) -> SharedResource {
        self.inner.clone()
    }
}

// SAFETY: the graph has its own blocks, which are valid for the work that it records after the call.
unsafe impl MemoryResource for GraphMemoryResource {
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        const CALL: &str = "GraphMemory::allocate";
        check_request(CALL, (size, alignment), DRIVER_ALIGNMENT, &self.context, stream)?;
        if !stream.is_capturing()? {
            let rule = "graph memory can only be allocated within a capture; elsewhere use a pool";
            return Err(Error::invalid(CALL, "stream", "not capturing", rule));
        }
        let (cuda, _ready) = stream.ready()?;
        let mut pointer = 0;
        // SAFETY: `pointer` is writable and the stream lives.
        unsafe { call!(cuda.cuMemAllocAsync(&mut pointer, size, stream.raw())) }
            .map_err(|error| out_of_memory(CALL, error, size, &self.context))?;
        Ok(Block::device(pointer, size).with_pending_use(PendingUse::InGraph))
    }

    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        let (cuda, _ready) = stream.ready()?;
        // SAFETY: the caller's contract. In a capture, the graph records this free and runs it.
        unsafe { call!(cuda.cuMemFreeAsync(block.device_pointer(), stream.raw())) }
    }

    fn context(&self) -> &Context {
        &self.context
    }

    fn accessibility(&self) -> Accessibility {
        Accessibility::DEVICE
    }
}
