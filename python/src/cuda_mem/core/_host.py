"""The host as a location of managed memory."""

from __future__ import annotations

import threading
from typing import ClassVar

__all__ = ["Host"]


class Host:
    """The CPU as a location of managed memory: `Host()` any NUMA node, `Host(numa_id=n)` one node, `Host.numa_current()` that
    of the calling thread. Equal locations are one object."""

    __slots__ = ("__weakref__", "_is_numa_current", "_numa_id")

    _is_numa_current: bool
    _numa_id: int | None
    _instances: ClassVar[dict[tuple[int | None, bool], Host]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __new__(cls, numa_id: int | None = None, *, is_numa_current: bool = False) -> Host:
        if is_numa_current and numa_id is not None:
            raise ValueError("numa_id and is_numa_current are mutually exclusive")
        if numa_id is not None and (isinstance(numa_id, bool) or not isinstance(numa_id, int) or numa_id < 0):
            raise ValueError(f"numa_id must be a non-negative int, got {numa_id!r}")
        with cls._lock:
            key = (numa_id, is_numa_current)
            if key not in cls._instances:
                made = super().__new__(cls)
                made._numa_id, made._is_numa_current = key
                cls._instances[key] = made
            return cls._instances[key]

    @classmethod
    def numa_current(cls) -> Host:
        """The NUMA node of the calling thread."""
        return cls(is_numa_current=True)

    @property
    def numa_id(self) -> int | None:
        """The NUMA node, or None."""
        return self._numa_id

    @property
    def is_numa_current(self) -> bool:
        """Whether this is the node of the calling thread."""
        return self._is_numa_current

    def __reduce__(self) -> tuple[object, ...]:
        return _host, (self._numa_id, self._is_numa_current)

    def __repr__(self) -> str:
        if self._is_numa_current:
            return "Host.numa_current()"
        return "Host()" if self._numa_id is None else f"Host(numa_id={self._numa_id})"


def _host(numa_id: int | None, is_numa_current: bool) -> Host:
    return Host(numa_id, is_numa_current=is_numa_current)
