//! A ring for staging.

mod central;
mod options;
mod queue;
mod upload;

use crate::resource::{Kind, ResourceHandle, SharedResource};
use crate::{Context, Result};
use central::Core;
use core::fmt;
use core::marker::PhantomData;
use std::sync::Arc;

pub use options::{RingOptions, RingStatistics, WhenFull};

/// A ring of memory of kind `K`, for data on its way: blocks are allocated one behind the other, freed in order of streams,
/// and used again in the same order. Buffers keep their ring. Cheap to clone.
///
/// A block is handed out when *all* work of its former users is done, also that of the same stream. So the CPU may write
/// the memory at once, while copies of older blocks are under way: [`upload`](Self::upload) does so, and a
/// [`HostBuffer`](crate::HostBuffer) can be made of a ring.
///
/// One event is recorded for each eighth of the ring that a stream has freed, and none is made anew: they are used again.
/// The ring is full where the next block would reach the oldest one whose work is not done; whether that is waited for,
/// [`when_full`](RingOptions::when_full) says. A block that was not freed holds up all behind it.
///
/// ```
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// # let stream = cuda_mem::Stream::new(&context)?;
/// use cuda_mem::pool::{RingPool, RingOptions};
/// use cuda_mem::{Buffer, HostBuffer, memory::{DeviceMemory, PinnedMemory}};
///
/// let staging = RingPool::new(&PinnedMemory::new(&context), 1 << 20, &RingOptions::default())?;
/// let mut frame = Buffer::<f32, _>::zeroed(&DeviceMemory::new(&context), 1000, &stream)?;
///
/// // Borrows the slice for the call only; the copy goes on.
/// staging.upload(&mut frame, 0, &[1.0; 500])?;
///
/// // A slice that is filled where it lies, and owned by its copy.
/// let mut samples = HostBuffer::<f32>::zeroed(&staging, 500)?;
/// samples.fill(2.0);
/// let copy = frame.upload(500, samples)?;
///
/// assert_eq!((frame.to_vec()?[499], frame.to_vec()?[500]), (1.0, 2.0));
/// drop(copy); // the block is the ring's again
/// assert_eq!(staging.statistics().blocks, 0);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct RingPool<K> {
    core: Arc<Core>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> RingPool<K> {
    /// A ring of `capacity` bytes of `upstream`, rounded up to a multiple of 256. The memory is allocated now, and freed at
    /// the ring's end.
    ///
    /// # Errors
    ///
    /// The capacity is 0; the source has no room, or no memory that can be divided: it needs an address for devices.
    pub fn new<R>(upstream: &R, capacity: usize, options: &RingOptions) -> Result<Self>
    where
        R: ResourceHandle<Kind = K> + ?Sized,
    {
        Ok(Self { core: Arc::new(Core::new(upstream.share(), capacity, *options)?), kind: PhantomData })
    }
}

impl<K> RingPool<K> {
    /// The size of the ring in bytes.
    pub fn capacity(&self) -> usize {
        self.core.capacity
    }

    /// The context that the ring works in.
    pub fn context(&self) -> &Context {
        self.core.source.upstream.context()
    }

    /// What the ring's memory is of.
    pub fn upstream(&self) -> &SharedResource {
        &self.core.source.upstream
    }

    /// Waits for the work that freed blocks wait for.
    ///
    /// # Errors
    ///
    /// Work failed.
    pub fn synchronize(&self) -> Result<()> {
        self.core.synchronize()
    }

    /// What the ring has and does.
    pub fn statistics(&self) -> RingStatistics {
        self.core.statistics()
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

// SAFETY: the memory is the source's, which is of kind `K`.
unsafe impl<K: Kind> ResourceHandle for RingPool<K> {
    type Kind = K;

    fn share(&self) -> SharedResource {
        self.core.clone()
    }
}
