//! Other shapes for the same elements.

use super::extent::{Extent, numbers};
use super::{LayoutError, Numbers, Result, StridedLayout, check_dimensions, check_permutation, overflow, resolve_axis};
use core::ops::{Bound, RangeBounds};
use smallvec::SmallVec;

impl StridedLayout {
    /// The same elements, in C order, in another shape. One extent may be -1; it is computed from the others.
    ///
    /// # Errors
    ///
    /// The shapes differ in their number of elements; the -1 is ambiguous; no strides produce the shape without a copy.
    ///
    /// ```
    /// use strided_layout::{Order, StridedLayout};
    /// let layout = StridedLayout::dense(&[12, 11], 4, Order::C)?;
    /// assert_eq!(layout.reshaped(&[3, -1, 11])?.strides(), [44, 11, 1]);
    /// assert!(layout.permuted(&[1, 0])?.reshaped(&[-1]).is_err());
    /// # Ok::<(), strided_layout::LayoutError>(())
    /// ```
    pub fn reshaped(&self, shape: &[impl Extent]) -> Result<Self> {
        const OPERATION: &str = "StridedLayout::reshaped";
        check_dimensions(OPERATION, shape.len())?;
        let shape = self.resolve_shape(OPERATION, numbers(shape))?;
        let strides = match self.is_empty() {
            true => SmallVec::from_elem(0, shape.len()),
            false => self
                .strides_for(&shape)
                .map_err(|axis| LayoutError::IncompatibleStrides { operation: OPERATION, axis })?,
        };
        Self::checked(OPERATION, shape, strides, self.item_size, self.offset)
    }

    /// Replaces the -1 in a new shape, and checks the number of elements.
    fn resolve_shape(&self, operation: &'static str, shape: Numbers) -> Result<Numbers> {
        let mut found = shape.clone();
        let (mut known, mut unknown, mut empty) = (1_i64, None, false);
        for (axis, &extent) in shape.iter().enumerate() {
            match extent {
                -1 if unknown.is_none() => unknown = Some(axis),
                -1 => return Err(LayoutError::TwoUnknown { operation, axis }),
                ..0 => {
                    let rule = "extents must not be negative, except for one -1";
                    return Err(LayoutError::Extent { operation, axis, extent, rule });
                }
                0 => empty = true,
                _ => known = known.checked_mul(extent).ok_or(overflow(operation, "the number of elements"))?,
            }
        }
        let (volume, known) = (self.volume(), if empty { 0 } else { known });
        match unknown {
            Some(axis) if empty => return Err(LayoutError::Ambiguous { operation, axis }),
            Some(axis) if volume % known == 0 => found[axis] = volume / known,
            Some(_) => {
                let what = super::Quantity::Volume;
                return Err(LayoutError::Indivisible { operation, what, value: volume, divisor: known });
            }
            None if known == volume => {}
            None => return Err(LayoutError::Volume { operation, from: volume, to: known }),
        }
        Ok(found)
    }

    /// The strides of a shape with the same number of elements, which is not 0; `Err` is the first axis without
    /// possible strides. Groups axes of both shapes with equal products; the old axes of each group must form one run.
    fn strides_for(&self, shape: &[i64]) -> core::result::Result<Numbers, usize> {
        let old: SmallVec<[(i64, i64); 6]> = self.axes().filter(|(extent, _)| *extent != 1).collect();
        let mut strides: Numbers = SmallVec::from_elem(1, shape.len());
        let (mut axis, mut taken) = (0, 0);
        while axis < shape.len() && taken < old.len() {
            let (first, first_taken) = (axis, taken);
            let (mut new_count, mut old_count) = (shape[axis], old[taken].0);
            (axis, taken) = (axis + 1, taken + 1);
            while new_count != old_count {
                if new_count < old_count {
                    new_count *= shape[axis];
                    axis += 1;
                } else {
                    old_count *= old[taken].0;
                    taken += 1;
                }
            }
            if old[first_taken..taken].windows(2).any(|pair| !is_one_run(pair[0], pair[1])) {
                return Err(first);
            }
            let mut stride = old[taken - 1].1;
            for place in (first..axis).rev() {
                strides[place] = stride;
                // Saturates only if no axis uses the stride, because all axes before have extent 1.
                stride = stride.saturating_mul(shape[place]);
            }
        }
        let last = if axis == 0 { 1 } else { strides[axis - 1] };
        strides[axis..].fill(last);
        Ok(strides)
    }

    /// The extent and the stride of each axis.
    pub fn axes(&self) -> impl DoubleEndedIterator<Item = (i64, i64)> {
        self.shape.iter().copied().zip(self.strides.iter().copied())
    }

    /// The axes in another order. Axes may be counted from the end.
    ///
    /// # Errors
    ///
    /// An axis is out of range, named twice, or not named.
    #[doc(alias = "transpose")]
    pub fn permuted(&self, axes: &[i64]) -> Result<Self> {
        const OPERATION: &str = "StridedLayout::permuted";
        if axes.len() != self.ndim() {
            let (length, expected) = (axes.len(), self.ndim());
            return Err(LayoutError::Length { operation: OPERATION, argument: "the list of axes", length, expected });
        }
        let axes = axes.iter().map(|axis| resolve_axis(OPERATION, *axis, self.ndim()));
        let axes: SmallVec<[usize; 6]> = axes.collect::<Result<_>>()?;
        check_permutation(OPERATION, &axes, self.ndim())?;
        let (shape, strides) = axes.iter().map(|&axis| (self.shape[axis], self.strides[axis])).unzip();
        Self::checked(OPERATION, shape, strides, self.item_size, self.offset)
    }

    /// The axes in reverse order: rows become columns.
    ///
    /// ```
    /// use strided_layout::{Order, StridedLayout};
    /// let layout = StridedLayout::dense(&[2, 3], 4, Order::C)?.transposed();
    /// assert_eq!((layout.shape(), layout.strides()), (&[3, 2][..], &[1, 3][..]));
    /// # Ok::<(), strided_layout::LayoutError>(())
    /// ```
    #[must_use]
    pub fn transposed(mut self) -> Self {
        self.shape.reverse();
        self.strides.reverse();
        self
    }

    /// The axes that can be merged with the next axis: bit *i* for axes *i* and *i* + 1. The masks of two layouts of
    /// the same shape combine with `&`.
    #[doc(alias = "flattened_axis_mask")]
    pub fn merge_mask(&self) -> u64 {
        let axes: SmallVec<[(i64, i64); 6]> = self.axes().collect();
        let runs = axes.windows(2).enumerate().filter(|(_, pair)| is_one_run(pair[0], pair[1]));
        runs.fold(0, |mask, (axis, _)| mask | 1 << axis)
    }

    /// Merges all neighbouring axes that form one run of memory.
    ///
    /// ```
    /// use strided_layout::{Order, StridedLayout};
    /// let layout = StridedLayout::dense(&[5, 2, 4, 3], 4, Order::C)?;
    /// assert_eq!(layout.flattened().shape(), [120]);
    /// let rows = layout.sliced(&[(..).into(), (0..1).into()])?;
    /// assert_eq!((rows.flattened().shape(), rows.flattened().strides()), (&[5, 12][..], &[24, 1][..]));
    /// # Ok::<(), strided_layout::LayoutError>(())
    /// ```
    #[must_use]
    pub fn flattened(&self) -> Self {
        let (shape, strides): (Numbers, Numbers) = match self.ndim() {
            _ if self.is_empty() => ([0][..].into(), [0][..].into()),
            0 => ([1][..].into(), [1][..].into()),
            _ => self.merged(0, self.ndim(), self.merge_mask()),
        };
        Self { shape, strides, item_size: self.item_size, offset: self.offset }
    }

    /// Merges neighbouring axes of a range that form one run of memory, where `mask` ([`merge_mask`](Self::merge_mask))
    /// allows it. With the same mask, two layouts get the same shape.
    ///
    /// # Errors
    ///
    /// The range does not lie within the axes.
    pub fn flattened_with(&self, axes: impl RangeBounds<usize>, mask: u64) -> Result<Self> {
        const OPERATION: &str = "StridedLayout::flattened_with";
        let dimensions = self.ndim();
        let start = match axes.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match axes.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => dimensions,
        };
        if start > end || end > dimensions {
            return Err(LayoutError::Axis { operation: OPERATION, axis: dimensions as i64, dimensions });
        }
        let (shape, strides) = self.merged(start, end, mask & self.merge_mask());
        Self::checked(OPERATION, shape, strides, self.item_size, self.offset)
    }

    fn merged(&self, start: usize, end: usize, mask: u64) -> (Numbers, Numbers) {
        let (mut shape, mut strides) = (Numbers::new(), Numbers::new());
        for (axis, (extent, stride)) in self.axes().enumerate() {
            match (shape.last_mut(), strides.last_mut()) {
                (Some(before), Some(place)) if axis > start && axis < end && mask & (1 << (axis - 1)) != 0 => {
                    *before *= extent;
                    *place = stride;
                }
                _ => {
                    shape.push(extent);
                    strides.push(stride);
                }
            }
        }
        (shape, strides)
    }

    /// Removes the axes of extent 1.
    #[must_use]
    pub fn squeezed(&self) -> Self {
        let (shape, strides) = match self.is_empty() {
            true => ([0][..].into(), [0][..].into()),
            false => self.axes().filter(|(extent, _)| *extent != 1).unzip(),
        };
        Self { shape, strides, item_size: self.item_size, offset: self.offset }
    }

    /// Inserts axes of extent 1. `axes` holds their positions in the new shape.
    ///
    /// # Errors
    ///
    /// A position is past the end, or named twice; there are too many dimensions.
    #[doc(alias = "expand_dims")]
    pub fn unsqueezed(&self, axes: &[usize]) -> Result<Self> {
        const OPERATION: &str = "StridedLayout::unsqueezed";
        let dimensions = self.ndim() + axes.len();
        check_dimensions(OPERATION, dimensions)?;
        let mut new = 0_u64;
        for &axis in axes {
            if axis >= dimensions {
                let axis = i64::try_from(axis).unwrap_or(i64::MAX);
                return Err(LayoutError::Axis { operation: OPERATION, axis, dimensions });
            }
            if new & (1 << axis) != 0 {
                return Err(LayoutError::RepeatedAxis { operation: OPERATION, axis });
            }
            new |= 1 << axis;
        }
        let (mut shape, mut strides): (Numbers, Numbers) = (SmallVec::from_elem(1, dimensions), Numbers::new());
        strides.resize(dimensions, 1);
        // New axes at the end have the stride of the axis before them, so that they can be merged too.
        let (mut old, mut run) = (self.axes().rev(), self.strides.last().copied().unwrap_or(1));
        for axis in (0..dimensions).rev() {
            if new & (1 << axis) != 0 {
                // Continues the run of the axes after it, so that the axis can be merged with them.
                strides[axis] = run;
            } else if let Some((extent, stride)) = old.next() {
                (shape[axis], strides[axis]) = (extent, stride);
                run = stride.saturating_mul(extent);
            }
        }
        Self::checked(OPERATION, shape, strides, self.item_size, self.offset)
    }

    /// Repeats axes of extent 1, and adds axes in front. Repeated and added axes have stride 0.
    ///
    /// # Errors
    ///
    /// The new shape has fewer dimensions; an extent changes that is not 1; the number of elements overflows.
    pub fn broadcast_to(&self, shape: &[impl Extent]) -> Result<Self> {
        const OPERATION: &str = "StridedLayout::broadcast_to";
        let shape = numbers(shape);
        let Some(added) = shape.len().checked_sub(self.ndim()) else {
            let (length, expected) = (shape.len(), self.ndim());
            return Err(LayoutError::Length { operation: OPERATION, argument: "the new shape", length, expected });
        };
        let mut strides: Numbers = SmallVec::from_elem(0, shape.len());
        for (n, (from, stride)) in self.axes().enumerate() {
            let axis = added + n;
            match shape[axis] {
                to if to == from => strides[axis] = stride,
                _ if from == 1 => {}
                to => return Err(LayoutError::Broadcast { operation: OPERATION, axis, from, to }),
            }
        }
        Self::checked(OPERATION, shape, strides, self.item_size, self.offset)
    }
}

/// Whether the outer axis continues the inner one, so that both can be merged.
fn is_one_run(outer: (i64, i64), inner: (i64, i64)) -> bool {
    inner.0.checked_mul(inner.1) == Some(outer.1)
}
