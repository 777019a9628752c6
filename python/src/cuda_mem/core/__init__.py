"""The interface of cuda.core for memory, over this package's library: a program changes its imports only.

Programs, launches and graphs are those of the package cuda-core, where it is installed. Beyond cuda.core: `__dlpack__` copies
and orders, numpy arrays of memory that the CPU addresses, and no free of memory that an array still uses.

>>> from cuda_mem.core import Device
>>> device = Device()
>>> device.set_current()
>>> stream = device.create_stream()
>>> with device.allocate(1024, stream=stream) as buffer:
...     buffer.fill(0, stream=stream)
...     buffer.size
1024
"""

from typing import Any

from .._native.core import Buffer, MemoryResource, StridedLayout
from ._context import Context
from ._device import Device
from ._errors import CUDAError
from ._event import Event, EventOptions
from ._graph_memory import GraphMemoryResource
from ._host import Host
from ._managed import ManagedBuffer
from ._resources import (
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    LegacyPinnedMemoryResource,
    ManagedMemoryResource,
    ManagedMemoryResourceOptions,
    PinnedMemoryResource,
    PinnedMemoryResourceOptions,
)
from ._stream import LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Stream, StreamOptions
from ._virtual import VirtualMemoryResource, VirtualMemoryResourceOptions

__all__ = [
    "LEGACY_DEFAULT_STREAM",
    "PER_THREAD_DEFAULT_STREAM",
    "Buffer",
    "CUDAError",
    "Context",
    "Device",
    "DeviceMemoryResource",
    "DeviceMemoryResourceOptions",
    "Event",
    "EventOptions",
    "GraphMemoryResource",
    "Host",
    "LegacyPinnedMemoryResource",
    "ManagedBuffer",
    "ManagedMemoryResource",
    "ManagedMemoryResourceOptions",
    "MemoryResource",
    "PinnedMemoryResource",
    "PinnedMemoryResourceOptions",
    "Stream",
    "StreamOptions",
    "StridedLayout",
    "VirtualMemoryResource",
    "VirtualMemoryResourceOptions",
]


def __getattr__(name: str) -> Any:
    from ._forward import forwarded

    return forwarded("", name)
