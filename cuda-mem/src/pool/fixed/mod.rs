//! A pool of blocks of one size.

mod central;
mod options;
mod slots;

use crate::resource::{Kind, ResourceHandle, SharedResource};
use crate::{Context, Result};
use central::Core;
use core::fmt;
use core::marker::PhantomData;
use std::sync::Arc;

pub use options::{FixedSizeOptions, FixedSizeStatistics};

/// A pool of blocks of one size over a source of memory of kind `K`, in stream order. For very many small buffers: a block
/// is not rounded up, has no neighbours to join with, and 24 bytes of records, 64 while it is kept for a stream. Buffers keep their pool. Cheap to clone.
///
/// Allocation and free take the same time whatever the number of blocks. A block that a stream has freed serves the same
/// stream again without a call of the driver. Another stream gets it when an event that was recorded after the free has
/// passed, or is told to wait, as [`reuse`](FixedSizeOptions::reuse) says; no event exists until another stream wants the
/// block.
///
/// What is larger than a block is [`Error::OutOfMemory`](crate::Error::OutOfMemory), so that a
/// [`Fallback`](crate::adaptor::Fallback) lets a [`Pool`](super::Pool) serve it.
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
    core: Arc<Core>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> FixedSizePool<K> {
    /// A pool of blocks that hold `block_size` bytes, which draws on `upstream`. The first slab is allocated now.
    ///
    /// # Errors
    ///
    /// The size is 0, or slabs cannot be as the options say; the source has no room, or no memory that can be divided: it
    /// needs an address for devices.
    pub fn new<R>(upstream: &R, block_size: usize, options: &FixedSizeOptions) -> Result<Self>
    where
        R: ResourceHandle<Kind = K> + ?Sized,
    {
        Ok(Self { core: Arc::new(Core::new(upstream.share(), block_size, options)?), kind: PhantomData })
    }
}

impl<K> FixedSizePool<K> {
    /// The size of every block in bytes: what was asked for, rounded up to a multiple of 16 and of the memory's atom.
    pub fn block_size(&self) -> usize {
        self.core.size
    }

    /// What every block is aligned to: the largest power of two that divides its size, as far as the source aligns, which
    /// counts up to 256.
    pub fn alignment(&self) -> usize {
        self.core.alignment
    }

    /// The context that the pool works in.
    pub fn context(&self) -> &Context {
        self.core.source.upstream.context()
    }

    /// What the pool draws on.
    pub fn upstream(&self) -> &SharedResource {
        &self.core.source.upstream
    }

    /// Grows until the pool has so many blocks, free and used together.
    ///
    /// # Errors
    ///
    /// The maximum forbids it; the source has no room.
    pub fn reserve(&self, blocks: usize) -> Result<()> {
        self.core.reserve(blocks)
    }

    /// Gives slabs back of which no block is in use and all work is done, as long as at least `keep` bytes stay. Does not
    /// wait.
    ///
    /// # Errors
    ///
    /// Work failed; the source does not take a slab back, which stays the pool's.
    #[doc(alias = "cuMemPoolTrimTo")]
    pub fn trim_to(&self, keep: usize) -> Result<()> {
        self.core.trim(keep, false)
    }

    /// Waits for the work that freed blocks wait for, and gives all slabs back of which no block is in use.
    ///
    /// # Errors
    ///
    /// As [`trim_to`](Self::trim_to).
    pub fn release_unused(&self) -> Result<()> {
        self.core.trim(0, true)
    }

    /// What the pool has and does.
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

// SAFETY: the memory is the source's, which is of kind `K`.
unsafe impl<K: Kind> ResourceHandle for FixedSizePool<K> {
    type Kind = K;

    fn share(&self) -> SharedResource {
        self.core.clone()
    }
}
