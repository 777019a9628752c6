"""Numba on the pools of this package: `cuda_mem.numba.use()`, before Numba uses the GPU."""

import ctypes
from typing import Any

from . import _pools
from ._errors import UnsupportedError
from ._native import Buffer, Context, DeviceMemory
from ._pools import snapshot

__all__ = ["snapshot", "use"]


def use(**options: Any) -> Any:
    """Makes Numba allocate device memory from the pools, and returns the class of its memory manager. Numba's pinned and
    managed memory stays Numba's. `options` are those of cuda_mem.torch.use.

    Numba does not tell which streams use an array. So the end of an array orders the legacy default stream after the queued work
    of all blocking streams, which Numba's are, and their later work after it. Order work of other streams before the end of
    the array. ImportError if Numba is missing."""
    try:
        from numba import cuda
    except ImportError as error:
        raise ImportError(f"cuda_mem.numba needs Numba for CUDA: pip install numba-cuda ({error})") from error

    if options:
        _pools.set_options(**options)
    manager = _manager(cuda)
    cuda.set_memory_manager(manager)
    return manager


def _manager(cuda: Any) -> Any:
    """The class of the memory manager. Numba makes an object of it for each context."""

    class Manager(cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
        """Numba's device memory from the pools of cuda_mem."""

        barrier: Buffer | None = None

        def initialize(self) -> None:
            """Called before each use of a context."""
            self.barrier = self.barrier or DeviceMemory(self.context.device.id).allocate(1)

        def memalloc(self, size: int) -> Any:
            """Allocates device memory."""
            device, barrier = self.context.device.id, self.barrier
            address = _pools.malloc(size, device)

            def free() -> None:
                assert barrier is not None
                # Work of the legacy default stream comes after that of all blocking streams, and before their later work.
                barrier.fill(0)
                _pools.free(address, size, device)

            return cuda.MemoryPointer(self.context, ctypes.c_void_p(address), size, finalizer=free)

        def get_ipc_handle(self, memory: Any) -> Any:
            """Refused: a block of a pool is a part of a larger allocation."""
            raise UnsupportedError("memory of a pool of cuda_mem has no IPC handle: allocate what processes share elsewhere")

        def get_memory_info(self) -> Any:
            """The device's free and total memory in bytes."""
            info = Context(self.context.device.id).memory_info()
            return cuda.MemoryInfo(free=info["free"], total=info["total"])

        @property
        def interface_version(self) -> int:
            """The version of Numba's interface."""
            return 1

    return Manager
