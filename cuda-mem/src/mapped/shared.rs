//! Mapped memory for concurrent access by threads, running kernels and other processes.

use super::allocation::Allocation;
use super::atoms::Coherence;
use super::window::Window;
use super::{MappedDescriptor, MappedExport, MappedMemory, MappedResource};
use crate::{Error, Refused, Result, host_copy};
use bytemuck::{AnyBitPattern, NoUninit};
use core::fmt;
use core::marker::PhantomData;
use core::ops::RangeBounds;
use cuda_sys::CUdeviceptr;
use std::sync::Arc;

/// Mapped memory that others may read and write at the same time. It gives no slices. To Rust, a copy is a relaxed
/// atomic access to each byte: it reads what is there at that moment. The program must decide who may access which
/// bytes and when, with flags such as [`SharedCell`].
///
/// Cheap to clone; parts own the memory jointly.
///
/// ```
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// # let resource = cuda_mem::MappedResource::new(&context)?;
/// let memory = resource.allocate(4096)?.into_shared();
/// let flag = memory.cell::<u32>(0)?;
/// let payload = memory.slice(64..128)?;
///
/// payload.copy_from_slice(0, b"the data first")?; // written and flushed
/// flag.store(1)?; // then the flag that a kernel waits for
/// assert_eq!(flag.load()?, 1);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone)]
pub struct SharedMemory {
    pub(super) allocation: Arc<Allocation>,
    pub(super) window: Window,
}

impl SharedMemory {
    pub(super) fn new(allocation: Arc<Allocation>, window: Window) -> Self {
        Self { allocation, window }
    }

    /// Writes with CPU stores, and flushes. Not atomic: others may see only part of the bytes.
    ///
    /// # Errors
    ///
    /// The bytes do not fit at `offset`; the flush failed.
    #[inline]
    pub fn copy_from_slice<T: NoUninit>(&self, offset: usize, source: &[T]) -> Result<()> {
        let source = bytemuck::cast_slice(source);
        let range = self.window.span("SharedMemory::copy_from_slice", offset, source.len())?;
        self.allocation.write(range.start, source)
    }

    /// Reads with CPU loads, after an invalidate of non-coherent memory. Not atomic.
    ///
    /// # Errors
    ///
    /// The range exceeds the memory; the invalidate failed.
    #[inline]
    pub fn copy_to_slice<T: NoUninit + AnyBitPattern>(&self, offset: usize, destination: &mut [T]) -> Result<()> {
        let destination = bytemuck::cast_slice_mut(destination);
        let range = self.window.span("SharedMemory::copy_to_slice", offset, destination.len())?;
        self.allocation.load(range.start, destination)
    }

    /// Reads what the device sees, with a driver copy.
    ///
    /// # Errors
    ///
    /// The range exceeds the memory; the driver refuses.
    pub fn device_read<T: NoUninit + AnyBitPattern>(&self, offset: usize, destination: &mut [T]) -> Result<()> {
        let destination = bytemuck::cast_slice_mut(destination);
        let range = self.window.span("SharedMemory::device_read", offset, destination.len())?;
        self.allocation.device_read(range.start, destination)
    }

    /// Writes what the device sees, with a driver copy.
    ///
    /// # Errors
    ///
    /// The bytes do not fit at `offset`; the driver refuses.
    pub fn device_write<T: NoUninit>(&self, offset: usize, source: &[T]) -> Result<()> {
        let source = bytemuck::cast_slice(source);
        let range = self.window.span("SharedMemory::device_write", offset, source.len())?;
        self.allocation.flush_written(range.clone())?;
        self.allocation.device_write(range.start, source)
    }

    /// One word, for flags and counters.
    ///
    /// # Errors
    ///
    /// The word does not fit at `offset`, or `offset` is not a multiple of its size.
    pub fn cell<T: SharedWord>(&self, offset: usize) -> Result<SharedCell<T>> {
        const CALL: &str = "SharedMemory::cell";
        let size = size_of::<T>();
        let range = self.window.span(CALL, offset, size)?;
        if !self.allocation.host(range.start).addr().is_multiple_of(size) {
            return Err(Error::Misaligned { call: CALL, what: "offset", value: offset, multiple: size });
        }
        Ok(SharedCell { allocation: self.allocation.clone(), offset: range.start, word: PhantomData })
    }

    /// A part, which owns the memory jointly. It may be empty.
    ///
    /// # Errors
    ///
    /// The range does not lie within the memory.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let range = self.window.resolve("SharedMemory::slice", range)?;
        let window = Window { offset: range.start, length: range.len() };
        Ok(Self { allocation: self.allocation.clone(), window })
    }

    /// Flushes the CPU's writes of a range.
    ///
    /// # Errors
    ///
    /// The range does not lie within the memory; the library refuses.
    pub fn flush(&self, range: impl RangeBounds<usize>) -> Result<()> {
        self.allocation.flush(self.window.resolve("SharedMemory::flush", range)?)
    }

    /// Fetches the device's writes of a range. Unflushed CPU writes in the same atoms are flushed first.
    ///
    /// # Errors
    ///
    /// The range does not lie within the memory; the library refuses.
    pub fn invalidate(&self, range: impl RangeBounds<usize>) -> Result<()> {
        self.allocation.invalidate(self.window.resolve("SharedMemory::invalidate", range)?)
    }

    /// Exports this part to another process, which maps it for its CPU and for CUDA. Each process keeps the memory
    /// alive independently.
    ///
    /// # Errors
    ///
    /// An exclusive part exists ([`split_at`](MappedMemory::split_at) makes such parts), and the exported file would
    /// expose it. The vkgdr library is upstream's, which cannot export; or it refuses.
    pub fn export(&self) -> Result<MappedExport> {
        let (Window { offset, length }, exclusive) = (self.window, self.allocation.exclusive());
        if exclusive != 0 {
            return Err(Error::InvalidArgument {
                call: "SharedMemory::export",
                argument: "the memory",
                value: format!(
                    "bytes {offset} to {offset}+{length} of memory of which {exclusive} bytes are in exclusive parts"
                )
                .into(),
                rule: "an importer reaches the whole allocation: share or drop its exclusive parts first",
            });
        }
        let descriptor = MappedDescriptor {
            device: self.resource().context().device().uuid()?,
            size: self.allocation.size(),
            offset: self.window.offset,
            length: self.window.length,
        };
        Ok(MappedExport::from_parts(self.allocation.export_fd()?, descriptor))
    }

    /// Makes the memory exclusive again, if no other value holds the allocation.
    ///
    /// # Errors
    ///
    /// Another value holds the allocation. The error returns this value.
    ///
    /// # Safety
    ///
    /// While the exclusive value is alive, no running kernel, no other process and no import of an earlier export
    /// accesses the memory.
    pub unsafe fn try_into_exclusive(self) -> Result<MappedMemory, Box<Refused<Self>>> {
        let Self { allocation, window } = self;
        match Arc::try_unwrap(allocation) {
            Ok(allocation) => Ok(MappedMemory::part(Arc::new(allocation), window)),
            Err(allocation) => {
                let error = Error::InvalidArgument {
                    call: "SharedMemory::try_into_exclusive",
                    argument: "the memory",
                    value: "shared".into(),
                    rule: "no other clone, slice or cell of it may exist; drop them first",
                };
                Err(Refused::new(Self { allocation, window }, error))
            }
        }
    }

    /// The device address of the first byte. Valid while any part of the memory is alive.
    pub fn device_pointer(&self) -> CUdeviceptr {
        self.allocation.device(self.window.offset)
    }

    /// The CPU address of the first byte. Valid while any part of the memory is alive.
    pub fn host_pointer(&self) -> *mut u8 {
        self.allocation.host(self.window.offset)
    }

    /// The size in bytes.
    pub fn len(&self) -> usize {
        self.window.length
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.window.length == 0
    }

    /// Whether the CPU and the device see each other's writes without flushes.
    pub fn coherence(&self) -> Coherence {
        self.allocation.coherence()
    }

    /// The resource that allocated the memory.
    pub fn resource(&self) -> &MappedResource {
        self.allocation.resource()
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory")
            .field("device_pointer", &format_args!("{:#x}", self.device_pointer()))
            .field("len", &self.window.length)
            .field("coherence", &self.coherence())
            .finish()
    }
}

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
    allocation: Arc<Allocation>,
    offset: usize,
    word: PhantomData<fn(T) -> T>,
}

impl<T: SharedWord> SharedCell<T> {
    /// Reads the word with one load.
    ///
    /// # Errors
    ///
    /// The invalidate of non-coherent memory failed.
    #[inline]
    pub fn load(&self) -> Result<T> {
        if let Coherence::NonCoherent { .. } = self.allocation.coherence() {
            self.allocation.invalidate(self.offset..self.offset + size_of::<T>())?;
        }
        // SAFETY: `cell` checked that the word lies within the allocation and is aligned.
        let word = unsafe { host_copy::load_word::<T>(self.allocation.host(self.offset)) };
        // Orders later reads after this one: a flag, then its data.
        core::sync::atomic::fence(core::sync::atomic::Ordering::Acquire);
        Ok(word)
    }

    /// Writes the word with one store, after all earlier writes of this thread, and flushes it.
    ///
    /// # Errors
    ///
    /// The flush of non-coherent memory failed.
    #[inline]
    pub fn store(&self, word: T) -> Result<()> {
        // Write-combining memory does not keep the order of stores, so fence the earlier writes first.
        host_copy::store_fence();
        self.allocation.write(self.offset, bytemuck::bytes_of(&word))
    }

    /// The device address of the word.
    pub fn device_pointer(&self) -> CUdeviceptr {
        self.allocation.device(self.offset)
    }
}

impl<T> fmt::Debug for SharedCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCell").field("offset", &self.offset).finish_non_exhaustive()
    }
}
