//! For bindings to other languages, which keep each buffer in place: a move costs more than a pool's allocation.

use super::Buffer;
use super::holder::{AllocationHolder, Hold};
use crate::memory::resource::{Kind, ResourceHandle};
use crate::{Result, Stream};

impl<T, K: Kind> Buffer<T, K> {
    /// Combines [`uninit`](Self::uninit) and [`assume_init`](Buffer::assume_init).
    ///
    /// # Errors
    ///
    /// As [`uninit`](Self::uninit).
    ///
    /// # Safety
    ///
    /// As [`assume_init`](Buffer::assume_init).
    #[inline]
    pub unsafe fn uninit_assumed<R>(resource: &R, length: usize, stream: &Stream) -> Result<Self>
    where
        R: ResourceHandle<Kind = K> + ?Sized,
    {
        const { assert!(size_of::<T>() != 0, "the elements of a buffer must not be zero-sized") };
        Self::allocate_from(resource, length, stream)
    }

    /// Marks the end of the work that the CPU must wait for before it accesses the memory: that of the buffer so far, and
    /// that of the memory's former owner. A later [`into_shared`](Buffer::into_shared) waits for no work that the program
    /// queues by itself after this. For bindings that hand out an address and share the memory only when the CPU first
    /// accesses it. Does nothing for memory that the CPU cannot address.
    ///
    /// # Errors
    ///
    /// The home stream captures.
    #[inline]
    pub fn mark_work(&self) -> Result<()> {
        if self.hold.allocation().block.is_on_cpu() { self.mark() } else { Ok(()) }
    }

    /// Frees the memory in order of the home stream and returns errors, as [`close`](Self::close) does, but does not
    /// take the buffer. The caller must still drop it.
    ///
    /// # Errors
    ///
    /// As every call of the driver; the buffer is unchanged then.
    ///
    /// # Safety
    ///
    /// After a success the caller only drops the buffer.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// let mut place = [Buffer::from_slice(&memory, &[1u8, 2], &stream)?];
    /// // SAFETY: the buffer is only dropped after this.
    /// unsafe { place[0].close_in_place() }?;
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    #[inline]
    pub unsafe fn close_in_place(&mut self) -> Result<()> {
        match &mut self.hold {
            AllocationHolder::Whole(allocation) => allocation.end(),
            AllocationHolder::Part(_) => Ok(()),
        }
    }
}
