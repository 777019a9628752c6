"""The names of cuda.core, on the pools and buffers of cuda_mem."""

from .._native import StridedLayout

__all__ = ["StridedLayout"]
