//! Ranges of mapped memory as slices.

use super::allocation::Allocation;
use crate::Result;
use crate::borrowed::{Borrowed, check_read};
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut, Range};

/// A range of mapped memory to read. It borrows the memory, so nothing in this crate changes the range meanwhile. Other
/// device work must not write it; see [`device_pointer`](super::MappedMemory::device_pointer).
#[must_use = "read the range through the guard"]
pub struct ReadGuard<'memory> {
    allocation: &'memory Allocation,
    range: Range<usize>,
}

impl<'memory> ReadGuard<'memory> {
    pub(super) fn new(allocation: &'memory Allocation, range: Range<usize>) -> Self {
        check_read(allocation.host(range.start), range.len());
        Self { allocation, range }
    }
}

impl Deref for ReadGuard<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        check_read(self.allocation.host(self.range.start), self.range.len());
        // SAFETY: the range lies within the allocation, device memory is always initialised, and the guard borrows the
        // only value with access to it.
        unsafe { core::slice::from_raw_parts(self.allocation.host(self.range.start), self.range.len()) }
    }
}

impl fmt::Debug for ReadGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadGuard").field("range", &self.range).finish_non_exhaustive()
    }
}

/// A range of mapped memory to write. The end of the guard flushes it.
#[must_use = "the end of the guard flushes the range"]
pub struct WriteGuard<'memory> {
    allocation: &'memory Allocation,
    range: Range<usize>,
    borrowed: Borrowed,
}

impl<'memory> WriteGuard<'memory> {
    pub(super) fn new(allocation: &'memory Allocation, range: Range<usize>) -> Self {
        allocation.mark_dirty(range.clone());
        let borrowed = Borrowed::to_write(allocation.host(range.start), range.len());
        Self { allocation, range, borrowed }
    }

    /// Flushes and ends the guard.
    ///
    /// # Errors
    ///
    /// The flush failed. The writes stay marked, and the next flush retries them.
    pub fn finish(self) -> Result<()> {
        let mut guard = ManuallyDrop::new(self);
        let _borrowed = core::mem::take(&mut guard.borrowed);
        guard.allocation.flush(guard.range.clone())
    }
}

impl Deref for WriteGuard<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as for `ReadGuard`.
        unsafe { core::slice::from_raw_parts(self.allocation.host(self.range.start), self.range.len()) }
    }
}

impl DerefMut for WriteGuard<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `ReadGuard`; the guard borrows that value exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.allocation.host(self.range.start), self.range.len()) }
    }
}

impl fmt::Debug for WriteGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteGuard").field("range", &self.range).finish_non_exhaustive()
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.allocation.flush(self.range.clone()) {
            let context = self.allocation.resource().context();
            context.drop_errors().push("flushing the writes of a guard", error);
        }
    }
}
