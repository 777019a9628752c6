//! The memory of a view.

use crate::buffer::{SharedBuffer, Viewed};
use crate::cpu::borrowed::Borrowed;
use crate::driver::context::ForeignOwner;
use crate::memory::resource::{Accessibility, SharedResource, kind::Any};
use crate::{Context, Result, Stream};
use core::marker::PhantomData;

/// The memory of a view: a range of bytes, and the owner that orders work on it.
#[derive(Clone)]
pub(super) enum ViewMemory<'memory> {
    /// A borrowed buffer.
    Borrowed(&'memory dyn Viewed),
    /// A buffer with shared ownership.
    Shared(SharedBuffer<u8, Any>),
    /// CPU memory that the driver does not know.
    Host(HostMemory<'memory>),
}

/// CPU memory of a slice or of another library.
#[derive(Clone)]
pub(super) struct HostMemory<'memory> {
    pub start: *mut u8,
    pub size: usize,
    /// Keeps another library's memory alive. `None` for a borrowed slice.
    pub owner: Option<ForeignOwner>,
    pub borrow: PhantomData<&'memory ()>,
}

// SAFETY: this is an address of plain data. The view controls who dereferences it, and when, as a slice does.
unsafe impl Send for HostMemory<'_> {}
// SAFETY: as above.
unsafe impl Sync for HostMemory<'_> {}

impl ViewMemory<'_> {
    /// The buffer, if the memory belongs to one.
    pub fn buffer(&self) -> Option<&dyn Viewed> {
        match self {
            ViewMemory::Borrowed(buffer) => Some(*buffer),
            ViewMemory::Shared(buffer) => Some(buffer),
            ViewMemory::Host(_) => None,
        }
    }

    /// Whether the memory is a borrowed slice, which nobody else writes.
    pub fn is_slice(&self) -> bool {
        matches!(self, ViewMemory::Host(HostMemory { owner: None, .. }))
    }

    /// The same memory, borrowed for a shorter time.
    pub fn reborrow(&self) -> ViewMemory<'_> {
        self.clone()
    }

    /// The first byte's address for kernels and driver copies; the CPU address if the driver does not know the memory.
    pub fn address(&self) -> u64 {
        match self {
            ViewMemory::Host(host) => host.start.expose_provenance() as u64,
            _ => self.buffer().map_or(0, Viewed::first_byte),
        }
    }

    /// The first byte's address for the CPU; null if the CPU cannot address the memory.
    pub fn host_pointer(&self) -> *mut u8 {
        match self {
            ViewMemory::Host(host) => host.start,
            _ => self.buffer().map_or(core::ptr::null_mut(), Viewed::host_pointer),
        }
    }

    /// In bytes.
    pub fn size(&self) -> usize {
        match self {
            ViewMemory::Host(host) => host.size,
            _ => self.buffer().map_or(0, Viewed::size),
        }
    }

    pub fn accessibility(&self) -> Accessibility {
        self.buffer().map_or(Accessibility::HOST, Viewed::accessibility)
    }

    /// Whether nobody may write the memory.
    pub fn is_read_only(&self) -> bool {
        self.buffer().is_some_and(Viewed::is_read_only)
    }

    pub fn device_ordinal(&self) -> Option<i32> {
        self.buffer().and_then(Viewed::device_ordinal)
    }

    pub fn stream(&self) -> Option<&Stream> {
        self.buffer().map(Viewed::stream)
    }

    pub fn context(&self) -> Option<&Context> {
        self.buffer().map(Viewed::context)
    }

    fn resource(&self) -> Option<&SharedResource> {
        self.buffer().and_then(Viewed::resource)
    }

    /// Lends a slice to a copy, which must be complete before the returned value is dropped.
    pub fn lend(&self, write: bool) -> Borrowed {
        match self {
            ViewMemory::Host(HostMemory { start, size, owner: None, .. }) if write => {
                Borrowed::lent_to_write(*start, *size)
            }
            ViewMemory::Host(HostMemory { start, size, owner: None, .. }) => Borrowed::lent(*start, *size),
            _ => Borrowed::default(),
        }
    }

    /// Notes that others get the address.
    pub fn tell_address(&self) {
        if let Some(buffer) = self.buffer() {
            buffer.tell_address();
        }
    }

    /// Call this before device work: flushes the writes of forgotten guards, and makes the home stream wait for the reads of
    /// other streams.
    pub fn prepare(&self) -> Result<()> {
        self.buffer().map_or(Ok(()), Viewed::prepare)
    }

    /// Records that work queued on `stream` uses this memory.
    pub fn record_use(&self, stream: &Stream) -> Result<()> {
        let Some(buffer) = self.buffer() else { return Ok(()) };
        let ordered = buffer.stream().order_after(stream);
        buffer.mark_busy();
        ordered
    }

    /// Orders later work on the memory, and its free, after work already queued on `stream`.
    pub fn order_work_after_or_wait(&self, stream: &Stream) -> Result<()> {
        let Some(buffer) = self.buffer() else { return Ok(()) };
        let ordered = buffer.stream().order_work_after_or_wait(stream);
        buffer.mark_busy();
        ordered
    }

    /// Waits for device work, so that the CPU may read a range. `start` counts from the memory's first byte.
    pub fn fetch(&self, start: usize, length: usize) -> Result<()> {
        let Some(buffer) = self.buffer() else { return Ok(()) };
        self.settle(buffer)?;
        match self.resource() {
            Some(resource) if length != 0 => {
                // SAFETY: the view borrows the memory exclusively, or it is shared and nobody holds a reference to it.
                unsafe { resource.invalidate(self.host_pointer().wrapping_add(start), length) }
            }
            _ => Ok(()),
        }
    }

    /// Waits for device work, so that the CPU may write a range. Returns a value for [`end_write`](Self::end_write).
    pub fn begin_write(&self, start: usize, length: usize) -> Result<bool> {
        let Some(buffer) = self.buffer() else { return Ok(false) };
        self.settle(buffer)?;
        // SAFETY: as in `fetch`.
        unsafe { buffer.begin_write(self.host_pointer().wrapping_add(start), length) }
    }

    /// Waits for device work, so that a guard may write a range. The program may forget the guard. Returns a value for
    /// [`end_write`](Self::end_write).
    pub fn begin_guard(&self, start: usize, length: usize) -> Result<bool> {
        let Some(buffer) = self.buffer() else { return Ok(false) };
        self.settle(buffer)?;
        // SAFETY: as in `fetch`.
        unsafe { buffer.begin_guard(self.host_pointer().wrapping_add(start), length) }
    }

    fn settle(&self, buffer: &dyn Viewed) -> Result<()> {
        match self {
            // Other owners' work may be missing from this owner's record.
            ViewMemory::Shared(_) => buffer.stream().synchronize().and_then(|()| buffer.settle()),
            _ => buffer.settle(),
        }
    }

    /// Makes a range that the CPU has written visible to later device work.
    pub fn end_write(&self, start: usize, length: usize, remembered: bool) -> Result<()> {
        let Some(buffer) = self.buffer() else { return Ok(()) };
        buffer.end_write(self.host_pointer().wrapping_add(start), length, remembered)
    }
}
