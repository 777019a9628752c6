"""The names of cuda.core, on the pools and buffers of cuda_mem."""

from cuda_mem._native import StridedLayout as StridedLayout
from cuda_mem._native import StridedMemoryView as StridedMemoryView
