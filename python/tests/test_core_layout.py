"""Layouts, against numpy's strides."""

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest
from cuda_mem.core import StridedLayout

SHAPES = [(), (1,), (12,), (0, 3), (5, 1, 7), (2, 3, 4), (3, 2, 1, 5)]
DTYPES = {1: "int8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}


def pair(shape: tuple[int, ...], itemsize: int, order: str | None) -> tuple[StridedLayout, "np.ndarray[Any, Any]"]:
    """A layout, and a numpy array of the same. Without an order the layout has no strides."""
    array = np.arange(math.prod(shape)).astype(DTYPES[itemsize]).reshape(shape, order="F" if order == "F" else "C")
    if order is None:
        return StridedLayout(shape, None, itemsize), array
    return StridedLayout.dense(shape, itemsize, order), array


def check(layout: StridedLayout, array: "np.ndarray[Any, Any]") -> None:
    """Compares a layout with an array that is made alike."""
    assert (layout.shape, layout.ndim, layout.volume) == (array.shape, array.ndim, array.size)
    assert layout.itemsize == array.itemsize
    assert layout.is_contiguous_c == array.flags.c_contiguous
    assert layout.is_contiguous_f == array.flags.f_contiguous
    assert layout.slice_offset_in_bytes == layout.slice_offset * layout.itemsize
    if array.size == 0:
        assert layout.offset_bounds == (0, -1)
        assert layout.required_size_in_bytes() == 0
        return
    strides = StridedLayout(array.shape, array.strides, array.itemsize, divide_strides=True)
    if layout.strides is None:
        assert array.flags.c_contiguous
    else:
        # Axes of one element have no stride that matters.
        pairs = zip(layout.shape, layout.strides_in_bytes or (), array.strides)
        assert all(ours == theirs for extent, ours, theirs in pairs if extent != 1)
    assert layout.is_contiguous_any == strides.is_contiguous_any
    low = layout.slice_offset + sum(s * (n - 1) for s, n in zip(strides.strides or (), array.shape) if s < 0)
    high = layout.slice_offset + sum(s * (n - 1) for s, n in zip(strides.strides or (), array.shape) if s > 0)
    assert layout.offset_bounds == (layout.min_offset, layout.max_offset) == (low, high)
    assert layout.required_size_in_bytes() == (high + 1) * layout.itemsize


@pytest.mark.parametrize("order", ["C", "F", None])
@pytest.mark.parametrize("shape", SHAPES)
def test_dense_layouts_are_those_of_numpy(shape: tuple[int, ...], order: str | None) -> None:
    for itemsize in DTYPES:
        layout, array = pair(shape, itemsize, order)
        check(layout, array)
        assert layout.is_dense and layout.is_unique
        assert (layout.strides is None) == (order is None)
        assert (layout.strides_in_bytes is None) == (order is None)


def test_an_order_of_axes_is_the_order_of_strides() -> None:
    for order in itertools.permutations(range(3)):
        layout = StridedLayout.dense((2, 3, 4), 2, order)
        assert layout.stride_order == order
        assert layout.is_contiguous_any and layout.is_dense


@pytest.mark.parametrize("order", ["C", "F", None])
@pytest.mark.parametrize("shape", SHAPES)
def test_axes_are_permuted_as_by_numpy(shape: tuple[int, ...], order: str | None) -> None:
    layout, array = pair(shape, 4, order)
    for axes in itertools.permutations(range(len(shape))):
        permuted = layout.permuted(axes)
        check(permuted, array.transpose(axes))
        assert permuted.strides is not None


@pytest.mark.parametrize(
    "key",
    [
        np.s_[:],
        np.s_[::-1],
        np.s_[1],
        np.s_[-1, 1:],
        np.s_[:, ::-2, 1:3],
        np.s_[1:-1, 2, -3:0:-1],
        np.s_[5:4],
        np.s_[:, 7:],
    ],
    ids=repr,
)
@pytest.mark.parametrize("order", ["C", "F", None])
def test_parts_are_those_of_numpy(key: Any, order: str | None) -> None:
    layout, array = pair((3, 5, 4), 8, order)
    part, theirs = layout[key], array[key]
    check(part, theirs)
    assert part == layout.sliced(key)
    assert part.strides is not None
    if theirs.size:
        assert part.slice_offset_in_bytes == theirs.ctypes.data - array.ctypes.data
    if part.ndim:
        again = part[::-1]
        check(again, theirs[::-1])
        if theirs.size:
            assert again.slice_offset_in_bytes == theirs[::-1].ctypes.data - array.ctypes.data


def test_shapes_change_where_numpy_needs_no_copy() -> None:
    source = random.Random(7)
    shapes = [(24,), (2, 12), (4, -1, 3), (1, 24, 1), (2, 3, 4), (-1,), (3, 8), (6, 2, 2)]
    done = refused = 0
    for _ in range(300):
        layout, array = pair((2, 3, 4), 4, "C")
        axes = source.sample(range(3), 3)
        steps = tuple(slice(None, None, source.choice([1, 1, -1])) for _ in range(3))
        layout, array = layout.permuted(axes)[steps], array.transpose(axes)[steps]
        shape = source.choice(shapes)
        try:
            expected = array.reshape(shape, copy=False)
        except ValueError:
            with pytest.raises(ValueError, match="Layout strides are incompatible with the new shape"):
                layout.reshaped(shape)
            refused += 1
            continue
        check(layout.reshaped(shape), expected)
        done += 1
    assert min(done, refused) > 30


def test_axes_of_one_element_come_and_go() -> None:
    layout, array = pair((1, 5, 1, 4), 2, "C")
    check(layout.squeezed(), array.squeeze())
    part, theirs = layout[:, ::2, :, ::-1], array[:, ::2, :, ::-1]
    for axes in [(0,), (4,), (0, 5), (1, 3)]:
        check(part.unsqueezed(axes), np.expand_dims(theirs, axes))
    check(part.unsqueezed(2), np.expand_dims(theirs, 2))
    implicit = StridedLayout((5, 4), None, 2)
    assert implicit.unsqueezed(()).strides is None
    assert implicit.unsqueezed(2).strides == (4, 1, 1)
    empty = StridedLayout((0, 1), None, 2).squeezed()
    assert (empty.shape, empty.strides) == ((0,), (0,))


def test_new_axes_can_be_merged() -> None:
    layout = StridedLayout.dense((15,), 4)[::3]
    assert layout.unsqueezed((1, 2)).flattened() == layout


def test_axes_repeat_as_by_numpy() -> None:
    layout, array = pair((5, 1), 4, "C")
    for shape in [(5, 1), (5, 3), (2, 5, 1), (1, 5, 7)]:
        wide, theirs = layout.broadcast_to(shape), np.broadcast_to(array, shape)
        check(wide, theirs)
        assert wide.is_unique == (theirs.size == array.size)


def test_axes_that_form_one_run_are_merged() -> None:
    layout = StridedLayout.dense((5, 1, 2, 4, 3), 4)
    assert layout.flattened_axis_mask() == 0b11110
    assert layout.flattened() == StridedLayout((120,), (1,), 4)
    part = layout[:, :, :, :, ::-2]
    assert part.flattened_axis_mask() == 0b01110
    assert part.flattened(mask=0b01110) == part.flattened()
    assert part.flattened(0, 2).shape == (10, 4, 2)
    assert part.flattened(start_axis=1, end_axis=-1).strides == (24, 3, -2)
    assert part.flattened().slice_offset == part.slice_offset == 2
    assert StridedLayout((), None, 4).flattened() == StridedLayout((1,), (1,), 4)
    # Two layouts of one shape get one shape, by the mask of both.
    other = StridedLayout((4, 5, 3), (1, 12, 4), 4)
    layout = StridedLayout.dense((4, 5, 3), 4)
    mask = layout.flattened_axis_mask() & other.flattened_axis_mask()
    assert layout.flattened(mask=mask).shape == other.flattened(mask=mask).shape == (4, 15)


def test_layouts_are_made_dense_in_an_order() -> None:
    layout, array = pair((3, 5, 4), 8, "C")
    part, theirs = layout.permuted((1, 2, 0))[1:, ::-1], array.transpose(1, 2, 0)[1:, ::-1]
    for order in ("C", "F", "K"):
        dense = part.to_dense(order)
        check(dense, theirs.copy(order))
        assert dense.is_dense and dense == StridedLayout.dense_like(part, order)
    assert part.to_dense() == part.to_dense("K")
    assert part.to_dense((2, 0, 1)).stride_order == (2, 0, 1)
    implicit = StridedLayout((3, 5), None, 8)
    assert implicit.to_dense().strides is None
    assert implicit.to_dense("C").strides is None
    assert implicit.to_dense("F").strides == (1, 3)


def test_bytes_become_elements_of_another_size() -> None:
    layout = StridedLayout.dense((5, 4), 4)
    assert layout.repacked(2) == StridedLayout.dense((5, 8), 2)
    assert layout.repacked(16) == StridedLayout.dense((5, 1), 16)
    assert layout.repacked(16, keep_dim=False) == StridedLayout.dense((5,), 16)
    assert layout.repacked(8).repacked(4) == layout
    assert StridedLayout((5, 4), None, 4).repacked(4).strides is None
    assert StridedLayout.dense((4, 5), 4, "F").repacked(16, axis=0, keep_dim=False) == StridedLayout.dense((5,), 16)
    assert layout[:, 2:].repacked(8).slice_offset == 1
    assert layout.max_compatible_itemsize() == 16
    assert layout.max_compatible_itemsize(data_ptr=8) == 8
    assert layout.max_compatible_itemsize(max_itemsize=8) == 8
    assert layout.max_compatible_itemsize(axis=0) == 4
    assert layout[:, 1:].max_compatible_itemsize() == 4


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda it: StridedLayout((2,), None, 0), "itemsize must be positive"),
        (lambda it: StridedLayout((2, -1), None, 4), "Extents must be non-negative"),
        (lambda it: StridedLayout((2,), (1, 1), 4), "2 entries, but 1"),
        (lambda it: StridedLayout((2,), (6,), 4, True), "strides must be divisible by itemsize"),
        (lambda it: StridedLayout((1,) * 65, None, 4), "Unsupported number of dimensions: 65"),
        (lambda it: StridedLayout.dense((2,), 4, "K"), "must be 'K', 'C', 'F', or a permutation"),
        (lambda it: it.to_dense("A"), "must be 'K', 'C', 'F', or a permutation"),
        (lambda it: it.permuted((0,)), "the same length as the number of dimensions"),
        (lambda it: it.permuted((0, 0)), "axis 0 appears multiple times"),
        (lambda it: it.permuted((0, 2)), "axis 2 out of range for 2 dimensions"),
        (lambda it: it[:, ::0], "slice step cannot be zero"),
        (lambda it: it[:, :, 0], "is greater than the number of dimensions"),
        (lambda it: it[0, 4], "out of range for axis 1"),
        (lambda it: it.reshaped((5, 5)), "The original volume 24 and the new volume 25 must be equal"),
        (lambda it: it.reshaped((-1, -1)), "at most one -1 extent"),
        (lambda it: it.reshaped((0, -1)), "The -1 extent is ambiguous"),
        (lambda it: it.reshaped((7, -1)), "The original volume 24 must be divisible by the specified sub-volume 7"),
        (lambda it: it.broadcast_to((4,)), "greater than or equal to 2"),
        (lambda it: it.broadcast_to((6, 5)), "cannot be broadcast together"),
        (lambda it: it.unsqueezed(3), "Invalid axis"),
        (lambda it: it.unsqueezed(-1), "Invalid axis"),
        (lambda it: it.unsqueezed((1, 1)), "appears multiple times"),
        (lambda it: it.flattened(2, 3), "Invalid axis"),
        (lambda it: it.repacked(0), "new itemsize must be greater than zero"),
        (lambda it: it.repacked(8, 4), "must be aligned to the packed itemsize"),
        (lambda it: it.repacked(8, axis=0), "axis 0 stride must be 1"),
        (lambda it: it.repacked(32), "extent .* must be divisible by 8"),
        (lambda it: it[:, 1:3].repacked(8), "slice offset .* must be divisible by 2"),
        (lambda it: StridedLayout((2, 4), (5, 1), 4).repacked(8), "stride .* must be divisible by 2"),
        (lambda it: StridedLayout((0,), (1,), 4).repacked(2), "extent must be non-zero"),
        (lambda it: it.max_compatible_itemsize(0), "max_itemsize must be greater than zero"),
        (lambda it: it.max_compatible_itemsize(2), "max_itemsize cannot be less than itemsize"),
        (lambda it: StridedLayout((2,), (-1,), 4).required_size_in_bytes(), "negative memory offsets is ambiguous"),
    ],
)
def test_refusals_say_what_is_wrong(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call(StridedLayout.dense((6, 4), 4))


def test_other_types_and_large_numbers_are_refused() -> None:
    layout: Any = StridedLayout.dense((6, 4), 4)
    with pytest.raises(TypeError, match="Expected slice instance or integer"):
        layout["a"]
    with pytest.raises(TypeError):
        layout.reshaped(map)
    with pytest.raises(OverflowError):
        StridedLayout((1 << 40, 1 << 40), None, 4)
    with pytest.raises(OverflowError):
        StridedLayout((1 << 70,), None, 4)


def test_layouts_compare_by_value() -> None:
    layout: Any = StridedLayout.dense((6, 4), 4)
    assert layout == StridedLayout((6, 4), (4, 1), 4) == StridedLayout((6, 4), None, 4)
    assert layout != StridedLayout((6, 4), (4, 1), 8)
    assert layout[1:] != layout[:-1]
    assert layout.__eq__((6, 4)) is NotImplemented
    with pytest.raises(TypeError, match="unhashable"):
        hash(layout)
    assert repr(layout) == "StridedLayout(shape=(6, 4), strides=(4, 1), itemsize=4)"
    assert repr(layout[1:]) == "StridedLayout(shape=(5, 4), strides=(4, 1), itemsize=4, _slice_offset=4)"
    assert repr(StridedLayout((), None, 2)) == "StridedLayout(shape=(), strides=None, itemsize=2)"
