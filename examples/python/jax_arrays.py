"""Arrays of JAX in memory of cuda_mem, by DLPack, and results of JAX as arrays of cuda_mem: no copy on the GPU.

    python jax_arrays.py [--memory own | ours] [--brief]

own: jax.device_put of numpy's arrays, and numpy.asarray of the results. ours: numpy writes mapped memory, which JAX reads, and the
results are copied to page-locked memory. JAX's own memory stays JAX's: it has no door for allocators.
"""

import os
import time
from typing import Any

import cuda_mem
import report
from report import np


class Results:
    """Page-locked memory for results."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.stream = cuda_mem.Stream()
        self.array = cuda_mem.PinnedMemory().allocate(4 * int(np.prod(shape)), stream=self.stream).view("float32", shape)

    def read(self, result: Any) -> Any:
        """A library's array as an array of numpy, which the next read overwrites."""
        self.array.copy_from(cuda_mem.from_dlpack(result, stream=self.stream))
        return np.from_dlpack(self.array)  # waits for the copy


def main() -> None:
    arguments = report.parser(__doc__, ["own", "ours"]).parse_args()
    # JAX would take three quarters of the GPU's memory.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    try:
        import jax
    except ImportError as error:
        report.skip(f"{error}: pip install 'jax[cuda13]'")
    report.needs_kernels()
    if jax.default_backend() != "gpu":
        report.skip("JAX sees no GPU: pip install 'jax[cuda13]'")

    shape, rounds = ((16, 1024), 3) if arguments.brief else ((1024, 4096), 50)
    numbers = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 1000
    squares = jax.jit(lambda array: array * array + 1)
    size = numbers.nbytes
    if arguments.memory == "ours":
        source = report.mapped_memory().allocate(size)
        host, results = source.numpy(np.float32, shape), Results(shape)
    squares(jax.device_put(numbers)).block_until_ready()
    begin = time.perf_counter()
    for number in range(rounds):
        if arguments.memory == "own":
            found = np.asarray(squares(jax.device_put(numbers + number)))
        else:
            np.add(numbers, number, out=host)
            source.flush()
            # An array of JAX never changes, so it ends before the next write.
            result = squares(jax.dlpack.from_dlpack(source.view("float32", shape)))
            found = results.read(result)
        assert (found == (numbers + number) ** 2 + 1).all(), f"round {number}"
    seconds = time.perf_counter() - begin
    peak = jax.devices()[0].memory_stats()["peak_bytes_in_use"]
    ours = size if arguments.memory == "ours" else 0
    report.line(arguments.memory, seconds, f"{rounds} rounds of {size >> 10} KiB", device_pool=peak + ours, pinned_pool=ours)


if __name__ == "__main__":
    main()
