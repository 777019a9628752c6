"""The interface of vkgdr 0.1, over this package's library: a program changes its imports only.

Beyond it: ranges of `flush` and `invalidate` are checked, a use after `free` is an exception, and memory is not freed under a
numpy array of it.
"""

import enum
from typing import Any, TypeVar

from .. import _native
from .._errors import VkgdrError

__all__ = ["OpenFlags", "RawMemory", "Vkgdr", "VkgdrError"]

_V = TypeVar("_V", bound="Vkgdr")


class OpenFlags(enum.IntEnum):
    """Valid flags to pass to Vkgdr."""

    CURRENT_CONTEXT_BIT = 1
    """Ignore the given device and use the current CUDA context instead."""
    FORCE_NON_COHERENT_BIT = 2
    """Treat the memory as non-coherent even if it is coherent (for debugging only)."""
    REQUIRE_COHERENT_BIT = 4
    """Fail unless memory is guaranteed to be coherent."""


class Vkgdr:
    """Handle to the library.

    `device` is the CUDA device from which to allocate the memory; it is ignored if `flags`, a combination of OpenFlags,
    contains CURRENT_CONTEXT_BIT. Raises VkgdrError.
    """

    def __init__(self, device: int, flags: int = 0) -> None:
        self._opened = _native.Vkgdr(device, flags)

    @classmethod
    def open_current_context(cls: type[_V], flags: int = 0) -> _V:
        """Construct an instance using the current CUDA context: passes OpenFlags.CURRENT_CONTEXT_BIT in `flags`."""
        return cls(0, flags | OpenFlags.CURRENT_CONTEXT_BIT)


# A class of Python, because pycuda's PointerHolderBase shares no subclass with a native one.
class RawMemory:
    """Low-level memory allocation.

    It must be freed explicitly, or it leaks; vkgdr.pycuda.Memory frees itself. `owner` is a Vkgdr of the device of the
    current context, `size` the number of bytes, and `flags` is 0. Raises VkgdrError, also for each use after `free`.
    """

    def __init__(self, owner: Vkgdr, size: int, flags: int = 0) -> None:
        self._memory = _native.RawMemory(owner._opened, size, flags)

    def free(self) -> None:
        """Free the memory.

        This must be called with the same CUDA context current as when the object was constructed. It is safe to call it
        multiple times. BufferError while a numpy array of the memory lives.
        """
        self._memory.free()

    @property
    def device_ptr(self) -> int:
        """Retrieve the CUDA device pointer for a memory allocation."""
        return self._memory.device_ptr

    def __len__(self) -> int:
        """Retrieve the size of the memory allocation."""
        return len(self._memory)

    @property
    def is_coherent(self) -> bool:
        """Determine whether the memory allocation is coherent from the host's point of view."""
        return self._memory.is_coherent

    @property
    def non_coherent_atom_size(self) -> int:
        """Get the alignment requirement for flush and invalidate operations. If the memory is coherent, returns 1."""
        return self._memory.non_coherent_atom_size

    def flush(self, offset: int, size: int) -> None:
        """Flush host writes so that they are visible to the device.

        `offset` and `size`, in bytes, must be multiples of non_coherent_atom_size, except where the range reaches the end of
        the memory; VkgdrError otherwise, and if the range leaves the memory.
        """
        self._memory.flush(offset, size)

    def invalidate(self, offset: int, size: int) -> None:
        """Invalidate host view of device memory so that previous device writes are visible to the host. The range is as in
        `flush`."""
        self._memory.invalidate(offset, size)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """The memory as a numpy array of the type "|V1"; `numpy.asarray(memory).view(numpy.uint8)` has its bytes."""
        import numpy

        array = numpy.frombuffer(self._memory, dtype="V1")  # type: ignore[call-overload]
        if dtype is not None and array.dtype != dtype:
            array = array.view(dtype)
        return array.copy() if copy else array
