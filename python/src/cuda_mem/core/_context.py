"""Contexts."""

from __future__ import annotations

from typing import Any

from .. import _native
from .._native import core as _core
from ._errors import closed

__all__ = ["Context"]


class Context:
    """A context of a device. Device and Stream return them."""

    __slots__ = ("__weakref__", "_inner")

    _inner: _native.Context | None

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        raise RuntimeError("Context objects cannot be instantiated directly. Please use Device or Stream APIs.")

    @classmethod
    def _of(cls, inner: _native.Context) -> Context:
        made = cls.__new__(cls)
        made._inner = inner
        return made

    @property
    def handle(self) -> int | None:
        """The driver's handle, a CUcontext; None when it is closed."""
        return None if self._inner is None else self._inner.handle

    @property
    def is_green(self) -> bool:
        """Whether this is a green context, which this library does not make."""
        return False

    @property
    def is_closed(self) -> bool:
        """Whether the context is closed."""
        return self._inner is None

    def close(self) -> None:
        """Gives the context up. A context that is current must first be replaced."""
        current = _core.current_context()
        if self._inner is not None and current is not None and current == self._inner:
            raise RuntimeError(
                "Cannot close a CUDA context while it is current. Restore a previous context before closing this context."
            )
        self._inner = None

    def _open(self) -> _native.Context:
        if self._inner is None:
            raise closed("Context")
        return self._inner

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Context) and self.handle == other.handle

    def __hash__(self) -> int:
        return hash((Context, self.handle))

    def __repr__(self) -> str:
        handle = self.handle
        return f"<Context handle={handle if handle is None else hex(handle)}>"
