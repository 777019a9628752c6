"""CuPy on the pools of this package: `cuda_mem.cupy.use()`."""

from typing import Any

from . import _pools
from ._errors import OutOfMemoryError
from ._pools import snapshot

__all__ = ["snapshot", "use"]


def use(**options: Any) -> Any:
    """Makes CuPy allocate from the pools, for its current stream, and returns the allocator. As with CuPy's own pool, a
    free waits for the work of the stream of the allocation only. `options` are those of cuda_mem.torch.use."""
    import cupy

    if options:
        _pools.set_options(**options)
    live: dict[int, tuple[int, int]] = {}

    def malloc(size: int, device: int) -> int:
        stream = cupy.cuda.get_current_stream(device).ptr
        try:
            address = _pools.malloc(size, device, stream)
        except OutOfMemoryError as error:
            raise cupy.cuda.memory.OutOfMemoryError(size, 0) from error
        live[address] = (size, stream)
        return address

    def free(address: int, device: int) -> None:
        size, stream = live.pop(address)
        _pools.free(address, size, device, stream)

    made = cupy.cuda.PythonFunctionAllocator(malloc, free)
    cupy.cuda.set_allocator(made.malloc)
    return made
