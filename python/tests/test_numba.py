"""Numba on the pools. Numba's memory calls need no kernels, so Numba itself runs, in a process of its own."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import cuda_mem.numba
import pytest

PROGRAM = """
import ctypes, os
import numpy as np
import cuda_mem, cuda_mem.numba
from numba import cuda

def blocks():
    return cuda_mem.numba.snapshot().data["statistics"]["blocks"]["current"]

assert cuda_mem.numba.use(maximum=1 << 26).__name__ == "Manager"
numbers = np.arange(1 << 16, dtype=np.int32)
there = cuda.to_device(numbers)
assert blocks() == 1 and (there[::2].copy_to_host() == numbers[::2]).all()
assert there.nbytes <= cuda.current_context().get_memory_info().free <= cuda.current_context().get_memory_info().total
try:
    there.get_ipc_handle()
    raise SystemExit("a block of a pool was exported")
except cuda_mem.UnsupportedError:
    pass
try:
    cuda.device_array(1 << 27, "uint8")
    raise SystemExit("the pool is larger than its maximum")
except MemoryError:
    pass

# An array ends with work of one stream in the queue, and the next one gets its memory on another stream.
one, two = cuda.stream(), cuda.stream()
wrong, room = 0, cuda.pinned_array(1 << 16, np.int32)
for number in range(50):
    first = cuda.to_device(np.full(1 << 16, number, np.int32), stream=one)
    address = first.device_ctypes_pointer.value
    first.copy_to_host(room, stream=one)
    del first
    second = cuda.device_array(1 << 16, np.int32, stream=two)
    assert second.device_ctypes_pointer.value == address, "the pool gives the memory out again"
    second.copy_to_device(np.full(1 << 16, -1, np.int32), stream=two)
    one.synchronize()
    wrong += int((room != number).sum())
    two.synchronize()
    del second
assert wrong == 0, wrong
del there
assert blocks() == 0
driver = ctypes.CDLL(os.environ["CUDA_MEM_LIBCUDA"])
driver.softgpu_misuse_report.restype = ctypes.c_char_p
assert driver.softgpu_misuse_report() == b"", driver.softgpu_misuse_report()
print("done")
"""


NVIDIA = find_spec("nvidia")


@pytest.mark.skipif(
    NVIDIA is None or find_spec("numba_cuda") is None, reason="Numba is missing: pip install numba-cuda nvidia-cuda-runtime"
)
def test_numba_allocates_from_the_pools_in_the_order_of_work() -> None:
    assert NVIDIA is not None
    # Numba asks the CUDA runtime for its version.
    paths = [str(Path(folder) / "cu13/lib") for folder in NVIDIA.submodule_search_locations or []]
    paths += filter(None, [os.environ.get("LD_LIBRARY_PATH")])
    environment = {**os.environ, "SOFTGPU_RACES": "1", "LD_LIBRARY_PATH": ":".join(paths)}
    command = [sys.executable, "-X", "faulthandler", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_without_numba_the_error_says_what_to_install() -> None:
    with mock.patch.dict(sys.modules, {"numba": None}), pytest.raises(ImportError, match="pip install numba-cuda"):
        cuda_mem.numba.use()
