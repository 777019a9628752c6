//! The laws of layouts. `ffi-tests/rust/tests/arrays/layouts` compares layouts with numpy's.

use super::*;
use proptest::prelude::*;

/// The offsets of all elements in C order, by the definition.
fn offsets(layout: &StridedLayout) -> Vec<i64> {
    layout.axes().fold(vec![layout.offset()], |starts, (extent, stride)| {
        starts.iter().flat_map(|start| (0..extent).map(move |index| start + index * stride)).collect()
    })
}

/// Small layouts with any strides.
fn small() -> impl Strategy<Value = StridedLayout> {
    let axis = (0..5_i64, prop_oneof![-9..9_i64, Just(1)]);
    (prop::collection::vec(axis, 0..5), prop_oneof![Just(1_usize), Just(4), Just(6)], -50..50_i64).prop_map(
        |(axes, item_size, offset)| {
            let (shape, strides): (Vec<i64>, Vec<i64>) = axes.into_iter().unzip();
            StridedLayout::new(&shape, &strides, item_size).unwrap().with_offset(offset).unwrap()
        },
    )
}

/// Layouts from arbitrary numbers; `new` refuses most of them.
fn wild() -> impl Strategy<Value = (Vec<i64>, Vec<i64>, usize, i64)> {
    let number = || prop_oneof![-3..4_i64, any::<i64>(), Just(i64::MAX), Just(i64::MIN), Just(1 << 31)];
    let axes = prop::collection::vec((number(), number()), 0..6).prop_map(|axes| axes.into_iter().unzip());
    (axes, prop_oneof![0..4_usize, any::<usize>()], number())
        .prop_map(|((shape, strides), size, offset)| (shape, strides, size, offset))
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn bounds_and_uniqueness_are_those_of_the_offsets(layout in small()) {
        let mut all = offsets(&layout);
        all.sort_unstable();
        prop_assert_eq!(layout.volume() as usize, all.len());
        prop_assert_eq!(layout.offset_bounds().map(|bounds| bounds.into_inner()), all.first().copied().zip(all.last().copied()));
        if all.iter().any(|offset| *offset < 0) {
            prop_assert!(layout.required_size().is_err());
        } else {
            prop_assert_eq!(layout.required_size().unwrap() as i64, all.last().map_or(0, |last| (last + 1) * layout.item_size() as i64));
        }
        let count = all.len();
        all.dedup();
        prop_assert_eq!(layout.is_unique(), all.len() == count);
        let gapless = all.len() == count && all.windows(2).all(|pair| pair[1] == pair[0] + 1);
        prop_assert!(!layout.is_contiguous() || gapless);
    }

    #[test]
    fn other_shapes_have_the_same_elements_in_the_same_order(layout in small(), mask in any::<u64>()) {
        let all = offsets(&layout);
        let flat = layout.flattened();
        prop_assert_eq!(offsets(&flat), all.clone());
        prop_assert_eq!(flat.merge_mask(), 0);
        prop_assert_eq!(offsets(&layout.flattened_with(.., mask).unwrap()), all.clone());
        prop_assert_eq!(offsets(&layout.squeezed()), all.clone());
        prop_assert_eq!(offsets(&layout.unsqueezed(&[0, layout.ndim() + 1]).unwrap()), all.clone());
        if let Ok(line) = layout.reshaped(&[-1]) {
            prop_assert_eq!(offsets(&line), all);
        }
    }

    #[test]
    fn dense_layouts_keep_the_order_of_strides(layout in small()) {
        let dense = layout.to_dense();
        prop_assert!(dense.is_dense() && dense.shape() == layout.shape());
        prop_assert_eq!(dense.required_size().unwrap(), layout.size_in_bytes());
        let axes = layout.stride_order();
        prop_assert!(layout.to_dense_in(Order::Axes(&axes)).unwrap().is_dense());
        prop_assert!(layout.to_dense_in(Order::C).unwrap().is_contiguous_c());
        prop_assert!(layout.to_dense_in(Order::F).unwrap().is_contiguous_f());
        prop_assert_eq!(dense.to_dense(), dense);
    }

    #[test]
    fn what_is_packed_can_be_unpacked(layout in small()) {
        for axis in 0..layout.ndim() {
            let size = layout.max_compatible_item_size(64, 0, axis as i64).unwrap();
            if layout.strides()[axis] == 1 && layout.shape()[axis] != 0 {
                let packed = layout.repacked(size, 0, axis as i64).unwrap();
                prop_assert_eq!(packed.repacked(layout.item_size(), 0, axis as i64).unwrap(), layout.clone());
                prop_assert_eq!(packed.size_in_bytes(), layout.size_in_bytes());
                if size * 2 <= 64 {
                    prop_assert!(layout.repacked(size * 2, 0, axis as i64).is_err(), "{} is the most", size);
                }
            } else {
                prop_assert_eq!(size, layout.item_size());
            }
        }
    }

    #[test]
    fn no_number_overflows((shape, strides, size, offset) in wild(), index in any::<i64>(), step in any::<i64>()) {
        let Ok(layout) = StridedLayout::new(&shape, &strides, size) else { return Ok(()) };
        let layout = layout.clone().with_offset(offset).unwrap_or(layout);
        let _ = (layout.volume(), layout.byte_strides(), layout.byte_offset(), layout.size_in_bytes());
        let _ = (layout.is_unique(), layout.is_contiguous(), layout.offset_bounds(), layout.required_size());
        let slice = Index::Slice { start: Some(index), end: None, step };
        let _ = (layout.sliced(&[slice]), layout.sliced(&[Index::At(index)]), layout.reshaped(&[-1, index]));
        let _ = (layout.flattened(), layout.squeezed(), layout.unsqueezed(&[0]), layout.broadcast_to(&[index; 6]));
        let _ = (layout.to_dense(), layout.repacked(1, 0, -1), layout.repacked(64, 0, 0), layout.reshaped(&[1, -1, 1]));
        let _ = layout.max_compatible_item_size(64, index as usize, 0);
    }
}

fn text<T: fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn errors_name_operation_axis_value_and_limit() {
    let layout = StridedLayout::dense(&[6, 4], 2, Order::C).unwrap();
    for (found, expected) in [
        (
            text(StridedLayout::new(&[1; 65], &[1; 65], 1)),
            "StridedLayout::new: 65 dimensions, but a layout has at most 64",
        ),
        (
            text(StridedLayout::new(&[2, -3], &[1, 1], 1)),
            "StridedLayout::new: the extent of axis 1 is -3, but extents must not be negative",
        ),
        (
            text(StridedLayout::new(&[2], &[1, 1], 1)),
            "StridedLayout::new: the list of strides has 2 entries, but 1 are needed",
        ),
        (text(StridedLayout::new(&[2], &[1], 0)), "StridedLayout::new: the item size is 0, but must be at least 1"),
        (
            text(StridedLayout::new(&[i64::MAX, 2], &[0, 0], 1)),
            "StridedLayout::new: the number of bytes does not fit into 64 bits",
        ),
        (
            text(StridedLayout::new(&[3], &[i64::MAX / 2 + 1], 1)),
            "StridedLayout::new: the offset of an element does not fit into 64 bits",
        ),
        (
            text(StridedLayout::with_byte_strides(&[2], &[6], 4)),
            "StridedLayout::with_byte_strides: the stride of axis 0 is 6, but must be a multiple of 4",
        ),
        (
            text(StridedLayout::dense(&[2, 3], 1, Order::Axes(&[0, 0]))),
            "StridedLayout::dense: axis 0 appears twice, but must appear once",
        ),
        (
            text(StridedLayout::dense(&[0, 3], 1, Order::Axes(&[0]))),
            "StridedLayout::dense: the list of axes has 1 entries, but 2 are needed",
        ),
        (text(layout.permuted(&[1])), "StridedLayout::permuted: the list of axes has 1 entries, but 2 are needed"),
        (text(layout.permuted(&[1, -2000])), "StridedLayout::permuted: axis -2000 is out of range for 2 dimensions"),
        (text(layout.permuted(&[1, -1])), "StridedLayout::permuted: axis 1 appears twice, but must appear once"),
        (
            text(layout.sliced(&[Index::ALL.step(0)])),
            "StridedLayout::sliced: the step of axis 0 is 0, but must not be 0",
        ),
        (
            // The distance from 0 to the lowest offset has no positive counterpart.
            text(StridedLayout::new(&[2], &[i64::MIN], 1).unwrap().sliced(&[Index::reversed()])),
            "StridedLayout::sliced: a stride does not fit into 64 bits",
        ),
        (text(layout.sliced(&[Index::ALL; 3])), "StridedLayout::sliced: 3 indices, but the layout has 2 dimensions"),
        (
            text(layout.sliced(&[Index::ALL, (-5).into()])),
            "StridedLayout::sliced: index -5 is out of range for axis 1 of extent 4",
        ),
        (
            text(layout.reshaped(&[5, 4])),
            "StridedLayout::reshaped: the new shape has 20 elements, but the layout has 24",
        ),
        (
            text(layout.reshaped(&[-1, -1])),
            "StridedLayout::reshaped: the extent of axis 1 is -1, but only one extent may be -1",
        ),
        (
            text(layout.reshaped(&[0, -1])),
            "StridedLayout::reshaped: the extent -1 of axis 1 is ambiguous, because another extent is 0",
        ),
        (
            text(layout.reshaped(&[7, -1])),
            "StridedLayout::reshaped: the number of elements is 24, but must be a multiple of 7",
        ),
        (
            text(layout.reshaped(&[24, -2])),
            "StridedLayout::reshaped: the extent of axis 1 is -2, but extents must not be negative, except for one -1",
        ),
        (
            text(layout.permuted(&[1, 0]).unwrap().reshaped(&[4, 2, 12])),
            "StridedLayout::reshaped: the new shape has 96 elements, but the layout has 24",
        ),
        (
            text(layout.permuted(&[1, 0]).unwrap().reshaped(&[24])),
            "StridedLayout::reshaped: no strides produce the new shape from axis 0 on; copy the elements to a dense layout first",
        ),
        (text(layout.broadcast_to(&[4])), "StridedLayout::broadcast_to: the new shape has 1 entries, but 2 are needed"),
        (
            text(layout.broadcast_to(&[6, 5])),
            "StridedLayout::broadcast_to: axis 1 of extent 4 cannot be broadcast to extent 5: only extent 1 can repeat",
        ),
        (text(layout.unsqueezed(&[3])), "StridedLayout::unsqueezed: axis 3 is out of range for 3 dimensions"),
        (text(layout.unsqueezed(&[1, 1])), "StridedLayout::unsqueezed: axis 1 appears twice, but must appear once"),
        (
            text(layout.repacked(3, 0, -1)),
            "StridedLayout::repacked: the item size is 3, but must be a multiple or a divisor of the layout's item size",
        ),
        (text(layout.repacked(0, 0, -1)), "StridedLayout::repacked: the item size is 0, but must be at least 1"),
        (text(layout.repacked(4, 0, 2)), "StridedLayout::repacked: axis 2 is out of range for 2 dimensions"),
        (text(layout.repacked(4, 2, -1)), "StridedLayout::repacked: the address is 2, but must be a multiple of 4"),
        (
            text(layout.repacked(4, 0, 0)),
            "StridedLayout::repacked: the stride of axis 0 is 4, but must be 1 to repack along this axis",
        ),
        (
            text(layout.repacked(16, 0, 1)),
            "StridedLayout::repacked: the extent of axis 1 is 4, but must be a multiple of 8",
        ),
        (
            text(layout.clone().with_offset(1).unwrap().repacked(4, 0, 1)),
            "StridedLayout::repacked: the offset is 1, but must be a multiple of 2",
        ),
        (
            text(StridedLayout::new(&[2, 4], &[5, 1], 2).unwrap().repacked(4, 0, 1)),
            "StridedLayout::repacked: the stride of axis 0 is 5, but must be a multiple of 2",
        ),
        (
            text(StridedLayout::new(&[0], &[1], 2).unwrap().repacked(1, 0, 0)),
            "StridedLayout::repacked: the extent of axis 0 is 0, but must be at least 1 to repack along this axis",
        ),
        (
            text(layout.max_compatible_item_size(1, 0, 0)),
            "StridedLayout::max_compatible_item_size: the item size is 1, but the limit must not be less than the layout's item size",
        ),
        (
            text(layout.clone().with_offset(-2).unwrap().required_size()),
            "StridedLayout::required_size: the layout reaches to element -2; memory that begins at element 0 cannot hold it",
        ),
        (
            text(layout.flattened_with(1..3, 0)),
            "StridedLayout::flattened_with: axis 2 is out of range for 2 dimensions",
        ),
    ] {
        assert_eq!(found, expected);
    }
}

#[test]
fn parts_without_elements_have_no_strides() {
    let empty = StridedLayout::new(&[0, 5], &[1, 1 << 62], 1).unwrap();
    let part = empty.sliced(&[Index::ALL, Index::ALL.step(2)]).unwrap();
    assert_eq!((part.shape(), part.strides()), (&[0, 3][..], &[0, 0][..]));
}

#[test]
fn flattening_keeps_what_is_no_run() {
    let parts = |layout: &StridedLayout| (layout.shape().to_vec(), layout.strides().to_vec());
    let dense = |shape: &[i64]| StridedLayout::dense(shape, 4, Order::C).unwrap();
    let back = Index::reversed();
    assert_eq!(parts(&dense(&[]).flattened()), (vec![1], vec![1]));
    assert_eq!(parts(&dense(&[1, 2, 3, 4, 5]).flattened()), (vec![120], vec![1]));
    assert_eq!(parts(&dense(&[3, 0, 2]).flattened()), (vec![0], vec![0]));
    let rest = [Index::ALL, Index::ALL, Index::ALL, Index::ALL, back.step(-2)];
    assert_eq!(parts(&dense(&[5, 1, 2, 4, 3]).sliced(&rest).unwrap().flattened()), (vec![40, 2], vec![3, -2]));
    let middle = dense(&[5, 2, 4, 3]).sliced(&[Index::ALL, back]).unwrap();
    assert_eq!(parts(&middle.flattened()), (vec![5, 2, 12], vec![24, -12, 1]));
    let every_third = dense(&[15]).sliced(&[Index::ALL.step(3)]).unwrap();
    assert_eq!(parts(&every_third.unsqueezed(&[1, 2]).unwrap().flattened()), (vec![5], vec![3]));
    let columns = StridedLayout::dense(&[4, 3], 4, Order::F).unwrap();
    assert_eq!(dense(&[4, 3]).merge_mask() & columns.merge_mask(), 0);
}
