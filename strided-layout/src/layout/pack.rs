//! Other item sizes for the same bytes.

use super::{LayoutError, Numbers, Quantity, Result, StridedLayout, item_size_number, overflow, resolve_axis};

impl StridedLayout {
    /// The same bytes as elements of another size. The extent of `axis` changes; its stride must be 1, unless it has one
    /// element only. The axis may be counted from the end. `address` is the address of offset 0, which must be aligned for larger elements; 0 skips
    /// this check.
    ///
    /// # Errors
    ///
    /// Neither size divides the other; the axis is out of range, has extent 0, or its stride is not 1; the extent, the
    /// stride of another axis, the offset or the address is not a multiple of the larger element.
    ///
    /// ```
    /// use strided_layout::{Order, StridedLayout};
    /// let bytes = StridedLayout::dense(&[3, 8], 1, Order::C)?;
    /// let words = bytes.repacked(4, 0, -1)?;
    /// assert_eq!((words.shape(), words.strides()), (&[3, 2][..], &[2, 1][..]));
    /// assert_eq!(words.repacked(1, 0, -1)?, bytes);
    /// # Ok::<(), strided_layout::LayoutError>(())
    /// ```
    pub fn repacked(&self, item_size: usize, address: usize, axis: i64) -> Result<Self> {
        const OPERATION: &str = "StridedLayout::repacked";
        let axis = resolve_axis(OPERATION, axis, self.ndim())?;
        let (new, old) = (item_size_number(OPERATION, item_size)?, self.item_size as i64);
        if new % old != 0 && old % new != 0 {
            let rule = "must be a multiple or a divisor of the layout's item size";
            return Err(LayoutError::ItemSize { operation: OPERATION, size: item_size, rule });
        }
        let (extent, stride) = (self.shape[axis], self.strides[axis]);
        // The stride of an axis with one element leads nowhere.
        if stride != 1 && extent > 1 {
            let rule = "must be 1 to repack along this axis";
            return Err(LayoutError::Stride { operation: OPERATION, axis, stride, rule });
        }
        if extent == 0 {
            let rule = "must be at least 1 to repack along this axis";
            return Err(LayoutError::Extent { operation: OPERATION, axis, extent, rule });
        }
        if new >= old {
            self.packed(OPERATION, new / old, item_size, address, axis)
        } else {
            self.unpacked(OPERATION, old / new, item_size, axis)
        }
    }

    fn packed(
        &self,
        operation: &'static str,
        factor: i64,
        item_size: usize,
        address: usize,
        axis: usize,
    ) -> Result<Self> {
        let divide = |what: Quantity, value: i64| match value % factor {
            0 => Ok(value / factor),
            _ => Err(LayoutError::Indivisible { operation, what, value, divisor: factor }),
        };
        if !address.is_multiple_of(item_size) {
            let (value, divisor) = (address as i64, item_size as i64);
            return Err(LayoutError::Indivisible { operation, what: Quantity::Address, value, divisor });
        }
        let (mut shape, mut strides) = (self.shape.clone(), Numbers::new());
        shape[axis] = divide(Quantity::Extent(axis), shape[axis])?;
        for (n, stride) in self.strides.iter().enumerate() {
            strides.push(if n == axis { 1 } else { divide(Quantity::Stride(n), *stride)? });
        }
        let offset = divide(Quantity::Offset, self.offset)?;
        Self::checked(operation, shape, strides, item_size, offset)
    }

    fn unpacked(&self, operation: &'static str, factor: i64, item_size: usize, axis: usize) -> Result<Self> {
        let multiply = |value: i64| value.checked_mul(factor).ok_or(overflow(operation, "an extent or a stride"));
        let (mut shape, mut strides) = (self.shape.clone(), Numbers::new());
        shape[axis] = multiply(shape[axis])?;
        for (n, stride) in self.strides.iter().enumerate() {
            strides.push(if n == axis { 1 } else { multiply(*stride)? });
        }
        Self::checked(operation, shape, strides, item_size, multiply(self.offset)?)
    }

    /// The largest item size, at most `max_item_size` bytes, to which this layout can be [`repacked`](Self::repacked)
    /// along `axis`: the layout's item size times a power of two. If the axis is empty or its stride is not 1, this is
    /// the layout's item size.
    ///
    /// # Errors
    ///
    /// The axis is out of range; the limit is less than the item size.
    ///
    /// ```
    /// use strided_layout::{Order, StridedLayout};
    /// let bytes = StridedLayout::dense(&[12], 1, Order::C)?;
    /// assert_eq!(bytes.max_compatible_item_size(16, 0, -1)?, 4);
    /// # Ok::<(), strided_layout::LayoutError>(())
    /// ```
    #[doc(alias = "max_compatible_itemsize")]
    pub fn max_compatible_item_size(&self, max_item_size: usize, address: usize, axis: i64) -> Result<usize> {
        const OPERATION: &str = "StridedLayout::max_compatible_item_size";
        let axis = resolve_axis(OPERATION, axis, self.ndim())?;
        if max_item_size < self.item_size {
            let rule = "the limit must not be less than the layout's item size";
            return Err(LayoutError::ItemSize { operation: OPERATION, size: max_item_size, rule });
        }
        if self.strides[axis] != 1 || self.shape[axis] == 0 {
            return Ok(self.item_size);
        }
        let others = self.strides.iter().enumerate().filter(|(n, _)| *n != axis).map(|(_, stride)| *stride);
        // The lowest bit set in any of the numbers is the largest power of two that divides all of them.
        let bits = others.chain([self.shape[axis], self.offset]).fold(0, |bits, number| bits | number);
        let mut size = self.item_size;
        for _ in 0..bits.trailing_zeros() {
            match size.checked_mul(2) {
                Some(double) if double <= max_item_size && address.is_multiple_of(double) => size = double,
                _ => break,
            }
        }
        Ok(size)
    }
}
