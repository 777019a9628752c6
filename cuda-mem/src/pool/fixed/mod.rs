//! A pool of blocks of one size.

mod options;
mod shared;

use crate::memory::resource::{Kind, ResourceHandle, SharedResource};
use crate::{Context, Result};
use core::fmt;
use core::marker::PhantomData;
use shared::SharedFixedPool;
use std::sync::Arc;

pub use options::{FixedSizeOptions, FixedSizeStatistics};

/// A pool of blocks of one size over a source of memory of kind `K`, in stream order. A buffer keeps its pool alive.
/// Cheap to clone.
///
/// For very many small buffers: sizes are rounded to 16 bytes and the atom only, neighbours are not joined, and a block
/// takes 24 bytes of records, 64 while it is kept for a stream. Allocation and free are O(1) in the number of blocks.
///
/// A stream can reuse a block that it freed at once, without a driver call. Another stream gets the block when an event
/// recorded after the free has passed, or waits for it, as [`reuse`](FixedSizeOptions::reuse) selects. The pool records
/// no event until another stream wants the block.
///
/// The pool refuses requests that are larger than a block with [`Error::OutOfMemory`](crate::Error::OutOfMemory), so
/// that a [`Fallback`](crate::adaptor::Fallback) can serve them from a [`Pool`](super::Pool).
///
/// ```
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// # let stream = cuda_mem::Stream::new(&context)?;
/// use cuda_mem::adaptor::Fallback;
/// use cuda_mem::pool::{FixedSizePool, FixedSizeOptions, Pool, PoolOptions};
/// use cuda_mem::{Buffer, memory::DeviceMemory};
///
/// let source = DeviceMemory::new(&context);
/// let small = FixedSizePool::new(&source, 64, &FixedSizeOptions::default())?;
/// let memory = Fallback::new(&small, &Pool::new(&source, &PoolOptions::default())?)?;
/// let counters = Buffer::<u64, _>::zeroed(&memory, 8, &stream)?;
/// let weights = Buffer::<f32, _>::zeroed(&memory, 1000, &stream)?;
/// assert_eq!((small.statistics().blocks.current, memory.blocks_of_second()), (1, 1));
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct FixedSizePool<K> {
    core: Arc<SharedFixedPool>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> FixedSizePool<K> {
    /// Makes a pool of blocks that hold `block_size` bytes. Allocates slabs, regions of several blocks, from
    /// `upstream`, the first slab now.
    ///
    /// # Errors
    ///
    /// The size is 0; the options give an invalid slab; the source has no room; its memory has no device address.
    pub fn new<R>(upstream: &R, block_size: usize, options: &FixedSizeOptions) -> Result<Self>
    where
        R: ResourceHandle<Kind = K> + ?Sized,
    {
        Ok(Self { core: Arc::new(SharedFixedPool::new(upstream.share(), block_size, options)?), kind: PhantomData })
    }
}

impl<K> FixedSizePool<K> {
    /// The size of every block in bytes: the requested size, rounded up to a multiple of 16 and of the memory's atom.
    pub fn block_size(&self) -> usize {
        self.core.size
    }

    /// The alignment of every block: the largest power of two that divides its size, limited by the source's alignment
    /// and by 256.
    pub fn alignment(&self) -> usize {
        self.core.alignment
    }

    /// The context of the pool's memory.
    pub fn context(&self) -> &Context {
        self.core.source.upstream.context()
    }

    /// The source of the pool's slabs.
    pub fn upstream(&self) -> &SharedResource {
        &self.core.source.upstream
    }

    /// Grows until the pool has at least this many blocks, free and used together.
    ///
    /// # Errors
    ///
    /// The maximum forbids it; the source has no room.
    pub fn reserve(&self, blocks: usize) -> Result<()> {
        self.core.reserve(blocks)
    }

    /// Gives back slabs without used blocks whose work is done, as long as at least `keep` bytes stay. Does not wait.
    ///
    /// # Errors
    ///
    /// Work failed; the source refuses to take a slab back, and the pool keeps the slab.
    #[doc(alias = "cuMemPoolTrimTo")]
    pub fn trim_to(&self, keep: usize) -> Result<()> {
        self.core.trim(keep, false)
    }

    /// Waits for the work on all freed blocks, and gives back all slabs without used blocks.
    ///
    /// # Errors
    ///
    /// As [`trim_to`](Self::trim_to).
    pub fn release_unused(&self) -> Result<()> {
        self.core.trim(0, true)
    }

    /// The pool's figures.
    pub fn statistics(&self) -> FixedSizeStatistics {
        self.core.statistics()
    }
}

impl<K> Clone for FixedSizePool<K> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone(), kind: PhantomData }
    }
}

impl<K> fmt::Debug for FixedSizePool<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FixedSizePool")
            .field("upstream", self.upstream())
            .field("block_size", &self.block_size())
            .field("options", &self.core.options)
            .finish_non_exhaustive()
    }
}

// SAFETY: the memory comes from the source, and `new` requires its kind to be `K`.
unsafe impl<K: Kind> ResourceHandle for FixedSizePool<K> {
    type Kind = K;

    fn share(&self) -> SharedResource {
        self.core.clone()
    }
}
