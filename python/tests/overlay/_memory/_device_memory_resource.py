"""Functions of upstream's tests."""

from .. import DeviceMemoryResource
from .._ipc import _reduce_with_handle as _deep_reduce_device_memory_resource

__all__ = ["DMR_mempool_get_access", "_deep_reduce_device_memory_resource"]


def DMR_mempool_get_access(mr: DeviceMemoryResource, device_id: int) -> str:
    """The access of a device: "rw", "r" or ""."""
    return mr._access(device_id)
