"""PyTorch on the pools of this package.

    import cuda_mem.torch
    cuda_mem.torch.use(maximum=40 << 30)   # before PyTorch uses the GPU

PyTorch then shares the pools with CuPy, RMM and Numba (`cuda_mem.cupy`, `cuda_mem.rmm`, `cuda_mem.numba`) and with C and C++
code of the process.
"""

from typing import Any

from . import _native, _pools
from ._pools import is_asleep, sleep, snapshot, wake

__all__ = ["allocator", "is_asleep", "sleep", "snapshot", "use", "wake"]


def allocator(glue: str | None = None, **options: Any) -> Any:
    """A torch.cuda.memory.CUDAPluggableAllocator, for torch.cuda.MemPool or `use`. `options` are those of the pools: see
    `use`. `glue` is the path of a library built from examples/torch/cudamem_torch.cpp, which raises
    torch.OutOfMemoryError."""
    import torch

    if options:
        _pools.set_options(**options)
    names = ("torch_alloc", "torch_free") if glue else ("cudamem_torch_alloc", "cudamem_torch_free")
    made = torch.cuda.memory.CUDAPluggableAllocator(glue or str(_native.__file__), *names)
    # Without the first, memory goes to the next tensor while a second stream still uses it.
    for name, function in (
        ("set_record_stream_fn", "cudamem_torch_record_stream"),
        ("set_reset_fn", "cudamem_torch_empty_cache"),
    ):
        getattr(made.allocator(), name)(_pools.function_address(function))
    return made


def use(glue: str | None = None, **options: Any) -> Any:
    """Makes PyTorch allocate from the pools, and returns the allocator. Call it before PyTorch uses the GPU.

    Tensor.record_stream is honoured, and torch.cuda.empty_cache returns unused memory. `options`, in bytes: `initial`,
    `smallest_growth`, `largest_growth`, `maximum`; the number of events `trace_capacity`; and `regions`. ArgumentError if
    the pools are already in use. `snapshot(device)` shows what they hold; `sleep(device)` gives their memory back until
    `wake(device)`."""
    import torch

    made = allocator(glue, **options)
    torch.cuda.memory.change_current_allocator(made)
    return made
