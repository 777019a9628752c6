"""Virtual memory: reserved addresses with physical memory behind them, which can grow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from .._native import core as _core
from ._device import Device
from ._errors import options_of
from .typing import (
    VirtualMemoryAccessType,
    VirtualMemoryAllocationType,
    VirtualMemoryGranularityType,
    VirtualMemoryHandleType,
    VirtualMemoryLocationType,
)

if TYPE_CHECKING:
    from .._native.core import Buffer
    from ._stream import IsStreamType

__all__ = ["VirtualMemoryResource", "VirtualMemoryResourceOptions"]


@dataclass
class VirtualMemoryResourceOptions:
    """Options of virtual memory: its kind and location, how other processes import it, the unit to which sizes are rounded up,
    whether other devices of the PCI bus reach it, a wish for its address and the alignment of that, other devices that may
    access it, and the access of the own and the other devices ("rw", "r" or None)."""

    allocation_type: VirtualMemoryAllocationType | str = VirtualMemoryAllocationType.PINNED
    location_type: VirtualMemoryLocationType | str = VirtualMemoryLocationType.DEVICE
    handle_type: VirtualMemoryHandleType | str | None = VirtualMemoryHandleType.POSIX_FD
    granularity: VirtualMemoryGranularityType | str = VirtualMemoryGranularityType.RECOMMENDED
    gpu_direct_rdma: bool = False
    addr_hint: int | None = 0
    addr_align: int | None = None
    peers: Iterable[int] = ()
    self_access: VirtualMemoryAccessType | str | None = VirtualMemoryAccessType.READ_WRITE
    peer_access: VirtualMemoryAccessType | str | None = VirtualMemoryAccessType.READ_WRITE

    def _check(self) -> None:
        """Raises an exception for what is not supported."""
        _known("allocation_type", self.allocation_type, VirtualMemoryAllocationType)
        _known("location_type", self.location_type, VirtualMemoryLocationType)
        _known("granularity", self.granularity, VirtualMemoryGranularityType)
        for access in (self.self_access, self.peer_access):
            if access is not None and access not in list(VirtualMemoryAccessType):
                raise ValueError(f"Unknown access spec: {access!r}")
        if self.handle_type == "win32":
            raise NotImplementedError("win32 is currently not supported")
        if self.handle_type is not None:
            _known("handle_type", self.handle_type, VirtualMemoryHandleType)
        if self.allocation_type == VirtualMemoryAllocationType.MANAGED:
            raise NotImplementedError("managed virtual memory is not supported: use ManagedMemoryResource")
        if self.handle_type not in (None, VirtualMemoryHandleType.POSIX_FD):
            raise NotImplementedError(f"handle_type {self.handle_type!r} is not supported: use 'posix_fd' or None")


def _known(name: str, value: Any, names: type[StrEnum]) -> None:
    if value not in list(names):
        raise ValueError(f"Unsupported {name}: {value!r}")


class _Mappings(_core.SourceBase):
    """The native resource of one configuration."""

    def __init__(self, device_id: int, config: VirtualMemoryResourceOptions) -> None:
        match config.location_type:
            case VirtualMemoryLocationType.DEVICE:
                node = None
            case VirtualMemoryLocationType.HOST:
                node = -1
            case _:
                node = max(0, Device(device_id).properties.host_numa_id)
        self._open_virtual(
            device_id,
            node=node,
            # Physical memory of the host as a whole cannot be exported.
            shareable=config.handle_type is not None and node != -1,
            gpu_direct_rdma=config.gpu_direct_rdma,
            minimum=config.granularity == VirtualMemoryGranularityType.MINIMUM,
            alignment=config.addr_align or 0,
            address_hint=config.addr_hint or 0,
            peers=[Device(peer).device_id for peer in config.peers],
        )


class VirtualMemoryResource(_core.MemoryResource):
    """Virtual memory. Sizes are rounded up to its unit, and buffers can grow."""

    device: Device
    config: VirtualMemoryResourceOptions

    def __init__(
        self, device_id: Device | int, config: VirtualMemoryResourceOptions | dict[str, Any] | None = None
    ) -> None:
        self.device = Device(device_id)
        self.config = options_of(VirtualMemoryResourceOptions, config, "VirtualMemoryResource options")
        self.config._check()
        properties = self.device.properties
        if not properties.virtual_memory_management_supported:
            raise RuntimeError("VirtualMemoryResource requires CUDA VMM API support")
        if self.config.gpu_direct_rdma and not properties.gpu_direct_rdma_supported:
            raise RuntimeError("GPU Direct RDMA is not supported on this device")
        self._mappings = _Mappings(self.device.device_id, self.config)

    def allocate(self, size: int, *, stream: IsStreamType | None = None) -> Buffer:
        """Allocates a Buffer of at least `size` bytes. The stream is not needed."""
        if size < 0:
            raise ValueError(f"size must not be negative, got {size}")
        mappings = self._mappings
        unit = mappings._granularity()
        buffer = mappings._allocate(-(-size // unit) * unit, stream, self)
        self._give_access(mappings, buffer)
        return buffer

    def deallocate(self, ptr: Any, size: int, *, stream: IsStreamType | None = None) -> None:
        """Unmaps memory by its address, after the work of `stream`."""
        self._mappings._deallocate(int(ptr), size, stream)

    def modify_allocation(
        self, buf: Buffer, new_size: int, config: VirtualMemoryResourceOptions | dict[str, Any] | None = None
    ) -> Buffer:
        """A Buffer of at least `new_size` bytes that begins with the memory of `buf`: `buf` itself if it has the size, else a
        second mapping of the same memory with more behind it. `buf` then stays open, and its close does not free what
        the new buffer maps. With `config`, that becomes the resource's."""
        if config is not None:
            changed = options_of(VirtualMemoryResourceOptions, config, "VirtualMemoryResource options")
            changed._check()
            if changed.location_type != self.config.location_type:
                raise ValueError("a buffer of virtual memory cannot grow at another location_type")
            self.config = changed
        mappings = self._mappings
        if new_size <= buf.size:
            self._give_access(mappings, buf)
            return buf
        grown = mappings._extend(buf, new_size - buf.size, self)
        self._give_access(mappings, grown)
        return grown

    def _give_access(self, mappings: _Mappings, buffer: Buffer) -> None:
        """Sets the access that differs from the usual."""
        config = self.config
        if buffer.size == 0 or config.location_type != VirtualMemoryLocationType.DEVICE:
            return
        if config.self_access != VirtualMemoryAccessType.READ_WRITE:
            mappings._set_access(buffer, self.device.device_id, config.self_access)
        if config.peer_access != VirtualMemoryAccessType.READ_WRITE:
            for peer in config.peers:
                mappings._set_access(buffer, Device(peer).device_id, config.peer_access)

    @property
    def device_id(self) -> int:
        """The ordinal of the device; -1 for memory of the host."""
        return self.device.device_id if self.config.location_type == VirtualMemoryLocationType.DEVICE else -1

    @property
    def is_device_accessible(self) -> bool:
        """True."""
        return True

    @property
    def is_host_accessible(self) -> bool:
        """Whether the memory lies on the host."""
        return self.config.location_type != VirtualMemoryLocationType.DEVICE

    def __repr__(self) -> str:
        return f"<{type(self).__name__} device={self.device.device_id} location={self.config.location_type}>"
