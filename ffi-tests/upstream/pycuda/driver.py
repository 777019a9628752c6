"""Driver calls, contexts, and owners of memory."""

import ctypes
import os
import weakref

_cuda = ctypes.CDLL(os.environ["CUDA_MEM_LIBCUDA"])


class Error(RuntimeError):
    """A driver call failed."""


def call(name, *arguments):
    code = getattr(_cuda, name)(*arguments)
    if code != 0:
        raise Error(f"{name}: CUresult {code}")


def init(flags=0):
    call("cuInit", ctypes.c_uint(flags))


class Context:
    """A context, destroyed with its last reference."""

    _known = weakref.WeakValueDictionary()

    def __init__(self, device):
        handle = ctypes.c_void_p()
        call("cuCtxCreate_v2", ctypes.byref(handle), ctypes.c_uint(0), ctypes.c_int(device))
        self._handle = handle
        self._destroy = _cuda.cuCtxDestroy_v2
        Context._known[handle.value] = self

    @classmethod
    def get_current(cls):
        handle = ctypes.c_void_p()
        call("cuCtxGetCurrent", ctypes.byref(handle))
        return cls._known.get(handle.value)

    def push(self):
        call("cuCtxPushCurrent_v2", self._handle)

    @staticmethod
    def pop():
        call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def __del__(self):
        if hasattr(self, "_handle"):
            self._destroy(self._handle)


class PointerHolderBase:
    """An owner of device memory. Subclasses define get_pointer."""

    def __index__(self):
        return self.get_pointer()
