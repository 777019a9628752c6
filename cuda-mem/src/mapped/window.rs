//! The part of an allocation that a value reaches: turns ranges of the part into ranges of the allocation.

use crate::Result;
use crate::range::{resolve, span};
use core::ops::{Range, RangeBounds};

/// Where a part begins in its allocation, and how long it is, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub offset: usize,
    pub length: usize,
}

impl Window {
    /// `length` bytes at `offset` of the part; an error if they do not lie within it.
    #[inline]
    pub fn span(self, call: &'static str, offset: usize, length: usize) -> Result<Range<usize>> {
        Ok(self.of_allocation(span(call, offset, length, self.length)?))
    }

    /// Any range of the part; an error if it does not lie within it.
    #[inline]
    pub fn resolve(self, call: &'static str, range: impl RangeBounds<usize>) -> Result<Range<usize>> {
        Ok(self.of_allocation(resolve(call, range, self.length)?))
    }

    #[inline]
    fn of_allocation(self, range: Range<usize>) -> Range<usize> {
        self.offset + range.start..self.offset + range.end
    }
}
