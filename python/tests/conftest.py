"""What all tests share. They run on the software GPU: `scripts/python-tests`, or
`python -m cuda_mem.softgpu run -- python -m pytest`."""

import ctypes
import gc
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
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
    driver.softgpu_ledger_live.restype = ctypes.c_size_t
    driver.softgpu_injected.restype = ctypes.c_uint64
    return driver


# The software GPU, on which the first use of a primary context ends when a thread of Python has counted on.
SLOW_DRIVER = """
#include <dlfcn.h>
#include <unistd.h>

volatile int beats;

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    int (*retain)(void **, int) = dlsym(RTLD_NEXT, "cuDevicePrimaryCtxRetain");
    for (int tries = 0, before = beats; beats < before + 2; tries++) {
        if (tries == 3000) {
            return 999;
        }
        usleep(1000);
    }
    return retain(context, device);
}
"""


def run_beside_a_thread(program: str, folder: Path) -> None:
    """Runs a program over a driver that makes a primary context only while another thread of Python runs, else it refuses."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("contexts that take long: a C compiler is missing: apt-get install gcc")
    (folder / "slow.c").write_text(SLOW_DRIVER)
    library = folder / "libslow.so"
    command = [compiler, "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", library, folder / "slow.c", "-Wl,--no-as-needed"]
    subprocess.run([*command, os.environ["CUDA_MEM_LIBCUDA"], "-ldl"], check=True)
    beside = f"""
import ctypes, threading, time

beats = ctypes.c_int.in_dll(ctypes.CDLL({str(library)!r}), "beats")
def count():
    while True:
        beats.value += 1
        time.sleep(0.001)
threading.Thread(target=count, daemon=True).start()
"""
    run_program(beside + textwrap.dedent(program), CUDA_MEM_LIBCUDA=str(library))


def run_program(program: str, **environment: str) -> None:
    """Runs a program of Python, which must end well."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left() -> Iterator[None]:
    """At the end of the process the software GPU knows of no misuse, and no drop has failed."""
    assert cuda_mem.Driver().is_software, "these tests write over memory: run them on the software GPU only"
    yield
    gc.collect()
    assert cuda_mem.take_drop_errors() == []
    assert software_gpu().softgpu_misuse_report() == b""
