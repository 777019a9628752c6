//! Access of views to buffers: as bytes, independent of element type and memory kind.

use super::holder::Hold;
use super::{Access, Buffer, SharedBuffer};
use crate::memory::resource::{Accessibility, Kind, SharedResource};
use crate::{Context, Result, Stream, memory::resource::kind::Any};
use cuda_sys::CUdeviceptr;

/// The buffer behind a view.
pub(crate) trait Viewed: Send + Sync {
    fn first_byte(&self) -> CUdeviceptr;
    /// Notes that others get the address.
    fn tell_address(&self);
    /// Null if the CPU cannot address the memory.
    fn host_pointer(&self) -> *mut u8;
    /// In bytes.
    fn size(&self) -> usize;
    fn stream(&self) -> &Stream;
    fn context(&self) -> &Context;
    fn resource(&self) -> Option<&SharedResource>;
    fn accessibility(&self) -> Accessibility;
    /// Whether nobody may write the memory.
    fn is_read_only(&self) -> bool;
    fn device_ordinal(&self) -> Option<i32>;
    /// Called before device work: flushes the writes of forgotten guards, and makes the home stream wait for the reads of other
    /// streams.
    fn prepare(&self) -> Result<()>;
    /// Records device work on the home stream, or for which that stream waits.
    fn mark_busy(&self);
    /// Records that another library may queue work on the home stream until [`take_back`](Self::take_back). Until then,
    /// every access of the CPU waits for that stream. Whether there was room for one more.
    #[cfg(feature = "cudarc")]
    fn lend(&self) -> bool;
    /// Ends what [`lend`](Self::lend) began.
    #[cfg(feature = "cudarc")]
    fn take_back(&self);
    /// Waits for the device work, if there may be any.
    fn settle(&self) -> Result<()>;
    /// Prepares a range within the buffer for CPU writes. Returns a value for `end_write`.
    ///
    /// # Safety
    ///
    /// As [`MemoryResource::begin_write`](crate::memory::resource::MemoryResource::begin_write).
    unsafe fn begin_write(&self, start: *mut u8, length: usize) -> Result<bool>;
    /// Prepares a range within the buffer for writes by a guard, which the program may forget. Returns a value for
    /// `end_write`.
    ///
    /// # Safety
    ///
    /// As [`begin_write`](Self::begin_write).
    unsafe fn begin_guard(&self, start: *mut u8, length: usize) -> Result<bool>;
    /// Flushes the writes that `begin_write` began.
    fn end_write(&self, start: *mut u8, length: usize, remembered: bool) -> Result<()>;
}

impl<T, K: Kind, A: Access> Viewed for Buffer<T, K, A> {
    fn first_byte(&self) -> CUdeviceptr {
        self.first_byte()
    }

    fn tell_address(&self) {
        self.tell_address();
    }

    fn host_pointer(&self) -> *mut u8 {
        self.host_address().cast()
    }

    fn size(&self) -> usize {
        self.size()
    }

    fn stream(&self) -> &Stream {
        self.stream()
    }

    fn context(&self) -> &Context {
        self.context()
    }

    fn resource(&self) -> Option<&SharedResource> {
        self.resource()
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only()
    }

    fn accessibility(&self) -> Accessibility {
        self.accessibility()
    }

    fn device_ordinal(&self) -> Option<i32> {
        self.device_ordinal()
    }

    fn prepare(&self) -> Result<()> {
        self.prepare()
    }

    fn mark_busy(&self) {
        self.mark_busy();
    }

    #[cfg(feature = "cudarc")]
    fn lend(&self) -> bool {
        self.work.lend()
    }

    #[cfg(feature = "cudarc")]
    fn take_back(&self) {
        self.work.take_back();
        self.mark_again();
    }

    fn settle(&self) -> Result<()> {
        self.settle().map(drop)
    }

    unsafe fn begin_write(&self, start: *mut u8, length: usize) -> Result<bool> {
        // SAFETY: this function's contract.
        unsafe { self.hold.allocation().begin_write(start, length) }
    }

    unsafe fn begin_guard(&self, start: *mut u8, length: usize) -> Result<bool> {
        // SAFETY: this function's contract.
        unsafe { self.hold.allocation().begin_guard(start, length) }
    }

    fn end_write(&self, start: *mut u8, length: usize, remembered: bool) -> Result<()> {
        self.hold.allocation().end_write(start, length, remembered)
    }
}

impl<T, K: Kind> SharedBuffer<T, K> {
    /// The same bytes, without element type and kind.
    pub(crate) fn into_bytes(self) -> SharedBuffer<u8, Any> {
        let size = self.size();
        Buffer::from_hold(self.hold, self.offset, size)
    }
}
