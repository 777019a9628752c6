//! Slices of buffers for the CPU, if it can address the memory.

use super::holder::Hold;
use super::{Access, Buffer};
use crate::Result;
use crate::cpu::borrowed::{Borrowed, check_read};
use crate::memory::asleep;
use crate::memory::resource::{HostAccessible, Kind};
use bytemuck::AnyBitPattern;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut, Range, RangeBounds};
use core::slice;

impl<T, K: HostAccessible> Buffer<T, K> {
    /// A range to read as a slice. Waits for the buffer's device work.
    ///
    /// # Errors
    ///
    /// The range does not lie within the buffer; device work failed; the invalidate of non-coherent memory failed; the
    /// memory belongs to a shareable pool, which other processes may write at any time.
    pub fn read(&mut self, range: impl RangeBounds<usize>) -> Result<HostRead<'_, T, K>>
    where
        T: AnyBitPattern,
    {
        const CALL: &str = "Buffer::read";
        let range = self.resolve(CALL, range)?;
        self.fetch(CALL, &range)?;
        self.check_read(&range);
        Ok(HostRead { buffer: self, range })
    }

    /// A range to write (and read) as a slice. Waits for the buffer's device work. Device work queued after the end of
    /// the guard sees the writes. End the guard with [`finish`](HostWrite::finish) to get errors.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn write(&mut self, range: impl RangeBounds<usize>) -> Result<HostWrite<'_, T, K>>
    where
        T: AnyBitPattern,
    {
        const CALL: &str = "Buffer::write";
        let range = self.resolve(CALL, range)?;
        self.hold.allocation().check_slices(CALL)?;
        self.check_writable(CALL)?;
        self.settle()?;
        let (start, length) = self.bytes_of(&range);
        // SAFETY: as in `fetch`.
        let remembered = unsafe { self.hold.allocation().begin_guard(start, length) }?;
        let borrowed = Borrowed::to_write(start, length);
        Ok(HostWrite { buffer: self, range, remembered, borrowed, on_this_thread: PhantomData })
    }

    fn fetch(&self, call: &'static str, range: &Range<usize>) -> Result<()> {
        self.hold.allocation().check_slices(call)?;
        self.settle()?;
        match self.resource() {
            Some(resource) if !range.is_empty() => {
                let (start, length) = self.bytes_of(range);
                // SAFETY: only this buffer has access to the memory, the callers borrow it exclusively, and parts share
                // no atom.
                unsafe { resource.invalidate(start, length) }
            }
            _ => Ok(()),
        }
    }

    /// The address of a range of elements, and its length in bytes.
    fn bytes_of(&self, range: &Range<usize>) -> (*mut u8, usize) {
        (self.host_address().wrapping_add(range.start).cast(), range.len() * size_of::<T>())
    }

    /// Reports that the CPU reads a range now.
    fn check_read(&self, range: &Range<usize>) {
        let (start, count) = self.slice_parts(range);
        check_read(start, count * size_of::<T>());
    }

    /// The address and number of elements, for a slice. An empty range gets a dangling address.
    fn slice_parts(&self, range: &Range<usize>) -> (*mut T, usize) {
        if range.is_empty() {
            return (core::ptr::dangling_mut(), 0);
        }
        (self.host_address().wrapping_add(range.start), range.len())
    }
}

impl<T, K: Kind, A: Access> Buffer<T, K, A> {
    /// Called before device work: refuses memory of a pool that sleeps, and flushes the writes of forgotten guards, which a
    /// later flush would write over those of the work.
    #[inline]
    pub(crate) fn before_work(&self) -> Result<()> {
        asleep::check("work on a buffer", self.context().driver(), self.first_byte())?;
        if self.hold.allocation().is_posted() { Ok(()) } else { self.post_all() }
    }

    #[cold]
    fn post_all(&self) -> Result<()> {
        if self.is_coherent() {
            self.fence_forgotten();
            return Ok(());
        }
        match self.resource() {
            Some(resource) if !self.is_empty() => {
                self.settle()?;
                // SAFETY: the range belongs to the buffer, whose borrow here excludes live guards; parts share no atom.
                unsafe { resource.invalidate(self.host_address().cast(), self.size()) }?;
                self.hold.allocation().note_posted(self.size());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Fences what forgotten guards have stored. In coherent memory, that posts it.
    #[cold]
    pub(crate) fn fence_forgotten(&self) {
        let allocation = self.hold.allocation();
        allocation.fence_forgotten();
        if self.is_coherent() && self.hold.is_whole() {
            // No guard lives: it would borrow this buffer.
            allocation.note_posted(allocation.block.size());
        }
    }

    /// Flushes CPU writes in a range of bytes of memory that the CPU can address.
    pub(crate) fn flush_bytes(&self, start: *mut u8, length: usize) -> Result<()> {
        self.hold.allocation().flush(start, length)
    }
}

/// A range of a buffer to read.
#[must_use = "read the range through the guard"]
pub struct HostRead<'buffer, T, K: HostAccessible> {
    buffer: &'buffer Buffer<T, K>,
    range: Range<usize>,
}

impl<T: AnyBitPattern, K: HostAccessible> Deref for HostRead<'_, T, K> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.buffer.check_read(&self.range);
        let (start, count) = self.buffer.slice_parts(&self.range);
        // SAFETY: driver memory is always initialized, and any bytes are values of `T`. The address is aligned:
        // allocations are, and parts begin at whole elements. The guard borrows the only value with access to the
        // memory, and the device work is done.
        unsafe { slice::from_raw_parts(start, count) }
    }
}

impl<T, K: HostAccessible> fmt::Debug for HostRead<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostRead").field("range", &self.range).finish_non_exhaustive()
    }
}

/// A range of a buffer to write.
///
/// A GPU's memory is write-combining: stores leave the CPU in any order, and only a fence of the thread that stored orders
/// them. So the guard stays on its thread, and its end fences. If the program forgets the guard, the next use of the
/// memory fences on behalf of that thread. A thread to which the program lends a part of the slice must give it back by a
/// locked instruction: the end of a scoped thread, locks and channels of the standard library have one.
///
/// ```compile_fail,E0277
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// # use cuda_mem::{Buffer, MappedMemory, Stream};
/// # let stream = Stream::new(&context)?;
/// let mut memory = Buffer::<u8, _>::zeroed(&MappedMemory::new(&context)?, 1024, &stream)?;
/// let guard = memory.write(..)?;
/// std::thread::scope(|threads| threads.spawn(move || drop(guard)).join().unwrap());
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[must_use = "the end of the guard flushes the range"]
pub struct HostWrite<'buffer, T, K: HostAccessible> {
    buffer: &'buffer Buffer<T, K>,
    range: Range<usize>,
    /// The result of the allocation's `begin_write`.
    remembered: bool,
    borrowed: Borrowed,
    on_this_thread: PhantomData<*const ()>,
}

// SAFETY: another thread can only read through a shared reference, as through a shared slice.
unsafe impl<T: Sync, K: HostAccessible> Sync for HostWrite<'_, T, K> {}

impl<T, K: HostAccessible> HostWrite<'_, T, K> {
    fn post(&self) -> Result<()> {
        let (start, length) = self.buffer.bytes_of(&self.range);
        self.buffer.hold.allocation().end_write(start, length, self.remembered)
    }

    /// Flushes and ends the guard.
    ///
    /// # Errors
    ///
    /// The flush of non-coherent memory failed.
    pub fn finish(self) -> Result<()> {
        let mut guard = ManuallyDrop::new(self);
        let _borrowed = core::mem::take(&mut guard.borrowed);
        guard.post()
    }
}

impl<T: AnyBitPattern, K: HostAccessible> Deref for HostWrite<'_, T, K> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let (start, count) = self.buffer.slice_parts(&self.range);
        // SAFETY: as for `HostRead`.
        unsafe { slice::from_raw_parts(start, count) }
    }
}

impl<T: AnyBitPattern, K: HostAccessible> DerefMut for HostWrite<'_, T, K> {
    fn deref_mut(&mut self) -> &mut [T] {
        let (start, count) = self.buffer.slice_parts(&self.range);
        // SAFETY: as for `HostRead`; the guard borrows that value exclusively.
        unsafe { slice::from_raw_parts_mut(start, count) }
    }
}

impl<T, K: HostAccessible> fmt::Debug for HostWrite<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostWrite").field("range", &self.range).finish_non_exhaustive()
    }
}

impl<T, K: HostAccessible> Drop for HostWrite<'_, T, K> {
    fn drop(&mut self) {
        if let Err(error) = self.post() {
            self.buffer.context().drop_errors().push("flushing the writes of a guard", error);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::cpu::host_copy::FENCES_ON_ALL_THREADS;
    use crate::memory::PinnedMemory;
    use crate::memory::PinnedOptions;
    use crate::memory::mapped::{CoherencePolicy, MappedMemory};
    use crate::{Buffer, Driver, Result, Stream};
    use core::mem::forget;
    use softgpu::CpuBorrow;

    /// How many fences on behalf of other threads the work makes.
    fn fences<R>(work: impl FnOnce() -> R) -> usize {
        let before = FENCES_ON_ALL_THREADS.get();
        drop(work());
        FENCES_ON_ALL_THREADS.get() - before
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the software GPU")]
    fn the_use_after_a_forgotten_guard_fences_for_its_thread() -> Result<()> {
        let context = Driver::software()?.device(0)?.create_context()?;
        let (stream, mut combined) = (Stream::new(&context)?, PinnedOptions::default());
        combined.write_combined = true;
        for policy in [CoherencePolicy::Required, CoherencePolicy::ForcedNonCoherent] {
            let mapped = MappedMemory::with_coherence(&context, policy)?;
            each_use(&|| Ok(Buffer::<u8, _>::zeroed(&mapped, 4096, &stream)?.into_any().try_into_kind()?))?;
        }
        let pinned = PinnedMemory::with_options(&context, combined);
        each_use(&|| Ok(Buffer::<u8, _>::zeroed(&pinned, 4096, &stream)?.into_any().try_into_kind()?))?;
        // Ordinary memory needs no fence.
        let mut plain = Buffer::<u8, _>::zeroed(&PinnedMemory::new(&context), 4096, &stream)?;
        forget_a_guard(&mut plain)?;
        assert_eq!(fences(|| plain.load(0, &mut [0])), 0);
        Ok(())
    }

    type Pinned = Buffer<u8, crate::memory::resource::kind::Pinned>;

    fn forget_a_guard(buffer: &mut Pinned) -> Result<()> {
        let mut guard = buffer.write(..)?;
        guard.fill(7);
        CpuBorrow::end_all(guard.as_ptr().addr(), guard.len());
        forget(guard);
        Ok(())
    }

    fn each_use(make: &dyn Fn() -> Result<Pinned>) -> Result<()> {
        let mut buffer = make()?;
        let uses: [fn(&mut Pinned) -> Result<()>; 5] = [
            |buffer| buffer.store(0, &[7]),
            |buffer| buffer.load(0, &mut [0]),
            |buffer| buffer.read(..).map(drop),
            |buffer| buffer.write(..).map(drop),
            |buffer| buffer.fill(.., 7),
        ];
        for used in uses {
            used(&mut buffer)?;
            drop(buffer.write(..)?);
            assert_eq!(fences(|| used(&mut buffer)), 0, "the guard has ended");
            forget_a_guard(&mut buffer)?;
            assert!(fences(|| used(&mut buffer)) > 0);
            assert_eq!(buffer.to_vec()?, [7; 4096]);
        }
        let mut buffer = make()?;
        forget_a_guard(&mut buffer)?;
        assert!(fences(|| buffer.into_shared()) > 0);
        let mut buffer = make()?;
        forget_a_guard(&mut buffer)?;
        assert!(fences(|| buffer.split_at(2048)) > 0);
        let mut buffer = make()?;
        forget_a_guard(&mut buffer)?;
        assert!(fences(|| drop(buffer)) > 0, "the next owner must not get late stores");
        Ok(())
    }
}
