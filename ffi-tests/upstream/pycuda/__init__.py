"""The part of PyCUDA's interface that upstream's vkgdr tests use, over the driver that CUDA_MEM_LIBCUDA names.

PyCUDA itself needs NVIDIA's runtime library and compiler. This package replaces it on machines without them.
"""
