"""A private name of cuda.core, for its own tests."""

from cuda_mem._native import StridedLayout as _StridedLayout

__all__ = ["_StridedLayout"]
