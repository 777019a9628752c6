//! Uploads through a ring.

use super::RingPool;
use crate::buffer::{Access, Buffer};
use crate::cpu::host_copy;
use crate::error::range::span_elements;
use crate::memory::resource::{HostAccessible, Kind};
use crate::{Error, Result};
use bytemuck::NoUninit;

impl<K: HostAccessible> RingPool<K> {
    /// Copies a slice to the elements of a buffer from `offset` on, in order of the buffer's stream. Returns as soon as
    /// the ring holds the slice. The caller may then change the slice while the copy to the buffer continues.
    ///
    /// Copies larger slices in pieces of half of the ring, so that the CPU fills one piece while the driver copies
    /// another.
    ///
    /// # Errors
    ///
    /// The slice does not fit at `offset`; an element is larger than half of the ring; the ring is full, and does not
    /// or cannot wait ([`Error::OutOfMemory`]). Pieces before a failed piece are copied.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// # use cuda_mem::{Buffer, memory::{DeviceMemory, PinnedMemory}, pool::{RingPool, RingOptions}};
    /// let staging = RingPool::new(&PinnedMemory::new(&context), 4096, &RingOptions::default())?;
    /// let mut buffer = Buffer::<u32, _>::zeroed(&DeviceMemory::new(&context), 100_000, &stream)?;
    /// let mut numbers: Vec<u32> = (0..100_000).collect();
    /// staging.upload(&mut buffer, 0, &numbers)?;
    /// numbers.fill(0);
    /// assert_eq!(buffer.to_vec()?[99_999], 99_999);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    #[doc(alias = "cuMemcpyHtoDAsync")]
    pub fn upload<T, L, A>(&self, destination: &mut Buffer<T, L, A>, offset: usize, source: &[T]) -> Result<()>
    where
        T: NoUninit,
        L: Kind,
        A: Access,
    {
        const CALL: &str = "RingPool::upload";
        let mut at = span_elements(CALL, offset, source.len(), destination.len(), size_of::<T>())?.start;
        let piece = self.capacity() / 2 / size_of::<T>();
        if piece == 0 {
            let rule = "it must not exceed half of the ring";
            return Err(Error::invalid(CALL, "the element's size", format_args!("{} bytes", size_of::<T>()), rule));
        }
        for piece in source.chunks(piece) {
            let staged = self.stage(piece, destination)?;
            destination.copy_from_buffer(at, &staged, ..)?;
            at += piece.len();
        }
        Ok(())
    }

    /// Copies a slice into a block of the ring, with the home stream of `like`.
    fn stage<T, L, A>(&self, piece: &[T], like: &Buffer<T, L, A>) -> Result<Buffer<T, K>>
    where
        T: NoUninit,
        L: Kind,
        A: Access,
    {
        let staged = Buffer::<T, K>::uninit(self, piece.len(), like.stream())?;
        let (start, size) = (staged.host_pointer().cast::<u8>(), size_of_val(piece));
        // SAFETY: the block has this size and no other owner, and the ring hands out blocks only when the work of their
        // former users is done.
        unsafe { host_copy::store(piece.as_ptr().cast(), start, size) };
        staged.flush_bytes(start, size)?;
        // SAFETY: every element was written.
        Ok(unsafe { staged.assume_init() })
    }
}
