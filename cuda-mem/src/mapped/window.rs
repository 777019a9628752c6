//! The part of an allocation that a value can access. Converts ranges of the part to ranges of the allocation.

use crate::Result;
use crate::range::{resolve, span};
use core::ops::{Range, RangeBounds};

/// The offset of a part in its allocation, and its length, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub offset: usize,
    pub length: usize,
}

impl Window {
    /// Checks that `length` bytes at `offset` lie within the part.
    #[inline]
    pub fn span(self, call: &'static str, offset: usize, length: usize) -> Result<Range<usize>> {
        Ok(self.of_allocation(span(call, offset, length, self.length)?))
    }

    /// Checks that a range lies within the part.
    #[inline]
    pub fn resolve(self, call: &'static str, range: impl RangeBounds<usize>) -> Result<Range<usize>> {
        Ok(self.of_allocation(resolve(call, range, self.length)?))
    }

    #[inline]
    fn of_allocation(self, range: Range<usize>) -> Range<usize> {
        self.offset + range.start..self.offset + range.end
    }
}
