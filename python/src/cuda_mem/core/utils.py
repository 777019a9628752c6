"""Views of arrays of any library."""

from cuda_mem._native import StridedMemoryView as StridedMemoryView
from cuda_mem.core._arguments import args_viewable_as_strided_memory as args_viewable_as_strided_memory
