//! Buffers of physical memory that is mapped at several addresses.

use super::Access;
use crate::memory::resource::Kind;
use crate::memory::{PhysicalMemory, VirtualMemory};
use crate::{Buffer, Error, Result, Stream};
use cuda_sys::CUdeviceptr;

impl<K: Kind> VirtualMemory<K> {
    /// Maps chunks of physical memory side by side at new addresses, as one buffer that the devices of this resource
    /// may use. The chunks may be mapped at other addresses too.
    ///
    /// # Errors
    ///
    /// There are no chunks, or one lies in another place than this resource's memory. The stream captures, or belongs
    /// to another device.
    ///
    /// # Safety
    ///
    /// Other buffers and other processes may reach the same bytes. All their users keep accesses in order, and nobody
    /// holds a CPU slice of the bytes while another user writes them.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
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
        let refusal = |value: String, rule| Error::invalid(CALL, "chunks", value, rule);
        let elsewhere = |chunk: &&PhysicalMemory| {
            chunk.options().location != inner.physical.location || chunk.context().device() != inner.context.device()
        };
        if let Some(chunk) = chunks.iter().find(elsewhere) {
            return Err(refusal(format!("{chunk:?}"), "all chunks must lie where this resource's memory does"));
        }
        let size = chunks.iter().try_fold(0usize, |size, chunk| size.checked_add(chunk.size()));
        let Some(size) = size.filter(|size| *size != 0) else {
            return Err(refusal(format!("{} chunks", chunks.len()), "at least one is needed, and the sum must fit"));
        };
        stream.check_not_capturing(CALL)?;
        let block = inner.join(CALL, chunks, size)?;
        // SAFETY: the block is new and belongs to this resource; its bytes have values, as all memory of the driver.
        let buffer = unsafe { Buffer::from_block(block, self, size, stream) };
        if buffer.is_err() {
            // Nobody uses the block, so its mapping ends here.
            drop(inner.take(CALL, block));
        }
        buffer
    }

    /// The chunks of physical memory behind a buffer's allocation, in order of their addresses. Empty if the buffer
    /// does not belong to this resource.
    pub fn physical_memory<T, A: Access>(&self, buffer: &Buffer<T, K, A>) -> Vec<PhysicalMemory> {
        let address = buffer.device_pointer();
        let mappings = self.inner.mappings.read();
        let found = mappings.range(..=address).next_back().map(|(_, mapping)| mapping);
        let found = found.filter(|mapping| address - mapping.base() < mapping.reserved() as CUdeviceptr);
        found.map_or_else(Vec::new, |mapping| mapping.chunks().to_vec())
    }
}
