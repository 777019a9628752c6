"""The commands, the modules for other libraries, and the documentation's examples."""

import doctest
import importlib
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import cuda_mem
import pytest


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `python -m ...`."""
    unset = ("CUDA_MEM_LIBCUDA", "LD_LIBRARY_PATH")
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=120, env={**inherited, **environment}
    )


def test_a_program_runs_on_the_software_gpu() -> None:
    program = (
        "import ctypes, cuda_mem; assert cuda_mem.Driver().is_software; "
        "assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0; print('ran')"
    )
    done = command("cuda_mem.softgpu", "run", "--", sys.executable, "-c", program)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert "unrecognized subcommand 'walk'" in command("cuda_mem.softgpu", "walk").stderr
    missing = command("cuda_mem.softgpu", "run", "--", "/there/is/none")
    assert missing.returncode != 0 and "/there/is/none" in missing.stderr and "Traceback" not in missing.stderr


def test_misuse_of_the_software_gpu_shows_in_the_exit_status() -> None:
    program = (
        "import ctypes, cuda_mem; buffer = cuda_mem.DeviceMemory().allocate(64); "
        "address = ctypes.c_uint64(buffer.handle); cuda = ctypes.CDLL('libcuda.so.1'); buffer.close(); "
        "cuda_mem.Stream().synchronize(); cuda.cuMemFree_v2(address)"
    )
    done = command("cuda_mem.softgpu", "run", "--devices", "1", "--", sys.executable, "-c", program)
    assert done.returncode == 66 and "softgpu: the program misused the GPU" in done.stderr, done.stderr


def test_the_program_for_ci_runs_from_the_installed_packages(tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[2] / "docs/guide/testing-without-a-gpu.md"
    section = page.read_text().split("\n## In CI\n")[1]
    (tmp_path / "mean.py").write_text(section.split("\n```python\n")[1].split("\n```")[0])
    softgpu = Path(sys.executable).with_name("softgpu")
    done = subprocess.run(
        [softgpu, "run", "--devices", "1", "--races", "--", sys.executable, "mean.py"],
        cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_without_the_software_gpu_the_error_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "cuda_mem_softgpu.py").write_text("raise ImportError('hidden')")
    missing = command("cuda_mem.softgpu", "run", "--", "true", PYTHONPATH=str(tmp_path))
    assert missing.returncode != 0 and "pip install cuda-mem-softgpu (hidden)" in missing.stderr


def test_doctor_says_what_works() -> None:
    library = os.environ["CUDA_MEM_LIBCUDA"]
    done = command("cuda_mem", "doctor", CUDA_MEM_LIBCUDA=library)
    assert done.returncode == 0, done.stdout
    assert "device memory: works" in done.stdout and "mapped memory: works" in done.stdout
    missing = command("cuda_mem", "doctor", CUDA_MEM_LIBCUDA="/there/is/none.so")
    assert missing.returncode == 1 and "/there/is/none.so" in missing.stdout
    assert "usage" in command("cuda_mem", "patient").stderr


def test_a_missing_driver_is_an_error_that_says_where_it_was_searched() -> None:
    done = command("cuda_mem", "doctor", CUDA_MEM_LIBCUDA="/there/is/none.so")
    assert "driver: " in done.stdout and "Traceback" not in done.stderr


def test_torch_cupy_and_rmm_get_functions_of_the_pools() -> None:
    fakes = {name: mock.MagicMock(name=name) for name in ("torch", "cupy", "rmm")}
    fakes["cupy"].cuda.memory.OutOfMemoryError = MemoryError
    fakes["cupy"].cuda.get_current_stream.return_value.ptr = 0
    with mock.patch.dict(sys.modules, fakes):
        # The options can be set before the first allocation of the process only; tests that allocate come in later files.
        allocator = importlib.import_module("cuda_mem.torch").use(maximum=1 << 26, trace_capacity=64)
        made = fakes["torch"].cuda.memory.CUDAPluggableAllocator
        made.assert_called_once_with(cuda_mem.library_path(), "cudamem_torch_alloc", "cudamem_torch_free")
        fakes["torch"].cuda.memory.change_current_allocator.assert_called_once_with(allocator)
        for setter in ("set_record_stream_fn", "set_reset_fn"):
            (address,) = getattr(allocator.allocator(), setter).call_args.args
            assert isinstance(address, int) and address != 0

        importlib.import_module("cuda_mem.cupy").use()
        malloc, free = fakes["cupy"].cuda.PythonFunctionAllocator.call_args.args
        address = malloc(1 << 20, 0)
        blocks = importlib.import_module("cuda_mem.torch").snapshot(0).data["statistics"]["blocks"]
        assert blocks["current"] == 1
        torch = importlib.import_module("cuda_mem.torch")
        assert torch.sleep(0).saved == 1 << 20 and torch.is_asleep(0)
        with pytest.raises(cuda_mem.AsleepError, match="wake the pool first"):
            malloc(1 << 20, 0)
        with pytest.raises(cuda_mem.ArgumentError, match="asleep already"):
            torch.sleep(0, contents="discard", patience=0)
        torch.wake(0)
        assert not torch.is_asleep(0)
        with pytest.raises(cuda_mem.ArgumentError, match="contents"):
            torch.sleep(0, contents="keep")
        free(address, 0)
        with pytest.raises(MemoryError):
            malloc(1 << 40, 0)
        with pytest.raises(cuda_mem.ArgumentError):
            importlib.import_module("cuda_mem.cupy").use(maximum=1 << 27)

        rmm = importlib.import_module("cuda_mem.rmm")
        rmm.resource()
        allocate, deallocate = fakes["rmm"].mr.CallbackMemoryResource.call_args.args
        stream = cuda_mem.Stream()
        deallocate(allocate(4096, stream), 4096, stream)
        pools = importlib.import_module("cuda_mem._pools")
        with pytest.raises(cuda_mem.ArgumentError):
            pools.free(12345, 1)
        with pytest.raises(cuda_mem.ArgumentError):
            pools.malloc(-1)


def test_the_examples_of_all_docstrings_run() -> None:
    pytest.importorskip("numpy")
    finder, runner = doctest.DocTestFinder(exclude_empty=True), doctest.DocTestRunner(verbose=False)
    found = 0
    for name in [*cuda_mem.__all__, "__doc__"]:
        value = cuda_mem if name == "__doc__" else getattr(cuda_mem, name)
        # The finder passes classes of extension modules by, unless it gets them as texts.
        texts = [(name, value.__doc__)] + [
            (f"{name}.{member}", getattr(value, member).__doc__) for member in (dir(value) if isinstance(value, type) else [])
        ]
        for title, text in texts:
            if text and ">>>" in text:
                test = doctest.DocTestParser().get_doctest(text, {"cuda_mem": cuda_mem}, title, None, 0)
                runner.run(test)
                found += 1
    assert found >= 10 and runner.failures == 0, f"{runner.failures} of {found} examples failed"
    del finder


def test_every_public_name_is_documented() -> None:
    for name in cuda_mem.__all__:
        value = getattr(cuda_mem, name)
        assert value.__doc__, name
        if isinstance(value, type) and value.__module__ == "cuda_mem" and not issubclass(value, BaseException):
            for member, object in vars(value).items():
                if not member.startswith("_"):
                    assert object.__doc__, f"{name}.{member}"
