"""Calls of the driver by cuda-bindings, with this package's exceptions."""

from typing import Any

from cuda.bindings import driver, nvrtc

from .._errors import CUDAError
from .._ipc import check_multiprocessing_start_method, reset_fork_warning

__all__ = ["CUDAError", "NVRTCError", "check_multiprocessing_start_method", "driver", "handle_return", "reset_fork_warning"]

try:
    # Programs are the real package's, and so are their errors.
    from cuda.core._utils.cuda_utils import NVRTCError
except ImportError:

    class NVRTCError(CUDAError):  # type: ignore[no-redef]
        """A program does not compile."""


def handle_return(result: tuple[Any, ...], handle: object = None) -> Any:
    """The values of a call, or its error as an exception."""
    error, *values = result
    if isinstance(error, nvrtc.nvrtcResult):
        if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise NVRTCError(f"{error.name}")
    elif error != driver.CUresult.CUDA_SUCCESS:
        raise CUDAError(f"{error.name} ({error.value})")
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)
