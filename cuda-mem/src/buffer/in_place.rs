//! For bindings to other languages, whose buffers stay in one place: moving one costs more than a pool's allocation.

use super::Buffer;
use super::allocation::Hold;
use crate::resource::{Kind, ResourceHandle};
use crate::{Result, Stream};

impl<T, K: Kind> Buffer<T, K> {
    /// [`uninit`](Self::uninit) and [`assume_init`](Buffer::assume_init) in one.
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
        const { assert!(size_of::<T>() != 0, "an element of a buffer has a size") };
        Self::allocate(resource.share(), length, stream)
    }

    /// As [`close`](Self::close), without moving the buffer, which stays to be dropped.
    ///
    /// # Errors
    ///
    /// The driver refuses; the buffer is as it was.
    ///
    /// # Safety
    ///
    /// After a success the buffer is dropped, and nothing else is done with it.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// let mut place = [Buffer::from_slice(&memory, &[1u8, 2], &stream)?];
    /// // SAFETY: the place ends here.
    /// unsafe { place[0].close_in_place() }?;
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    #[inline]
    pub unsafe fn close_in_place(&mut self) -> Result<()> {
        match &mut self.hold {
            Hold::Whole(allocation) => allocation.end(),
            Hold::Part(_) => Ok(()),
        }
    }
}
