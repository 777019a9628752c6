"""Views of arrays of any library."""

from .._native import StridedMemoryView
from ._arguments import args_viewable_as_strided_memory

__all__ = ["StridedMemoryView", "args_viewable_as_strided_memory"]
