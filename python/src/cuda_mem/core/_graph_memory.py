"""Memory of graphs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ClassVar

from .._native import core as _core
from ._device import Device

if TYPE_CHECKING:
    from .._native.core import Buffer
    from ._stream import IsStreamType

__all__ = ["GraphMemoryResource", "GraphMemoryResourceAttributes"]


class GraphMemoryResourceAttributes:
    """The bytes that the graphs of a device have. The two maxima can be set, to 0 only."""

    __slots__ = ("_resource",)

    _resource: GraphMemoryResource

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        raise RuntimeError(
            "GraphMemoryResourceAttributes cannot be instantiated directly. Please use GraphMemoryResource.attributes."
        )

    @classmethod
    def _of(cls, resource: GraphMemoryResource) -> GraphMemoryResourceAttributes:
        made = cls.__new__(cls)
        object.__setattr__(made, "_resource", resource)
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("reserved_mem_high", "used_mem_high"):
            raise AttributeError(f"attribute {name!r} of {type(self).__name__!r} objects is not writable")
        if value != 0:
            raise AttributeError(f"Attribute {name!r} may only be set to zero (got {value}).")
        self._resource._reset_high_marks()

    @property
    def used_mem_current(self) -> int:
        """The bytes in use."""
        return self._resource._graph_attributes()[0]

    @property
    def used_mem_high(self) -> int:
        """The most bytes in use."""
        return self._resource._graph_attributes()[1]

    @property
    def reserved_mem_current(self) -> int:
        """The bytes that the graphs have of the device."""
        return self._resource._graph_attributes()[2]

    @property
    def reserved_mem_high(self) -> int:
        """The most bytes that the graphs had of the device."""
        return self._resource._graph_attributes()[3]

    def __repr__(self) -> str:
        used, used_high, reserved, reserved_high = self._resource._graph_attributes()
        return (
            f"{type(self).__name__}(reserved_mem_current={reserved}, reserved_mem_high={reserved_high}, "
            f"used_mem_current={used}, used_mem_high={used_high})"
        )


class GraphMemoryResource(_core.SourceBase):
    """Memory that a graph allocates and frees when it runs. Allocations are recorded by a stream that captures. A buffer that
    leaves its capture is used and closed only while its memory lives: after a launch of its graph. For one device there is
    one object."""

    _instances: ClassVar[dict[int, GraphMemoryResource]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()
    _device_id: int

    def __new__(cls, device_id: Device | int) -> GraphMemoryResource:
        ordinal = Device(device_id).device_id
        with cls._lock:
            if ordinal not in cls._instances:
                made = super().__new__(cls)
                made._device_id = ordinal
                made._open_graph(ordinal)
                cls._instances[ordinal] = made
            return cls._instances[ordinal]

    def allocate(self, size: int, *, stream: IsStreamType) -> Buffer:
        """Allocates a Buffer of `size` bytes in the graph that `stream` captures."""
        return self._allocate(size, stream)

    def deallocate(self, ptr: Any, size: int, *, stream: IsStreamType) -> None:
        """Frees memory by its address, in order of `stream`."""
        self._deallocate(int(ptr), size, stream)

    def close(self) -> None:
        """Does nothing: the memory belongs to the device."""

    def trim(self) -> None:
        """Returns memory that no graph uses to the system."""
        self._trim()

    @property
    def attributes(self) -> GraphMemoryResourceAttributes:
        """The bytes that the graphs of the device have."""
        return GraphMemoryResourceAttributes._of(self)

    @property
    def device_id(self) -> int:
        """The ordinal of the device."""
        return self._device_id

    @property
    def is_device_accessible(self) -> bool:
        """True."""
        return True

    @property
    def is_host_accessible(self) -> bool:
        """False."""
        return False
