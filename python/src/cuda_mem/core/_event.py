"""Events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import _native
from .._native import core as _core
from ._context import Context
from ._errors import options_of

if TYPE_CHECKING:
    from ._device import Device

__all__ = ["Event", "EventOptions", "IPCEventDescriptor"]


@dataclass
class EventOptions:
    """Options of an event: whether it measures times, whether waiting threads sleep, whether other processes import it."""

    timing_enabled: bool = False
    blocking_sync: bool = False
    ipc_enabled: bool = False


class Event(_core.EventBase):
    """A point in the work of a stream. Stream.record makes one."""

    _options: EventOptions
    _descriptor: IPCEventDescriptor | None
    _is_imported: bool

    def __new__(cls, *_arguments: Any, **_options: Any) -> Event:
        raise RuntimeError("Event objects cannot be instantiated directly. Please use Stream APIs (record).")

    @classmethod
    def _of_options(
        cls, options: EventOptions | dict[str, Any] | None, context: _native.Context, is_bound: bool
    ) -> Event:
        chosen = options_of(EventOptions, options, "event options")
        if chosen.ipc_enabled and not is_bound:
            raise TypeError("IPC-enabled events must be bound; use Stream.record for creation.")
        if chosen.ipc_enabled and chosen.timing_enabled:
            raise TypeError("IPC-enabled events cannot use timing.")
        made = _core.EventBase.__new__(
            cls,
            context=context,
            timing=chosen.timing_enabled,
            blocking_sync=chosen.blocking_sync,
            shareable=chosen.ipc_enabled,
        )
        made._options, made._descriptor, made._is_imported = chosen, None, False
        return made

    @classmethod
    def from_ipc_descriptor(cls, ipc_descriptor: IPCEventDescriptor) -> Event:
        """The event of another process."""
        made = _core.EventBase.__new__(cls, descriptor=ipc_descriptor._payload)
        made._options = EventOptions(ipc_enabled=True, blocking_sync=ipc_descriptor._is_blocking_sync)
        made._descriptor, made._is_imported = ipc_descriptor, True
        return made

    @property
    def ipc_descriptor(self) -> IPCEventDescriptor:
        """What another process imports the event by. The event must be recorded with `ipc_enabled`."""
        if not self.is_ipc_enabled:
            raise RuntimeError("Event is not IPC-enabled")
        if self._descriptor is None:
            self._descriptor = IPCEventDescriptor._init(bytes(self._export()), self.is_blocking_sync)
        return self._descriptor

    @property
    def is_ipc_enabled(self) -> bool:
        """Whether other processes can import the event."""
        return self._options.ipc_enabled

    @property
    def is_timing_enabled(self) -> bool:
        """Whether the event measures times."""
        return self._options.timing_enabled

    @property
    def is_blocking_sync(self) -> bool:
        """Whether threads that wait for the event sleep."""
        return self._options.blocking_sync

    @property
    def context(self) -> Context | None:
        """The context; None for an event of another process."""
        return None if self._is_imported else Context._of(self._context())

    @property
    def device(self) -> Device | None:
        """The device; None for an event of another process."""
        from ._device import Device

        return None if self._is_imported else Device(self._context().device.ordinal)

    def __sub__(self, other: object) -> float:
        """The milliseconds since an earlier event. Both need `timing_enabled`, and their work must be done."""
        if not isinstance(other, Event):
            return NotImplemented
        if not (self.is_timing_enabled and other.is_timing_enabled):
            raise RuntimeError("Both Events must be created with timing enabled in order to subtract them.")
        return self._since(other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and self.handle == other.handle

    def __hash__(self) -> int:
        return hash((Event, self.handle))

    def __reduce__(self) -> tuple[object, ...]:
        return _reduce_event(self)

    def __repr__(self) -> str:
        return f"<Event handle={self.handle:#x}>"


class IPCEventDescriptor:
    """What another process imports an event by."""

    __slots__ = ("_is_blocking_sync", "_payload")

    _payload: bytes
    _is_blocking_sync: bool

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        raise RuntimeError("IPCEventDescriptor objects cannot be instantiated directly. Please use Event APIs.")

    @staticmethod
    def _init(payload: bytes, is_blocking_sync: bool) -> IPCEventDescriptor:
        made = IPCEventDescriptor.__new__(IPCEventDescriptor)
        made._payload, made._is_blocking_sync = payload, is_blocking_sync
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IPCEventDescriptor) and self._payload == other._payload

    def __hash__(self) -> int:
        return hash(self._payload)

    def __reduce__(self) -> tuple[object, ...]:
        return IPCEventDescriptor._init, (self._payload, self._is_blocking_sync)


def _import_event(descriptor: IPCEventDescriptor) -> Event:
    return Event.from_ipc_descriptor(descriptor)


def _reduce_event(event: Event) -> tuple[object, ...]:
    from ._ipc import check_multiprocessing_start_method

    check_multiprocessing_start_method()
    return _import_event, (event.ipc_descriptor,)
