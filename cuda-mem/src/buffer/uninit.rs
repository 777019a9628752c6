//! Uninitialized buffers.

use super::holder::Hold;
use super::{Access, Buffer};
use crate::Result;
use crate::memory::resource::{Kind, PendingUse};
use bytemuck::NoUninit;
use core::mem::MaybeUninit;

impl<T, K: Kind, A: Access> Buffer<MaybeUninit<T>, K, A> {
    /// Asserts that kernels or copies initialize every element: already, or later in order of the home stream.
    ///
    /// # Safety
    ///
    /// As for [`MaybeUninit::assume_init`], when later work of the buffer reads the elements.
    pub unsafe fn assume_init(self) -> Buffer<T, K, A> {
        Buffer::with_work(self.hold, self.offset, self.length, self.work)
    }
}

impl<T, K: Kind> Buffer<MaybeUninit<T>, K> {
    /// Initializes every element by work that is queued on the home stream now. A capture would only record it, so then
    /// the buffer would be uninitialized; memory of the graph itself is initialized at each launch.
    ///
    /// # Errors
    ///
    /// The home stream captures ([`Error::Capturing`](crate::Error::Capturing)); `work` fails. Either frees the memory.
    ///
    /// # Safety
    ///
    /// `work` queues work that makes every element a value of `T`, and reads none before.
    pub(crate) unsafe fn initialised_by(
        self,
        call: &'static str,
        work: impl FnOnce(&mut Buffer<T, K>) -> Result<()>,
    ) -> Result<Buffer<T, K>> {
        let (former, home) = (self.hold.allocation().block.pending_use(), self.stream().clone());
        let running = if former == PendingUse::InGraph { None } else { Some(home.running(call)?) };
        // SAFETY: this function's contract; the stream does the work.
        let mut buffer = unsafe { self.assume_init() };
        let worked = work(&mut buffer);
        drop(running);
        worked.map(|()| buffer)
    }

    /// Initializes every element with a copy of a slice of the same length. The buffer must be exclusive: clones of a
    /// shared one could make elements uninitialized again.
    ///
    /// # Errors
    ///
    /// The slice is shorter or longer; the copy failed. Either frees the memory.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
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
        // SAFETY: nothing reads the elements before the copy has written all of them; if the copy fails, the buffer is
        // dropped here.
        let mut buffer = unsafe { self.assume_init() };
        buffer.copy_from_slice(0, source)?;
        Ok(buffer)
    }
}
