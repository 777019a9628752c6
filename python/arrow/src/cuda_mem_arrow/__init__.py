"""The compiled part of `cuda_mem.arrow`: import that module. Each release serves one minor release of pyarrow, because
Arrow's libraries change their binary interface with each."""

import ctypes
import importlib.util
import sys

import cuda_mem
import pyarrow

from ._built import PYARROW

if not pyarrow.__version__.startswith(f"{PYARROW}."):
    raise ImportError(
        f"cuda-mem-arrow {PYARROW} is built for pyarrow {PYARROW}, but pyarrow {pyarrow.__version__} is installed: "
        f"pip install 'pyarrow=={PYARROW}.*', or 'cuda-mem-arrow=={'.'.join(pyarrow.__version__.split('.')[:2])}.*'"
    )
# The compiled module takes the library's functions from the package's own module.
ctypes.CDLL(cuda_mem.library_path(), mode=ctypes.RTLD_GLOBAL)

from . import _arrow  # noqa: E402
from ._arrow import (  # noqa: E402
    BufferReader,
    BufferWriter,
    Context,
    CudaBuffer,
    HostBuffer,
    IpcMemHandle,
    new_host_buffer,
    read_message,
    read_record_batch,
    serialize_record_batch,
)

# pyarrow imports `pyarrow.cuda` before it takes an array of a CUDA device. In the wheels, that module lacks only its compiled
# part.
if importlib.util.find_spec("pyarrow._cuda") is None:
    sys.modules["pyarrow._cuda"] = _arrow

__all__ = [
    "BufferReader",
    "BufferWriter",
    "Context",
    "CudaBuffer",
    "HostBuffer",
    "IpcMemHandle",
    "new_host_buffer",
    "read_message",
    "read_record_batch",
    "serialize_record_batch",
]
