//! Buffers as slices of the CPU's, where it may address the memory.

use super::{Access, Buffer};
use crate::Result;
use crate::borrowed::{Borrowed, check_read};
use crate::resource::{HostAccessible, Kind};
use bytemuck::AnyBitPattern;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut, Range, RangeBounds};
use core::slice;

impl<T, K: HostAccessible> Buffer<T, K> {
    /// A range to read as a slice. Waits for the buffer's device work.
    ///
    /// # Errors
    ///
    /// The range does not lie within the buffer; device work failed; the invalidate of non-coherent memory failed; the memory
    /// is a shareable pool's, which other processes may write at any time.
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

    /// A range to write (and read) as a slice. Waits for the buffer's device work; device work given after the guard's end
    /// sees what was written. End the guard with [`finish`](HostWrite::finish) to see errors.
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
        self.settle()?;
        let (start, length) = self.bytes_of(&range);
        // SAFETY: as in `fetch`.
        let remembered = unsafe { self.hold.allocation().begin_write(start, length) }?;
        let borrowed = Borrowed::to_write(start, length);
        Ok(HostWrite { buffer: self, range, remembered, borrowed })
    }

    fn fetch(&self, call: &'static str, range: &Range<usize>) -> Result<()> {
        self.hold.allocation().check_slices(call)?;
        self.settle()?;
        match self.resource() {
            Some(resource) if !range.is_empty() => {
                let (start, length) = self.bytes_of(range);
                // SAFETY: the buffer is the one value that reaches the memory, and who calls has borrowed it exclusively; parts
                // share no atom.
                unsafe { resource.invalidate(start, length) }
            }
            _ => Ok(()),
        }
    }

    /// Where a range of elements begins, and how long it is, in bytes.
    fn bytes_of(&self, range: &Range<usize>) -> (*mut u8, usize) {
        (self.host_pointer().wrapping_add(range.start).cast(), range.len() * size_of::<T>())
    }

    /// The CPU reads a range now.
    fn check_read(&self, range: &Range<usize>) {
        let (start, count) = self.slice_parts(range);
        check_read(start, count * size_of::<T>());
    }

    /// The elements' address and number, for a slice. An empty range has no address.
    fn slice_parts(&self, range: &Range<usize>) -> (*mut T, usize) {
        if range.is_empty() {
            return (core::ptr::dangling_mut(), 0);
        }
        (self.host_pointer().wrapping_add(range.start), range.len())
    }
}

impl<T, K: Kind, A: Access> Buffer<T, K, A> {
    /// Posts what a guard wrote that was forgotten, before device work: it would overwrite that work's writes later.
    #[inline]
    pub(crate) fn post_forgotten(&self) -> Result<()> {
        if self.hold.allocation().is_posted() { Ok(()) } else { self.post_all() }
    }

    #[cold]
    fn post_all(&self) -> Result<()> {
        match self.resource() {
            Some(resource) if !self.is_empty() => {
                self.settle()?;
                // SAFETY: the range is the buffer's, which is borrowed here, so none of its guards is alive; parts share no atom.
                unsafe { resource.invalidate(self.host_address().cast(), self.size()) }?;
                self.hold.allocation().note_posted(self.size());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Posts the CPU's writes of a range of the memory, in bytes, which the CPU addresses.
    pub(crate) fn flush_bytes(&self, start: *mut u8, length: usize) -> Result<()> {
        self.hold.allocation().flush(start, length)
    }
}

/// A range of a buffer to read.
#[must_use = "the range was waited for to be read"]
pub struct HostRead<'buffer, T, K: HostAccessible> {
    buffer: &'buffer Buffer<T, K>,
    range: Range<usize>,
}

impl<T: AnyBitPattern, K: HostAccessible> Deref for HostRead<'_, T, K> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.buffer.check_read(&self.range);
        let (start, count) = self.buffer.slice_parts(&self.range);
        // SAFETY: the range lies within memory of the driver's, whose bytes always have a value, and any is a value of
        // `T`; the address is aligned: allocations are, and parts lie at whole elements. The guard borrows the one
        // value that reaches the memory, and its device work is done.
        unsafe { slice::from_raw_parts(start, count) }
    }
}

impl<T, K: HostAccessible> fmt::Debug for HostRead<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostRead").field("range", &self.range).finish_non_exhaustive()
    }
}

/// A range of a buffer to write.
#[must_use = "what is written is posted when the guard ends"]
pub struct HostWrite<'buffer, T, K: HostAccessible> {
    buffer: &'buffer Buffer<T, K>,
    range: Range<usize>,
    /// What the allocation's `begin_write` gave.
    remembered: bool,
    borrowed: Borrowed,
}

impl<T, K: HostAccessible> HostWrite<'_, T, K> {
    fn post(&self) -> Result<()> {
        let (start, length) = self.buffer.bytes_of(&self.range);
        self.buffer.hold.allocation().end_write(start, length, self.remembered)
    }

    /// Ends the guard.
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
