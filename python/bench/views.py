"""Measures views of this package beside cuda.core's, in one process. See allocate.py for the form of a line.

    pip install cuda-core numpy
    python -m cuda_mem.softgpu run -- python python/bench/views.py
"""

import argparse
from typing import Any

import numpy as np
from compare import compare
from cuda_mem.core.utils import StridedMemoryView


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--brief", action="store_true", help="only checks that the benchmark runs")
    calls = 200 if parser.parse_args().brief else 20_000

    from cuda.core import Device
    from cuda.core.utils import StridedMemoryView as Theirs

    Device(0).set_current()
    array = np.arange(24, dtype="f4").reshape(2, 3, 4)
    ours, theirs = StridedMemoryView.from_dlpack(array, -1), Theirs.from_dlpack(array, -1)
    layout, their_layout = ours._layout, theirs._layout

    def facts(view: Any) -> Any:
        return view.ptr, view.shape, view.strides, view.dtype, view.device_id

    print(f"{'':44} {'ours, ns':>9} {'theirs':>9} {'ratio':>7}")
    for name, one, two in [
        ("from_dlpack(numpy)", lambda: StridedMemoryView.from_dlpack(array, -1), lambda: Theirs.from_dlpack(array, -1)),
        (
            "from_any_interface(numpy)",
            lambda: StridedMemoryView.from_any_interface(array, stream_ptr=-1),
            lambda: Theirs.from_any_interface(array, stream_ptr=-1),
        ),
        (
            "from_dlpack(numpy), all attributes",
            lambda: facts(StridedMemoryView.from_dlpack(array, -1)),
            lambda: facts(Theirs.from_dlpack(array, -1)),
        ),
        (
            "from_array_interface(numpy)",
            lambda: StridedMemoryView.from_array_interface(array),
            lambda: Theirs.from_array_interface(array),
        ),
        ("from_dlpack(view)", lambda: StridedMemoryView.from_dlpack(ours, -1), lambda: Theirs.from_dlpack(theirs, -1)),
        ("__dlpack__", lambda: ours.__dlpack__(max_version=(1, 0)), lambda: theirs.__dlpack__(max_version=(1, 0))),
        ("np.from_dlpack(view)", lambda: np.from_dlpack(ours), lambda: np.from_dlpack(theirs)),
        ("view(layout)", lambda: ours.view(layout), lambda: theirs.view(their_layout)),
        ("layout[:, 1:]", lambda: layout[:, 1:], lambda: their_layout[:, 1:]),
        (".shape", lambda: ours.shape, lambda: theirs.shape),
        (".dtype", lambda: ours.dtype, lambda: theirs.dtype),
        (".ptr", lambda: ours.ptr, lambda: theirs.ptr),
    ]:
        compare(name, one, two, calls)


main()
