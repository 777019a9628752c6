"""Functions over many buffers, and views of arrays of any library."""

from typing import Any

from .._native.core import StridedMemoryView
from ._arguments import args_viewable_as_strided_memory
from ._copies import CopyOptions, copy_batch
from ._managed import discard_batch, discard_prefetch_batch, prefetch_batch

__all__ = [
    "CopyOptions",
    "StridedMemoryView",
    "args_viewable_as_strided_memory",
    "copy_batch",
    "discard_batch",
    "discard_prefetch_batch",
    "prefetch_batch",
]


def __getattr__(name: str) -> Any:
    from ._forward import forwarded

    return forwarded("utils", name)
