"""What all tests share. They run on the software GPU: `scripts/python-tests`, or
`python -m cuda_mem.softgpu run -- python -m pytest`."""

import ctypes
import gc
import os
from collections.abc import Callable, Iterator
from typing import Any

import cuda_mem
import pytest


@pytest.fixture(params=["device", "pinned", "managed", "mapped", "virtual", "driver_pool", "pool"])
def source(request: pytest.FixtureRequest) -> cuda_mem.MemoryResource:
    """Each source of memory in turn."""
    make: dict[str, Callable[[], cuda_mem.MemoryResource]] = {
        "device": cuda_mem.DeviceMemory,
        "pinned": cuda_mem.PinnedMemory,
        "managed": cuda_mem.ManagedMemory,
        "mapped": cuda_mem.MappedMemory,
        "virtual": cuda_mem.VirtualMemory,
        "driver_pool": cuda_mem.DriverPool,
        "pool": lambda: cuda_mem.Pool(cuda_mem.DeviceMemory()),
    }
    return make[request.param]()


def software_gpu() -> Any:
    """The software GPU's own functions."""
    driver = ctypes.CDLL(os.environ["CUDA_MEM_LIBCUDA"])
    driver.softgpu_misuse_report.restype = ctypes.c_char_p
    return driver


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left() -> Iterator[None]:
    """At the end of the process the software GPU knows of no misuse, and no drop has failed."""
    assert cuda_mem.Driver().is_software, "these tests write over memory: run them on the software GPU only"
    yield
    gc.collect()
    assert cuda_mem.take_drop_errors() == []
    assert software_gpu().softgpu_misuse_report() == b""
