"""The names of pyarrow.cuda, which pyarrow's wheels lack: Arrow's buffers, files and record batches in device memory.

>>> import pyarrow as pa
>>> from cuda_mem import arrow
>>> context = arrow.Context(0)
>>> on_gpu = pa.array([1, 2, 3]).copy_to(context.memory_manager)
>>> on_gpu.buffers()[1].device_type
<DeviceAllocationType.CUDA: 2>

It needs the packages pyarrow and cuda-mem-arrow; pip finds the release of the latter that fits to pyarrow.
"""

try:
    from cuda_mem_arrow import (
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
except ModuleNotFoundError as _error:
    _packages = {"cuda_mem_arrow": "cuda-mem-arrow", "pyarrow": "pyarrow"}
    if _error.name not in _packages:
        raise
    raise ImportError(
        f"cuda_mem.arrow needs the package {_packages[_error.name]}: pip install 'cuda-mem[arrow]'", name=_error.name
    ) from _error

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
