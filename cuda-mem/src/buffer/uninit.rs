//! Memory that has no value yet.

use super::{Access, Buffer};
use crate::Result;
use crate::resource::Kind;
use bytemuck::NoUninit;
use core::mem::MaybeUninit;

impl<T, K: Kind, A: Access> Buffer<MaybeUninit<T>, K, A> {
    /// Says that every element has a value: kernels, or copies, have written it or will have, in order of the home
    /// stream.
    ///
    /// # Safety
    ///
    /// As for [`MaybeUninit::assume_init`], when later work of the buffer reads it.
    pub unsafe fn assume_init(self) -> Buffer<T, K, A> {
        Buffer::from_hold(self.hold, self.offset, self.length)
    }
}

impl<T, K: Kind> Buffer<MaybeUninit<T>, K> {
    /// Gives every element a value by copying a slice of the same length. A buffer that is shared has clones, which could
    /// take the values away again; so this one must be exclusive.
    ///
    /// # Errors
    ///
    /// The slice is shorter or longer; the copy failed. The memory is freed.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// let buffer = Buffer::<u16, _>::uninit(&memory, 3, &stream)?.init_from_slice(&[1, 2, 3])?;
    /// assert_eq!(buffer.to_vec()?, [1, 2, 3]);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn init_from_slice(self, source: &[T]) -> Result<Buffer<T, K>>
    where
        T: NoUninit,
    {
        self.check_same_length("Buffer::init_from_slice", source.len())?;
        // SAFETY: no operation reads the elements before the copy has written all of them; where it fails, the buffer
        // ends here.
        let mut buffer = unsafe { self.assume_init() };
        buffer.copy_from_slice(0, source)?;
        Ok(buffer)
    }
}
