//! The memory that a view looks at.

use crate::borrowed::Borrowed;
use crate::buffer::{SharedBuffer, Viewed};
use crate::context::ForeignOwner;
use crate::resource::{Accessibility, SharedResource, kind::Any};
use crate::{Context, Result, Stream};
use core::marker::PhantomData;

/// The memory of a view: a range of bytes, with what is to be known about its use.
#[derive(Clone)]
pub(super) enum Memory<'memory> {
    /// A buffer that is borrowed.
    Borrowed(&'memory dyn Viewed),
    /// A buffer whose ownership is shared.
    Shared(SharedBuffer<u8, Any>),
    /// Memory of the CPU that the driver does not know.
    Host(HostMemory<'memory>),
}

/// Memory of the CPU: of a slice, or of another library.
#[derive(Clone)]
pub(super) struct HostMemory<'memory> {
    pub start: *mut u8,
    pub size: usize,
    /// Keeps the memory alive, where it is not borrowed.
    pub owner: Option<ForeignOwner>,
    pub borrow: PhantomData<&'memory ()>,
}

// SAFETY: an address; who may follow it, and when, is the view's care, as with a slice's elements, which are plain data.
unsafe impl Send for HostMemory<'_> {}
// SAFETY: as above.
unsafe impl Sync for HostMemory<'_> {}

impl Memory<'_> {
    /// The buffer, where there is one.
    pub fn buffer(&self) -> Option<&dyn Viewed> {
        match self {
            Memory::Borrowed(buffer) => Some(*buffer),
            Memory::Shared(buffer) => Some(buffer),
            Memory::Host(_) => None,
        }
    }

    /// Whether it is a slice's, which nobody else writes.
    pub fn is_slice(&self) -> bool {
        matches!(self, Memory::Host(HostMemory { owner: None, .. }))
    }

    /// The memory for a shorter time.
    pub fn reborrow(&self) -> Memory<'_> {
        self.clone()
    }

    /// Where it begins: for kernels and for the driver's copies; of the CPU's memory, its address there.
    pub fn address(&self) -> u64 {
        match self {
            Memory::Host(host) => host.start.expose_provenance() as u64,
            _ => self.buffer().map_or(0, Viewed::device_pointer),
        }
    }

    /// Where it begins for the CPU; null where it does not address the memory.
    pub fn host_pointer(&self) -> *mut u8 {
        match self {
            Memory::Host(host) => host.start,
            _ => self.buffer().map_or(core::ptr::null_mut(), Viewed::host_pointer),
        }
    }

    /// In bytes.
    pub fn size(&self) -> usize {
        match self {
            Memory::Host(host) => host.size,
            _ => self.buffer().map_or(0, Viewed::size),
        }
    }

    pub fn accessibility(&self) -> Accessibility {
        self.buffer().map_or(Accessibility::HOST, Viewed::accessibility)
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

    /// Lends a slice to a copy, which is done when the value ends.
    pub fn lend(&self, write: bool) -> Borrowed {
        match self {
            Memory::Host(HostMemory { start, size, owner: None, .. }) if write => {
                Borrowed::lent_to_write(*start, *size)
            }
            Memory::Host(HostMemory { start, size, owner: None, .. }) => Borrowed::lent(*start, *size),
            _ => Borrowed::default(),
        }
    }

    /// Posts what forgotten guards wrote, before device work.
    pub fn post_forgotten(&self) -> Result<()> {
        self.buffer().map_or(Ok(()), Viewed::post_forgotten)
    }

    /// Tells the memory of work given to `stream` so far.
    pub fn record_use(&self, stream: &Stream) -> Result<()> {
        let Some(buffer) = self.buffer() else { return Ok(()) };
        let ordered = buffer.stream().follow(stream);
        buffer.mark_busy();
        ordered
    }

    /// Orders the memory's later work, and its end, after work that has begun on `stream`.
    pub fn follow_work(&self, stream: &Stream) -> Result<()> {
        let Some(buffer) = self.buffer() else { return Ok(()) };
        let ordered = buffer.stream().follow_work(stream);
        buffer.mark_busy();
        ordered
    }

    /// Waits for the device work, so that the CPU may read a range, which begins at `start` of this memory.
    pub fn fetch(&self, start: usize, length: usize) -> Result<()> {
        let Some(buffer) = self.buffer() else { return Ok(()) };
        self.settle(buffer)?;
        match self.resource() {
            Some(resource) if length != 0 => {
                // SAFETY: the view has borrowed the memory exclusively, or others share it, of which nobody has a reference.
                unsafe { resource.invalidate(self.host_pointer().wrapping_add(start), length) }
            }
            _ => Ok(()),
        }
    }

    /// Waits for the device work, so that the CPU may write a range. Gives what [`end_write`](Self::end_write) needs.
    pub fn begin_write(&self, start: usize, length: usize) -> Result<bool> {
        let Some(buffer) = self.buffer() else { return Ok(false) };
        self.settle(buffer)?;
        // SAFETY: as in `fetch`.
        unsafe { buffer.begin_write(self.host_pointer().wrapping_add(start), length) }
    }

    fn settle(&self, buffer: &dyn Viewed) -> Result<()> {
        match self {
            // Others' work is not noted in this value.
            Memory::Shared(_) => buffer.stream().synchronize(),
            _ => buffer.settle(),
        }
    }

    /// Shows a range that the CPU has written to device work from now on.
    pub fn end_write(&self, start: usize, length: usize, remembered: bool) -> Result<()> {
        let Some(buffer) = self.buffer() else { return Ok(()) };
        buffer.end_write(self.host_pointer().wrapping_add(start), length, remembered)
    }
}
