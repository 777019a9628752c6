//! The positions of an array's elements in memory.

mod error;
mod extent;
mod pack;
mod properties;
mod shape;
mod slice;
#[cfg(test)]
mod tests;

use core::fmt;
use smallvec::SmallVec;

pub use error::{LayoutError, Quantity};
pub use extent::Extent;
use extent::numbers;
pub use slice::Index;

/// The most dimensions of a layout, as in numpy.
pub const MAX_DIMENSIONS: usize = 64;

/// One number for each dimension. Arrays of up to six dimensions need no allocation.
pub type Numbers = SmallVec<[i64; 6]>;

/// The result of an operation on a layout.
type Result<T, E = LayoutError> = core::result::Result<T, E>;

/// The positions of an array's elements: shape, strides, the size of an element, and the offset of the first one. A
/// layout is a plain value without memory.
///
/// Strides and the offset are in elements, and may be negative. Every number computed from a layout, also in bytes,
/// fits into 64 bits; the constructors refuse other layouts.
///
/// ```
/// use strided_layout::{Order, StridedLayout};
/// let image = StridedLayout::dense(&[480, 640, 3], 1, Order::C)?;
/// assert_eq!(image.strides(), [1920, 3, 1]);
/// let mirrored = image.sliced(&[(..).into(), strided_layout::Index::reversed()])?;
/// assert_eq!((mirrored.strides(), mirrored.offset()), (&[1920, -3, 1][..], 639 * 3));
/// assert!(mirrored.reshaped(&[-1, 3]).is_err(), "rows run backwards: no strides produce that shape");
/// # Ok::<(), strided_layout::LayoutError>(())
/// ```
#[derive(PartialEq, Eq, Hash)]
pub struct StridedLayout {
    shape: Numbers,
    strides: Numbers,
    item_size: usize,
    offset: i64,
}

/// The order of a dense layout's axes in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order<'axes> {
    /// The last axis runs fastest, as in C.
    #[default]
    C,
    /// The first axis runs fastest, as in Fortran.
    F,
    /// Axes from the slowest to the fastest.
    Axes(&'axes [usize]),
}

impl StridedLayout {
    /// A layout with strides in elements.
    ///
    /// # Errors
    ///
    /// The lists differ in length or are longer than [`MAX_DIMENSIONS`]; an extent is negative; the item size is 0; a
    /// number overflows.
    pub fn new(shape: &[impl Extent], strides: &[i64], item_size: usize) -> Result<Self> {
        Self::checked("StridedLayout::new", numbers(shape), strides.into(), item_size, 0)
    }

    /// A layout with strides in bytes, as in numpy and the CUDA Array Interface.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new). A stride is not a multiple of the item size.
    pub fn with_byte_strides(shape: &[impl Extent], byte_strides: &[i64], item_size: usize) -> Result<Self> {
        const OPERATION: &str = "StridedLayout::with_byte_strides";
        let divisor = item_size_number(OPERATION, item_size)?;
        let divide = |(axis, value): (usize, &i64)| match value % divisor {
            0 => Ok(value / divisor),
            _ => {
                let what = Quantity::Stride(axis);
                Err(LayoutError::Indivisible { operation: OPERATION, what, value: *value, divisor })
            }
        };
        let strides = byte_strides.iter().enumerate().map(divide).collect::<Result<_>>()?;
        Self::checked(OPERATION, numbers(shape), strides, item_size, 0)
    }

    /// A layout without gaps, with the axes in this order. All strides of a layout without elements are 0.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new). The order does not name each axis once.
    pub fn dense(shape: &[impl Extent], item_size: usize, order: Order<'_>) -> Result<Self> {
        const OPERATION: &str = "StridedLayout::dense";
        check_dimensions(OPERATION, shape.len())?;
        let shape = numbers(shape);
        if let Order::Axes(axes) = order {
            check_permutation(OPERATION, axes, shape.len())?;
        }
        // If a stride overflows, so does the number of elements, which `checked` tests.
        let strides = match order {
            Order::C => dense_strides(&shape, (0..shape.len()).rev()),
            Order::F => dense_strides(&shape, 0..shape.len()),
            Order::Axes(axes) => dense_strides(&shape, axes.iter().rev().copied()),
        };
        Self::checked(OPERATION, shape, strides, item_size, 0)
    }

    /// The same layout with another offset, in elements.
    ///
    /// # Errors
    ///
    /// A number overflows.
    pub fn with_offset(mut self, offset: i64) -> Result<Self> {
        self.offset = offset;
        self.check("StridedLayout::with_offset")?;
        Ok(self)
    }

    /// A layout of the same shape without gaps. The axes keep the order of their strides, as with numpy's order "K".
    #[must_use]
    pub fn to_dense(&self) -> Self {
        if self.is_dense() {
            return self.clone();
        }
        let strides = dense_strides(&self.shape, self.axes_by_stride().iter().rev().copied());
        Self { shape: self.shape.clone(), strides, item_size: self.item_size, offset: 0 }
    }

    /// A layout of the same shape without gaps, with the axes in this order.
    ///
    /// # Errors
    ///
    /// The order does not name each axis once.
    pub fn to_dense_in(&self, order: Order<'_>) -> Result<Self> {
        match order {
            Order::C if self.offset == 0 && self.is_contiguous_c() => Ok(self.clone()),
            Order::F if self.offset == 0 && self.is_contiguous_f() => Ok(self.clone()),
            _ => Self::dense(&self.shape, self.item_size, order),
        }
    }

    /// The number of dimensions.
    pub fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// The extents.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// The strides, in elements.
    pub fn strides(&self) -> &[i64] {
        &self.strides
    }

    /// The strides, in bytes.
    pub fn byte_strides(&self) -> Vec<i64> {
        // Saturates only for strides that no element uses: of axes with extent 1, and of empty layouts.
        self.strides.iter().map(|stride| stride.saturating_mul(self.item_size as i64)).collect()
    }

    /// The size of an element, in bytes.
    pub fn item_size(&self) -> usize {
        self.item_size
    }

    /// The offset of the element with indices 0, in elements.
    #[doc(alias = "slice_offset")]
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// The offset of the element with indices 0, in bytes.
    pub fn byte_offset(&self) -> i64 {
        self.offset * self.item_size as i64
    }

    /// A layout after [`check`](Self::check).
    fn checked(
        operation: &'static str,
        shape: Numbers,
        strides: Numbers,
        item_size: usize,
        offset: i64,
    ) -> Result<Self> {
        let layout = Self { shape, strides, item_size, offset };
        layout.check(operation)?;
        Ok(layout)
    }

    /// Checks the invariants: all numbers that other operations compute without checks fit into 64 bits.
    fn check(&self, operation: &'static str) -> Result<()> {
        check_dimensions(operation, self.shape.len())?;
        if self.strides.len() != self.shape.len() {
            let (length, expected) = (self.strides.len(), self.shape.len());
            return Err(LayoutError::Length { operation, argument: "the list of strides", length, expected });
        }
        let item_size = item_size_number(operation, self.item_size)?;
        let (mut bytes, mut low, mut high) = (item_size, self.offset, self.offset);
        let (mut is_empty, mut too_large, mut outside) = (false, false, false);
        for (axis, (extent, stride)) in self.shape.iter().copied().zip(self.strides.iter().copied()).enumerate() {
            if extent < 0 {
                let rule = "extents must not be negative";
                return Err(LayoutError::Extent { operation, axis, extent, rule });
            }
            is_empty |= extent == 0;
            let (product, overflows) = bytes.overflowing_mul(extent);
            bytes = product;
            too_large |= overflows;
            let (reach, overflows) = (extent - 1).overflowing_mul(stride);
            let side = if stride < 0 { &mut low } else { &mut high };
            let (end, is_past) = side.overflowing_add(reach);
            *side = end;
            outside |= overflows | is_past;
        }
        if is_empty {
            // No stride counts.
            (low, high, outside) = (self.offset, self.offset, false);
        } else if too_large {
            return Err(overflow(operation, "the number of bytes"));
        }
        let in_bytes = |number: i64| number.checked_mul(item_size);
        if outside || in_bytes(low).is_none() || high.checked_add(1).and_then(in_bytes).is_none() {
            return Err(overflow(operation, "the offset of an element"));
        }
        Ok(())
    }
}

impl Clone for StridedLayout {
    fn clone(&self) -> Self {
        // The clone of a `SmallVec` copies number by number.
        let (shape, strides) = (Numbers::from_slice(&self.shape), Numbers::from_slice(&self.strides));
        Self { shape, strides, ..*self }
    }
}

impl fmt::Debug for StridedLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("StridedLayout");
        text.field("shape", &self.shape).field("strides", &self.strides).field("item_size", &self.item_size);
        if self.offset != 0 {
            text.field("offset", &self.offset);
        }
        text.finish()
    }
}

/// The strides of a dense layout. `axes` begins with the fastest axis.
fn dense_strides(shape: &[i64], axes: impl Iterator<Item = usize>) -> Numbers {
    let mut strides: Numbers = SmallVec::from_elem(0, shape.len());
    if !shape.contains(&0) {
        axes.fold(1_i64, |next, axis| {
            strides[axis] = next;
            next.saturating_mul(shape[axis])
        });
    }
    strides
}

fn overflow(operation: &'static str, what: &'static str) -> LayoutError {
    LayoutError::Overflow { operation, what }
}

fn check_dimensions(operation: &'static str, dimensions: usize) -> Result<()> {
    if dimensions <= MAX_DIMENSIONS { Ok(()) } else { Err(LayoutError::TooManyDimensions { operation, dimensions }) }
}

/// The item size as a signed number; an error if it is 0 or too large.
fn item_size_number(operation: &'static str, size: usize) -> Result<i64> {
    let invalid = |rule| LayoutError::ItemSize { operation, size, rule };
    match i64::try_from(size) {
        Ok(0) => Err(invalid("must be at least 1")),
        Ok(number) => Ok(number),
        Err(_) => Err(invalid("must fit into 63 bits")),
    }
}

/// Resolves an axis that may be counted from the end.
fn resolve_axis(operation: &'static str, axis: i64, dimensions: usize) -> Result<usize> {
    let counted = if axis < 0 { axis + dimensions as i64 } else { axis };
    let found = usize::try_from(counted).ok().filter(|found| *found < dimensions);
    found.ok_or(LayoutError::Axis { operation, axis, dimensions })
}

/// Checks that each axis is named once.
fn check_permutation(operation: &'static str, axes: &[usize], dimensions: usize) -> Result<()> {
    if axes.len() != dimensions {
        let (length, expected) = (axes.len(), dimensions);
        return Err(LayoutError::Length { operation, argument: "the list of axes", length, expected });
    }
    // One bit for each axis: there are at most 64.
    let mut seen = 0_u64;
    for &axis in axes {
        if axis >= dimensions {
            let axis = i64::try_from(axis).unwrap_or(i64::MAX);
            return Err(LayoutError::Axis { operation, axis, dimensions });
        }
        if seen & (1 << axis) != 0 {
            return Err(LayoutError::RepeatedAxis { operation, axis });
        }
        seen |= 1 << axis;
    }
    Ok(())
}
