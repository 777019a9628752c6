//! What a layout is: its size, its order, whether elements share memory.

use super::{LayoutError, Result, StridedLayout};
use core::cmp::Reverse;
use core::ops::RangeInclusive;
use smallvec::SmallVec;

impl StridedLayout {
    /// The number of elements; 1 without dimensions.
    pub fn volume(&self) -> i64 {
        // Checked when the layout was made; with an extent of 0 only the whole product has to fit.
        if self.shape.contains(&0) { 0 } else { self.shape.iter().product() }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// The size of all elements, in bytes, as a dense layout has it.
    pub fn size_in_bytes(&self) -> usize {
        self.volume() as usize * self.item_size
    }

    /// The axes from the largest stride to the smallest, without signs; of equal strides the larger extent first, of
    /// equal extents the lower axis.
    pub fn stride_order(&self) -> Vec<usize> {
        self.axes_by_stride().to_vec()
    }

    /// [`stride_order`](Self::stride_order), without the heap for six axes.
    pub(super) fn axes_by_stride(&self) -> SmallVec<[usize; 6]> {
        let mut axes: SmallVec<[usize; 6]> = (0..self.ndim()).collect();
        axes.sort_by_key(|&axis| (Reverse(self.strides[axis].unsigned_abs()), Reverse(self.shape[axis]), axis));
        axes
    }

    /// Whether the last axis runs fastest, without gaps, as in C. Extents of 1 do not matter; a layout without elements
    /// is.
    pub fn is_contiguous_c(&self) -> bool {
        self.is_contiguous_along((0..self.ndim()).rev())
    }

    /// Whether the first axis runs fastest, without gaps, as in Fortran.
    pub fn is_contiguous_f(&self) -> bool {
        self.is_contiguous_along(0..self.ndim())
    }

    /// Whether the elements lie without gaps in some order of the axes.
    #[doc(alias = "is_contiguous_any")]
    pub fn is_contiguous(&self) -> bool {
        self.is_contiguous_along(self.axes_by_stride().iter().rev().copied())
    }

    /// Whether the elements lie without gaps, from offset 0 on.
    pub fn is_dense(&self) -> bool {
        self.offset == 0 && self.is_contiguous()
    }

    /// Whether strides are those of a dense layout, axes given from the fastest on.
    fn is_contiguous_along(&self, axes: impl Iterator<Item = usize>) -> bool {
        let mut next = 1;
        self.is_empty()
            || axes.filter(|&axis| self.shape[axis] != 1).all(|axis| {
                let fits = self.strides[axis] == next;
                next *= self.shape[axis];
                fits
            })
    }

    /// Whether no two elements share memory. It may say no of strides that interleave without touching.
    ///
    /// ```
    /// use cuda_mem::view::{Order, StridedLayout};
    /// let column = StridedLayout::dense(&[3, 1], 4, Order::C)?;
    /// assert!(column.is_unique() && !column.broadcast_to(&[3, 5])?.is_unique());
    /// # Ok::<(), cuda_mem::view::LayoutError>(())
    /// ```
    pub fn is_unique(&self) -> bool {
        if self.is_empty() {
            return true;
        }
        // Each stride has to step over all that the smaller ones reach.
        let mut reach = 0;
        self.axes_by_stride().iter().rev().filter(|&&axis| self.shape[axis] != 1).all(|&axis| {
            let stride = self.strides[axis].unsigned_abs();
            let steps_over = stride > reach;
            reach += stride * (self.shape[axis] - 1) as u64;
            steps_over
        })
    }

    /// The lowest and the highest offset of an element, in elements; none without elements.
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

    /// How large memory has to be, in bytes, that begins at offset 0 and holds all elements. The offset counts.
    ///
    /// # Errors
    ///
    /// Elements lie before offset 0.
    ///
    /// ```
    /// use cuda_mem::view::{Index, Order, StridedLayout};
    /// let reversed = StridedLayout::dense(&[10], 8, Order::C)?.sliced(&[Index::reversed()])?;
    /// assert_eq!(reversed.required_size()?, 80);
    /// assert!(reversed.with_offset(3)?.required_size().is_err());
    /// # Ok::<(), cuda_mem::view::LayoutError>(())
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
