"""Exceptions. Each has the text of the library, and in `code` the CUDA driver's code or None."""


class Error(Exception):
    """The base class of all exceptions of cuda_mem."""

    code: int | None = None


class OutOfMemoryError(Error, MemoryError):
    """There is no room on the device, or a limit is reached. The same call may succeed after memory is freed."""


class ArgumentError(Error, ValueError):
    """An argument is out of range, misaligned, or unknown."""


class ClosedError(Error, ValueError, RuntimeError):
    """The buffer, stream, event or memory resource is closed."""


class SharedError(Error, BufferError):
    """Something still uses the memory: a slice, an array, a memoryview, another library, or another thread."""


class ExchangeError(Error, BufferError):
    """An array of another library was refused, or an array cannot be exported as it was asked for."""


class CaptureError(Error, RuntimeError):
    """A stream captures a graph, which does not allow the call."""


class FileError(Error, OSError):
    """A file is shorter than the range, has no bytes at offsets, or cannot be read."""


class ForkedError(Error, RuntimeError):
    """The process was forked after the driver was loaded. Start processes with "spawn" or "forkserver"."""


class WaitTimeoutError(Error, TimeoutError):
    """A wait reached its time limit."""


class SleepError(Error, RuntimeError):
    """A pool cannot sleep or wake now: it is asleep or awake already, or another thread changes that."""


class AsleepError(SleepError):
    """The call needs memory of a pool that sleeps. Wake the pool first."""


class UnsupportedError(Error, NotImplementedError):
    """The driver, the library or the device cannot do this."""


class LoadError(Error, RuntimeError):
    """A library, such as the CUDA driver, was not found."""


class DriverError(Error, RuntimeError):
    """The CUDA driver or the vkgdr library refused a call."""


class DriverOutOfMemoryError(DriverError, OutOfMemoryError):
    """The CUDA driver has no room."""


class VkgdrError(Error, RuntimeError):
    """Exception raised on errors."""


class DropErrorWarning(RuntimeWarning):
    """Memory, a stream or an event that nobody closed could not be freed."""
