"""The pools by address, which the allocators of other libraries use: one for each device. They are the pools of the C
functions cudamem_malloc and cudamem_free, so that C, C++ and all Python libraries of a process share them."""

import ctypes
import json
from typing import Any, Callable, TypeVar

from . import _native
from ._errors import (
    ArgumentError,
    AsleepError,
    DriverError,
    Error,
    ForkedError,
    LoadError,
    OutOfMemoryError,
    UnsupportedError,
    WaitTimeoutError,
)
from ._native import Slept
from ._snapshot import PoolSnapshot

_R = TypeVar("_R")

# A flag: the pools allocate regions by cuMemAlloc, and do not grow in place.
_REGIONS = 4


class _Options(ctypes.Structure):
    """cudamem_pool_options. Zeros are the defaults; sizes are in bytes."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("initial", ctypes.c_uint64),
        ("smallest_growth", ctypes.c_uint64),
        ("largest_growth", ctypes.c_uint64),
        ("maximum", ctypes.c_uint64),
        ("cache_capacity", ctypes.c_uint64),
        ("trace_capacity", ctypes.c_uint64),
        ("growth_factor", ctypes.c_double),
        ("reuse", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
        ("on_out_of_memory", ctypes.c_void_p),
        ("user", ctypes.c_void_p),
    ]


class _SleepOptions(ctypes.Structure):
    """cudamem_sleep_options. Zeros are the defaults."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("contents", ctypes.c_int32),
        ("reserved", ctypes.c_uint32),
        ("host", ctypes.c_uint64),
        ("patience", ctypes.c_double),
    ]


class _Slept(ctypes.Structure):
    """cudamem_slept."""

    _fields_ = [("size", ctypes.c_size_t), ("saved", ctypes.c_uint64), ("released", ctypes.c_uint64)]


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(_native.__file__)
    library.cudamem_last_error_message.restype = ctypes.c_char_p
    size, device, stream, handle = ctypes.c_size_t, ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64
    library.cudamem_malloc.argtypes = [size, device, stream, ctypes.POINTER(handle)]
    library.cudamem_free.argtypes = [handle, size, device, stream]
    library.cudamem_malloc_set_options.argtypes = [ctypes.c_void_p]
    library.cudamem_malloc_get_pool.argtypes = [device, ctypes.POINTER(handle)]
    library.cudamem_resource_destroy.argtypes = [handle]
    library.cudamem_pool_get_snapshot.argtypes = [handle, ctypes.POINTER(handle)]
    library.cudamem_pool_sleep.argtypes = [handle, ctypes.c_void_p, ctypes.c_void_p]
    library.cudamem_pool_wake.argtypes = [handle]
    library.cudamem_pool_is_asleep.argtypes = [handle, ctypes.POINTER(ctypes.c_bool)]
    library.cudamem_text_get.argtypes = [handle, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(size)]
    library.cudamem_text_destroy.argtypes = [handle]
    return library


_library = _load()


# By the numbers of CUDAMEM_ERROR_... .
_CLASSES: dict[int, type[Error]] = {
    1: ArgumentError,
    2: LoadError,
    3: UnsupportedError,
    4: DriverError,
    6: OutOfMemoryError,
    9: UnsupportedError,
    12: ForkedError,
    14: WaitTimeoutError,
    20: AsleepError,
}


def _check(status: int) -> None:
    if status != 0:
        message = _library.cudamem_last_error_message().decode()
        raise _CLASSES.get(status, Error)(message)


def function_address(name: str) -> int:
    """The address of a C function of the library, for libraries that call it."""
    address = ctypes.cast(getattr(_library, name), ctypes.c_void_p).value
    assert address is not None
    return address


def set_options(
    *,
    initial: int = 0,
    smallest_growth: int = 0,
    largest_growth: int = 0,
    maximum: int = 0,
    trace_capacity: int = 0,
    regions: bool = False,
) -> None:
    """Sets how the pools are made: as in Pool; 0 is the default of each. Call it once, before the first allocation;
    ArgumentError afterwards. The pools grow in place; with `regions` they allocate regions of cuMemAlloc, for libraries
    that need such memory."""
    options = _Options(
        size=ctypes.sizeof(_Options),
        initial=initial,
        smallest_growth=smallest_growth,
        largest_growth=largest_growth,
        maximum=maximum,
        trace_capacity=trace_capacity,
        flags=_REGIONS if regions else 0,
    )
    _check(_library.cudamem_malloc_set_options(ctypes.byref(options)))


def malloc(size: int, device: int = 0, stream: int = 0) -> int:
    """Allocates `size` bytes for work of a stream (the driver's handle; 0 is the legacy default stream). Returns the
    address. Raises OutOfMemoryError."""
    if size < 0:
        raise ArgumentError(f"size is {size}, but it must be 0 or more bytes")
    address = ctypes.c_uint64()
    _check(_library.cudamem_malloc(size, device, stream, ctypes.byref(address)))
    return address.value


def free(address: int, size: int, device: int = 0, stream: int = 0) -> None:
    """Frees memory of `malloc` that only work queued on the stream so far still uses. `size` and `device` are those of the
    allocation. ArgumentError if there is no such memory."""
    _check(_library.cudamem_free(address, size, device, stream))


def _with_pool(device: int, call: Callable[[ctypes.c_uint64], _R]) -> _R:
    pool = ctypes.c_uint64()
    _check(_library.cudamem_malloc_get_pool(device, ctypes.byref(pool)))
    try:
        return call(pool)
    finally:
        _check(_library.cudamem_resource_destroy(pool))


def snapshot(device: int = 0) -> PoolSnapshot:
    """All regions and blocks of the device's pool, with its figures in `data["statistics"]`."""

    def read(pool: ctypes.c_uint64) -> dict[str, Any]:
        text, characters, length = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_size_t()
        _check(_library.cudamem_pool_get_snapshot(pool, ctypes.byref(text)))
        try:
            _check(_library.cudamem_text_get(text, ctypes.byref(characters), ctypes.byref(length)))
            found: dict[str, Any] = json.loads(ctypes.string_at(characters.value or 0, length.value))
            return found
        finally:
            _check(_library.cudamem_text_destroy(text))

    return PoolSnapshot(_with_pool(device, read))


_CONTENTS = {"save": 0, "discard": 1}


def sleep(device: int = 0, *, contents: str = "save", patience: float = 10.0) -> Slept:
    """Puts the device's pool to sleep, as Pool.sleep does: its memory goes back to the device, and its addresses stay, so
    tensors and captured graphs are valid again after `wake`. Use none meanwhile. UnsupportedError if the pools allocate
    `regions`."""
    if contents not in _CONTENTS:
        raise ArgumentError(f'contents is {contents!r}, but it must be "save" or "discard"')
    # 0 stands for the default in C.
    options = _SleepOptions(size=ctypes.sizeof(_SleepOptions), contents=_CONTENTS[contents], patience=patience or 1e-9)
    slept = _Slept(size=ctypes.sizeof(_Slept))
    _with_pool(device, lambda pool: _check(_library.cudamem_pool_sleep(pool, ctypes.byref(options), ctypes.byref(slept))))
    return Slept(slept.saved, slept.released)


def wake(device: int = 0) -> None:
    """Gives the device's pool that sleeps memory at its addresses again, and restores its contents."""
    _with_pool(device, lambda pool: _check(_library.cudamem_pool_wake(pool)))


def is_asleep(device: int = 0) -> bool:
    """Whether the device's pool sleeps."""
    asleep = ctypes.c_bool()
    _with_pool(device, lambda pool: _check(_library.cudamem_pool_is_asleep(pool, ctypes.byref(asleep))))
    return asleep.value
