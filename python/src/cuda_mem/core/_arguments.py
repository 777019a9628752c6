"""Functions whose arguments are arrays of any library."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from .._errors import ExchangeError
from .._native.core import StridedMemoryView

_P = ParamSpec("_P")
_R = TypeVar("_R")


class ViewableArgument:
    """An argument that `view` turns into a view for a stream. `obj` is the object that was passed."""

    def __init__(self, obj: Any) -> None:
        self.obj = obj
        self.has_dlpack = hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__")
        if not self.has_dlpack and not hasattr(obj, "__cuda_array_interface__"):
            kind = type(obj).__qualname__
            raise ExchangeError(f"the input object, a {kind}, does not support any data exchange protocol")

    def view(self, stream_ptr: Any = None) -> StridedMemoryView:
        """A view that is used on the stream `stream_ptr`, a number; -1 needs no order."""
        return StridedMemoryView.from_any_interface(self.obj, stream_ptr)


def args_viewable_as_strided_memory(arg_indices: tuple[int, ...]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorates a function whose positional arguments at these indices may be arrays of any library. Each of them becomes
    an object whose method `view(stream_ptr)` returns a StridedMemoryView.

    >>> @args_viewable_as_strided_memory((0,))
    ... def elements(array):
    ...     return array.view(-1).size
    >>> elements(numpy.zeros((2, 3)))
    6
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            arguments: list[Any] = list(args)
            for index in arg_indices:
                arguments[index] = ViewableArgument(arguments[index])
            return function(*arguments, **kwargs)

        return wrapped

    return decorate
