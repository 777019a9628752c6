"""Exceptions and options that several modules need."""

from typing import Any, TypeVar

from .._errors import ClosedError
from .._errors import DriverError as CUDAError

__all__ = ["CUDAError", "closed", "options_of"]

_T = TypeVar("_T")


def closed(name: str) -> ClosedError:
    """The exception of a use of a closed object: as rust/closable.rs has it."""
    return ClosedError(f"the {name} has been closed: make another one")


def options_of(cls: type[_T], options: "_T | dict[str, Any] | None", what: str) -> _T:
    """Options of a class: given ones, those of a dict, or the defaults."""
    if options is None:
        return cls()
    if isinstance(options, cls):
        return options
    if isinstance(options, dict):
        return cls(**options)
    raise TypeError(f"{what} must be an instance of {cls.__name__}, a dict or None, not {type(options).__name__}")
