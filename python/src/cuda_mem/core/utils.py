"""Functions over many buffers."""

from typing import Any

from ._copies import CopyOptions, copy_batch
from ._managed import discard_batch, discard_prefetch_batch, prefetch_batch

__all__ = ["CopyOptions", "copy_batch", "discard_batch", "discard_prefetch_batch", "prefetch_batch"]


def __getattr__(name: str) -> Any:
    from ._forward import forwarded

    return forwarded("utils", name)
