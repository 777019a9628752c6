"""What the programs of this folder share: the command line, and the lines that they print."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import cuda_mem
import cuda_mem.torch


def skip(reason: object) -> NoReturn:
    """Ends the program with a line that says what is missing."""
    print(f"skipped: {Path(sys.argv[0]).stem}: {str(reason).splitlines()[0]}", flush=True)
    sys.exit(0)


try:
    import numpy as np  # for the programs too
except ImportError as error:
    skip(f"{error}: pip install numpy")


def parser(description: str | None, memories: list[str]) -> argparse.ArgumentParser:
    """The command line of a program, which is its docstring's."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--memory", choices=memories, default=memories[-1])
    made.add_argument("--brief", action="store_true", help="little work, to see that the program runs")
    return made


def needs_kernels() -> None:
    """Ends the program where no kernel runs."""
    try:
        if cuda_mem.Driver().is_software:
            skip("the software GPU runs no kernels: use a GPU")
    except cuda_mem.Error as error:
        skip(f"there is no GPU: {error}")


def torch_and_transformers(memory: str) -> tuple[Any, Any]:
    """The two libraries, where PyTorch takes its memory from its `own` allocator, from that with `expandable` segments, or from
    `ours`. The same program computes the same with each."""
    # The library of matrix products computes the same in each run only with this setting.
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    if memory == "expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    try:
        import torch
        import transformers
    except ImportError as error:
        skip(f"{error}: pip install torch transformers")
    needs_kernels()
    if memory == "ours":
        cuda_mem.torch.use()
    torch.manual_seed(1)
    return torch, transformers


def peak_of_torch(torch: Any, memory: str) -> int:
    """The most device memory that the allocator has held, in bytes."""
    peak: int = peak_of_pools() if memory == "ours" else torch.cuda.max_memory_reserved()
    return peak


def mapped_memory() -> cuda_mem.MappedMemory:
    """Memory of the GPU that the CPU addresses. Ends the program where there is none."""
    try:
        return cuda_mem.MappedMemory()
    except cuda_mem.Error as error:
        skip(f"mapped memory: {error}")


def peak_of_pools() -> int:
    """The most device memory that the pools of cuda_mem for other libraries have held, in bytes."""
    peak: int = cuda_mem.torch.snapshot().data["statistics"]["reserved"]["peak"]
    return peak


def line(memory: str, seconds: float, result: str, *, device_pool: int, pinned_pool: int = 0) -> None:
    """Prints the line of figures, which compare.py reads. `result` is equal for all memories. The pools are the most that
    the program's allocators have held; what is in use on the device is told by the driver, with contexts and kernels."""
    info = cuda_mem.Context(0).memory_info()
    print(
        f"{Path(sys.argv[0]).stem} {memory}: {seconds:.3f} s; device pool {device_pool >> 20} MiB, pinned pool "
        f"{pinned_pool >> 20} MiB, {(info['total'] - info['free']) >> 20} MiB in use on the device; {result}",
        flush=True,
    )
