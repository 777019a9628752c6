#!/usr/bin/env python3
"""Writes cases.json, numpy's answers for layouts (numpy 2.1 or newer), next to this script. A test replays the table.

A case is [shape, order, item size, operations, answer]. The order is the axes from the slowest to the fastest. The
answer is null if numpy refuses, else [shape, strides, offset, contiguous in C order, contiguous in Fortran order, lowest
byte, byte after the highest, unique]. Strides and offsets are in bytes.
"""

import itertools
import json
import pathlib
import random

import numpy as np
from numpy.lib.array_utils import byte_bounds

RANDOM_CASES = 4500


def make(shape, order, size):
    """Makes a dense array whose axes have this order in memory."""
    array = np.zeros([shape[axis] for axis in order], dtype=f"V{size}")
    return array.transpose(np.argsort(order)) if order else array


def index(part):
    return slice(*part) if isinstance(part, list) else part


def apply(array, operation):
    name, *rest = operation
    if name == "permute":
        return array.transpose(rest[0])
    if name == "slice":
        # With the ellipsis the result is an array, not an element, even if each axis has an index.
        return array[tuple(index(part) for part in rest[0]) + (...,)]
    if name == "reshape":
        return array.reshape(rest[0], copy=False)
    if name == "broadcast":
        return np.broadcast_to(array, rest[0])
    if name == "squeeze":
        return array.squeeze() if array.size else array.reshape(0)
    if name == "unsqueeze":
        return np.expand_dims(array, tuple(rest[0]))
    if name == "repack":
        return array.view(f"V{rest[0]}")
    if name == "dense":
        return np.zeros(array.shape, array.dtype, order=rest[0])
    raise AssertionError(name)


def is_unique(array):
    places = np.zeros(array.shape, np.int64)
    for axis, (extent, stride) in enumerate(zip(array.shape, array.strides)):
        steps = np.arange(extent, dtype=np.int64) * stride
        places = places + steps.reshape([-1 if other == axis else 1 for other in range(array.ndim)])
    return bool(np.unique(places).size == array.size)


def answer(shape, order, size, operations):
    base = array = make(shape, order, size)
    start = base.__array_interface__["data"][0]
    for operation in operations:
        try:
            array = apply(array, operation)
        except (ValueError, IndexError, TypeError):
            return None
        if operation[0] == "dense":
            start = array.__array_interface__["data"][0]
    offset = array.__array_interface__["data"][0] - start
    low, high = (end - start for end in byte_bounds(array))
    flags = array.flags
    return [
        list(array.shape), list(array.strides), offset, int(flags.c_contiguous), int(flags.f_contiguous), low, high,
        int(is_unique(array)),
    ]


def packs_alike(shape, order, size, operations):
    """Whether numpy and a layout have the same rules for the last operation, a repack."""
    base = array = make(shape, order, size)
    try:
        for operation in operations[:-1]:
            array = apply(array, operation)
    except (ValueError, IndexError):
        return False
    new = operations[-1][1]
    if array.ndim == 0 or array.size == 0 or array.strides[-1] != array.itemsize:
        return False
    offset = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    if offset % new:
        return False
    return all(stride % new == 0 for stride in array.strides[:-1]) and max(new, size) % min(new, size) == 0


def written_cases():
    """Yields cases that other projects test too."""
    dense = [(), (5,), (7, 9), (2, 3, 4)]
    for shape in dense:
        for order in itertools.permutations(range(len(shape))):
            for size in (1, 2, 4, 8, 16):
                yield shape, order, size, []
                for axes in itertools.permutations(range(len(shape))):
                    yield shape, order, size, [["permute", list(axes)]]
    for size, fortran in itertools.product((1, 4, 16), (False, True)):
        def case(shape, *operations):
            axes = range(len(shape))
            return shape, tuple(reversed(axes) if fortran else axes), size, [list(one) for one in operations]

        # Slices.
        whole, back = [None, None, None], [None, None, -1]
        for indices in (
            [whole], [back], [[-3, 2, -2]], [[5, 4, None]], [[0, 5, 2]], [3], [-1], [[None, None, 3]], [[100, None, -4]],
            [[-100, 100, 1]], [10], [-11], [[None, None, 0]],
        ):
            yield case((10,), ("slice", indices))
            yield case((10, 7), ("slice", indices))
            yield case((10,), ("slice", indices), ("slice", indices))
        yield case((10, 7), ("slice", [[None, 2, None]]), ("slice", [whole, [3, None, None]]))
        yield case((10, 7), ("slice", [whole, [None, None, 0]]))
        yield case((10, 7), ("slice", [0, 1, 5]))
        yield case((1,) * 64, ("slice", [back] * 64))
        yield case((1,) * 60 + (2, 3, 1, 2), ("permute", list(reversed(range(64)))))
        # New shapes.
        for old, new in (
            ((), (1,)), ((), (-1,)), ((), (1, -1, 1)), ((12,), (11,)), ((12,), (12,)), ((12,), (3, 4)), ((12,), (-1, 2)),
            ((0,), (0, -1)), ((0,), (1, -1)), ((0,), (2, 0)), ((12, 11), (132,)), ((12, 11), (6, 2, 11)),
            ((12, 11), (6, 22)), ((12, 11), (2, 66)), ((12, 11), (1, 12, 1, 11, 1)), ((12, 11), (4, 3, 11)),
            ((7, 6, 5), (71, -1)), ((7, 6, 5), (71, -2)), ((7, 6, 5), (-1, 6, -1)), ((7, 6, 5), (-1, 5)),
            ((7, 6, 5), (7, 30)), ((1, 5, 1), (5,)), ((1, 5, 1), (1, 1, 5)), ((2, 0, 3), (0,)), ((2, 0, 3), (7, 0)),
            ((5,), ()), ((1,), ()),
        ):
            yield case(old, ("reshape", list(new)))
        for new in ([6, 2], [2, 6], [12], [3, 2, 2], [2, 3, 2], [3, 4]):
            yield case((2, 3, 2), ("permute", [1, 2, 0]), ("reshape", new))
        for backwards in itertools.product((whole, back), repeat=3):
            for new in ([1000], [100, 10], [10, 100], [10, 5, 2, 10], [-1, 20, 5]):
                yield case((10, 10, 10), ("slice", list(backwards)), ("reshape", new))
        # Axes of extent 1.
        for shape in ((), (1,), (1, 1), (1, 5), (5, 1), (2, 1, 3, 1), (1, 0, 3)):
            yield case(shape, ("squeeze",))
            yield case(shape, ("slice", [back] * len(shape)), ("squeeze",))
            for axes in ([], [0], [len(shape)], [0, 1], [0, len(shape) + 1], [len(shape) + 1], [0, 0]):
                yield case(shape, ("unsqueeze", axes))
        # Broadcast.
        for old, new in (
            ((), (17, 1, 5)), ((7,), (2, 7)), ((7,), (7,)), ((5, 1), (4, 5, 12)), ((1,), (0,)), ((2, 3), (3,)),
            ((2, 3), (2, 4)), ((1, 3), (5, 3)), ((3, 1, 2), (3, 4, 2)), ((3,), (3, 2)),
        ):
            yield case(old, ("broadcast", list(new)))
        yield case((5, 11), ("slice", [back, [3, 4, None]]), ("broadcast", [4, 5, 12]))
        yield case((2,), ("broadcast", [1] * 63 + [2]))
        # Other item sizes.
        for shape in ((12,), (16, 5, 4, 6), (3, 8), (2, 16)):
            for new in (1, 2, 4, 8, 16):
                yield case(shape, ("repack", new))
                yield case(shape, ("slice", [[1, None, None]]), ("repack", new))
        for shape in ((), (5,), (3, 4), (4, 0, 2), (2, 3, 4)):
            for order in "CF":
                yield case(shape, ("slice", [back] * len(shape)), ("dense", order))
                yield case(shape, ("dense", order))


def random_shape(source, most=5):
    extents = [0, 1, 1, 2, 2, 3, 4, 5, 6, 8] if source.random() < 0.2 else [1, 2, 2, 3, 4, 5, 6, 8]
    return [source.choice(extents) for _ in range(source.randint(0, most))]


def random_slice(source, extent):
    if source.random() < 0.2:
        return source.randint(-extent - 1, extent)
    end = lambda: None if source.random() < 0.4 else source.randint(-extent - 2, extent + 2)
    return [end(), end(), source.choice([None, 1, 2, 3, -1, -1, -2, -4])]


def random_new_shape(source, volume):
    shape = []
    while volume > 1 and len(shape) < 6:
        divisors = [number for number in range(1, volume + 1) if volume % number == 0]
        shape.append(source.choice(divisors))
        volume //= shape[-1]
    shape.append(volume)
    source.shuffle(shape)
    if source.random() < 0.3:
        shape[source.randrange(len(shape))] = -1
    return shape


def random_operation(source, array):
    kind = source.choice(["permute", "slice", "slice", "reshape", "reshape", "broadcast", "squeeze", "unsqueeze"])
    if kind == "permute":
        return [kind, source.sample(range(array.ndim), array.ndim)]
    if kind == "slice":
        return [kind, [random_slice(source, extent) for extent in array.shape[: source.randint(0, array.ndim)]]]
    if kind == "reshape":
        return [kind, random_new_shape(source, array.size)]
    if kind == "broadcast":
        grown = [source.choice([extent, 3]) if extent == 1 else extent for extent in array.shape]
        return [kind, random_shape(source, 1) + grown]
    if kind == "unsqueeze":
        count = source.randint(0, 2)
        return [kind, source.sample(range(array.ndim + count), count)]
    return [kind]


def random_case(source):
    shape = random_shape(source)
    order = source.sample(range(len(shape)), len(shape))
    size = source.choice([1, 2, 3, 4, 8, 16])
    array, operations = make(shape, order, size), []
    for _ in range(source.randint(1, 4)):
        operation = random_operation(source, array)
        operations.append(operation)
        try:
            array = apply(array, operation)
        except (ValueError, IndexError):
            break
        if array.size > 20_000 or array.ndim > 12:
            break
    if source.random() < 0.2:
        operations.append(["repack", source.choice([1, 2, 4, 8, 16])])
    return shape, order, size, operations


def main():
    source = random.Random(7)
    cases = list(written_cases())
    cases += [random_case(source) for _ in range(RANDOM_CASES)]
    lines, seen = [], set()
    for shape, order, size, operations in cases:
        if operations and operations[-1][0] == "repack" and not packs_alike(shape, order, size, operations):
            continue
        case = [list(shape), list(order), size, operations, answer(shape, order, size, operations)]
        line = json.dumps(case, separators=(",", ":"))
        if line not in seen:
            seen.add(line)
            lines.append(line)
    text = "[\n" + ",\n".join(lines) + "\n]\n"
    pathlib.Path(__file__).with_name("cases.json").write_text(text)
    print(f"{len(lines)} cases, numpy {np.__version__}")


if __name__ == "__main__":
    main()
