//! Mapped memory to which one value has exclusive CPU access.

use super::allocation::Allocation;
use super::atoms::Coherence;
use super::pending::Pending;
use super::window::Window;
use super::{MappedResource, ReadGuard, SharedMemory, StoreScope, WriteGuard};
use crate::context::Liveness;
use crate::error::call;
use crate::{Error, Refused, Result, Stream};
use bytemuck::{AnyBitPattern, NoUninit};
use core::fmt;
use core::ops::RangeBounds;
use cuda_sys::CUdeviceptr;
use std::sync::Arc;

/// Device memory that the CPU can also address, or a part of it. CPU accesses through this value are exclusive, as with
/// a `Vec`: writes take `&mut self`. Convert it to [`SharedMemory`] for concurrent accesses by threads, running kernels
/// or other processes.
///
/// Offsets and sizes are in bytes. The memory is freed when its last part is dropped.
///
/// ```
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// # let resource = cuda_mem::MappedResource::new(&context)?;
/// let memory = resource.allocate(1 << 20)?;
/// let (mut left, mut right) = memory.split_at(4096)?; // two parts that share ownership
/// left.copy_from_slice(0, &[1.0f32, 2.0, 3.0])?;
/// right.device_write(100, &[7u8; 5])?;
/// assert_eq!(right.read(100..105)?[..], [7; 5]);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct MappedMemory {
    // Before the allocation, so that the wait comes before the free.
    pub(super) pending: Pending,
    pub(super) allocation: Arc<Allocation>,
    pub(super) window: Window,
}

impl MappedMemory {
    pub(super) fn whole(allocation: Arc<Allocation>) -> Self {
        let length = allocation.size();
        Self::part(allocation, Window { offset: 0, length })
    }

    pub(super) fn part(allocation: Arc<Allocation>, window: Window) -> Self {
        allocation.begin_exclusive(window.length);
        Self { pending: Pending::default(), allocation, window }
    }

    /// Writes with CPU stores, and flushes. Device work queued after this call sees the bytes.
    ///
    /// # Errors
    ///
    /// The bytes do not fit at `offset`; earlier device work failed; the flush failed.
    #[inline]
    pub fn copy_from_slice<T: NoUninit>(&mut self, offset: usize, source: &[T]) -> Result<()> {
        let source = bytemuck::cast_slice(source);
        let range = self.window.span("MappedMemory::copy_from_slice", offset, source.len())?;
        self.pending.settle()?;
        self.allocation.write(range.start, source)
    }

    /// Makes several writes with CPU stores, with one flush when `stores` returns, even with an error. Device work
    /// queued after that sees the bytes.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// # let mut memory = cuda_mem::MappedResource::new(&context)?.allocate(4096)?;
    /// memory.store_scope(|scope| {
    ///     for row in 0..8 {
    ///         scope.copy_from_slice(row * 512, &[row as u32; 16])?;
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// The scope stays on its thread: otherwise another thread could get the memory before the stores are fenced.
    ///
    /// ```compile_fail,E0277
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// # let mut memory = cuda_mem::MappedResource::new(&context)?.allocate(4096)?;
    /// memory.store_scope(|scope| {
    ///     std::thread::scope(|threads| threads.spawn(|| scope.copy_from_slice(0, &[1u8])).join().unwrap())
    /// })?;
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `stores`; earlier device work failed; the flush failed.
    #[inline]
    pub fn store_scope<R>(&mut self, stores: impl FnOnce(&mut StoreScope<'_>) -> Result<R>) -> Result<R> {
        // This form does not move a large result, which would take longer than a store.
        if !self.pending.is_empty() {
            self.pending.settle()?;
        }
        let mut scope = StoreScope::new(&self.allocation, self.window);
        match stores(&mut scope) {
            Ok(value) => {
                scope.post()?;
                Ok(value)
            }
            Err(error) => {
                // The first error is the one to report.
                let _ = scope.post();
                Err(error)
            }
        }
    }

    /// Reads with CPU loads, after an invalidate of non-coherent memory. Loads from a GPU are slow: 1 us per round trip
    /// of 64 bytes.
    ///
    /// # Errors
    ///
    /// The range exceeds the memory; earlier device work failed; the invalidate failed.
    #[inline]
    pub fn copy_to_slice<T: NoUninit + AnyBitPattern>(&self, offset: usize, destination: &mut [T]) -> Result<()> {
        let destination = bytemuck::cast_slice_mut(destination);
        let range = self.window.span("MappedMemory::copy_to_slice", offset, destination.len())?;
        self.pending.settle()?;
        self.allocation.load(range.start, destination)
    }

    /// A range to read as a slice. Waits for recorded device work, and invalidates.
    ///
    /// Ordinary loads from a GPU's memory are even slower than [`copy_to_slice`](Self::copy_to_slice).
    ///
    /// # Errors
    ///
    /// The range does not lie within the memory; device work failed; the invalidate failed.
    pub fn read(&mut self, range: impl RangeBounds<usize>) -> Result<ReadGuard<'_>> {
        let range = self.window.resolve("MappedMemory::read", range)?;
        self.pending.settle()?;
        self.allocation.invalidate(range.clone())?;
        Ok(ReadGuard::new(&self.allocation, range))
    }

    /// A range to write (and read) as a slice. The end of the guard flushes it; use [`finish`](WriteGuard::finish) to
    /// get errors.
    ///
    /// A GPU's memory is write-combined. The end of the guard fences what this thread wrote through the slice. Other
    /// threads that borrow parts of the slice must fence their own writes, by any lock, channel or join.
    ///
    /// # Errors
    ///
    /// The range does not lie within the memory; device work failed; the invalidate failed.
    pub fn write(&mut self, range: impl RangeBounds<usize>) -> Result<WriteGuard<'_>> {
        let range = self.window.resolve("MappedMemory::write", range)?;
        self.pending.settle()?;
        self.allocation.invalidate(range.clone())?;
        Ok(WriteGuard::new(&self.allocation, range))
    }

    /// Flushes a range: device work queued after this call sees the CPU's writes. On non-coherent memory a flush moves
    /// whole atoms as the CPU sees them. Flush only what the CPU wrote: other atoms would overwrite device writes that
    /// the CPU has not fetched.
    ///
    /// # Errors
    ///
    /// The range does not lie within the memory; the library refuses.
    #[doc(alias = "vkgdr_memory_flush")]
    #[inline]
    pub fn flush(&mut self, range: impl RangeBounds<usize>) -> Result<()> {
        let range = self.window.resolve("MappedMemory::flush", range)?;
        self.allocation.flush(range)
    }

    /// Fetches the device's writes of a range, in whole atoms. Unflushed CPU writes in those atoms are flushed first
    /// and never lost. Reads through this value invalidate by themselves.
    ///
    /// # Errors
    ///
    /// The range does not lie within the memory; device work failed; the library refuses.
    #[doc(alias = "vkgdr_memory_invalidate")]
    pub fn invalidate(&mut self, range: impl RangeBounds<usize>) -> Result<()> {
        let range = self.window.resolve("MappedMemory::invalidate", range)?;
        self.pending.settle()?;
        self.allocation.invalidate(range)
    }

    /// Reads what the device sees, with a driver copy.
    ///
    /// # Errors
    ///
    /// The range exceeds the memory; the driver refuses.
    #[doc(alias = "cuMemcpyDtoH")]
    pub fn device_read<T: NoUninit + AnyBitPattern>(&self, offset: usize, destination: &mut [T]) -> Result<()> {
        let destination = bytemuck::cast_slice_mut(destination);
        let range = self.window.span("MappedMemory::device_read", offset, destination.len())?;
        self.pending.settle()?;
        self.allocation.device_read(range.start, destination)
    }

    /// Writes what the device sees, with a driver copy. Unflushed CPU writes are flushed first, so that a later flush
    /// does not overwrite the copy.
    ///
    /// # Errors
    ///
    /// The bytes do not fit at `offset`; the driver refuses.
    #[doc(alias = "cuMemcpyHtoD")]
    pub fn device_write<T: NoUninit>(&mut self, offset: usize, source: &[T]) -> Result<()> {
        let source = bytemuck::cast_slice(source);
        let range = self.window.span("MappedMemory::device_write", offset, source.len())?;
        self.pending.settle()?;
        self.allocation.flush_written(range.clone())?;
        self.allocation.device_write(range.start, source)
    }

    /// Fills a range with a byte, by device work in stream order. Later accesses through this value wait for it.
    ///
    /// # Errors
    ///
    /// The range does not lie within the memory; the stream belongs to a separately loaded driver; the driver refuses.
    #[doc(alias = "cuMemsetD8Async")]
    pub fn device_fill(&mut self, range: impl RangeBounds<usize>, byte: u8, stream: &Stream) -> Result<()> {
        const CALL: &str = "MappedMemory::device_fill";
        let range = self.window.resolve(CALL, range)?;
        if range.is_empty() {
            return Ok(());
        }
        self.resource().context().driver().check_same(CALL, "stream", stream.context().driver())?;
        self.allocation.flush_written(range.clone())?;
        {
            let (cuda, _ready) = stream.ready()?;
            let start = self.allocation.device(range.start);
            // SAFETY: the range lies within the memory, and `pending` keeps the memory until the work is done.
            unsafe { call!(cuda.cuMemsetD8Async(start, byte, range.len(), stream.raw())) }?;
        }
        self.record_use(stream)
    }

    /// Records that work queued on `stream` so far uses this memory, such as kernels launched with
    /// [`device_pointer`](Self::device_pointer). CPU accesses and the free wait for that work.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    pub fn record_use(&mut self, stream: &Stream) -> Result<()> {
        self.pending.record(stream)
    }

    /// Divides the memory into two parts that own it jointly: `[0, middle)` and `[middle, len)`.
    ///
    /// # Errors
    ///
    /// `middle` lies past the end; or, on non-coherent memory, within an atom, which two parts must not share. The
    /// error returns the memory.
    pub fn split_at(self, middle: usize) -> Result<(Self, Self), Box<Refused<Self>>> {
        const CALL: &str = "MappedMemory::split_at";
        let atom = self.coherence().atom();
        let position = match self.window.span(CALL, middle, 0) {
            Ok(range) => range.start,
            Err(error) => return Err(Refused::new(self, error)),
        };
        if !position.is_multiple_of(atom) && middle != 0 && middle != self.len() {
            let error = Error::Misaligned { call: CALL, what: "middle", value: middle, multiple: atom };
            return Err(Refused::new(self, error));
        }
        // Both parts together have as many exclusive bytes as before.
        let right = Self {
            pending: self.pending.same(),
            allocation: self.allocation.clone(),
            window: Window { offset: position, length: self.len() - middle },
        };
        let mut left = self;
        left.window.length = middle;
        Ok((left, right))
    }

    /// Converts the memory for concurrent access by threads, running kernels and other processes. Waits for recorded
    /// device work, as a drop does.
    pub fn into_shared(self) -> SharedMemory {
        SharedMemory::new(self.allocation.clone(), self.window)
    }

    /// The device address of the first byte, for kernels and other libraries, valid while any part of the memory is
    /// alive. Record work that uses it with [`record_use`](Self::record_use).
    #[doc(alias = "vkgdr_memory_get_device_ptr")]
    pub fn device_pointer(&self) -> CUdeviceptr {
        self.allocation.device(self.window.offset)
    }

    /// The CPU address of the first byte, valid while any part of the memory is alive. The caller must order, flush and
    /// invalidate accesses through it, and report writes with [`mark_written`](Self::mark_written).
    #[doc(alias = "vkgdr_memory_get_host_ptr")]
    pub fn host_pointer(&self) -> *mut u8 {
        self.allocation.host(self.window.offset)
    }

    /// Marks a range as written through [`host_pointer`](Self::host_pointer), so that an invalidate does not lose the
    /// writes.
    ///
    /// # Errors
    ///
    /// The range does not lie within the memory.
    pub fn mark_written(&mut self, range: impl RangeBounds<usize>) -> Result<()> {
        let range = self.window.resolve("MappedMemory::mark_written", range)?;
        self.allocation.mark_dirty(range);
        Ok(())
    }

    /// The size in bytes.
    pub fn len(&self) -> usize {
        self.window.length
    }

    /// Whether there are no bytes. Parts may be empty.
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

impl fmt::Debug for MappedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedMemory")
            .field("device_pointer", &format_args!("{:#x}", self.device_pointer()))
            .field("host_pointer", &self.host_pointer())
            .field("len", &self.window.length)
            .field("coherence", &self.coherence())
            .finish()
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        self.allocation.end_exclusive(self.window.length);
        let context = self.resource().context();
        // A context that has ended has no work left, and its events must not be touched.
        if self.pending.is_empty() || context.liveness() != Liveness::Alive {
            return;
        }
        if let Err(error) = self.pending.wait() {
            context.drop_errors().push("waiting for device work before freeing memory", error);
            // Retry once: if both waits fail, the work may still use the memory, so leak it.
            if self.pending.wait().is_err() && self.pending.goes_on() {
                core::mem::forget(self.allocation.clone());
            }
        }
    }
}
