//! Observers: they record what a resource does, and change no block.

use super::Adapt;
use crate::error::callback::or_undo;
use crate::memory::resource::{Block, SharedResource};
use crate::{Result, Stream};
use core::fmt::Debug;

/// Records the allocations and frees of a resource.
pub(crate) trait Observe: Debug + Send + Sync + 'static {
    /// What [`freeing`](Self::freeing) passes to [`free_failed`](Self::free_failed).
    type Free;

    /// Records an allocation of `size` bytes, with its result.
    fn allocated(&self, size: usize, stream: &Stream, block: &Result<Block>);

    /// Records a free before it runs: afterwards another thread may get the same address. Without a stream, the block
    /// ends with its context.
    ///
    /// # Errors
    ///
    /// The block may not be freed. The free then does not run.
    fn freeing(&self, block: Block, stream: Option<&Stream>) -> Result<Self::Free>;

    /// Records that the free failed or panicked.
    fn free_failed(&self, block: Block, stream: &Stream, free: Self::Free);
}

/// Frees a block by `free`, observed.
pub(crate) fn observed_free(
    observer: &impl Observe,
    block: Block,
    stream: &Stream,
    free: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let record = observer.freeing(block, Some(stream))?;
    or_undo(free, || observer.free_failed(block, stream, record))
}

// SAFETY: the blocks are the upstream's, unchanged.
unsafe impl<O: Observe> Adapt for O {
    fn allocate(&self, upstream: &SharedResource, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        let block = upstream.allocate(size, alignment, stream);
        self.allocated(size, stream, &block);
        block
    }

    unsafe fn deallocate(&self, upstream: &SharedResource, block: Block, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's contract.
        observed_free(self, block, stream, || unsafe { upstream.deallocate(block, stream) })
    }

    unsafe fn abandon(&self, upstream: &SharedResource, block: Block) {
        if self.freeing(block, None).is_ok() {
            // SAFETY: the caller's contract.
            unsafe { upstream.abandon(block) };
        }
    }
}

/// An observer that may be absent.
impl<O: Observe> Observe for Option<O> {
    type Free = Option<O::Free>;

    fn allocated(&self, size: usize, stream: &Stream, block: &Result<Block>) {
        self.iter().for_each(|observer| observer.allocated(size, stream, block));
    }

    fn freeing(&self, block: Block, stream: Option<&Stream>) -> Result<Self::Free> {
        self.as_ref().map(|observer| observer.freeing(block, stream)).transpose()
    }

    fn free_failed(&self, block: Block, stream: &Stream, free: Self::Free) {
        self.iter().zip(free).for_each(|(observer, free)| observer.free_failed(block, stream, free));
    }
}
