"""Memory resources over pools of the driver, and over the driver's own allocations."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from .._native import core as _core
from . import _device, _ipc
from ._device import Device
from ._errors import options_of
from ._managed import ManagedBuffer
from ._peers import PeerAccessibleBySetProxy, set_peers
from .typing import ManagedMemoryLocationType

if TYPE_CHECKING:
    from .._native.core import Buffer
    from ._stream import IsStreamType

__all__ = [
    "DeviceMemoryResource",
    "DeviceMemoryResourceOptions",
    "LegacyPinnedMemoryResource",
    "ManagedMemoryResource",
    "ManagedMemoryResourceOptions",
    "PinnedMemoryResource",
    "PinnedMemoryResourceOptions",
]


@dataclass
class DeviceMemoryResourceOptions:
    """Options of a new pool: whether other processes can have it, and the most bytes (0: no limit)."""

    ipc_enabled: bool = False
    max_size: int = 0


@dataclass
class PinnedMemoryResourceOptions:
    """Options of a new pool: whether other processes can have it, the most bytes (0: no limit), and the NUMA node, which the
    system chooses if it is None."""

    ipc_enabled: bool = False
    max_size: int = 0
    numa_id: int | None = None


@dataclass
class ManagedMemoryResourceOptions:
    """Options of a new pool: where its memory lies at first. Without a type, `preferred_location` is an ordinal, -1 for the
    host, or None. "device" needs an ordinal, "host" None, "host_numa" a node or None for that of the current device."""

    preferred_location: int | None = None
    preferred_location_type: ManagedMemoryLocationType | str | None = None


class _MemPool(_core.PoolBase):
    """A resource over a pool of the driver. Without options it is the driver's current one."""

    _uuid: UUID | None = None
    _allocation_handle: _ipc.IPCAllocationHandle | None = None
    _is_ipc_enabled: bool = False
    _buffer_type: type[Buffer] | None = None
    """The class of the buffers, if it is not Buffer."""

    @property
    def is_ipc_enabled(self) -> bool:
        """Whether other processes can have the pool."""
        return self._is_ipc_enabled

    @property
    def uuid(self) -> UUID | None:
        """The same in all processes that have the pool; None if it cannot be shared."""
        return self._uuid

    def close(self) -> None:
        """Gives the pool up. A pool that this resource made ends with its last buffer."""
        super().close()
        handle, self._allocation_handle = self._allocation_handle, None
        if handle is not None:
            handle.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} handle={self.handle:#x}>"


class _SharedPool(_MemPool):
    """A pool that other processes can have."""

    @property
    def allocation_handle(self) -> _ipc.IPCAllocationHandle:
        """What another process imports the pool by. It belongs to the resource."""
        if not self._is_ipc_enabled:
            raise RuntimeError("Memory resource is not IPC-enabled")
        if self._allocation_handle is None:
            self._allocation_handle = _ipc.IPCAllocationHandle._init(self._export_file(), self._uuid)
        return self._allocation_handle

    def _enable_ipc(self, uuid: UUID | None) -> None:
        """Makes the pool known to pickles."""
        self._is_ipc_enabled, self._uuid = True, uuid
        _ipc.register_reducer(type(self))
        if uuid is not None:
            _ipc.REGISTRY[uuid] = self

    def register(self, uuid: UUID) -> Any:
        """Registers an imported pool, by which buffers of it are unpickled. Returns the one that was registered before, if
        there is one."""
        if not self._is_ipc_enabled:
            raise RuntimeError("Memory resource is not IPC-enabled")
        known = _ipc.REGISTRY.setdefault(uuid, self)
        if known is self:
            self._uuid = uuid
        return known

    @staticmethod
    def from_registry(uuid: UUID) -> Any:
        """The pool that was registered. RuntimeError if there is none."""
        return _ipc.from_registry(uuid)

    def __reduce__(self) -> tuple[object, ...]:
        if not self._is_ipc_enabled:
            raise RuntimeError("Memory resource is not IPC-enabled")
        return _ipc.from_registry, (self._uuid,)


class DeviceMemoryResource(_SharedPool):
    """Memory of a device, from a pool of the driver: the current one, or, with options, a new one."""

    _device_id: int

    def __init__(
        self, device_id: Device | int, options: DeviceMemoryResourceOptions | dict[str, Any] | None = None
    ) -> None:
        self._device_id = Device(device_id).device_id
        if options is None:
            self._open_current("device", self._device_id, buffer_type=self._buffer_type)
            return
        chosen = options_of(DeviceMemoryResourceOptions, options, "DeviceMemoryResource options")
        self._open_new(
            "device", self._device_id, chosen.max_size, chosen.ipc_enabled, buffer_type=self._buffer_type
        )
        if chosen.ipc_enabled:
            self._enable_ipc(uuid4())

    @classmethod
    def from_allocation_handle(
        cls, device_id: Device | int, alloc_handle: int | _ipc.IPCAllocationHandle
    ) -> DeviceMemoryResource:
        """The pool of another process. A file descriptor as a number stays the caller's."""
        ordinal = Device(device_id).device_id

        def make(file: int) -> DeviceMemoryResource:
            made = cls.__new__(cls)
            made._device_id = ordinal
            made._open_file("device", ordinal, file)
            return made

        return _ipc.import_pool(cls, alloc_handle, make)

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

    @property
    def peer_accessible_by(self) -> PeerAccessibleBySetProxy:
        """The other devices that may access the pool's memory: a set that the driver keeps. Changes apply to memory that is
        already allocated too."""
        return PeerAccessibleBySetProxy(self)

    @peer_accessible_by.setter
    def peer_accessible_by(self, devices: Iterable[Device | int]) -> None:
        set_peers(self, devices)


class PinnedMemoryResource(_SharedPool):
    """Page-locked memory of the host, from a pool of the driver: the current one, or, with options, a new one. All devices
    have access."""

    _numa_id: int = -1

    def __init__(self, options: PinnedMemoryResourceOptions | dict[str, Any] | None = None) -> None:
        if options is None:
            self._open_current("pinned", None, buffer_type=self._buffer_type)
            return
        chosen = options_of(PinnedMemoryResourceOptions, options, "PinnedMemoryResource options")
        node = chosen.numa_id
        if node is not None and node < 0:
            raise ValueError(f"numa_id must be >= 0, got {node}")
        if node is None and chosen.ipc_enabled:
            node = _numa_node_of_current_device()
        place = None if node is None else ("host_numa", node)
        self._open_new("pinned", None, chosen.max_size, chosen.ipc_enabled, place, self._buffer_type)
        if node is not None:
            self._numa_id = node
        if chosen.ipc_enabled:
            self._enable_ipc(uuid4())

    @classmethod
    def from_allocation_handle(cls, alloc_handle: int | _ipc.IPCAllocationHandle) -> PinnedMemoryResource:
        """The pool of another process. A file descriptor as a number stays the caller's."""

        def make(file: int) -> PinnedMemoryResource:
            made = cls.__new__(cls)
            made._open_file("pinned", None, file)
            return made

        return _ipc.import_pool(cls, alloc_handle, make)

    @property
    def numa_id(self) -> int:
        """The NUMA node of the pool, or -1 where the system chooses."""
        return self._numa_id

    @property
    def device_id(self) -> int:
        """-1."""
        return -1

    @property
    def is_device_accessible(self) -> bool:
        """True."""
        return True

    @property
    def is_host_accessible(self) -> bool:
        """True."""
        return True


def _numa_node_of_current_device() -> int:
    node: int = _device.Device().properties.host_numa_id
    if node < 0:
        raise RuntimeError(
            "Cannot determine host NUMA ID for the current CUDA device. The system may not support NUMA, or no CUDA context "
            "is current: name the node."
        )
    return node


_warned_of_access = False


def reset_concurrent_access_warning() -> None:
    """Lets the warning of ManagedMemoryResource come again."""
    global _warned_of_access
    _warned_of_access = False


def _warn_of_access(device: Device) -> None:
    global _warned_of_access
    if not _warned_of_access and not device.properties.concurrent_managed_access:
        _warned_of_access = True
        warnings.warn(
            f"Device {device.device_id} has no concurrent managed access: while its work runs, the CPU must not access any "
            "managed memory",
            UserWarning,
            stacklevel=3,
        )


class ManagedMemoryResource(_MemPool):
    """Memory that the driver moves between the host and devices, from a pool of the driver: the current one, or, with options,
    a new one. Its buffers are ManagedBuffer."""

    _buffer_type = ManagedBuffer
    _preferred: tuple[str, int | None] | None = None

    def __init__(self, options: ManagedMemoryResourceOptions | dict[str, Any] | None = None) -> None:
        _warn_of_access(_device.Device())
        if options is None:
            self._open_current("managed", None, buffer_type=self._buffer_type)
            return
        chosen = options_of(ManagedMemoryResourceOptions, options, "ManagedMemoryResource options")
        place = _managed_location(chosen)
        self._open_new("managed", None, location=place, buffer_type=self._buffer_type)
        if place is not None:
            kind, number = place
            self._preferred = (kind, None if kind == "host" else number)

    @property
    def preferred_location(self) -> tuple[str, int | None] | None:
        """Where the memory lies at first: ("device", ordinal), ("host", None), ("host_numa", node), or None."""
        return self._preferred

    @property
    def device_id(self) -> int:
        """The ordinal of the preferred device, or -1."""
        if self._preferred is not None and self._preferred[0] == "device":
            return self._preferred[1] or 0
        return -1

    @property
    def is_device_accessible(self) -> bool:
        """True."""
        return True

    @property
    def is_host_accessible(self) -> bool:
        """True."""
        return True

    @property
    def is_managed(self) -> bool:
        """True."""
        return True


def _managed_location(options: ManagedMemoryResourceOptions) -> tuple[str, int] | None:
    """The preferred location as (type, number), if there is one. The texts are cuda.core's."""
    place, kind = options.preferred_location, options.preferred_location_type
    if kind is None:
        if place is None:
            return None
        if place < -1:
            raise ValueError(
                f"preferred_location must be a device ordinal (>= 0), -1 for host, or None for no preference, got {place}"
            )
        return ("host", -1) if place == -1 else ("device", place)
    try:
        kind = ManagedMemoryLocationType(kind)
    except ValueError:
        names = ", ".join(repr(str(known)) for known in ManagedMemoryLocationType)
        raise ValueError(f"{kind!r} is not a valid ManagedMemoryLocationType. Must be one of {names}") from None
    if kind == ManagedMemoryLocationType.DEVICE:
        if place is None or place < 0:
            raise ValueError(
                f"preferred_location must be a device ordinal (>= 0) when preferred_location_type is 'device', got {place!r}"
            )
        return "device", place
    if kind == ManagedMemoryLocationType.HOST:
        if place is not None:
            raise ValueError(
                f"preferred_location must be None when preferred_location_type is 'host', got {place!r}"
            )
        return "host", -1
    if place is None:
        return "host_numa", _numa_node_of_current_device()
    if place < 0:
        raise ValueError(
            "preferred_location must be a NUMA node ID (>= 0) or None when preferred_location_type is 'host_numa', got "
            f"{place}"
        )
    return "host_numa", place


class LegacyPinnedMemoryResource(_core.SourceBase):
    """Page-locked memory, each allocation by the driver. A stream is optional: an allocation needs none, and a free waits for
    the stream that it names."""

    def __init__(self) -> None:
        self._is_open = False

    def allocate(self, size: int, *, stream: IsStreamType | None = None) -> Buffer:
        """Allocates a Buffer of `size` bytes."""
        if not self._is_open:
            self._open_pinned()
            self._is_open = True
        return self._allocate(size, stream)

    def deallocate(self, ptr: Any, size: int, *, stream: IsStreamType | None = None) -> None:
        """Frees memory by its address, after the work of `stream`."""
        self._deallocate(int(ptr), size, stream)

    @property
    def device_id(self) -> int:
        """RuntimeError: the memory belongs to no device."""
        raise RuntimeError("a pinned memory resource is not bound to any GPU")

    @property
    def is_device_accessible(self) -> bool:
        """True."""
        return True

    @property
    def is_host_accessible(self) -> bool:
        """True."""
        return True


class _SynchronousMemoryResource(_core.SourceBase):
    """Memory of a device without pools, each allocation by the driver."""

    def __init__(self, device_id: Device | int) -> None:
        self._device_id = Device(device_id).device_id
        self._open_device(self._device_id)

    def allocate(self, size: int, *, stream: IsStreamType | None = None) -> Buffer:
        """Allocates a Buffer of `size` bytes."""
        return self._allocate(size, stream)

    def deallocate(self, ptr: Any, size: int, *, stream: IsStreamType | None = None) -> None:
        """Frees memory by its address, after the work of `stream`."""
        self._deallocate(int(ptr), size, stream)

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
