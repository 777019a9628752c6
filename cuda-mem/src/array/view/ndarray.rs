//! Layouts in `ndarray`'s form.

use super::StridedLayout;
use ndarray::{IxDyn, ShapeBuilder, StrideShape};

/// The address of the lowest element, the shape with absolute strides, and the axes to invert: `from_shape_ptr` takes
/// no negative strides. `None` if `ndarray` does not hold the extents, which is so only without elements.
pub(super) fn parts<T>(first: *mut T, layout: &StridedLayout) -> Option<(*mut T, StrideShape<IxDyn>, Vec<usize>)> {
    let extents: Vec<usize> = layout.shape().iter().map(|extent| *extent as usize).collect();
    let product =
        |bytes: usize, extent: &usize| bytes.checked_mul(*extent).filter(|bytes| *bytes <= isize::MAX as usize);
    extents.iter().filter(|extent| **extent != 0).try_fold(size_of::<T>().max(1), product)?;
    // In a layout the strides of an axis with extent 1, or of an empty array, are arbitrary. `ndarray` checks them.
    let taken = |extent: i64| extent > 1 && !layout.is_empty();
    let strides: Vec<i64> = layout.axes().map(|(extent, stride)| if taken(extent) { stride } else { 0 }).collect();
    let flipped: Vec<usize> = (0..strides.len()).filter(|&axis| strides[axis] < 0).collect();
    let back: i64 = flipped.iter().map(|&axis| strides[axis] * (layout.shape()[axis] - 1)).sum();
    let steps: Vec<usize> = strides.iter().map(|stride| stride.unsigned_abs() as usize).collect();
    Some((first.wrapping_offset(back as isize), IxDyn(&extents).strides(IxDyn(&steps)), flipped))
}

#[cfg(test)]
mod tests {
    use crate::array::view::{Index, Order, StridedLayout, StridedView};

    #[test]
    fn arrays_have_the_elements_of_the_view() {
        let mut elements: Vec<i32> = (0..24).collect();
        let layout = StridedLayout::dense(&[2, 3, 4], 4, Order::C).unwrap();
        let mut view = StridedView::of_mut_slice(&mut elements, layout).unwrap();
        let back = [Index::reversed(), Index::ALL, Index::from(1..).step(2)];
        let mut part = view.reborrow().sliced(&back).unwrap().permuted(&[2, 0, 1]).unwrap();
        let guard = part.read::<i32>().unwrap();
        let array = guard.array().unwrap();
        assert_eq!(array.shape(), [2, 2, 3]);
        assert_eq!(array.iter().collect::<Vec<_>>(), guard.iter().collect::<Vec<_>>());
        assert_eq!(array[[1, 0, 2]], 23);
        drop(guard);
        part.write::<i32>().unwrap().array_mut().unwrap()[[0, 1, 0]] = -1;
        assert_eq!(elements[1], -1);
    }

    #[test]
    fn arrays_without_elements_and_without_axes_are_arrays() {
        let mut elements = [7_i32; 3];
        for shape in [[0, i64::MAX, i64::MAX], [1 << 32, 0, 1 << 32], [isize::MAX as i64 / 4 + 1, 1, 0]] {
            let layout = StridedLayout::dense(&shape, 4, Order::C).unwrap();
            let mut view = StridedView::of_mut_slice(&mut elements, layout).unwrap();
            assert!(view.write::<i32>().unwrap().array_mut().is_none(), "{shape:?}");
            assert!(view.read::<i32>().unwrap().array().is_none(), "{shape:?}");
        }
        for (shape, expected) in [(&[][..], 1), (&[0, 3], 0), (&[1, 3, 1], 3)] {
            let layout = StridedLayout::dense(shape, 4, Order::C).unwrap();
            let mut view = StridedView::of_mut_slice(&mut elements, layout).unwrap();
            assert_eq!(view.read::<i32>().unwrap().array().unwrap().len(), expected);
        }
    }
}
