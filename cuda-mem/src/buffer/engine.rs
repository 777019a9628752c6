//! Buffers for the copies of a copy engine.

use super::holder::Hold;
use super::memory::Place;
use super::{Access, Buffer, CpuReady};
use crate::error::check_not_forked;
use crate::memory::asleep;
use crate::memory::resource::Kind;
use crate::{Result, Stream};

impl<T, K: Kind, A: Access> Buffer<T, K, A> {
    /// The range of `count` elements from `offset` on.
    pub(crate) fn place(&self, call: &'static str, offset: usize, count: usize) -> Result<Place<'_>> {
        check_not_forked(call)?;
        let range = self.span(call, offset, count)?;
        asleep::check(call, self.context().driver(), self.first_byte())?;
        self.hold.allocation().order.after_reads(self.stream(), &self.bytes_of_allocation(range.clone()));
        let host = self.host_address();
        Ok(Place {
            context: self.context(),
            device: self.address(range.start),
            host: if host.is_null() { host.cast() } else { host.wrapping_add(range.start).cast() },
            size: range.len() * size_of::<T>(),
            memory: self.hold.allocation().block.kind(),
            home: self.stream(),
        })
    }

    /// Stores bytes, and flushes them.
    pub(crate) fn store_at(&self, ready: CpuReady<'_>, place: &Place<'_>, source: &[u8]) -> Result<()> {
        // SAFETY: the place lies within the buffer, whose memory the CPU may address. The engine has exclusive access, or
        // the memory is shared and has no slices.
        unsafe { self.hold.allocation().store(ready, place.host, &source[..source.len().min(place.size)]) }
    }

    /// Loads bytes after an invalidate.
    pub(crate) fn load_at(&self, ready: CpuReady<'_>, place: &Place<'_>, destination: &mut [u8]) -> Result<()> {
        let length = destination.len().min(place.size);
        // SAFETY: as above; the device work is done.
        unsafe { self.hold.allocation().load(ready, place.host, destination.as_mut_ptr(), length) }
    }

    /// Prepares non-coherent memory for device work: flushes only unflushed CPU writes, so that it overwrites no device
    /// writes.
    pub(crate) fn hand_over(&self, place: &Place<'_>) -> Result<()> {
        match self.resource() {
            // SAFETY: the engine has exclusive access, or the memory is shared and nobody has a reference to it.
            Some(resource) if place.size > 0 => unsafe { resource.invalidate(place.host, place.size) },
            _ => Ok(()),
        }
    }

    /// Makes later work on `stream` wait for the device work on the memory.
    pub(crate) fn order_before(&self, stream: &Stream) -> Result<()> {
        stream.order_after(self.stream())
    }

    /// Makes later work on the memory, and its free, wait for the work queued on `stream` so far.
    pub(crate) fn order_after(&self, stream: &Stream) -> Result<()> {
        let ordered = self.stream().order_work_after_or_wait(stream);
        self.mark_busy();
        ordered
    }

    /// Whether no device work on the memory is in progress.
    pub(crate) fn is_idle(&self) -> Result<bool> {
        self.stream().is_done()
    }
}
