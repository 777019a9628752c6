"""As much of PyCUDA's interface as upstream's tests of vkgdr use, over the driver that CUDA_MEM_LIBCUDA names.

PyCUDA itself needs NVIDIA's runtime library and compiler. This stands in for it where there is none.
"""
