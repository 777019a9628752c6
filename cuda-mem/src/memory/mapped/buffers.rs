//! The resource that allocates buffers of mapped memory, and flushes and invalidates them.

use super::allocation::MappedAllocation;
use super::{Coherence, MappedMemory};
use crate::memory::resource::{
    Accessibility, Block, BlockKind, MemoryResource, ResourceHandle, SharedResource, check_request, kind,
};
use crate::{Context, Error, Result, Stream};
use core::ops::Range;
use std::sync::Arc;

/// The vkgdr library aligns addresses at least to this.
const HOST_ALIGNMENT: usize = 64;

// SAFETY: the CPU and the device can address mapped memory.
unsafe impl ResourceHandle for MappedMemory {
    type Kind = kind::Mapped;

    fn share(&self) -> SharedResource {
        Arc::new(MappedBlocks(self.clone()))
    }
}

/// A mapped resource as buffers use it. Each block is a separate allocation, so that no two blocks share an atom,
/// whatever their sizes.
#[derive(Debug)]
struct MappedBlocks(MappedMemory);

impl MappedMemory {
    /// Makes an allocation a block.
    pub(crate) fn insert(&self, allocation: Arc<MappedAllocation>) -> Block {
        let (device_pointer, host_pointer, size) = (allocation.device(0), allocation.host(0), allocation.size());
        let coherence = allocation.coherence();
        let mut blocks = self.blocks().write();
        blocks.insert(host_pointer.addr() as u64, allocation);
        let kind = match coherence {
            Coherence::Coherent => BlockKind::Mapped,
            Coherence::NonCoherent { .. } => BlockKind::NonCoherent,
        };
        Block::host(device_pointer, host_pointer, size).of_kind(kind).fresh()
    }

    /// The allocation that contains a CPU address, and the range within it.
    pub(crate) fn find(&self, start: *mut u8, length: usize) -> Result<(Arc<MappedAllocation>, Range<usize>)> {
        let blocks = self.blocks().read();
        let found = blocks.range(..=start.addr() as u64).next_back().and_then(|(base, allocation)| {
            let offset = start.addr() - *base as usize;
            let end = offset.checked_add(length).filter(|end| *end <= allocation.size())?;
            Some((allocation.clone(), offset..end))
        });
        found.ok_or_else(|| unknown(start, length))
    }

    fn take(&self, block: Block) -> Option<Arc<MappedAllocation>> {
        let mut blocks = self.blocks().write();
        blocks.remove(&(block.host_pointer().addr() as u64))
    }
}

#[cold]
fn unknown(start: *mut u8, length: usize) -> Error {
    let rule = "it must lie within one block of this resource that is still allocated";
    Error::invalid("MappedMemory", "the range", format_args!("{length} bytes at {start:p}"), rule)
}

// SAFETY: each block is an allocation of the library, valid at once for all streams and for the CPU.
unsafe impl MemoryResource for MappedBlocks {
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        const CALL: &str = "MappedMemory::allocate";
        check_request(CALL, (size, alignment), HOST_ALIGNMENT, self.context(), stream)?;
        stream.check_not_capturing(CALL)?;
        Ok(self.0.insert(self.0.without_blocks().make(size)?).with_size(size))
    }

    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        let home = if stream.context() == self.context() && self.context().waits_for_cpu() {
            Some(stream)
        } else {
            // Drain here, where an error leaves the block allocated.
            stream.wait_before_free()?;
            None
        };
        let allocation = self.0.take(block).ok_or_else(|| unknown(block.host_pointer(), block.size()))?;
        match Arc::into_inner(allocation) {
            Some(mut allocation) => allocation.end(home),
            // Another holder exists, and frees the memory.
            None => home.map_or(Ok(()), Stream::wait_beside_captures),
        }
    }

    unsafe fn abandon(&self, block: Block) {
        // The allocation's drop removes the CPU mapping, even if the context has ended.
        drop(self.0.take(block));
    }

    fn context(&self) -> &Context {
        self.0.context()
    }

    fn accessibility(&self) -> Accessibility {
        // A GPU's memory is write-combining behind its bus.
        Accessibility { write_combined: true, ..Accessibility::BOTH }
    }

    fn is_on_device(&self) -> bool {
        true
    }

    #[cfg(feature = "sharing")]
    fn export(&self, block: Block) -> Result<crate::memory::descriptor::BlockExport> {
        use crate::memory::descriptor::{BlockExport, Descriptor, ExportKind};
        // Fails unless the block is alive. `MappedMemory::export` adds the file.
        self.0.find(block.host_pointer(), block.size())?;
        Ok(BlockExport::own(Descriptor::new(ExportKind::Mapped, self.context())?, None))
    }

    fn atom(&self, block: Block) -> usize {
        self.0.find(block.host_pointer(), block.size()).map_or(1, |(allocation, _)| allocation.coherence().atom())
    }

    unsafe fn invalidate(&self, start: *mut u8, length: usize) -> Result<()> {
        let (allocation, range) = self.0.find(start, length)?;
        allocation.invalidate(range)
    }

    unsafe fn begin_write(&self, start: *mut u8, length: usize) -> Result<bool> {
        let (allocation, range) = self.0.find(start, length)?;
        allocation.invalidate(range.clone())?;
        allocation.mark_dirty(range);
        Ok(allocation.coherence() != Coherence::Coherent)
    }

    unsafe fn store(&self, start: *mut u8, bytes: &[u8]) -> Result<()> {
        let (allocation, range) = self.0.find(start, bytes.len())?;
        // SAFETY: the caller's contract.
        unsafe { allocation.store(range.start, bytes) }
    }

    unsafe fn load(&self, start: *mut u8, to: *mut u8, length: usize) -> Result<()> {
        let (allocation, range) = self.0.find(start, length)?;
        // SAFETY: the caller's contract.
        unsafe { allocation.load(range, to) }
    }

    unsafe fn flush(&self, start: *mut u8, length: usize) -> Result<()> {
        let (allocation, range) = self.0.find(start, length)?;
        // Mark first: if the flush fails, the writes stay marked, and no invalidate loses them.
        allocation.mark_dirty(range.clone());
        allocation.flush(range)
    }
}
