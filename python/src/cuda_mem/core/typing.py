"""Types of the signatures of cuda_mem.core."""

from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from ._stream import IsStreamType

if TYPE_CHECKING:
    DevicePointerType: TypeAlias = Any
else:
    DevicePointerType = int | None
    """An address: an integer, an object of cuda.bindings that becomes one, or None."""

__all__ = [
    "DevicePointerType",
    "IsStreamType",
    "ManagedMemoryLocationType",
    "VirtualMemoryAccessType",
    "VirtualMemoryAllocationType",
    "VirtualMemoryGranularityType",
    "VirtualMemoryHandleType",
    "VirtualMemoryLocationType",
]


class ManagedMemoryLocationType(StrEnum):
    """Where managed memory lies at first."""

    DEVICE = "device"
    HOST = "host"
    HOST_NUMA = "host_numa"


class VirtualMemoryHandleType(StrEnum):
    """How other processes import virtual memory."""

    POSIX_FD = "posix_fd"
    WIN32_KMT = "win32_kmt"
    FABRIC = "fabric"


class VirtualMemoryLocationType(StrEnum):
    """Where virtual memory lies."""

    DEVICE = "device"
    HOST = "host"
    HOST_NUMA = "host_numa"
    HOST_NUMA_CURRENT = "host_numa_current"


class VirtualMemoryGranularityType(StrEnum):
    """The unit of virtual memory."""

    MINIMUM = "minimum"
    RECOMMENDED = "recommended"


class VirtualMemoryAccessType(StrEnum):
    """What a device may do with virtual memory."""

    READ_WRITE = "rw"
    READ = "r"


class VirtualMemoryAllocationType(StrEnum):
    """The kind of virtual memory."""

    PINNED = "pinned"
    MANAGED = "managed"


def __getattr__(name: str) -> Any:
    from ._forward import forwarded

    return forwarded("typing", name)
