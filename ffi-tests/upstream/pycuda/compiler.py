"""Kernels. Without NVIDIA's compiler, built-in kernels of the software GPU replace those of the source."""

import ctypes

from pycuda.driver import call

# Kernels of the source, and the built-in kernels that do the same. The latter take an address and a length.
_SAME = {"double_it": b"double_bytes"}


class SourceModule:
    """The kernels of a source text."""

    def __init__(self, source):
        self._source = source
        self._module = ctypes.c_void_p()
        call("cuModuleLoadData", ctypes.byref(self._module), ctypes.c_char_p(b"softgpu kernels"))

    def get_function(self, name):
        assert f"void {name}(unsigned char *data, int n)" in self._source, name
        function = ctypes.c_void_p()
        call("cuModuleGetFunction", ctypes.byref(function), self._module, ctypes.c_char_p(_SAME[name]))

        def launch(array, count, block, grid):
            values = (ctypes.c_uint64(array.gpudata.get_pointer()), ctypes.c_uint64(int(count)))
            parameters = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
            sizes = (ctypes.c_uint(size) for size in (*grid, 1, 1)[:3] + block)
            call("cuLaunchKernel", function, *sizes, ctypes.c_uint(0), None, parameters, None)
            call("cuCtxSynchronize")

        return launch
