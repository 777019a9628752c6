"""Measures `__dlpack__` in Python: cuda.core's, PyTorch's and CuPy's if they are installed, and our library's round trip.

It needs a GPU, and python3 with cuda-core. INTERCHANGE_LIBRARY names our library, whose round trip is then measured in C.
"""

import os
import statistics
import sys
import time

BRIEF = "--brief" in sys.argv
ROUNDS, BATCH = (3, 10) if BRIEF else (31, 2000)


def report(what, way):
    way()
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter_ns()
        for _ in range(BATCH):
            way()
        times.append((time.perf_counter_ns() - begin) / BATCH)
    print(f"{what:<72} {statistics.median(times):>9.1f} ns")


def cuda_core():
    from cuda.core import Device
    from cuda.core.utils import StridedMemoryView

    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    buffer = device.memory_resource.allocate(1 << 22, stream=stream)
    report("cuda.core, Buffer.__dlpack__ (capsule made and ended)", lambda: buffer.__dlpack__(max_version=(1, 0)))
    report("cuda.core, StridedMemoryView.from_dlpack(buffer, -1)", lambda: StridedMemoryView.from_dlpack(buffer, stream_ptr=-1))


def torch():
    import torch

    tensor = torch.zeros(1024, 1024, device="cuda")
    report("PyTorch, from_dlpack(tensor)", lambda: torch.from_dlpack(tensor))


def cupy():
    import cupy

    array = cupy.zeros((1024, 1024), "float32")
    report("CuPy, from_dlpack(array)", lambda: cupy.from_dlpack(array))


def ours():
    sys.path.insert(0, os.environ.get("INTERCHANGE_PYTHON", os.path.join(os.path.dirname(__file__), "../../python")))
    import interchange

    session = interchange.Session()
    tensor = session.new(interchange.DEVICE, "float32", (1024, 1024))
    rounds = 1000 if BRIEF else 1_000_000
    print(f"{'cuda-mem, export + import + both ends, within one call of C':<72} {interchange.round_trip_(tensor.pointer, rounds):>9.1f} ns")
    report("cuda-mem, __dlpack__ by ctypes (capsule made and ended)", lambda: tensor.__dlpack__(max_version=(1, 0), stream=-1))


for peer in (ours, cuda_core, torch, cupy):
    try:
        peer()
    except (ImportError, KeyError, OSError) as error:
        print(f"skipped: {peer.__name__}: {error!r}")
