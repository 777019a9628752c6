"""Memory shared by CPU and NVIDIA GPU: pools, pinned, managed and mapped memory, exchanged with other libraries without
copies.

>>> import cuda_mem
>>> pool = cuda_mem.Pool(cuda_mem.PinnedMemory())
>>> with pool.allocate(4096) as buffer:
...     buffer.fill(0)
...     memoryview(buffer)[:5] = b"hello"
...     buffer.to_bytes(0, 5)
b'hello'

Without a GPU, `python -m cuda_mem.softgpu run -- python program.py` runs a program on the software GPU.
"""

from . import _errors, _native
from ._errors import (
    ArgumentError,
    AsleepError,
    CaptureError,
    ClosedError,
    DriverError,
    DriverOutOfMemoryError,
    DropErrorWarning,
    Error,
    ExchangeError,
    FileError,
    ForkedError,
    LoadError,
    OutOfMemoryError,
    SharedError,
    SleepError,
    UnsupportedError,
    WaitTimeoutError,
)
from ._native import (
    Array,
    Buffer,
    Context,
    Device,
    DeviceMemory,
    Driver,
    DriverPool,
    Event,
    FileReader,
    ManagedMemory,
    MappedMemory,
    MemoryResource,
    PinnedMemory,
    Pool,
    PoolStatistics,
    RingPool,
    Slept,
    Stream,
    VirtualMemory,
    from_array_interface,
    from_dlpack,
    take_drop_errors,
)
from ._snapshot import PoolSnapshot

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "Array",
    "AsleepError",
    "Buffer",
    "CaptureError",
    "ClosedError",
    "Context",
    "Device",
    "DeviceMemory",
    "Driver",
    "DriverError",
    "DriverOutOfMemoryError",
    "DriverPool",
    "DropErrorWarning",
    "Error",
    "Event",
    "ExchangeError",
    "FileError",
    "FileReader",
    "ForkedError",
    "LoadError",
    "ManagedMemory",
    "MappedMemory",
    "MemoryResource",
    "OutOfMemoryError",
    "PinnedMemory",
    "Pool",
    "PoolSnapshot",
    "PoolStatistics",
    "RingPool",
    "SharedError",
    "SleepError",
    "Slept",
    "Stream",
    "UnsupportedError",
    "VirtualMemory",
    "WaitTimeoutError",
    "from_array_interface",
    "from_dlpack",
    "library_path",
    "take_drop_errors",
]


def library_path() -> str:
    """The path of the shared library, which is also libcudamem: it exports the C functions (cudamem_...), and C programs
    that load it share the pools of Python."""
    return str(_native.__file__)


for _class in [value for value in vars(_errors).values() if isinstance(value, type)]:
    # Shown where users import it from.
    _class.__module__ = "cuda_mem.vkgdr" if _class.__name__ == "VkgdrError" else "cuda_mem"
del _class
