"""The name of layouts in cuda.core."""

from cuda_mem._native import StridedLayout as _StridedLayout

__all__ = ["_StridedLayout"]
