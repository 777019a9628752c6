//! Single words of memory that others use at the same time.

use crate::memory::resource::{Kind, kind::Any};
use crate::{Error, Result, SharedBuffer, cpu::host_copy};
use bytemuck::{AnyBitPattern, NoUninit};
use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::{Ordering, fence};
use cuda_sys::CUdeviceptr;

mod sealed {
    pub trait Sealed {}
}

/// A number that one load reads and one store writes.
pub trait SharedWord: sealed::Sealed + NoUninit + AnyBitPattern {}

macro_rules! shared_words {
    ($($word:ty)*) => { $(
        impl sealed::Sealed for $word {}
        impl SharedWord for $word {}
    )* };
}
shared_words!(u8 i8 u16 i16 u32 i32 f32 u64 i64 f64);

/// One word of shared memory. A load is a single access, and so is a store: neither is torn, repeated or dropped.
///
/// There are no read-modify-write operations: over PCIe they would not be atomic towards the device. On non-coherent
/// memory a load invalidates the word's atom and a store flushes it, so keep words that the CPU writes and words that
/// the device writes in different atoms.
#[derive(Clone)]
pub struct SharedCell<T> {
    memory: SharedBuffer<u8, Any>,
    word: PhantomData<fn(T) -> T>,
}

impl<T: NoUninit + AnyBitPattern, K: Kind> SharedBuffer<T, K> {
    /// The word that begins at an element, for flags and counters.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, MappedMemory, Stream};
    /// # let stream = Stream::new(&context)?;
    /// # let resource = MappedMemory::new(&context)?;
    /// let memory = Buffer::<u32, _>::zeroed(&resource, 1024, &stream)?.into_shared();
    /// let flag = memory.cell::<u32>(0)?;
    ///
    /// memory.store(16, &[1, 2, 3])?; // the data first
    /// flag.store(1)?; // then the flag that a kernel waits for
    /// assert_eq!(flag.load()?, 1);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The word does not lie within the buffer, or its address is not a multiple of its size; the CPU cannot address the
    /// memory, or it is managed.
    pub fn cell<W: SharedWord>(&self, offset: usize) -> Result<SharedCell<W>> {
        const CALL: &str = "SharedBuffer::cell";
        let size = size_of::<W>();
        let range = self.span(CALL, offset, size.div_ceil(size_of::<T>()))?;
        self.check_beside_device(CALL)?;
        let memory = self.slice(range)?.bytes();
        if !memory.host_address().addr().is_multiple_of(size) {
            let value = offset * size_of::<T>();
            return Err(Error::Misaligned { call: CALL, what: "offset", value, multiple: size });
        }
        Ok(SharedCell { memory, word: PhantomData })
    }
}

impl<T: SharedWord> SharedCell<T> {
    /// Reads the word with one load.
    ///
    /// # Errors
    ///
    /// The invalidate of non-coherent memory failed.
    #[inline]
    pub fn load(&self) -> Result<T> {
        let word = if self.memory.is_coherent() {
            // SAFETY: the cell is one aligned word of the buffer.
            unsafe { host_copy::load_word::<T>(self.memory.host_address()) }
        } else {
            let mut word = T::zeroed();
            self.memory.load_shared(bytemuck::bytes_of_mut(&mut word))?;
            word
        };
        // Orders later reads after this one: a flag, then its data.
        fence(Ordering::Acquire);
        Ok(word)
    }

    /// Writes the word with one store, after all earlier writes of this thread, and flushes it.
    ///
    /// # Errors
    ///
    /// The memory is read-only; the flush of non-coherent memory failed.
    #[inline]
    pub fn store(&self, word: T) -> Result<()> {
        // Write-combining memory does not keep the order of stores, so fence the earlier writes first.
        host_copy::store_fence();
        self.memory.store_shared(bytemuck::bytes_of(&word))
    }

    /// The device address of the word.
    pub fn device_pointer(&self) -> CUdeviceptr {
        self.memory.device_pointer()
    }
}

impl<T> fmt::Debug for SharedCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCell").field("memory", &self.memory).finish_non_exhaustive()
    }
}
