"""Tensors of cuda-mem for Python, through ctypes alone: an example of a binding that uses the protocols, and a module for tests.

The environment variable INTERCHANGE_LIBRARY names the library (the package interchange-cdylib).
"""

import ctypes as c
import json
import os

lib = c.CDLL(os.environ["INTERCHANGE_LIBRARY"])
py = c.pythonapi

READ_ONLY, COPY, LEGACY, TO_CPU = 1, 2, 4, 8
DEVICE, PINNED, MANAGED = 0, 1, 2


def declare(name, result, *arguments):
    function = getattr(lib, name)
    function.restype, function.argtypes = result, arguments
    return function


error = declare("interchange_error", c.c_char_p)
P, I, S, U64 = c.c_void_p, c.c_int, c.c_char_p, c.c_uint64
open_ = declare("interchange_open", P)
close = declare("interchange_close", None, P)
stream_ = declare("interchange_stream", c.c_int64, P)
delay_ = declare("interchange_delay", I, P, U64)
join_ = declare("interchange_join", I, P, c.c_int64, c.c_bool)
new_ = declare("interchange_new", P, P, I, S, c.c_size_t, c.POINTER(c.c_int64))
layout_ = declare("interchange_layout", P, P, c.c_size_t, c.c_size_t, c.POINTER(c.c_int64), c.POINTER(c.c_int64))
drop_ = declare("interchange_drop", None, P)
fill_ = declare("interchange_fill", I, P, c.c_uint8)
write_ = declare("interchange_write", I, P, S, c.c_size_t)
read_ = declare("interchange_read", I, P, P, c.c_size_t)
describe_ = declare("interchange_describe", S, P)
to_dlpack_ = declare("interchange_to_dlpack", P, P, P, c.c_int64, c.c_uint32)
end_dlpack_ = declare("interchange_end_dlpack", None, P, c.c_bool)
from_dlpack_ = declare("interchange_from_dlpack", P, P, P, c.c_bool)
interface_ = declare("interchange_array_interface", S, P, c.c_bool)
from_interface_ = declare("interchange_from_array_interface", P, P, S, c.c_bool)
to_arrow_ = declare("interchange_to_arrow", I, P, P, P, P, c.c_bool)
from_arrow_ = declare("interchange_from_arrow", P, P, P, P)
to_arrow_stream_ = declare("interchange_to_arrow_stream", I, P, P, c.c_size_t, P)
count_rows_ = declare("interchange_count_rows", c.c_int64, P)
round_trip_ = declare("interchange_round_trip", c.c_double, P, c.c_uint32)

py.PyCapsule_New.restype, py.PyCapsule_New.argtypes = c.py_object, (P, S, P)
py.PyCapsule_GetPointer.restype, py.PyCapsule_GetPointer.argtypes = P, (c.py_object, S)
py.PyCapsule_IsValid.restype, py.PyCapsule_IsValid.argtypes = I, (c.py_object, S)
py.PyCapsule_SetName.restype, py.PyCapsule_SetName.argtypes = I, (c.py_object, S)

# The same two functions for a capsule that is being destroyed, whose reference count must not change any more.
_is_valid = c.PYFUNCTYPE(I, P, S)(("PyCapsule_IsValid", py))
_pointer = c.PYFUNCTYPE(P, P, S)(("PyCapsule_GetPointer", py))
NAMES = {False: b"dltensor_versioned", True: b"dltensor"}
USED = {False: b"used_dltensor_versioned", True: b"used_dltensor"}


@c.PYFUNCTYPE(None, P)
def _end_capsule(capsule):
    """Destroys an export that nothing has consumed, when its capsule ends."""
    for legacy, name in NAMES.items():
        if _is_valid(capsule, name):
            end_dlpack_(_pointer(capsule, name), legacy)


def checked(result):
    if result is None or result == -1:
        raise BufferError(error().decode())
    return result


class Tensor:
    """A tensor of the library. It supports DLPack, both array interfaces, and Arrow's device interface."""

    def __init__(self, session, pointer, keep=None):
        self.session, self.pointer, self.keep = session, pointer, keep

    def __del__(self):
        drop_(self.pointer)

    def facts(self):
        return json.loads(describe_(self.pointer))

    def fill(self, byte):
        checked(fill_(self.pointer, byte))

    def write(self, data):
        checked(write_(self.pointer, data, len(data)))

    def read(self, length=None):
        room = c.create_string_buffer(self.facts()["bytes"] if length is None else length)
        checked(read_(self.pointer, room, len(room)))
        return room.raw

    def layout(self, offset, shape, strides):
        numbers = c.c_int64 * len(shape)
        return Tensor(self.session, checked(layout_(self.pointer, offset, len(shape), numbers(*shape), numbers(*strides))))

    def __dlpack_device__(self):
        return tuple(self.facts()["device"])

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None, read_only=False):
        how = READ_ONLY * read_only | COPY * bool(copy)
        legacy = max_version is None or max_version[0] < 1
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            if dl_device[0] != 1:
                raise BufferError(f"no copy to device {dl_device}")
            how |= TO_CPU
        if stream == 0:
            raise BufferError("stream 0 could be either default stream")
        pointer = checked(to_dlpack_(self.session.pointer, self.pointer, stream or 0, how | LEGACY * legacy))
        return py.PyCapsule_New(pointer, NAMES[legacy], c.cast(_end_capsule, P))

    def _interface(self, cuda):
        text = interface_(self.pointer, cuda)
        if text is None:
            raise AttributeError(error().decode())
        said = json.loads(text)
        return {key: tuple(value) if isinstance(value, list) else value for key, value in said.items()}

    @property
    def __cuda_array_interface__(self):
        return self._interface(True)

    @property
    def __array_interface__(self):
        return self._interface(False)


class ReadOnly(Tensor):
    """A tensor that is exported as read-only."""

    def __init__(self, tensor):
        self.tensor = tensor
        super().__init__(tensor.session, tensor.pointer)

    def __del__(self):
        pass

    def __dlpack__(self, **how):
        return super().__dlpack__(read_only=True, **how)


class Session:
    """A driver, its first device, and a stream."""

    def __init__(self):
        self.pointer = checked(open_())
        self.stream = stream_(self.pointer)

    def delay(self, microseconds):
        checked(delay_(self.pointer, microseconds))

    def wait_for(self, stream):
        checked(join_(self.pointer, stream, True))

    def hold_back(self, stream):
        checked(join_(self.pointer, stream, False))

    def new(self, kind, dtype, shape):
        shape = (shape,) if isinstance(shape, int) else shape
        numbers = (c.c_int64 * len(shape))(*shape)
        return Tensor(self, checked(new_(self.pointer, kind, dtype.encode(), len(shape), numbers)))

    def from_dlpack(self, theirs, **how):
        """Imports a producer's export, as the array API standard defines it."""
        if theirs.__dlpack_device__()[0] == 2:
            how.setdefault("stream", self.stream)
        try:
            capsule = theirs.__dlpack__(max_version=(1, 3), **how)
        except TypeError:
            capsule = theirs.__dlpack__(**how)
        return self.from_capsule(capsule)

    def from_capsule(self, capsule):
        for legacy, name in NAMES.items():
            if py.PyCapsule_IsValid(capsule, name):
                pointer = py.PyCapsule_GetPointer(capsule, name)
                py.PyCapsule_SetName(capsule, USED[legacy])
                return Tensor(self, checked(from_dlpack_(self.pointer, pointer, legacy)))
        raise BufferError("this is no capsule of DLPack's, or one that was used")

    def from_array_interface(self, theirs, cuda=False):
        said = dict(theirs.__cuda_array_interface__ if cuda else theirs.__array_interface__)
        said.pop("descr", None)
        text = json.dumps(said).encode()
        return Tensor(self, checked(from_interface_(self.pointer, text, cuda)), keep=theirs)
