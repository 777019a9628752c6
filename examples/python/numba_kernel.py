"""numpy writes numbers, a kernel of Numba changes them, and numpy reads the results, in the same memory.

    python numba_kernel.py [--memory own | ours] [--brief]

own: page-locked memory of Numba, which the kernel reads over the link to the host (`cuda.mapped_array`). ours: memory of the GPU
that the CPU addresses over that link.
"""

import time
from typing import Any

import cuda_mem
import report
from report import np


class Mapped:
    """Numbers in mapped memory: `host` for numpy, `device` for libraries that take the CUDA array interface."""

    def __init__(self, memory: cuda_mem.MappedMemory, count: int) -> None:
        self.buffer = memory.allocate(4 * count)
        self.host = self.buffer.numpy(np.float32)
        self.device = self.buffer.view("float32")

    def write(self, numbers: Any) -> None:
        np.copyto(self.host, numbers)
        self.buffer.flush()

    def read(self) -> Any:
        """What the device's work, which is done, has written."""
        self.buffer.invalidate()
        return self.host


def main() -> None:
    arguments = report.parser(__doc__, ["own", "ours"]).parse_args()
    report.needs_kernels()
    count, rounds = (1 << 12, 3) if arguments.brief else (1 << 20, 50)
    numbers = np.arange(count, dtype=np.float32)
    try:
        from numba import cuda

        @cuda.jit
        def double(array: Any) -> None:
            index = cuda.grid(1)
            if index < array.size:
                array[index] *= 2

        warm = cuda.to_device(numbers)
        double[count // 256, 256](warm)
    except (ImportError, AttributeError) as error:
        # Numba looks up names of numpy when it compiles its first kernel.
        report.skip(f"Numba with numpy {np.__version__}: {error}: pip install numba-cuda and a numpy that it knows")

    if arguments.memory == "own":
        on_gpu = host = cuda.mapped_array(count, np.float32)
    else:
        mapped = Mapped(report.mapped_memory(), count)
        on_gpu = cuda.as_cuda_array(mapped.device)
    begin = time.perf_counter()
    for number in range(rounds):
        if arguments.memory == "own":
            host[:] = numbers + number
        else:
            mapped.write(numbers + number)
        double[count // 256, 256](on_gpu)
        cuda.synchronize()
        found = host if arguments.memory == "own" else mapped.read()
        assert (found == 2 * (numbers + number)).all(), f"round {number}"
    seconds = time.perf_counter() - begin
    size = 4 * count
    own = arguments.memory == "own"
    report.line(arguments.memory, seconds, f"{rounds} rounds", device_pool=0 if own else size, pinned_pool=size if own else 0)


if __name__ == "__main__":
    main()
