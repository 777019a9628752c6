"""Memory of other processes, and processes that import the module in unusual ways."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cuda_mem import arrow


def child(work: Callable[..., None], *arguments: Any) -> int | None:
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def expect(handle: pa.Buffer, expected: bytes) -> None:
    buffer = arrow.Context(0).open_ipc_buffer(arrow.IpcMemHandle.from_buffer(handle))
    assert buffer.to_pybytes() == expected, buffer.to_pybytes()
    # The other process sees no harm of a buffer that ends here, or after a second one.
    again = arrow.Context(0).open_ipc_buffer(arrow.IpcMemHandle.from_buffer(handle))
    del buffer
    assert again.slice(1).to_pybytes() == expected[1:]


def test_handles_name_parts_and_outlive_their_buffer() -> None:
    context = arrow.Context(0)
    buffer = context.buffer_from_data(bytes(range(100)))
    whole = buffer.export_for_ipc().serialize()
    part = buffer.slice(40, 10).export_for_ipc().serialize()
    before = context.bytes_allocated
    del buffer
    assert context.bytes_allocated == before, "the memory lives as long as the process"
    assert child(expect, whole, bytes(range(100))) == 0
    assert child(expect, part, bytes(range(40, 50))) == 0


def test_handles_in_their_own_process_are_the_memory() -> None:
    context = arrow.Context(0)
    buffer = context.buffer_from_data(b"here")
    opened = context.open_ipc_buffer(arrow.IpcMemHandle.from_buffer(buffer.export_for_ipc().serialize()))
    buffer.copy_from_host(b"H")
    assert opened.to_pybytes() == b"Here"


def test_odd_handles_are_refused() -> None:
    context = arrow.Context(0)
    good = context.buffer_from_data(b"data").export_for_ipc().serialize().to_pybytes()
    empty = context.new_buffer(0).export_for_ipc().serialize().to_pybytes()
    assert context.open_ipc_buffer(arrow.IpcMemHandle.from_buffer(pa.py_buffer(empty))).size == 0
    odd = [b"", good[:7], good[:8], good[:-1], good + b"\0", empty + good[8:], good[:8] + bytes(len(good) - 8), b"\xff" * 8]
    changed = bytearray(good)
    changed[-1] ^= 1
    for data in [*odd, bytes(changed)]:
        with pytest.raises(ValueError):
            arrow.IpcMemHandle.from_buffer(pa.py_buffer(data))
    longer = (5).to_bytes(8, "little") + good[8:]
    with pytest.raises(ValueError, match="states 5 bytes"):
        context.open_ipc_buffer(arrow.IpcMemHandle.from_buffer(pa.py_buffer(longer)))


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "faulthandler", "-c", program, *arguments]
    return subprocess.run(command, text=True, capture_output=True, timeout=60)


def succeeds(program: str, *arguments: str) -> None:
    done = run(program, *arguments)
    assert done.returncode == 0, done.stderr


NO_MISUSE = """
import ctypes, os
driver = ctypes.CDLL(os.environ["CUDA_MEM_LIBCUDA"])
driver.softgpu_misuse_report.restype = ctypes.c_char_p
assert driver.softgpu_misuse_report() == b"", driver.softgpu_misuse_report()
"""

LOADED_BEFORE = """
import ctypes, shutil, sys
import cuda_mem
copy = sys.argv[1] + "/libcudamem.so"
shutil.copy(cuda_mem.library_path(), copy)
ctypes.CDLL(copy, mode=ctypes.RTLD_GLOBAL)
from cuda_mem import arrow
buffer = arrow.Context(0).buffer_from_data(b"abc")
assert arrow.Context(0).buffer_from_data(cuda_mem.DeviceMemory().allocate(3).to_bytes()).size == 3
assert buffer.to_pybytes() == b"abc"
"""

LOADED_TWICE = """
import importlib.util, shutil, sys
import pyarrow as pa
from cuda_mem import arrow
import cuda_mem_arrow._arrow as first
copy = shutil.copy(first.__file__, sys.argv[1])
spec = importlib.util.spec_from_file_location("second._arrow", copy)
second = importlib.util.module_from_spec(spec)
spec.loader.exec_module(second)
assert second.CudaBuffer is not first.CudaBuffer
ours, theirs = first.Context(0).buffer_from_data(b"ours"), second.Context(0).buffer_from_data(b"theirs")
assert ours.device == theirs.device
assert first.CudaBuffer.from_buffer(theirs).to_pybytes() == b"theirs"
assert second.CudaBuffer.from_buffer(ours).to_pybytes() == b"ours"
array = pa.array([1, 2]).copy_to(second.Context(0).memory_manager).copy_to(first.Context(0).memory_manager)
assert array.copy_to(pa.default_cpu_memory_manager()).to_pylist() == [1, 2]
"""

AT_THE_END = """
import threading
import pyarrow as pa
from cuda_mem import arrow
context = arrow.Context(0)
base = arrow.new_host_buffer(64)
cycle = [context.foreign_buffer(base.address, 64, base), arrow.BufferWriter(context.new_buffer(64))]
cycle[1].buffer_size = 32
cycle[1].write(b"never closed")
cycle.append(cycle)
array = pa.array(range(100)).copy_to(context.memory_manager)
exported = context.new_buffer(10).export_for_ipc()
threading.Thread(target=lambda: [context.buffer_from_data(b"x") for _ in range(10**9)], daemon=True).start()
"""

FORKED = """
import os
from cuda_mem import arrow
context = arrow.Context(0)
buffer = context.buffer_from_data(b"abc")
child = os.fork()
if child == 0:
    try:
        context.new_buffer(1)
    except OSError as error:
        status = 0 if "fork" in str(error) else 1
    del buffer, context
    os._exit(status)
assert os.waitpid(child, 0)[1] == 0
assert buffer.to_pybytes() == b"abc"
"""

OTHER_RELEASE = """
import pyarrow
pyarrow.__version__ = "1.2.3"
import cuda_mem.arrow
"""


def test_a_library_that_is_loaded_before_does_no_harm(tmp_path: Path) -> None:
    succeeds(LOADED_BEFORE + NO_MISUSE, str(tmp_path))


def test_a_module_that_is_loaded_twice_does_no_harm(tmp_path: Path) -> None:
    succeeds(LOADED_TWICE + NO_MISUSE, str(tmp_path))


def test_a_process_ends_with_live_buffers() -> None:
    for _ in range(3):
        succeeds(AT_THE_END)


def test_a_forked_child_gets_an_error_and_ends() -> None:
    succeeds(FORKED + NO_MISUSE)


def test_another_release_of_pyarrow_is_refused_by_name() -> None:
    done = run(OTHER_RELEASE)
    release = ".".join(pa.__version__.split(".")[:2])
    assert done.returncode == 1
    assert f"ImportError: cuda-mem-arrow {release} is built for pyarrow {release}, but pyarrow 1.2.3" in done.stderr
    assert "pip install" in done.stderr and "cuda-mem-arrow==1.2.*" in done.stderr


def test_pyarrow_finds_the_module_by_its_own_name() -> None:
    import pyarrow.cuda

    assert pyarrow.cuda.CudaBuffer is arrow.CudaBuffer


def test_the_programs_of_the_pages_run() -> None:
    root = Path(__file__).resolve().parents[3]
    for page, fence in ((root / "docs/guide/python.md", "py"), (root / "python/arrow/README.md", "python")):
        programs = [block.split("\n```")[0] for block in page.read_text().split(f"\n```{fence}\n")[1:]]
        assert programs, page
        for program in programs:
            exec(compile(program, str(page), "exec"), {})


def test_devices_are_as_many_as_the_environment_says() -> None:
    assert arrow.Context.get_num_devices() == int(os.environ.get("SOFTGPU_DEVICES", "1"))
