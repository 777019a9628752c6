"""Integration of vkgdr with pycuda, which must be installed."""

from typing import TYPE_CHECKING, Any

from . import RawMemory, Vkgdr, VkgdrError

if TYPE_CHECKING:

    class PointerHolderBase:
        """pycuda's class of objects that stand for an address."""

    def _current_context() -> Any:
        """pycuda's current context, or None."""
else:
    from pycuda.driver import Context, PointerHolderBase

    _current_context = Context.get_current

__all__ = ["Memory"]


class Memory(PointerHolderBase, RawMemory):
    """Memory that frees itself in the context in which it was allocated.

    It keeps that context alive, but a program must not destroy the context by pycuda's interface before `free`. It can be
    the `gpudata` of a pycuda.gpuarray.GPUArray.
    """

    _context: Any = None

    def __init__(self, owner: Vkgdr, size: int, flags: int = 0) -> None:
        context = _current_context()
        if context is None:
            raise VkgdrError("no current CUDA context")
        RawMemory.__init__(self, owner, size, flags)
        self._context = context
        PointerHolderBase.__init__(self)

    def get_pointer(self) -> int:
        """The device pointer, as pycuda asks for it."""
        return self.device_ptr

    def free(self) -> None:
        """Free the memory. It is safe to call it multiple times."""
        context = self._context
        if context is None:
            return
        context.push()
        try:
            super().free()
            self._context = None
        finally:
            context.pop()

    def __del__(self) -> None:
        self.free()
