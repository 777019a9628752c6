//! The same bytes as larger or smaller elements.

use super::{LayoutError, Numbers, Quantity, Result, StridedLayout, item_size_number, overflow, resolve_axis};

impl StridedLayout {
    /// The same bytes as elements of another size: `axis`, whose stride has to be 1, gets fewer or more of them. The axis
    /// may be counted from the end. `address` is where offset 0 lies, if it is to be checked for the larger elements; 0 is
    /// aligned for all.
    ///
    /// # Errors
    ///
    /// Neither size divides the other; the axis is out of range, has no elements, or a stride that is not 1; the extent, an
    /// other axis's stride, the offset or the address is not a multiple of the larger element.
    ///
    /// ```
    /// use cuda_mem::view::{Order, StridedLayout};
    /// let bytes = StridedLayout::dense(&[3, 8], 1, Order::C)?;
    /// let words = bytes.repacked(4, 0, -1)?;
    /// assert_eq!((words.shape(), words.strides()), (&[3, 2][..], &[2, 1][..]));
    /// assert_eq!(words.repacked(1, 0, -1)?, bytes);
    /// # Ok::<(), cuda_mem::view::LayoutError>(())
    /// ```
    pub fn repacked(&self, item_size: usize, address: usize, axis: i64) -> Result<Self> {
        const OPERATION: &str = "StridedLayout::repacked";
        let axis = resolve_axis(OPERATION, axis, self.ndim())?;
        let (new, old) = (item_size_number(OPERATION, item_size)?, self.item_size as i64);
        if new % old != 0 && old % new != 0 {
            let rule = "one of the two item sizes has to be a multiple of the other";
            return Err(LayoutError::ItemSize { operation: OPERATION, size: item_size, rule });
        }
        let (extent, stride) = (self.shape[axis], self.strides[axis]);
        if stride != 1 {
            let rule = "elements are packed along an axis of stride 1";
            return Err(LayoutError::Stride { operation: OPERATION, axis, stride, rule });
        }
        if extent == 0 {
            let rule = "there has to be something to pack";
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

    /// The largest element, `max_item_size` bytes at most, that this layout can be [`repacked`](Self::repacked) to along
    /// `axis`: its own size times a power of two. The own size where the axis has not stride 1.
    ///
    /// # Errors
    ///
    /// The axis is out of range; the limit is less than the item size.
    ///
    /// ```
    /// use cuda_mem::view::{Order, StridedLayout};
    /// let bytes = StridedLayout::dense(&[12], 1, Order::C)?;
    /// assert_eq!(bytes.max_compatible_item_size(16, 0, -1)?, 4);
    /// # Ok::<(), cuda_mem::view::LayoutError>(())
    /// ```
    #[doc(alias = "max_compatible_itemsize")]
    pub fn max_compatible_item_size(&self, max_item_size: usize, address: usize, axis: i64) -> Result<usize> {
        const OPERATION: &str = "StridedLayout::max_compatible_item_size";
        let axis = resolve_axis(OPERATION, axis, self.ndim())?;
        if max_item_size < self.item_size {
            let rule = "the limit must not be less than the layout's own";
            return Err(LayoutError::ItemSize { operation: OPERATION, size: max_item_size, rule });
        }
        if self.strides[axis] != 1 || self.shape[axis] == 0 {
            return Ok(self.item_size);
        }
        let others = self.strides.iter().enumerate().filter(|(n, _)| *n != axis).map(|(_, stride)| *stride);
        // What all numbers are a multiple of, as a power of two: the lowest bit that is set in any of them.
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
