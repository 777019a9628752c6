"""Functions of upstream's tests."""

import ctypes
from typing import Any

from .._managed import AccessedBySetProxy, ManagedBuffer
from .._utils.cuda_utils import driver, handle_return

__all__ = ["AccessedBySetProxy", "ManagedBuffer"]


def _get_int_attr(buffer: Any, attribute: Any) -> int:
    """What the driver says about the memory of a buffer."""
    value = handle_return(driver.cuMemRangeGetAttribute(4, attribute, int(buffer.handle), buffer.size))
    return ctypes.c_int(int(value)).value
