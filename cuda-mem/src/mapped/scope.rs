//! Several stores with one flush.

use super::allocation::Allocation;
use super::window::Window;
use crate::Result;
use crate::host_copy::Stores;
use bytemuck::NoUninit;
use core::fmt;
use core::ops::Range;

/// Several stores to mapped memory that are flushed together; see
/// [`MappedMemory::store_scope`](super::MappedMemory::store_scope). The scope stays on its thread, because a fence
/// orders only the stores of its own thread.
pub struct StoreScope<'memory> {
    allocation: &'memory Allocation,
    window: Window,
    stores: Stores,
    /// From the first to the last byte that was stored.
    written: Range<usize>,
}

impl<'memory> StoreScope<'memory> {
    #[inline]
    pub(super) fn new(allocation: &'memory Allocation, window: Window) -> Self {
        Self { allocation, window, stores: Stores::begin(), written: 0..0 }
    }

    /// Writes with CPU stores. The end of the scope flushes them.
    ///
    /// # Errors
    ///
    /// The bytes do not fit at `offset`; the invalidate of non-coherent memory failed.
    #[inline]
    pub fn copy_from_slice<T: NoUninit>(&mut self, offset: usize, source: &[T]) -> Result<()> {
        let source = bytemuck::cast_slice(source);
        let range = self.window.span("StoreScope::copy_from_slice", offset, source.len())?;
        self.allocation.store(&mut self.stores, range.start, source)?;
        if self.written.is_empty() {
            self.written = range;
        } else if !range.is_empty() {
            self.written = self.written.start.min(range.start)..self.written.end.max(range.end);
        }
        Ok(())
    }

    #[inline]
    pub(super) fn post(self) -> Result<()> {
        self.allocation.post(self.stores, self.written)
    }
}

impl fmt::Debug for StoreScope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreScope").field("written", &self.written).finish_non_exhaustive()
    }
}
