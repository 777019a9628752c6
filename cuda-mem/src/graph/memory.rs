//! The memory that a device's graphs hold.

use crate::error::call;
use crate::memory::DRIVER_ALIGNMENT;
use crate::resource::{
    Accessibility, Block, MemoryResource, ResourceHandle, SharedResource, check_alignment, kind, out_of_memory,
};
use crate::{Context, Device, Error, Result, Stream};
use core::ptr;
use cuda_sys::CUgraphMem_attribute;
use std::sync::Arc;

/// Memory that is allocated within a capture: the graph allocates it at each launch, at an address that is known from the
/// capture on. A buffer that ends within the capture is freed by the graph; one that leaves it holds memory from the first
/// launch on, and frees it when it ends. Before that launch nobody may use it. Cheap to clone.
///
/// ```
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// use cuda_mem::graph::{CaptureMode, GraphMemory, GraphOptions};
/// use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
/// let stream = Stream::new(&context)?;
/// let mut result = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&context), 4, &stream)?;
/// // SAFETY: the one buffer ends within its capture.
/// let memory = unsafe { GraphMemory::new(&context) };
/// let graph = stream.capture(CaptureMode::Global, |stream| {
///     let scratch = Buffer::filled(&memory, 4, 7u8, stream)?;
///     result.copy_from_buffer(0, &scratch, ..)
/// })?;
/// let executable = graph.instantiate(GraphOptions::default())?;
/// // SAFETY: the one buffer that the graph does not make itself is alive.
/// unsafe { executable.launch(&stream) }?;
/// assert_eq!(result.to_vec()?, [7; 4]);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct GraphMemory {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
}

/// How much memory a device's graphs hold, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphMemoryAttributes {
    /// What is with graphs. Memory that was freed may stay with them until it is trimmed.
    pub used: usize,
    /// The most that was used since the mark was reset.
    pub used_high: usize,
    /// What the device has set aside for graphs.
    pub reserved: usize,
    /// The most that was reserved since the mark was reset.
    pub reserved_high: usize,
}

impl GraphMemory {
    /// The memory of the graphs of a context's device.
    ///
    /// # Safety
    ///
    /// A buffer that leaves its capture is used and ends only while it is live: after a launch of its graph, and before the
    /// graph is launched again, or its memory is freed by
    /// [`auto_free_on_launch`](super::GraphOptions::auto_free_on_launch). If its graph is never launched, it is forgotten
    /// ([`core::mem::forget`]): another graph may get its address.
    pub unsafe fn new(context: &Context) -> Self {
        Self { inner: Arc::new(Inner { context: context.clone() }) }
    }

    fn device(&self) -> &Device {
        self.inner.context.device()
    }

    /// Gives memory that no graph uses back to the system. What is live, and what a launch under way uses, stays.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    #[doc(alias = "cuDeviceGraphMemTrim")]
    pub fn trim(&self) -> Result<()> {
        let cuda = self.device().driver().raw();
        // SAFETY: the device is one of the driver's.
        unsafe { call!(cuda.cuDeviceGraphMemTrim(self.device().raw())) }
    }

    /// How much memory graphs hold, and held at most.
    ///
    /// # Errors
    ///
    /// The driver refuses.
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
        // SAFETY: these attributes are 64-bit words, and `value` is one.
        unsafe {
            call!(cuda.cuDeviceGetGraphMemAttribute(self.device().raw(), attribute, ptr::from_mut(&mut value).cast()))
        }?;
        Ok(usize::try_from(value).unwrap_or(usize::MAX))
    }

    /// Sets both high marks back to what is used and reserved now.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    #[doc(alias = "cuDeviceSetGraphMemAttribute")]
    pub fn reset_high_marks(&self) -> Result<()> {
        self.reset(CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)?;
        self.reset(CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
    }

    fn reset(&self, attribute: CUgraphMem_attribute) -> Result<()> {
        // The one value that a mark can be set to.
        let (cuda, mut zero) = (self.device().driver().raw(), 0_u64);
        // SAFETY: high marks are 64-bit words, and `zero` is one.
        unsafe {
            call!(cuda.cuDeviceSetGraphMemAttribute(self.device().raw(), attribute, ptr::from_mut(&mut zero).cast()))
        }
    }
}

// SAFETY: the memory is the device's.
unsafe impl ResourceHandle for GraphMemory {
    type Kind = kind::Device;

    fn share(&self) -> SharedResource {
        self.inner.clone()
    }
}

// SAFETY: the graph has its blocks of its own, valid for the work that it records after the call.
unsafe impl MemoryResource for Inner {
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        const CALL: &str = "GraphMemory::allocate";
        check_alignment(CALL, alignment, DRIVER_ALIGNMENT)?;
        if !stream.is_capturing()? {
            return Err(Error::InvalidArgument {
                call: CALL,
                argument: "stream",
                value: "not capturing".into(),
                rule: "the memory of graphs is allocated within a capture; elsewhere use a pool",
            });
        }
        let (cuda, _ready) = stream.ready()?;
        let mut pointer = 0;
        // SAFETY: `pointer` is writable and the stream lives.
        unsafe { call!(cuda.cuMemAllocAsync(&mut pointer, size, stream.raw())) }
            .map_err(|error| out_of_memory(CALL, error, size, &self.context))?;
        Ok(Block::device(pointer, size))
    }

    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        let (cuda, _ready) = stream.ready()?;
        // SAFETY: the caller's contract. In a capture this is recorded, and the graph frees.
        unsafe { call!(cuda.cuMemFreeAsync(block.device_pointer, stream.raw())) }
    }

    fn context(&self) -> &Context {
        &self.context
    }

    fn accessibility(&self) -> Accessibility {
        Accessibility::DEVICE
    }
}
