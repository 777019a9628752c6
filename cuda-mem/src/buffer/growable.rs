//! Buffers that grow.

use crate::memory::resource::{
    ResourceHandle,
    kind::{self, Kind},
};
use crate::memory::virtual_memory::round_up;
use crate::memory::{Growth, VirtualMemory};
use crate::{Buffer, Error, Result, Stream};
use bytemuck::Zeroable;
use core::fmt;
use core::ops::{Deref, DerefMut};

/// A buffer of [virtual memory](VirtualMemory) that grows and shrinks without copies. It reserves addresses for its
/// capacity in advance, and maps physical memory there as it grows. Its address stays the same up to the capacity.
/// Beyond that, the same physical memory is mapped at a larger range of addresses.
///
/// It dereferences to a [`Buffer`].
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// use cuda_mem::Stream;
/// use cuda_mem::buffer::GrowableBuffer;
/// use cuda_mem::memory::{Growth, VirtualMemory, VirtualOptions};
/// let stream = Stream::new(&context)?;
/// let memory = VirtualMemory::new(&context, &VirtualOptions::default())?;
///
/// let mut keys = GrowableBuffer::<u64>::with_capacity(&memory, 1 << 20, &stream)?;
/// assert_eq!(keys.grow_to(1000)?, Growth::InPlace);
/// keys.copy_from_slice(0, &[1, 2, 3])?;
/// let address = keys.device_pointer();
/// assert_eq!(keys.grow_to(1 << 20)?, Growth::InPlace);
/// assert_eq!(keys.device_pointer(), address);
/// assert_eq!(keys.grow_to(2 << 20)?, Growth::Moved); // the capacity was 1 << 20
/// assert_eq!(keys.to_vec()?[..4], [1, 2, 3, 0]);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct GrowableBuffer<T, K: Kind = kind::Device> {
    // The resource's table holds the mapping of the buffer's block. If a caller replaces the buffer through `DerefMut`,
    // that other buffer's own memory grows, or the call is refused.
    buffer: Buffer<T, K>,
    memory: VirtualMemory<K>,
}

impl<T, K: Kind> GrowableBuffer<T, K> {
    /// Reserves addresses for at least `capacity` elements. The buffer has no elements and no physical memory yet.
    /// `stream` becomes the home stream.
    ///
    /// # Errors
    ///
    /// There are not enough addresses: [`Error::OutOfMemory`]. The size overflows. The stream cannot be the home of the
    /// resource's memory.
    #[doc(alias = "cuMemAddressReserve")]
    pub fn with_capacity(memory: &VirtualMemory<K>, capacity: usize, stream: &Stream) -> Result<Self> {
        const CALL: &str = "GrowableBuffer::with_capacity";
        let size = bytes::<T>(CALL, "capacity", capacity)?.max(1);
        let inner = &memory.inner;
        let size = round_up(CALL, size, inner.granularity())?;
        let block = inner.keep(inner.reserve(CALL, size, align_of::<T>())?);
        // SAFETY: the block is new and belongs to the resource, and there are no elements.
        match unsafe { Buffer::of_own_block(block, memory, 0, stream) } {
            Ok(buffer) => Ok(Self { buffer, memory: memory.clone() }),
            Err(error) => {
                drop(inner.take(CALL, block));
                Err(error)
            }
        }
    }

    /// Grows to `length` elements. The new elements are zeros, written in order of the home stream. Waits for the home
    /// stream only if the memory moves. Does nothing if there are as many elements already.
    ///
    /// # Errors
    ///
    /// There is not enough memory: [`Error::OutOfMemory`]. The size overflows. The home stream captures, or its work
    /// failed. The buffer is unchanged then.
    #[doc(alias("cuMemCreate", "cuMemMap"))]
    pub fn grow_to(&mut self, length: usize) -> Result<Growth>
    where
        T: Zeroable,
    {
        const CALL: &str = "GrowableBuffer::grow_to";
        if length <= self.buffer.len() {
            return Ok(Growth::InPlace);
        }
        let new = self.buffer.size()..bytes::<T>(CALL, "length", length)?;
        let (inner, owner) = (&self.memory.inner, self.memory.share());
        // SAFETY: the returned block contains the same memory and more, of the same resource. The new elements are
        // zeros, which are values of `T`, before any later work of the buffer reads them.
        unsafe {
            self.buffer
                .exchange_block(CALL, &owner, length, |block, home| inner.grow(CALL, block, align_of::<T>(), new, home))
        }
    }

    /// Shrinks to `length` elements. Waits for the home stream, then returns those chunks of physical memory to the
    /// system that hold no elements any more. The addresses stay reserved. Does nothing if there are no more elements.
    ///
    /// # Errors
    ///
    /// Work of the home stream failed. The buffer is unchanged then.
    #[doc(alias = "cuMemUnmap")]
    pub fn shrink_to(&mut self, length: usize) -> Result<()> {
        const CALL: &str = "GrowableBuffer::shrink_to";
        if length >= self.buffer.len() {
            return Ok(());
        }
        let size = length * size_of::<T>();
        let (inner, owner) = (&self.memory.inner, self.memory.share());
        let shrink = |block, home: &Stream| Ok((inner.shrink(CALL, block, size, home)?, ()));
        // SAFETY: the returned block is the same memory, with at least `length` elements.
        unsafe { self.buffer.exchange_block(CALL, &owner, length, shrink) }
    }

    /// The number of elements for which addresses are reserved. Growth up to this number does not move the memory.
    pub fn capacity(&self) -> usize {
        self.memory.inner.extent(self.buffer.first_byte()).0 / size_of::<T>()
    }

    /// The size of the physical memory in bytes.
    pub fn physical_size(&self) -> usize {
        self.memory.inner.extent(self.buffer.first_byte()).1
    }

    /// The source of the memory.
    pub fn memory(&self) -> &VirtualMemory<K> {
        &self.memory
    }

    /// Converts to the plain buffer, which can no longer grow.
    pub fn into_buffer(self) -> Buffer<T, K> {
        self.buffer
    }
}

/// The size of `length` elements in bytes.
fn bytes<T>(call: &'static str, argument: &'static str, length: usize) -> Result<usize> {
    let size = length.checked_mul(size_of::<T>()).filter(|size| *size <= isize::MAX as usize);
    size.ok_or_else(|| {
        let rule = "the size in bytes must fit into isize";
        Error::invalid(call, argument, format_args!("{length} elements of {} bytes", size_of::<T>()), rule)
    })
}

impl<T, K: Kind> Deref for GrowableBuffer<T, K> {
    type Target = Buffer<T, K>;

    fn deref(&self) -> &Buffer<T, K> {
        &self.buffer
    }
}

impl<T, K: Kind> DerefMut for GrowableBuffer<T, K> {
    fn deref_mut(&mut self) -> &mut Buffer<T, K> {
        &mut self.buffer
    }
}

impl<T, K: Kind> fmt::Debug for GrowableBuffer<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrowableBuffer").field("buffer", &self.buffer).field("memory", &self.memory).finish()
    }
}
