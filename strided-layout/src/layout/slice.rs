//! Parts of a layout.

use super::{LayoutError, Result, StridedLayout, overflow};
use core::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo};

/// Selects a part of an axis. Negative numbers count from the end, as in Python.
///
/// ```
/// use strided_layout::{Index, Order, StridedLayout};
/// let layout = StridedLayout::dense(&[10, 10], 1, Order::C)?;
/// let part = layout.sliced(&[Index::from(2..-2).step(3), 7.into()])?;
/// assert_eq!((part.shape(), part.strides(), part.offset()), (&[2][..], &[30][..], 27));
/// # Ok::<(), strided_layout::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// One index. The axis is removed.
    At(i64),
    /// Every `step`-th index from `start` on, before `end`. A `start` or `end` outside the axis is clamped to it.
    Slice {
        /// The first index. By default the axis's first index, or its last if the step is negative.
        start: Option<i64>,
        /// The end, exclusive. By default the slice includes the last index, or the first if the step is negative.
        end: Option<i64>,
        /// The distance between indices; not 0.
        step: i64,
    },
}

impl Index {
    /// A whole axis.
    pub const ALL: Self = Self::Slice { start: None, end: None, step: 1 };

    /// A whole axis, backwards.
    pub const fn reversed() -> Self {
        Self::Slice { start: None, end: None, step: -1 }
    }

    /// The same slice with another step. A single index stays unchanged.
    #[must_use]
    pub const fn step(self, step: i64) -> Self {
        match self {
            Self::Slice { start, end, .. } => Self::Slice { start, end, step },
            at => at,
        }
    }
}

impl From<i64> for Index {
    fn from(index: i64) -> Self {
        Self::At(index)
    }
}

impl From<RangeFull> for Index {
    fn from(_: RangeFull) -> Self {
        Self::ALL
    }
}

impl From<Range<i64>> for Index {
    fn from(range: Range<i64>) -> Self {
        Self::Slice { start: Some(range.start), end: Some(range.end), step: 1 }
    }
}

impl From<RangeFrom<i64>> for Index {
    fn from(range: RangeFrom<i64>) -> Self {
        Self::Slice { start: Some(range.start), end: None, step: 1 }
    }
}

impl From<RangeTo<i64>> for Index {
    fn from(range: RangeTo<i64>) -> Self {
        Self::Slice { start: None, end: Some(range.end), step: 1 }
    }
}

impl StridedLayout {
    /// A part of each axis; axes after the last index stay whole. All strides of a part without elements are 0.
    ///
    /// # Errors
    ///
    /// There are more indices than axes; an index is out of range; a step is 0; a stride, or the offset of a part without
    /// elements, overflows.
    pub fn sliced(&self, indices: &[Index]) -> Result<Self> {
        let mut part = self.clone();
        part.slice_in_place(indices)?;
        Ok(part)
    }

    /// Replaces the layout by a [part](Self::sliced) of it.
    ///
    /// # Errors
    ///
    /// As [`sliced`](Self::sliced). The layout is unchanged then.
    pub fn slice_in_place(&mut self, indices: &[Index]) -> Result<()> {
        const OPERATION: &str = "StridedLayout::sliced";
        if indices.len() > self.ndim() {
            let (indices, dimensions) = (indices.len(), self.ndim());
            return Err(LayoutError::TooManyIndices { operation: OPERATION, indices, dimensions });
        }
        let mut overflows = false;
        for (axis, (index, (extent, stride))) in indices.iter().zip(self.axes()).enumerate() {
            match *index {
                Index::At(index) if index >= extent || index < -extent => {
                    return Err(LayoutError::Index { operation: OPERATION, axis, index, extent });
                }
                Index::Slice { step: 0, .. } => return Err(LayoutError::ZeroStep { operation: OPERATION, axis }),
                // No element uses the stride of a slice with at most one index.
                Index::Slice { start, end, step } => {
                    overflows |= stride.checked_mul(step).is_none() && slice_of(extent, start, end, step).1 > 1;
                }
                Index::At(_) => {}
            }
        }
        if self.is_empty() || overflows {
            let mut part = self.clone();
            part.cut(indices);
            if overflows && !part.is_empty() {
                return Err(overflow(OPERATION, "a stride"));
            }
            part.check(OPERATION)?;
            *self = part;
        } else {
            // The elements of a part are elements of this layout, whose offsets fit.
            self.cut(indices);
            debug_assert_eq!(self.check(OPERATION), Ok(()));
        }
        Ok(())
    }

    /// Takes valid indices. Numbers that elements use do not saturate, unless a stride overflows.
    fn cut(&mut self, indices: &[Index]) {
        let (shape, strides) = (&mut self.shape[..], &mut self.strides[..]);
        let mut kept = 0;
        for axis in 0..shape.len().min(strides.len()) {
            let (extent, stride) = (shape[axis], strides[axis]);
            let (first, left) = match indices.get(axis) {
                Some(Index::At(index)) => (if *index < 0 { index + extent } else { *index }, None),
                Some(Index::Slice { start, end, step }) => {
                    let (first, count) = slice_of(extent, *start, *end, *step);
                    (first, Some((count, stride.saturating_mul(*step))))
                }
                None => (0, Some((extent, stride))),
            };
            self.offset = self.offset.saturating_add(first.saturating_mul(stride));
            if let Some(left) = left {
                (shape[kept], strides[kept]) = left;
                kept += 1;
            }
        }
        self.shape.truncate(kept);
        self.strides.truncate(kept);
        if self.is_empty() {
            self.strides.fill(0);
        }
    }
}

/// The first index and the number of indices of a slice, by Python's rules. An empty slice begins at 0.
fn slice_of(extent: i64, start: Option<i64>, end: Option<i64>, step: i64) -> (i64, i64) {
    let limits: RangeInclusive<i64> = if step > 0 { 0..=extent } else { -1..=extent - 1 };
    let counted = |index: i64| {
        let index = if index < 0 { index.saturating_add(extent) } else { index };
        index.clamp(*limits.start(), *limits.end())
    };
    let (low, high) = (*limits.start(), *limits.end());
    let (first, last) = if step > 0 { (low, high) } else { (high, low) };
    let (start, end) = (start.map_or(first, counted), end.map_or(last, counted));
    let length = if step > 0 { end - start } else { start - end };
    if length <= 0 {
        return (0, 0);
    }
    // The count is at least 1, and at most the extent.
    (start, ((length - 1) as u64 / step.unsigned_abs()) as i64 + 1)
}
