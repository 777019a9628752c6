//! The types of numbers in shapes and indices.

use super::Numbers;

mod sealed {
    pub trait Sealed {}
}

/// A number in a shape or in an index: `usize`, as lengths are, or a signed type, for the -1 that stands for "the rest".
///
/// ```
/// use strided_layout::{Order, StridedLayout};
/// let pixels = vec![0_u8; 480 * 640];
/// let image = StridedLayout::dense(&[pixels.len() / 640, 640], 1, Order::C)?;
/// assert_eq!(image.reshaped(&[-1, 320])?.shape(), [960, 320]);
/// # Ok::<(), strided_layout::LayoutError>(())
/// ```
pub trait Extent: Copy + sealed::Sealed {
    /// The number; `i64::MAX` in place of a larger one, which no layout has.
    fn to_i64(self) -> i64;
}

macro_rules! extents {
    ($($number:ty)*) => {
        $(
            impl sealed::Sealed for $number {}
            impl Extent for $number {
                fn to_i64(self) -> i64 {
                    i64::try_from(self).unwrap_or(i64::MAX)
                }
            }
        )*
    };
}

extents!(i32 u32 i64 usize);

/// The numbers of a shape.
pub(super) fn numbers(shape: &[impl Extent]) -> Numbers {
    shape.iter().map(|extent| extent.to_i64()).collect()
}
