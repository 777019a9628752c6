//! Parts of a layout.

use super::{LayoutError, Numbers, Result, StridedLayout, overflow};
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
    /// There are more indices than axes; an index is out of range; a step is 0; a stride overflows.
    pub fn sliced(&self, indices: &[Index]) -> Result<Self> {
        const OPERATION: &str = "StridedLayout::sliced";
        if indices.len() > self.ndim() {
            let (indices, dimensions) = (indices.len(), self.ndim());
            return Err(LayoutError::TooManyIndices { operation: OPERATION, indices, dimensions });
        }
        let (mut shape, mut strides, mut offset) = (Numbers::new(), Numbers::new(), self.offset);
        let mut overflows = false;
        for (axis, (extent, stride)) in self.axes().enumerate() {
            match indices.get(axis).copied().unwrap_or(Index::ALL) {
                Index::At(index) => {
                    let counted = if index < 0 { index.saturating_add(extent) } else { index };
                    if counted < 0 || counted >= extent {
                        return Err(LayoutError::Index { operation: OPERATION, axis, index, extent });
                    }
                    // Saturates only if another axis has no elements, because `check` has not tested the product then.
                    offset = offset.saturating_add(counted.saturating_mul(stride));
                }
                Index::Slice { step: 0, .. } => return Err(LayoutError::ZeroStep { operation: OPERATION, axis }),
                Index::Slice { start, end, step } => {
                    let (first, count) = slice_of(extent, start, end, step);
                    offset = offset.saturating_add(first.saturating_mul(stride));
                    shape.push(count);
                    // No element uses the stride of a slice with at most one index.
                    overflows |= count > 1 && stride.checked_mul(step).is_none();
                    strides.push(stride.saturating_mul(step));
                }
            }
        }
        if shape.contains(&0) {
            strides.fill(0);
        } else if overflows {
            return Err(overflow(OPERATION, "a stride"));
        }
        let part = Self { shape, strides, item_size: self.item_size, offset };
        // The elements of a part are elements of this layout, whose offsets fit.
        if self.is_empty() {
            part.check(OPERATION)?;
        }
        debug_assert_eq!(part.check(OPERATION), Ok(()));
        Ok(part)
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
