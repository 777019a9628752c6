"""Private names of cuda.core that its tests use."""

from .._native.core import StridedLayout as _StridedLayout

__all__ = ["_StridedLayout"]
