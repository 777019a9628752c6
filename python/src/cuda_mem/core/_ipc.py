"""Pools and buffers of other processes.

A pool travels as a file descriptor, by multiprocessing only, and a buffer as the driver's 64 bytes. Unpickling a buffer imports
memory: unpickle what comes from processes that the program trusts.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from .._native import core as _core
from .._native.core import Buffer
from ._errors import closed

__all__ = ["IPCAllocationHandle", "IPCBufferDescriptor"]

_POINTER_BYTES = 64

REGISTRY: weakref.WeakValueDictionary[UUID, Any] = weakref.WeakValueDictionary()
"""The pools of this process that others have too."""

_T = TypeVar("_T")


class IPCBufferDescriptor:
    """What another process imports a buffer by."""

    __slots__ = ("_payload", "_size")

    _payload: bytes
    _size: int

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        raise RuntimeError(
            "IPCBufferDescriptor objects cannot be instantiated directly. Please use MemoryResource APIs."
        )

    @staticmethod
    def _init(reserved: bytes, size: int) -> IPCBufferDescriptor:
        made = IPCBufferDescriptor.__new__(IPCBufferDescriptor)
        made._payload, made._size = reserved, size
        return made

    @property
    def size(self) -> int:
        """The size of the buffer in bytes."""
        return self._size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IPCBufferDescriptor) and (self._payload, self._size) == (other._payload, other._size)

    def __hash__(self) -> int:
        return hash((self._payload, self._size))

    def __reduce__(self) -> tuple[Any, ...]:
        return _descriptor, (self._payload, self._size)


def _descriptor(payload: bytes, size: int) -> IPCBufferDescriptor:
    return IPCBufferDescriptor._init(payload, size)


class IPCAllocationHandle:
    """What another process imports a pool by: a file descriptor, which this object closes. Only multiprocessing pickles
    it."""

    __slots__ = ("__weakref__", "_file", "_uuid")

    _file: int
    _uuid: UUID | None

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        raise RuntimeError(
            "IPCAllocationHandle objects cannot be instantiated directly. Please use MemoryResource APIs."
        )

    @classmethod
    def _init(cls, handle: int, uuid: UUID | None) -> IPCAllocationHandle:
        if handle < 0:
            raise ValueError(f"Invalid allocation handle (fd) {handle}: must be non-negative")
        made = cls.__new__(cls)
        made._file, made._uuid = handle, uuid
        return made

    def close(self) -> None:
        """Closes the file descriptor."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    @property
    def is_closed(self) -> bool:
        """Whether the file descriptor is closed."""
        return self._file < 0

    @property
    def handle(self) -> int:
        """The file descriptor; -1 when it is closed."""
        return self._file

    @property
    def uuid(self) -> UUID | None:
        """The uuid of the pool."""
        return self._uuid

    def __int__(self) -> int:
        if self._file < 0:
            raise ValueError(f"Cannot convert IPCAllocationHandle to int: the handle (id={id(self)}) is closed.")
        return self._file

    def __reduce__(self) -> tuple[object, ...]:
        return _reduce_allocation_handle(self)

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            self.close()


def import_pool(cls: type[_T], handle: int | IPCAllocationHandle, make: Callable[[int], _T]) -> _T:
    """The pool of a handle: the one that this process has, or an import."""
    if not isinstance(handle, IPCAllocationHandle):
        made = make(int(handle))
        made._enable_ipc(None)  # type: ignore[attr-defined]
        return made
    if handle.is_closed:
        raise closed("IPCAllocationHandle")
    known = REGISTRY.get(handle.uuid) if handle.uuid is not None else None
    if known is None or known.is_closed:
        known = make(int(handle))
        known._enable_ipc(handle.uuid)  # type: ignore[attr-defined]
    if not isinstance(known, cls):
        raise TypeError(
            f"Registry contains a {type(known).__name__} for uuid {handle.uuid}, but {cls.__name__} was requested"
        )
    return known


def from_registry(uuid: UUID) -> Any:
    """The pool that was registered."""
    try:
        return REGISTRY[uuid]
    except KeyError:
        raise RuntimeError(f"Memory resource {uuid} was not found") from None


def export_buffer(buffer: Buffer) -> IPCBufferDescriptor:
    """What another process imports a buffer by."""
    if buffer.is_closed:
        raise closed("Buffer")
    resource: Any = buffer.memory_resource
    if not getattr(resource, "is_ipc_enabled", False):
        raise RuntimeError("Memory resource is not IPC-enabled")
    return IPCBufferDescriptor._init(resource._export_pointer(buffer), buffer.size)


def import_buffer(cls: type[Buffer], mr: Any, ipc_descriptor: Any, stream: Any) -> Buffer:
    """The buffer of another process. Refusals have cuda.core's words."""
    if not getattr(mr, "is_ipc_enabled", False):
        raise RuntimeError("Memory resource is not IPC-enabled")
    if not isinstance(ipc_descriptor, IPCBufferDescriptor):
        raise TypeError(
            "Argument 'ipc_descriptor' has incorrect type (expected IPCBufferDescriptor, got "
            f"{type(ipc_descriptor).__name__})"
        )
    payload = ipc_descriptor._payload
    if len(payload) < _POINTER_BYTES:
        raise ValueError(
            f"IPC buffer descriptor payload is {len(payload)} bytes; expected at least {_POINTER_BYTES}"
        )
    buffer: Buffer = mr._import_pointer(cls, payload[:_POINTER_BYTES], ipc_descriptor.size, stream, ipc_descriptor)
    return buffer


def reduce_buffer(buffer: Buffer) -> tuple[object, ...]:
    """A pickle of a buffer. An imported one can be pickled after its close too, as multiprocessing's queues do."""
    check_multiprocessing_start_method()
    resource, descriptor = buffer._origin or (buffer.memory_resource, None)
    if descriptor is None:
        descriptor = export_buffer(buffer)
    return _import, (type(buffer), resource, descriptor)


def _import(cls: type[Buffer], mr: Any, descriptor: IPCBufferDescriptor) -> Buffer:
    from ._stream import default_stream

    if _core.current_context() is None:
        from ._device import Device

        Device(max(mr.device_id, 0)).set_current()
    return import_buffer(cls, mr, descriptor, default_stream())


def _reduce_allocation_handle(handle: IPCAllocationHandle) -> tuple[object, ...]:
    from multiprocessing.reduction import DupFd

    check_multiprocessing_start_method()
    return _rebuild_allocation_handle, (type(handle), DupFd(int(handle)), handle.uuid)


def _rebuild_allocation_handle(
    cls: type[IPCAllocationHandle], file: Any, uuid: UUID | None
) -> IPCAllocationHandle:
    return cls._init(file.detach(), uuid)


def _reduce_with_handle(mr: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A pickle by multiprocessing, which takes the pool's file along."""
    check_multiprocessing_start_method()
    from ._resources import DeviceMemoryResource

    arguments = (mr.device_id,) if isinstance(mr, DeviceMemoryResource) else ()
    return _rebuild, (type(mr), *arguments, mr.allocation_handle)


def _rebuild(cls: Any, *arguments: Any) -> Any:
    return cls.from_allocation_handle(*arguments)


def register_reducer(cls: type[Any]) -> None:
    """Makes multiprocessing pickle pools of a class with their files. Only once one is shared, because the import takes
    time."""
    from multiprocessing import reduction

    reduction.register(cls, _reduce_with_handle)


_warned_of_fork = False


def reset_fork_warning() -> None:
    """Lets the warning of forks come again."""
    global _warned_of_fork
    _warned_of_fork = False


def check_multiprocessing_start_method() -> None:
    """Warns once if multiprocessing forks processes: a child cannot use the driver then."""
    global _warned_of_fork
    if _warned_of_fork:
        return
    import multiprocessing
    from multiprocessing.context import get_spawning_popen

    # A process that starts by "fork" gets no pickles.
    if get_spawning_popen() is None and multiprocessing.get_start_method(allow_none=True) == "fork":
        _warned_of_fork = True
        warnings.warn(
            "CUDA objects are sent to another process, but multiprocessing's start method is 'fork', whose children cannot use "
            "the driver: multiprocessing.set_start_method('spawn')",
            UserWarning,
            stacklevel=3,
        )
