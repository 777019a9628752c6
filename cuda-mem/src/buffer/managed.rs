//! Managed memory: advice about its location, and prefetches.
//!
//! The driver works in pages, so buffers on the same page share its advice.

use super::managed_range::{Batch, ManagedRange, check_discard};
use super::{Access, Buffer};
#[cfg(doc)]
use crate::Error;
use crate::memory::resource::{Location, kind};
use crate::{Result, Stream};
use bytemuck::AnyBitPattern;

impl<T, A: Access> Buffer<T, kind::Managed, A> {
    /// Advises the driver that the memory is mostly read. Each reader then gets a copy; a write discards the copies.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias("cuMemAdvise", "CU_MEM_ADVISE_SET_READ_MOSTLY"))]
    pub fn set_read_mostly(&self, read_mostly: bool) -> Result<()> {
        self.range().set_read_mostly(read_mostly)
    }

    /// Whether the advice "mostly read" covers all of the memory.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuMemRangeGetAttribute")]
    pub fn is_read_mostly(&self) -> Result<bool> {
        self.range().is_read_mostly()
    }

    /// Advises the driver where the memory should lie; `None` withdraws the advice. Nothing moves yet.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// use cuda_mem::memory::{Location, ManagedMemory};
    /// let buffer = cuda_mem::Buffer::<u8, _>::zeroed(&ManagedMemory::new(&context)?, 4096, &stream)?;
    /// buffer.set_preferred_location(Some(&Location::Host))?;
    /// assert_eq!(buffer.preferred_location()?, Some(Location::Host));
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The host has no such node; the driver is older than CUDA 12.2, which knows no nodes: [`Error::Unsupported`].
    #[doc(alias("cuMemAdvise", "CU_MEM_ADVISE_SET_PREFERRED_LOCATION"))]
    pub fn set_preferred_location(&self, location: Option<&Location>) -> Result<()> {
        self.range().set_preferred_location(location)
    }

    /// Where the memory should lie. `None` if there is no advice, or different advice for different parts.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuMemRangeGetAttribute")]
    pub fn preferred_location(&self) -> Result<Option<Location>> {
        self.range().preferred_location()
    }

    /// Advises the driver to keep the memory mapped for a device or for the host, wherever the memory lies.
    ///
    /// # Errors
    ///
    /// The location is a NUMA node: [`Error::InvalidArgument`].
    #[doc(alias("cuMemAdvise", "CU_MEM_ADVISE_SET_ACCESSED_BY"))]
    pub fn add_accessed_by(&self, location: impl Into<Location>) -> Result<()> {
        self.range().add_accessed_by(&location.into())
    }

    /// Withdraws that advice. Does nothing for a location that was never advised.
    ///
    /// # Errors
    ///
    /// As [`add_accessed_by`](Self::add_accessed_by).
    #[doc(alias("cuMemAdvise", "CU_MEM_ADVISE_UNSET_ACCESSED_BY"))]
    pub fn remove_accessed_by(&self, location: impl Into<Location>) -> Result<()> {
        self.range().remove_accessed_by(&location.into())
    }

    /// The locations for which the memory stays mapped.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuMemRangeGetAttribute")]
    pub fn accessed_by(&self) -> Result<Vec<Location>> {
        self.range().accessed_by()
    }

    /// Moves the memory to a location, in stream order.
    ///
    /// # Errors
    ///
    /// The host has no such node; the driver is older than CUDA 12.2, which knows no nodes: [`Error::Unsupported`]; the
    /// device has no concurrent managed access.
    #[doc(alias = "cuMemPrefetchAsync")]
    pub fn prefetch(&self, location: impl Into<Location>) -> Result<()> {
        let location = location.into();
        if self.is_empty() {
            return Ok(());
        }
        self.in_order(|home| self.range().prefetch_on(&location, home))
    }

    /// The last prefetch target that the driver has processed. `None` if there is none, or if parts have different
    /// ones. Drivers before CUDA 12.2 report a NUMA node as the host.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuMemRangeGetAttribute")]
    pub fn last_prefetch_location(&self) -> Result<Option<Location>> {
        self.range().last_prefetch_location()
    }

    /// Drops the contents, in stream order. The memory holds arbitrary bytes until it is written, and belongs to the
    /// device without a move. If the CPU writes next, use [`discard_and_prefetch`](Self::discard_and_prefetch) with the
    /// host as target.
    ///
    /// The driver can also drop contents without a target. That is not used here: of later writes by both CPU and
    /// device, driver 580 loses some (docs/conformance.md).
    ///
    /// # Errors
    ///
    /// The driver is older than CUDA 13.0: [`Error::Unsupported`]. The home stream is the legacy default stream, which
    /// the driver refuses here: [`Error::InvalidArgument`]. Otherwise as [`prefetch`](Self::prefetch).
    #[doc(alias("cuMemDiscardBatchAsync", "cuMemDiscardAndPrefetchBatchAsync"))]
    pub fn discard(&mut self) -> Result<()>
    where
        T: AnyBitPattern,
    {
        let home = self.stream().clone();
        Self::discard_batch(&mut [self], &home)
    }

    /// Drops the contents and moves the memory, in stream order: later writes happen at the new location.
    ///
    /// # Errors
    ///
    /// As [`discard`](Self::discard) and [`prefetch`](Self::prefetch).
    #[doc(alias = "cuMemDiscardAndPrefetchBatchAsync")]
    pub fn discard_and_prefetch(&mut self, location: impl Into<Location>) -> Result<()>
    where
        T: AnyBitPattern,
    {
        let home = self.stream().clone();
        Self::discard_and_prefetch_batch(&mut [self], &[location.into()], &home)
    }

    /// Moves many buffers in one call, in order of `stream` and of their home streams: all to one location, or each to
    /// its own.
    ///
    /// # Errors
    ///
    /// The number of locations is neither 1 nor that of the buffers. Otherwise as [`prefetch`](Self::prefetch).
    #[doc(alias = "cuMemPrefetchBatchAsync")]
    pub fn prefetch_batch(buffers: &[&Self], locations: &[Location], stream: &Stream) -> Result<()> {
        let ranges: Vec<ManagedRange> = buffers.iter().map(|buffer| buffer.range()).collect();
        let batch = Batch::new("Buffer::prefetch_batch", &ranges, locations)?;
        batched(buffers.iter().copied(), stream, || batch.prefetch(stream))
    }

    /// Drops the contents of many buffers in one call, as [`discard`](Self::discard). The memory then belongs to the
    /// stream's device.
    ///
    /// # Errors
    ///
    /// As [`discard`](Self::discard).
    #[doc(alias("cuMemDiscardBatchAsync", "cuMemDiscardAndPrefetchBatchAsync"))]
    pub fn discard_batch(buffers: &mut [&mut Self], stream: &Stream) -> Result<()>
    where
        T: AnyBitPattern,
    {
        let device = Location::from(stream.context().device().clone());
        Self::discard_and_prefetch_batch(buffers, &[device], stream)
    }

    /// Drops the contents of many buffers and moves them, in one call: all to one location, or each to its own.
    ///
    /// # Errors
    ///
    /// As [`discard`](Self::discard) and [`prefetch_batch`](Self::prefetch_batch).
    #[doc(alias = "cuMemDiscardAndPrefetchBatchAsync")]
    pub fn discard_and_prefetch_batch(buffers: &mut [&mut Self], locations: &[Location], stream: &Stream) -> Result<()>
    where
        T: AnyBitPattern,
    {
        const CALL: &str = "Buffer::discard_and_prefetch_batch";
        check_discard(CALL, stream)?;
        let ranges: Vec<ManagedRange> = buffers.iter().map(|buffer| buffer.range()).collect();
        let batch = Batch::new(CALL, &ranges, locations)?;
        // SAFETY: the buffers are borrowed exclusively, and any bytes are values of `T`.
        batched(buffers.iter().map(|buffer| &**buffer), stream, || unsafe { batch.discard_and_prefetch(stream) })
    }

    fn range(&self) -> ManagedRange {
        // SAFETY: the memory is managed, lives as long as the buffer, and is freed after the work in stream order.
        unsafe { ManagedRange::new(self.context(), self.first_byte(), self.size()) }
    }
}

/// Runs `work`, which uses all buffers on `stream`: after their work so far, and before their later work.
fn batched<'buffers, T: 'buffers, A: Access>(
    buffers: impl Iterator<Item = &'buffers Buffer<T, kind::Managed, A>> + Clone,
    stream: &Stream,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let mut buffers = buffers.filter(|buffer| !buffer.is_empty()).peekable();
    if buffers.peek().is_none() {
        return Ok(());
    }
    buffers.clone().try_for_each(Buffer::prepare)?;
    let others = || buffers.clone().filter(|buffer| buffer.stream() != stream);
    others().try_for_each(|buffer| stream.order_work_after(buffer.stream()))?;
    // After an error, some of the work may be queued.
    let worked = work();
    let joined = others().try_for_each(|buffer| buffer.stream().order_work_after_or_wait(stream));
    buffers.clone().for_each(Buffer::mark_busy);
    worked.and(joined)
}
