"""Private names of cuda.core that its tests use."""

from typing import Any

from .._native.core import StridedMemoryView
from ._arguments import ViewableArgument as _StridedMemoryViewProxy

__all__ = ["StridedMemoryView", "_StridedMemoryViewProxy", "view_as_array_interface", "view_as_cai"]


def view_as_cai(obj: Any, stream_ptr: Any) -> StridedMemoryView:
    return StridedMemoryView.from_cuda_array_interface(obj, stream_ptr)


def view_as_array_interface(obj: Any) -> StridedMemoryView:
    return StridedMemoryView.from_array_interface(obj)
