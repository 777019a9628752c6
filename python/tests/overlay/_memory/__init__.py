"""Names of upstream's tests, for what this package has elsewhere."""

from .. import (
    Buffer,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    GraphMemoryResource,
    LegacyPinnedMemoryResource,
    ManagedBuffer,
    ManagedMemoryResource,
    ManagedMemoryResourceOptions,
    MemoryResource,
    PinnedMemoryResource,
    PinnedMemoryResourceOptions,
    VirtualMemoryResource,
    VirtualMemoryResourceOptions,
)
from .._ipc import IPCAllocationHandle, IPCBufferDescriptor
from .. import _stream
from . import _virtual_memory_resource as _patches

__all__ = [
    "Buffer",
    "DeviceMemoryResource",
    "DeviceMemoryResourceOptions",
    "GraphMemoryResource",
    "IPCAllocationHandle",
    "IPCBufferDescriptor",
    "LegacyPinnedMemoryResource",
    "ManagedBuffer",
    "ManagedMemoryResource",
    "ManagedMemoryResourceOptions",
    "MemoryResource",
    "PinnedMemoryResource",
    "PinnedMemoryResourceOptions",
    "VirtualMemoryResource",
    "VirtualMemoryResourceOptions",
]


def _accept(arg: object) -> _stream.Stream:
    if not isinstance(arg, _stream.Stream):
        raise TypeError(f"Stream or GraphBuilder expected, got {type(arg).__name__}")
    return arg


_stream.Stream_accept = _accept  # type: ignore[attr-defined]
