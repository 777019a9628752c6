"""Programs, launches and graphs, which are those of the package cuda-core where it is installed.

Objects of this package become cuda-core's when they are passed on: streams and buffers by their handles.
"""

from __future__ import annotations

import importlib
from typing import Any

from .._native import core as _core

__all__ = ["NAMES", "forwarded", "graph_builder", "real"]

NAMES = frozenset(
    {
        "GraphicsResource",
        "Kernel",
        "LaunchConfig",
        "Linker",
        "LinkerOptions",
        "ObjectCode",
        "Program",
        "ProgramOptions",
        "TensorMapDescriptor",
        "TensorMapDescriptorOptions",
        "checkpoint",
        "graph",
        "launch",
        "system",
        "texture",
    }
)
"""The names of cuda.core that are forwarded."""


def real(what: str) -> Any:
    """The module cuda.core of the package cuda-core. ImportError says what needs it."""
    try:
        return importlib.import_module("cuda.core")
    except ImportError as error:
        raise ImportError(
            f"{what} is of the package cuda-core, which cuda-mem does not need for memory: pip install cuda-core ({error})"
        ) from error


def forwarded(module: str, name: str) -> Any:
    """A name that a module of cuda_mem.core does not have itself."""
    where = f"cuda_mem.core{'.' if module else ''}{module}"
    if name.startswith("_") or (not module and name not in NAMES):
        raise AttributeError(f"module {where!r} has no attribute {name!r}")
    root = real(f"{where}.{name}")
    if name == "launch":
        return launch
    source = importlib.import_module(f"cuda.core.{module}") if module else root
    try:
        return getattr(source, name)
    except AttributeError:
        raise AttributeError(f"module {where!r} has no attribute {name!r}") from None


def theirs(value: Any) -> Any:
    """An argument for cuda-core."""
    if isinstance(value, _core.StreamBase):
        return real("a Stream").Stream.from_handle(value.handle)
    if isinstance(value, _core.Buffer):
        return real("a Buffer").Buffer.from_handle(value.handle, value.size, owner=value)
    return value._real if isinstance(value, _Wrapped) else value


class _Wrapped:
    """An object of cuda-core, whose methods take objects of this package."""

    def __init__(self, wrapped: Any, keeps: Any = None) -> None:
        self._real, self._keeps = wrapped, keeps

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        if not callable(value):
            return value

        def call(*arguments: Any, **options: Any) -> Any:
            answer = value(*map(theirs, arguments), **{name: theirs(option) for name, option in options.items()})
            if answer is self._real:
                return self
            return _Wrapped(answer) if type(answer).__module__.startswith("cuda.core.graph") else answer

        return call


class _GraphBuilder(_Wrapped):
    """A builder of graphs, which is a stream too."""

    def __cuda_stream__(self) -> tuple[int, int]:
        version, handle = self._real.__cuda_stream__()
        return int(version), int(handle)


def graph_builder(stream: Any) -> Any:
    """A builder of graphs that records a stream's work."""
    source = real("a graph builder").Stream.from_handle(stream.handle)
    return _GraphBuilder(source.create_graph_builder(), stream)


def launch(stream: Any, config: Any, kernel: Any, *arguments: Any) -> None:
    """Launches a kernel of cuda-core on a stream. Buffers of this package are passed by their addresses."""
    real("launch").launch(theirs(stream), config, kernel, *map(theirs, arguments))
