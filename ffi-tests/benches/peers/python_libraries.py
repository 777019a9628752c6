"""Checks CuPy, RMM and Numba on the pools of the Python package, and measures them beside the libraries' own pools, on a GPU.

    python python_libraries.py

It prints one line for each check: `ok` or `FAILED`, the name, and figures; `skipped` if a library is missing. Each part
runs in a process of its own. The exit status is 1 if a check failed.
"""

import argparse
import pickle
import statistics
import subprocess
import sys
import tempfile
import time

import cuda_mem.cupy
import cuda_mem.numba
import cuda_mem.rmm


def time_of(call, rounds=20, calls=2000):
    """The median time of a call in microseconds."""
    for _ in range(500):
        call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        times.append((time.perf_counter_ns() - start) / calls / 1000)
    return statistics.median(times)


def ragged(cupy, rounds=300):
    """Arrays of many sizes on two streams, each with a mark that nobody else may overwrite."""
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    live = []
    for number in range(rounds):
        with streams[number % 2]:
            live.append((number, streams[number % 2], cupy.full(1 + number * 104729 % 3_000_000, number, dtype=cupy.int64)))
        if len(live) > 12:
            mark, stream, array = live.pop(number * 7919 % len(live))
            with stream:
                assert bool((array == mark).all()), f"array {mark}"
                del array
    for stream in streams:
        stream.synchronize()
    assert all(bool((array == mark).all()) for mark, _, array in live)


def cupy_part():
    import cupy

    own = time_of(lambda: cupy.empty(64, dtype=cupy.float32))
    ragged(cupy)
    cuda_mem.cupy.use()
    ragged(cupy)
    x = cupy.random.default_rng(1).random(1_000_000)
    assert abs(float(cupy.sort(x)[500_000]) - 0.5) < 0.01
    try:
        cupy.empty(1 << 46, dtype=cupy.uint8)
        raise AssertionError("no error")
    except cupy.cuda.memory.OutOfMemoryError:
        pass
    ours = time_of(lambda: cupy.empty(64, dtype=cupy.float32))
    peak = cuda_mem.cupy.snapshot().data["statistics"]["reserved"]["peak"]
    return f"CuPy {cupy.__version__}: cupy.empty {ours:.2f} us, its own pool {own:.2f} us; reserved {peak >> 20} MiB"


def rmm_part():
    import rmm

    own_pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=1 << 26)
    rmm.mr.set_current_device_resource(own_pool)
    own = time_of(lambda: rmm.DeviceBuffer(size=256))
    rmm.mr.set_current_device_resource(cuda_mem.rmm.resource())
    stream = rmm.pylibrmm.stream.Stream()
    for number in range(1, 200):
        data = bytes([number % 256]) * (number * 1009)
        buffer = rmm.DeviceBuffer.to_device(data, stream=stream)
        assert buffer.tobytes(stream=stream) == data, f"buffer {number}"
    try:
        rmm.DeviceBuffer(size=1 << 46)
        raise AssertionError("no error")
    except MemoryError:
        pass
    ours = time_of(lambda: rmm.DeviceBuffer(size=256))
    del buffer
    return f"RMM {rmm.__version__}: DeviceBuffer of 256 bytes {ours:.2f} us, PoolMemoryResource {own:.2f} us"


def numba_part():
    cuda_mem.numba.use()
    import numpy
    from numba import __version__, cuda

    @cuda.jit
    def add(array, value):
        index = cuda.grid(1)
        if index < array.size:
            array[index] += value

    def blocks():
        return cuda_mem.numba.snapshot().data["statistics"]["blocks"]["current"]

    try:
        add[1, 1](cuda.to_device(numpy.zeros(1)), 1)
    except AttributeError as error:
        # Numba looks up names of numpy when it compiles its first kernel.
        raise ImportError(f"Numba {__version__} does not fit numpy {numpy.__version__} ({error})") from error
    streams, size = [cuda.stream() for _ in range(2)], 1 << 20
    for number in range(200):
        stream = streams[number % 2]
        array = cuda.to_device(numpy.full(size, number), stream=stream)
        add[size // 256, 256, stream](array, 1)
        result = array.copy_to_host(stream=stream)
        # The array ends under work of its stream, and the next one of the other stream gets its memory.
        add[size // 256, 256, stream](array, 1)
        del array
        stream.synchronize()
        assert (result == number + 1).all(), f"array {number}"
    assert blocks() == 0, f"{blocks()} blocks are left"
    ours = time_of(lambda: cuda.device_array(64, "float32"), calls=200)
    return f"Numba {__version__}: device_array of 256 bytes {ours:.2f} us"


def memory_viz_part():
    from torch.cuda._memory_viz import segsum, trace, trace_plot

    pool = cuda_mem.Pool(cuda_mem.DeviceMemory(), trace_capacity=1000)
    live = [pool.allocate(size) for size in (1000, 5_000_000, 300)]
    live[1].close()
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        pool.snapshot().save_memory_viz(file.name)
        with open(file.name, "rb") as saved:
            snapshot = pickle.load(saved)
    assert "active_allocated" in str(snapshot) and segsum(snapshot) and trace(snapshot) and trace_plot(snapshot)
    return f"{len(snapshot['segments'])} segments, {len(snapshot['device_traces'][0])} events"


PARTS = {"cupy": cupy_part, "rmm": rmm_part, "numba": numba_part, "torch": memory_viz_part}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS)
    arguments = parser.parse_args()
    if arguments.part:
        try:
            print(f"ok      {PARTS[arguments.part]()}", flush=True)
            return False
        except ImportError as error:
            print(f"skipped: {arguments.part}: {error}: pip install {arguments.part}", flush=True)
            return False
    failed = False
    for part in PARTS:
        if subprocess.run([sys.executable, *sys.argv, "--part", part]).returncode != 0:
            print(f"FAILED  {part}", flush=True)
            failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main())
