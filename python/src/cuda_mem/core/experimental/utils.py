"""As cuda_mem.core.utils."""

from ..utils import (
    CopyOptions,
    StridedMemoryView,
    args_viewable_as_strided_memory,
    copy_batch,
    discard_batch,
    discard_prefetch_batch,
    prefetch_batch,
)

__all__ = [
    "CopyOptions",
    "StridedMemoryView",
    "args_viewable_as_strided_memory",
    "copy_batch",
    "discard_batch",
    "discard_prefetch_batch",
    "prefetch_batch",
]
