//! Properties of layouts: size, order, and whether elements share memory.

use super::{LayoutError, Result, StridedLayout};
use crate::sums::Sum;
use core::cmp::Reverse;
use core::ops::RangeInclusive;
use smallvec::SmallVec;

impl StridedLayout {
    /// The number of elements; 1 without dimensions.
    pub fn volume(&self) -> i64 {
        // `check` has tested the product. With an extent of 0 the product of the others may overflow.
        if self.shape.contains(&0) { 0 } else { self.shape.iter().product() }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// The size of all elements in bytes, without gaps.
    pub fn size_in_bytes(&self) -> usize {
        self.volume() as usize * self.item_size
    }

    /// The axes by decreasing absolute stride, then by decreasing extent, then by increasing number.
    pub fn stride_order(&self) -> Vec<usize> {
        self.axes_by_stride().to_vec()
    }

    /// The axes by decreasing absolute stride, then by decreasing extent, then by increasing number; without an
    /// allocation for up to six axes.
    pub(super) fn axes_by_stride(&self) -> SmallVec<[usize; 6]> {
        let mut axes: SmallVec<[usize; 6]> = (0..self.ndim()).collect();
        axes.sort_by_key(|&axis| (Reverse(self.strides[axis].unsigned_abs()), Reverse(self.shape[axis]), axis));
        axes
    }

    /// Whether the elements lie without gaps and the last axis runs fastest, as in C. Axes of extent 1 do not matter. A
    /// layout without elements is contiguous.
    pub fn is_contiguous_c(&self) -> bool {
        self.is_contiguous_along((0..self.ndim()).rev())
    }

    /// Whether the elements lie without gaps and the first axis runs fastest, as in Fortran.
    pub fn is_contiguous_f(&self) -> bool {
        self.is_contiguous_along(0..self.ndim())
    }

    /// Whether the elements lie without gaps in some order of the axes.
    #[doc(alias = "is_contiguous_any")]
    pub fn is_contiguous(&self) -> bool {
        self.is_contiguous_along(self.axes_by_stride().iter().rev().copied())
    }

    /// Whether the elements lie without gaps from offset 0 on, in some order of the axes.
    pub fn is_dense(&self) -> bool {
        self.offset == 0 && self.is_contiguous()
    }

    /// Whether the strides are those of a dense layout. `axes` begins with the fastest axis.
    fn is_contiguous_along(&self, axes: impl Iterator<Item = usize>) -> bool {
        let mut next = 1;
        self.is_empty()
            || axes.filter(|&axis| self.shape[axis] != 1).all(|axis| {
                let fits = self.strides[axis] == next;
                next *= self.shape[axis];
                fits
            })
    }

    /// Whether no two elements share memory, also if their strides interleave. Returns false for contrived strides of
    /// three and more axes for which nothing but a long search would tell.
    ///
    /// ```
    /// use strided_layout::{Order, StridedLayout};
    /// let column = StridedLayout::dense(&[3, 1], 4, Order::C)?;
    /// assert!(column.is_unique() && !column.broadcast_to(&[3, 5])?.is_unique());
    /// # Ok::<(), strided_layout::LayoutError>(())
    /// ```
    pub fn is_unique(&self) -> bool {
        if self.is_empty() {
            return true;
        }
        // Each stride must exceed the reach of all smaller ones.
        let mut reach = 0;
        let nested = self.axes_by_stride().iter().rev().filter(|&&axis| self.shape[axis] != 1).all(|&axis| {
            let stride = self.strides[axis].unsigned_abs();
            let steps_over = stride > reach;
            reach += stride * (self.shape[axis] - 1) as u64;
            steps_over
        });
        nested || self.interleaves()
    }

    /// Whether no two elements share memory: the distance between two of them is nowhere 0.
    #[cold]
    fn interleaves(&self) -> bool {
        let axes: SmallVec<[(i128, i128); 6]> = self
            .axes()
            .filter(|(extent, _)| *extent > 1)
            .map(|(extent, stride)| (extent.into(), stride.into()))
            .collect();
        (0..axes.len()).all(|first| {
            // The elements differ first on this axis; the other order of the two is the same pair.
            let mut distance = Sum::default();
            distance.add(axes[first].1, 1, axes[first].0 - 1);
            for (extent, stride) in &axes[first + 1..] {
                distance.add(*stride, 1 - extent, extent - 1);
            }
            distance.reaches(0) == Some(false)
        })
    }

    /// The lowest and the highest offset of an element, in elements; `None` without elements.
    #[doc(alias("min_offset", "max_offset"))]
    pub fn offset_bounds(&self) -> Option<RangeInclusive<i64>> {
        if self.is_empty() {
            return None;
        }
        let (mut low, mut high) = (self.offset, self.offset);
        for (extent, stride) in self.shape.iter().zip(&self.strides) {
            let side = if *stride < 0 { &mut low } else { &mut high };
            *side += (extent - 1) * stride;
        }
        Some(low..=high)
    }

    /// The size in bytes of memory that begins at offset 0 and holds all elements. It includes the layout's offset.
    ///
    /// # Errors
    ///
    /// Elements lie before offset 0.
    ///
    /// ```
    /// use strided_layout::{Index, Order, StridedLayout};
    /// let reversed = StridedLayout::dense(&[10], 8, Order::C)?.sliced(&[Index::reversed()])?;
    /// assert_eq!(reversed.required_size()?, 80);
    /// assert!(reversed.with_offset(3)?.required_size().is_err());
    /// # Ok::<(), strided_layout::LayoutError>(())
    /// ```
    pub fn required_size(&self) -> Result<usize> {
        let Some(bounds) = self.offset_bounds() else { return Ok(0) };
        if *bounds.start() < 0 {
            let (operation, offset) = ("StridedLayout::required_size", *bounds.start());
            return Err(LayoutError::BeforeBegin { operation, offset });
        }
        Ok((bounds.end() + 1) as usize * self.item_size)
    }
}
