"""Measures this package beside cuda.core in one process, on one driver.

    pip install cuda-core numpy
    python -m cuda_mem.softgpu run -- python python/bench/allocate.py      # the software GPU; on a GPU without the first part

Each line has the best time of a call in nanoseconds, of nine rounds, ours and cuda.core's in turn, and their ratio.
"""

import argparse
import sys

import cuda_mem
import numpy as np
from compare import compare


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--brief", action="store_true", help="only checks that the benchmark runs")
    calls = 200 if parser.parse_args().brief else 20_000

    import cuda.core
    from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions, LegacyPinnedMemoryResource

    stream, memory = cuda_mem.Stream(), cuda_mem.DeviceMemory()
    pool, own = cuda_mem.Pool(memory), cuda_mem.DriverPool(own=True, release_threshold=1 << 40)
    device = Device(0)
    device.set_current()
    their_stream, theirs = device.create_stream(), device.memory_resource
    their_own = DeviceMemoryResource(device, DeviceMemoryResourceOptions())
    print(f"cuda_mem {cuda_mem.__version__}, cuda.core {cuda.core.__version__}, numpy {np.__version__}, Python {sys.version.split()[0]}")
    print(f"{'':44} {'ours, ns':>9} {'theirs':>9} {'ratio':>7}")
    # The same interface from this package.
    from cuda_mem import core

    same = core.Device(0)
    same.set_current()
    same_stream, same_memory = same.create_stream(), same.memory_resource
    for size, name in ((4096, "4 KiB"), (1 << 20, "1 MiB")):
        compare(
            f"allocate, close {name}: our pool, their default",
            lambda: pool.allocate(size, stream=stream).close(),
            lambda: theirs.allocate(size, stream=their_stream).close(),
            calls,
        )
        compare(
            f"allocate, drop {name}: our pool, their default",
            lambda: pool.allocate(size, stream=stream) and None,
            lambda: theirs.allocate(size, stream=their_stream) and None,
            calls,
        )
        compare(
            f"allocate, close {name}: pools of the driver",
            lambda: own.allocate(size, stream=stream).close(),
            lambda: their_own.allocate(size, stream=their_stream).close(),
            calls,
        )
        compare(
            f"allocate, close {name}: cuda_mem.core",
            lambda: same_memory.allocate(size, stream=same_stream).close(),
            lambda: theirs.allocate(size, stream=their_stream).close(),
            calls,
        )
    pinned, their_pinned = cuda_mem.PinnedMemory().allocate(4096), LegacyPinnedMemoryResource().allocate(4096)
    compare("np.from_dlpack(pinned)", lambda: np.from_dlpack(pinned), lambda: np.from_dlpack(their_pinned), calls)
    buffer, their_buffer = pool.allocate(4096, stream=stream), theirs.allocate(4096, stream=their_stream)
    compare(
        "__dlpack__ of device memory, no order",
        lambda: buffer.__dlpack__(stream=-1, max_version=(1, 3)),
        lambda: their_buffer.__dlpack__(stream=-1, max_version=(1, 3)),
        calls,
    )
    compare(".handle", lambda: buffer.handle, lambda: their_buffer.handle, calls)
    compare(".size", lambda: buffer.size, lambda: their_buffer.size, calls)


main()
