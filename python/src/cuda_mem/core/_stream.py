"""Streams."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from .. import _native
from .._native import core as _core
from ._context import Context
from ._errors import options_of
from ._event import Event, EventOptions

if TYPE_CHECKING:
    from ._device import Device

__all__ = ["LEGACY_DEFAULT_STREAM", "PER_THREAD_DEFAULT_STREAM", "IsStreamType", "Stream", "StreamOptions", "default_stream"]


@dataclass
class StreamOptions:
    """Options of a stream. A stream that is not `nonblocking` waits for the legacy default stream. Smaller priorities are
    more urgent."""

    nonblocking: bool = True
    priority: int | None = None


class IsStreamType(Protocol):
    """An object that is a stream for other libraries."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """(0, handle)."""
        ...


class Stream(_core.StreamBase):
    """A stream: work on it runs in order. Device.create_stream makes one. Buffers and events keep the stream that they
    need."""

    def __new__(cls, *_arguments: Any, **_options: Any) -> Stream:
        raise RuntimeError(
            "Stream objects cannot be instantiated directly. Please use Device APIs (create_stream) or other Stream APIs "
            "(from_handle)."
        )

    @classmethod
    def _make(cls, **options: Any) -> Stream:
        return _core.StreamBase.__new__(cls, **options)

    @classmethod
    def _of_options(cls, options: StreamOptions | dict[str, Any] | None, context: _native.Context) -> Stream:
        chosen = options_of(StreamOptions, options, "stream options")
        return cls._make(context=context, nonblocking=chosen.nonblocking, priority=chosen.priority or 0)

    @staticmethod
    def from_handle(handle: int) -> Stream:
        """The stream of a handle, which the program keeps while this object and what is made from it live."""
        return Stream._make(handle=int(handle))

    @property
    def context(self) -> Context:
        """The context; that of a default stream is the current one."""
        return Context._of(self._context())

    @property
    def device(self) -> Device:
        """The device."""
        from ._device import Device

        return Device(self._context().device.ordinal)

    def record(self, event: Event | None = None, options: EventOptions | dict[str, Any] | None = None) -> Event:
        """Records an event after all work so far: `event`, or a new one with `options`. Returns it."""
        if event is None:
            event = Event._of_options(options, self._context(), is_bound=True)
        elif event.is_ipc_enabled:
            raise TypeError(
                "IPC-enabled events should not be re-recorded, instead create a new event by supplying options."
            )
        event._record(self)
        return event

    def wait(self, event_or_stream: Event | Stream | IsStreamType) -> None:
        """Makes later work wait for an event, or for all work so far of another stream."""
        if isinstance(event_or_stream, Event):
            event_or_stream._hold_up(self)
        elif hasattr(event_or_stream, "__cuda_stream__"):
            self._wait_for_stream(event_or_stream)
        else:
            raise ValueError(
                f"only an Event, Stream, or object supporting __cuda_stream__ can be waited, got {type(event_or_stream)}"
            )

    def create_graph_builder(self) -> Any:
        """A builder of graphs of the package cuda-core, which records the work of this stream."""
        from ._forward import graph_builder

        return graph_builder(self)

    def __repr__(self) -> str:
        return f"<Stream handle={self.handle:#x}>"


LEGACY_DEFAULT_STREAM: Stream = Stream._make(handle=1)
"""The stream that waits for all blocking streams, and they for it."""
PER_THREAD_DEFAULT_STREAM: Stream = Stream._make(handle=2)
"""The default stream of the calling thread."""


def default_stream() -> Stream:
    """The default stream: the legacy one, unless the environment has CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM=1."""
    if int(os.environ.get("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", 0)):
        return PER_THREAD_DEFAULT_STREAM
    return LEGACY_DEFAULT_STREAM
