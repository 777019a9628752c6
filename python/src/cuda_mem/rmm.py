"""RMM, and with it cuDF, on the pools of this package: `rmm.mr.set_current_device_resource(cuda_mem.rmm.resource())`."""

from typing import Any

from . import _pools
from ._pools import snapshot

__all__ = ["resource", "snapshot"]


def resource(device: int = 0, **options: Any) -> Any:
    """A memory resource of RMM. `options` are those of cuda_mem.torch.use."""
    import rmm

    if options:
        _pools.set_options(**options)

    def allocate(size: int, stream: Any) -> int:
        return _pools.malloc(size, device, _handle(stream))

    def deallocate(address: int, size: int, stream: Any) -> None:
        _pools.free(address, size, device, _handle(stream))

    return rmm.mr.CallbackMemoryResource(allocate, deallocate)


def _handle(stream: Any) -> int:
    """The driver's handle of a stream of RMM."""
    try:
        return int(stream)
    except TypeError:
        return int(stream.__cuda_stream__()[1])
