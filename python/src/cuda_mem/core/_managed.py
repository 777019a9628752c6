"""Managed memory: where it lies, and who accesses it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .._native import core as _core
from .._native.core import Buffer
from ._device import Device
from ._host import Host
from ._sets import DriverSet
from ._stream import IsStreamType

__all__ = ["AccessedBySetProxy", "ManagedBuffer", "discard_batch", "discard_prefetch_batch", "prefetch_batch"]

_Place = tuple[str, int]


def place_of(location: Any, allow_none: bool = False) -> _Place | None:
    """A location as the native functions take it."""
    if isinstance(location, Device):
        return "device", location.device_id
    if isinstance(location, Host):
        if location.is_numa_current:
            return "host_numa_current", 0
        return ("host", 0) if location.numa_id is None else ("host_numa", location.numa_id)
    if location is None and allow_none:
        return None
    if location is None:
        raise ValueError("location is required")
    raise TypeError(f"location must be a Device, Host, or None; got {type(location).__name__}")


def _needed(location: Any) -> _Place:
    place = place_of(location)
    assert place is not None
    return place


def _location(place: _Place) -> Device | Host:
    match place:
        case ("device", ordinal):
            return Device(ordinal)
        case ("host_numa", node):
            return Host(node)
        case ("host_numa_current", _):
            return Host.numa_current()
        case _:
            return Host()


class AccessedBySetProxy(DriverSet["Device | Host"]):
    """The devices, and the host as a whole, for which the driver keeps the memory mapped."""

    __slots__ = ("_buffer",)

    def __init__(self, buffer: ManagedBuffer) -> None:
        self._buffer = buffer

    def _read(self) -> list[Device | Host]:
        return [_location(place) for place in _core.range_attribute(self._buffer, "accessed_by")]

    def _change(self, added: set[Device | Host], removed: set[Device | Host]) -> None:
        for location in added:
            _core.advise(self._buffer, "accessed_by", True, place_of(location))
        for location in removed:
            _core.advise(self._buffer, "accessed_by", False, place_of(location))

    def _member(self, value: Any) -> Device | Host:
        if not isinstance(value, (Device, Host)):
            raise TypeError(f"expected Device or Host, got {type(value).__name__}")
        kind = _needed(value)[0]
        if kind not in ("device", "host"):
            # cuda.core's words.
            raise ValueError(f"accessed_by does not support location_type='{kind}'")
        return value

    def _found(self, value: Any) -> Device | Host | None:
        return value if isinstance(value, (Device, Host)) else None


class ManagedBuffer(Buffer):
    """Memory that the driver moves between the host and devices. ManagedMemoryResource.allocate makes one, and
    `ManagedBuffer.from_handle` uses memory of another library. Buffers on one page share its advice."""

    __slots__ = ()

    @property
    def read_mostly(self) -> bool:
        """Whether the driver keeps copies on all devices that read the memory."""
        return bool(_core.range_attribute(self, "read_mostly"))

    @read_mostly.setter
    def read_mostly(self, value: bool) -> None:
        _core.advise(self, "read_mostly", bool(value))

    @property
    def preferred_location(self) -> Device | Host | None:
        """Where the driver keeps the memory if it can."""
        found = _core.range_attribute(self, "preferred_location")
        return _location(found[0]) if found else None

    @preferred_location.setter
    def preferred_location(self, value: Device | Host | None) -> None:
        place = place_of(value, allow_none=True)
        _core.advise(self, "preferred_location", place is not None, place)

    @property
    def accessed_by(self) -> AccessedBySetProxy:
        """The devices, and the host, for which the driver keeps the memory mapped: a set that the driver keeps."""
        return AccessedBySetProxy(self)

    @accessed_by.setter
    def accessed_by(self, locations: Iterable[Device | Host]) -> None:
        AccessedBySetProxy(self)._assign(locations)

    @property
    def last_prefetch_location(self) -> Device | Host | None:
        """Where the memory was moved last by a prefetch."""
        found = _core.range_attribute(self, "last_prefetch_location")
        return _location(found[0]) if found else None

    def prefetch(self, location: Device | Host, *, stream: IsStreamType) -> None:
        """Moves the memory, in order of `stream`."""
        _core.prefetch(stream, [self], [_needed(location)])

    def discard(self, *, stream: IsStreamType) -> None:
        """Drops the contents, in order of `stream`."""
        _core.discard(stream, [self])

    def discard_prefetch(self, location: Device | Host, *, stream: IsStreamType) -> None:
        """Drops the contents and moves the memory, in order of `stream`."""
        _core.discard(stream, [self], [_needed(location)])


def buffers_of(call: str, buffers: Any) -> list[Buffer]:
    """The buffers of an argument of a batched call."""
    if isinstance(buffers, Buffer):
        raise TypeError(f"{call}: pass a sequence of Buffers; for a single buffer use its own method")
    if not isinstance(buffers, Sequence):
        raise TypeError(f"{call}: buffers must be a sequence of Buffers, got {type(buffers).__name__}")
    if not buffers:
        raise ValueError(f"{call}: empty buffers sequence")
    for buffer in buffers:
        if not isinstance(buffer, Buffer):
            raise TypeError(f"{call}: expected Buffer, got {type(buffer).__name__}")
    return list(buffers)


def _places(call: str, locations: Any, count: int) -> list[_Place]:
    """One location for all buffers, or one for each."""
    if isinstance(locations, Sequence) and not isinstance(locations, str):
        if len(locations) != count:
            raise ValueError(f"{call}: location length {len(locations)} does not match targets length {count}")
        return [_needed(location) for location in locations]
    return [_needed(locations)]


def prefetch_batch(
    stream: IsStreamType, buffers: Sequence[Buffer], locations: Device | Host | Sequence[Device | Host]
) -> None:
    """Moves managed buffers, in order of `stream`: all to one location, or each to its own."""
    targets = buffers_of("prefetch_batch", buffers)
    _core.prefetch(stream, targets, _places("prefetch_batch", locations, len(targets)))


def discard_batch(stream: IsStreamType, buffers: Sequence[Buffer]) -> None:
    """Drops the contents of managed buffers, in order of `stream`."""
    _core.discard(stream, buffers_of("discard_batch", buffers))


def discard_prefetch_batch(
    stream: IsStreamType, buffers: Sequence[Buffer], locations: Device | Host | Sequence[Device | Host]
) -> None:
    """Drops the contents of managed buffers and moves them, in order of `stream`."""
    targets = buffers_of("discard_prefetch_batch", buffers)
    _core.discard(stream, targets, _places("discard_prefetch_batch", locations, len(targets)))
