"""The devices that may access the memory of a pool."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .._native import core as _core
from ._device import Device
from ._sets import DriverSet

if TYPE_CHECKING:
    from ._resources import DeviceMemoryResource

__all__ = ["PeerAccessibleBySetProxy", "set_peers"]


def _set_pool_access(mr: DeviceMemoryResource, to_add: Iterable[int], to_remove: Iterable[int]) -> None:
    """One change of a pool's access."""
    mr._change_access(list(to_add), list(to_remove))


class PeerAccessibleBySetProxy(DriverSet[Device]):
    """The other devices that may access a pool's memory. Devices are given as Device or ordinal; the pool's own device is
    left out of all changes."""

    __slots__ = ("_mr",)

    def __init__(self, mr: DeviceMemoryResource) -> None:
        self._mr = mr

    def _read(self) -> list[Device]:
        own = self._mr.device_id
        others = (ordinal for ordinal in range(_core.device_count()) if ordinal != own)
        return [Device(ordinal) for ordinal in others if self._mr._access(ordinal) == "rw"]

    def _change(self, added: set[Device], removed: set[Device]) -> None:
        owner = Device(self._mr.device_id)
        refused = sorted(device.device_id for device in added if not owner.can_access_peer(device))
        if refused:
            raise ValueError(f"Device {owner.device_id} cannot access peer(s): {', '.join(map(str, refused))}")
        order = (sorted(device.device_id for device in devices) for devices in (added, removed))
        _set_pool_access(self._mr, *order)

    def _member(self, value: Any) -> Device | None:
        device = Device(value)
        return None if device.device_id == self._mr.device_id else device

    def _found(self, value: Any) -> Device | None:
        try:
            return self._member(value)
        except (TypeError, ValueError):
            return None


def set_peers(mr: DeviceMemoryResource, devices: Iterable[Device | int]) -> None:
    """Makes these the devices that may access the pool's memory."""
    PeerAccessibleBySetProxy(mr)._assign(devices)
