"""The forms of before cuda.core 1.0, which that release removed: `stream` is optional, and exports are methods. All else is as in
cuda_mem.core."""

from __future__ import annotations

from typing import Any

from .. import _ipc, _resources
from .. import _managed as _managed_memory
from ..._native import core as _core
from .._errors import CUDAError
from .._stream import IsStreamType, default_stream

__all__ = ["Buffer", "CUDAError", "DeviceMemoryResource", "ManagedBuffer", "ManagedMemoryResource", "PinnedMemoryResource"]


class _Exports:
    """The export of a buffer as a method."""

    __slots__ = ()

    def get_ipc_descriptor(self) -> _ipc.IPCBufferDescriptor:
        """What another process imports the memory by."""
        return _ipc.export_buffer(self)  # type: ignore[arg-type]


class Buffer(_Exports, _core.Buffer):
    """Memory."""

    __slots__ = ()

    @classmethod
    def from_ipc_descriptor(
        cls, mr: Any, ipc_buffer: _ipc.IPCBufferDescriptor, stream: IsStreamType | None = None
    ) -> Any:
        """Imports memory of another process."""
        return _ipc.import_buffer(cls, mr, ipc_buffer, stream or default_stream())


class ManagedBuffer(_Exports, _managed_memory.ManagedBuffer):
    """Memory that the driver moves between the host and devices."""

    __slots__ = ()


class _OptionalStream(_resources._MemPool):
    """A pool whose allocations need no stream: without one they are in order of the default stream."""

    def allocate(self, size: int, stream: IsStreamType | None = None) -> Any:
        """Allocates a Buffer of `size` bytes."""
        return super().allocate(size, stream=stream or default_stream())

    def deallocate(self, ptr: Any, size: int, stream: IsStreamType | None = None) -> None:
        """Frees memory by its address."""
        super().deallocate(ptr, size, stream=stream or default_stream())


class _Shared(_OptionalStream, _resources._SharedPool):
    """A pool that other processes can have."""

    def get_allocation_handle(self) -> _ipc.IPCAllocationHandle:
        """What another process imports the pool by."""
        return self.allocation_handle


class DeviceMemoryResource(_Shared, _resources.DeviceMemoryResource):
    """Memory of a device, from a pool of the driver."""

    _buffer_type = Buffer


class PinnedMemoryResource(_Shared, _resources.PinnedMemoryResource):
    """Page-locked memory of the host, from a pool of the driver."""

    _buffer_type = Buffer


class ManagedMemoryResource(_OptionalStream, _resources.ManagedMemoryResource):
    """Memory that the driver moves between the host and devices, from a pool of the driver."""

    _buffer_type = ManagedBuffer


def __getattr__(name: str) -> Any:
    import cuda_mem.core

    return getattr(cuda_mem.core, name)
