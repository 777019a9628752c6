//! A ring of memory for staging.

mod options;
mod shared;
mod upload;

use crate::error::unless_forked;
use crate::memory::kind;
use crate::memory::resource::{Kind, ResourceHandle, SharedResource};
use crate::{Context, Result};
use core::fmt;
use core::marker::PhantomData;
use shared::SharedRing;
use std::sync::Arc;

pub use options::{RingOptions, RingStatistics, WhenFull};

/// A ring of memory of kind `K` for staging. It allocates blocks one after the other, frees them in stream order, and
/// reuses them in the order of their allocation. A buffer keeps its ring alive. Cheap to clone.
///
/// The ring hands out a block only when *all* work of its former users is done, including work on the same stream. So
/// the CPU may write the block at once, while copies from older blocks run. [`upload`](Self::upload) does so, and a
/// [`HostBuffer`](crate::HostBuffer) can be allocated from a ring.
///
/// The ring records one event for each eighth of its memory that a stream has freed, and reuses its events. It is full
/// if the next block would overlap the oldest block whose work is not done. [`when_full`](RingOptions::when_full)
/// selects whether it then waits. A block that was not freed delays the reuse of all later blocks.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// # let stream = cuda_mem::Stream::new(&context)?;
/// use cuda_mem::pool::{RingPool, RingOptions};
/// use cuda_mem::{Buffer, HostBuffer, memory::{DeviceMemory, PinnedMemory}};
///
/// let staging = RingPool::new(&PinnedMemory::new(&context), 1 << 20, &RingOptions::default())?;
/// let mut frame = Buffer::<f32, _>::zeroed(&DeviceMemory::new(&context), 1000, &stream)?;
///
/// // Borrows the slice for the call only; the copy continues.
/// staging.upload(&mut frame, 0, &[1.0; 500])?;
///
/// // The program fills this slice in place, and the copy owns it.
/// let mut samples = HostBuffer::<f32>::zeroed(&staging, 500)?;
/// samples.fill(2.0);
/// let copy = frame.upload(500, samples)?;
///
/// assert_eq!((frame.to_vec()?[499], frame.to_vec()?[500]), (1.0, 2.0));
/// drop(copy); // returns the block to the ring
/// assert_eq!(staging.statistics().blocks, 0);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct RingPool<K = kind::Any> {
    core: Arc<SharedRing>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> RingPool<K> {
    /// Makes a ring of `capacity` bytes, rounded up to a multiple of 256. Allocates the memory from `upstream` now, and
    /// frees it at the ring's end.
    ///
    /// # Errors
    ///
    /// The capacity is 0; the source has no room; its memory has no device address.
    pub fn new<R>(upstream: &R, capacity: usize, options: &RingOptions) -> Result<Self>
    where
        R: ResourceHandle<Kind = K> + ?Sized,
    {
        Ok(Self { core: Arc::new(SharedRing::new(upstream.share(), capacity, *options)?), kind: PhantomData })
    }
}

impl<K> RingPool<K> {
    /// The size of the ring in bytes.
    pub fn capacity(&self) -> usize {
        self.core.capacity
    }

    /// The context of the ring's memory.
    pub fn context(&self) -> &Context {
        self.core.source.upstream.context()
    }

    /// The source of the ring's memory.
    pub fn upstream(&self) -> &SharedResource {
        &self.core.source.upstream
    }

    /// Waits for the work on all freed blocks.
    ///
    /// # Errors
    ///
    /// Work failed.
    pub fn synchronize(&self) -> Result<()> {
        self.core.synchronize()
    }

    /// The ring's figures. All are 0 in a forked process.
    pub fn statistics(&self) -> RingStatistics {
        unless_forked(|| self.core.statistics())
    }
}

impl<K> Clone for RingPool<K> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone(), kind: PhantomData }
    }
}

impl<K> fmt::Debug for RingPool<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingPool")
            .field("upstream", self.upstream())
            .field("capacity", &self.capacity())
            .field("options", &self.core.options)
            .finish_non_exhaustive()
    }
}

// SAFETY: the memory comes from the source, and `new` requires its kind to be `K`.
unsafe impl<K: Kind> ResourceHandle for RingPool<K> {
    type Kind = K;

    fn share(&self) -> SharedResource {
        self.core.clone()
    }
}
