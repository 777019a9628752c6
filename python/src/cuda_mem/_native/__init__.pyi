# Made by scripts/python-stubs from python/rust. Do not edit.
"""
Memory shared by CPU and NVIDIA GPU.
"""

from . import core as core
from _typeshed import SupportsGetItem
from typing import Any, Final, SupportsFloat, SupportsIndex, final
from typing_extensions import disjoint_base

@final
class Array:
    """
    Memory with an element type, a shape and strides. It shares the ownership of the memory, and other libraries take it
    without a copy. `Buffer.view` makes one, and `from_dlpack` and `from_array_interface` make one of another library's
    array.

    >>> array = cuda_mem.PinnedMemory().allocate(24).view("float32", (2, 3))
    >>> array.shape, array.strides, array.dtype
    ((2, 3), (3, 1), 'float32')
    """
    __dlpack_c_exchange_api__: Final[Any]
    """
    DLPack's exchange API: C functions for other libraries.
    """
    @property
    def __array_interface__(self, /) -> Any:
        """
        numpy's array interface. Waits for the work on the memory. AttributeError if the CPU does not address it.
        """
    @property
    def __cuda_array_interface__(self, /) -> Any:
        """
        The CUDA array interface, version 3. AttributeError if devices do not address the memory.
        """
    def __dlpack__(self, /, *, stream: SupportsIndex | None = None, max_version: tuple[SupportsIndex, SupportsIndex] | None = None, dl_device: tuple[SupportsIndex, SupportsIndex] | None = None, copy: bool | None = None) -> Any:
        """
        DLPack's protocol; see Buffer.__dlpack__.
        """
    def __dlpack_device__(self, /) -> tuple[int, int]:
        """
        DLPack's device: (type, number).
        """
    def __len__(self, /) -> int: ...
    def __repr__(self, /) -> str: ...
    def copy_from(self, /, source: Array) -> None:
        """
        Copies an array of the same shape and type into this one, in stream order, whatever the layouts and devices.
        """
    @property
    def dtype(self, /) -> str:
        """
        The name of the element type, such as "float32".
        """
    @property
    def handle(self, /) -> int:
        """
        The address of the element with index 0.
        """
    @property
    def is_read_only(self, /) -> bool:
        """
        Whether nobody may write the array.
        """
    def numpy(self, /) -> Any:
        """
        The array as a numpy array without a copy, if the CPU addresses the memory.
        """
    @property
    def shape(self, /) -> tuple[int, ...]:
        """
        The extents.
        """
    @property
    def size(self, /) -> int:
        """
        The number of elements.
        """
    @property
    def stream(self, /) -> Stream:
        """
        The home stream of the memory.
        """
    @property
    def strides(self, /) -> tuple[int, ...]:
        """
        The distances between neighbours in each dimension, in elements.
        """
    def synchronize(self, /) -> None:
        """
        Waits for the work of the home stream so far.
        """
    def view(self, /, dtype: Any | None = None, shape: Any | None = None, *, strides: SupportsGetItem[int, SupportsIndex] | None = None, offset: SupportsIndex = 0) -> Array:
        """
        The memory as an array of another shape and type; see Buffer.view. `offset` counts from the begin of the memory,
        in bytes.
        """

@final
class Buffer:
    """
    Memory. A resource makes it; `with` closes it. Offsets and sizes are in bytes.

    Work of the buffer runs in the order of its home stream. A memoryview or numpy array of memory that the CPU addresses
    waits for that work once, when it is made: later device work is the program's to wait for.

    >>> with cuda_mem.PinnedMemory().allocate(8) as buffer:
    ...     buffer.fill(7)
    ...     buffer.to_bytes(0, 2)
    b'\\x07\\x07'
    """
    def __buffer__(self, flags: int, /) -> memoryview:
        """
        The memory for the CPU.
        """
    __dlpack_c_exchange_api__: Final[Any]
    """
    DLPack's exchange API: C functions for other libraries.
    """
    @property
    def __cuda_array_interface__(self, /) -> Any:
        """
        The CUDA array interface, version 3, of the bytes. It does not keep the buffer from being closed.
        """
    def __dlpack__(self, /, *, stream: SupportsIndex | None = None, max_version: tuple[SupportsIndex, SupportsIndex] | None = None, dl_device: tuple[SupportsIndex, SupportsIndex] | None = None, copy: bool | None = None) -> Any:
        """
        DLPack's protocol. The memory is ordered before `stream`; `dl_device` (1, 0) gives the CPU the memory itself if it
        addresses it. Raises BufferError where that needs a copy and `copy` is False.
        """
    def __dlpack_device__(self, /) -> tuple[int, int]:
        """
        DLPack's device: (type, number).
        """
    def __enter__(self, /) -> Buffer: ...
    def __exit__(self, /, kind: Any, value: Any, traceback: Any) -> None: ...
    def __getitem__(self, index: Any, /) -> Buffer:
        """
        `buffer[start:stop]` is `slice`.
        """
    def __len__(self, /) -> int: ...
    def __reduce__(self, /) -> str:
        """
        Memory is not pickled: another process would get a copy, not the memory.
        """
    def __repr__(self, /) -> str: ...
    @property
    def atom(self, /) -> int:
        """
        The unit of `flush` and `invalidate` in bytes: 1 for coherent memory. The calls themselves take any range.
        """
    def close(self, /, stream: Any | None = None) -> None:
        """
        Frees the memory in the order of the home stream; with `stream`, that becomes the home stream first. Closing again
        does nothing. Raises SharedError, and frees nothing, while a slice, a view, a memoryview or another library has
        the memory, or while another thread uses the buffer. The close of a slice gives up its share.
        """
    @property
    def context(self, /) -> Context:
        """
        The context.
        """
    def copy_from(self, /, source: Any, *, offset: SupportsIndex = 0, source_offset: SupportsIndex = 0, size: SupportsIndex | None = None) -> None:
        """
        Copies `source` to this buffer, to `offset`: `size` bytes of a Buffer from `source_offset` on, in stream order, or
        of an object with the buffer protocol, such as bytes or a contiguous numpy array; the copy of such an object is
        done when this returns. Without `size`, all the rest of the source.
        """
    def copy_pieces(self, /, source: Buffer, pieces: SupportsGetItem[int, tuple[SupportsIndex, SupportsIndex, SupportsIndex]], *, stream: Any | None = None, way: str = "fastest") -> None:
        """
        Copies pieces of another buffer to this one, each an offset in this buffer, an offset in `source` and a size. They
        must not overlap in this buffer. They are copied in the order of `stream`, by default the home stream.

        By default, "fastest", a kernel copies many small pieces, such as the blocks of a cache, and the driver all others.
        "copy_engines" leaves them all to the driver. "kernel" is the way for small work that must not wait behind large
        copies of other streams; the driver then copies only what the kernel does not reach.
        """
    def copy_to(self, /, destination: Any, *, offset: SupportsIndex = 0) -> None:
        """
        Copies `len(destination)` bytes from `offset` on to a writable object with the buffer protocol. Waits for the
        buffer's work and for the copy.
        """
    def equals(self, /, other: Buffer) -> bool:
        """
        Whether two buffers have the same bytes. Waits for the work of both.
        """
    def fill(self, /, value: Any, *, offset: SupportsIndex = 0, size: SupportsIndex | None = None) -> None:
        """
        Fills `size` bytes from `offset` on, in stream order. `value` is an int from 0 to 255, or an object of 1, 2, 4, 8 or
        16 bytes with the buffer protocol.
        """
    def flush(self, /, offset: SupportsIndex = 0, size: SupportsIndex | None = None) -> None:
        """
        Makes the CPU's writes to a range visible to device work that is queued later. Mapped and write-combined memory need
        this; for other memory it does nothing.
        """
    def grow_to(self, /, size: SupportsIndex) -> bool:
        """
        Grows a growable buffer to `size` bytes; the new bytes are zeros. Returns whether the memory has moved.

        Up to the capacity, the addresses stay. Beyond it, the same memory moves to twice as many addresses, after a wait for
        the home stream: `handle` is then another number, and kernels and libraries that still use the old one fail. No
        Python object is left with old addresses: raises SharedError while a memoryview lives, and ArgumentError if the
        buffer does not grow, as after a slice, a `view` or an export.

        >>> buffer = cuda_mem.VirtualMemory().allocate_growable(1 << 21)
        >>> buffer.grow_to(1 << 21), buffer.grow_to(1 << 23)
        (False, True)
        """
    @property
    def handle(self, /) -> int:
        """
        The address for devices, a CUdeviceptr. Raises ClosedError when the buffer is closed.
        """
    @property
    def host_pointer(self, /) -> int | None:
        """
        The address for the CPU, or None if the CPU does not address the memory.
        """
    def invalidate(self, /, offset: SupportsIndex = 0, size: SupportsIndex | None = None) -> None:
        """
        Makes the device's writes to a range visible to the CPU, once the device's work is done: wait for it first.
        Non-coherent mapped memory needs this; for other memory it does nothing.
        """
    @property
    def is_closed(self, /) -> bool:
        """
        Whether the buffer is closed.
        """
    @property
    def is_device_accessible(self, /) -> bool:
        """
        Whether devices address the memory.
        """
    @property
    def is_host_accessible(self, /) -> bool:
        """
        Whether the CPU addresses the memory.
        """
    @property
    def is_managed(self, /) -> bool:
        """
        Whether the driver moves the memory between the host and devices.
        """
    def numpy(self, /, dtype: Any | None = None, shape: Any | None = None) -> Any:
        """
        The memory as a numpy array without a copy, if the CPU addresses it. While the array lives, the buffer cannot be
        closed. For mapped memory call `flush` after writes, and `invalidate` before reads of what a device wrote.
        """
    def record_use(self, /, stream: Any) -> None:
        """
        Tells that work of another stream, queued until now, uses the memory: the home stream waits for it before the
        memory is used again or freed. The stream may be of another device that uses the memory; an object with
        `__cuda_stream__` is taken for a stream of the memory's device, so pass `Stream.from_handle(object, context)` for one
        of another.
        """
    def set_stream(self, /, stream: Any) -> None:
        """
        Makes `stream` the home stream. It waits for all work of the buffer so far.
        """
    def shrink_to(self, /, size: SupportsIndex) -> None:
        """
        Shrinks a growable buffer to `size` bytes, after a wait for the home stream. The addresses stay. Raises as `grow_to`.
        """
    @property
    def size(self, /) -> int:
        """
        The size in bytes; 0 when the buffer is closed.
        """
    def slice(self, /, offset: SupportsIndex = 0, size: SupportsIndex | None = None) -> Buffer:
        """
        A part of the memory as a buffer of its own, which shares its ownership. Without `size`, all the rest.
        """
    @property
    def stream(self, /) -> Stream:
        """
        The home stream.
        """
    def synchronize(self, /) -> None:
        """
        Waits for the work of the home stream so far.
        """
    def to_bytes(self, /, offset: SupportsIndex = 0, size: SupportsIndex | None = None) -> bytes:
        """
        The bytes from `offset` on; without `size`, all the rest. Waits for the buffer's work.
        """
    def view(self, /, dtype: Any | None = None, shape: Any | None = None, *, strides: SupportsGetItem[int, SupportsIndex] | None = None, offset: SupportsIndex = 0) -> Array:
        """
        The memory as an array that other libraries take: `dtype` is a name such as "float32" or a numpy dtype, `shape` an
        int or a sequence, `strides` are in elements, `offset` is in bytes. Without a shape it has one dimension.
        """

@final
class Context:
    """
    The primary context of a device, which PyTorch, CuPy and all libraries of the CUDA runtime share.

    >>> context = cuda_mem.Context(0)
    >>> context.memory_info()["free"] > 0
    True
    """
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __new__(cls, /, device: Any | None = None) -> Context:
        """
        `device` is a Device or an ordinal.
        """
    def __repr__(self, /) -> str: ...
    @property
    def device(self, /) -> Device:
        """
        The device.
        """
    @property
    def handle(self, /) -> int:
        """
        The driver's handle, a CUcontext.
        """
    def memory_info(self, /) -> dict[str, int]:
        """
        The device's memory in bytes: {"free": ..., "total": ...}.
        """
    def synchronize(self, /) -> None:
        """
        Waits for all work of the context. Handlers of signals, as that of Ctrl-C, run after the wait: to end it, wait for the
        streams first.
        """

@final
class Device:
    """
    A device, by its ordinal, which begins at 0.

    >>> cuda_mem.Device(0).name != ""
    True
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __int__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, ordinal: SupportsIndex = 0) -> Device:
        """
        Raises DriverError if there is no device of that ordinal.
        """
    def __repr__(self, /) -> str: ...
    def can_access_peer(self, /, other: Device) -> bool:
        """
        Whether this device may access the other's memory directly.
        """
    @property
    def name(self, /) -> str:
        """
        The name, such as "NVIDIA H100".
        """
    @property
    def ordinal(self, /) -> int:
        """
        The ordinal.
        """
    @property
    def pci_bus_id(self, /) -> str:
        """
        The place on the PCI bus.
        """
    @property
    def total_memory(self, /) -> int:
        """
        The memory in bytes.
        """
    @property
    def uuid(self, /) -> str:
        """
        The UUID, in the form that CUDA_VISIBLE_DEVICES takes.
        """

@final
class DeviceMemory(MemoryResource):
    """
    Memory of a device, each allocation by the driver (cuMemAlloc). A Pool over it is a thousand times faster.

    >>> memory = cuda_mem.DeviceMemory()
    >>> memory.copy_of(b"abc").to_bytes()
    b'abc'
    """
    def __new__(cls, /, context: Any | None = None) -> DeviceMemory:
        """
        `context` is a Context, a Device, an ordinal, or None for device 0.
        """

@final
class Driver:
    """
    The CUDA driver of this process. All methods raise DriverError with the driver's code where it refuses.

    The driver is the system's libcuda.so.1, or what the environment variable CUDA_MEM_LIBCUDA names, as
    `python -m cuda_mem.softgpu run -- program` does.

    >>> cuda_mem.Driver().device_count >= 1
    True
    """
    def __new__(cls, /) -> Driver:
        """
        Loads and starts the driver, once in a process. LoadError says where it was searched for.
        """
    def __repr__(self, /) -> str: ...
    def describe_vkgdr(self, /) -> str:
        """
        What vkgdr finds on this machine for mapped memory, as JSON.
        """
    @property
    def device_count(self, /) -> int:
        """
        The number of devices.
        """
    @property
    def is_software(self, /) -> bool:
        """
        Whether the driver is the software GPU.
        """
    @property
    def library(self, /) -> str:
        """
        The path or name of the library.
        """
    @property
    def release(self, /) -> tuple[int, int] | None:
        """
        The CUDA release that the driver serves, as (major, minor); None if it does not say.
        """

@final
class DriverPool(MemoryResource):
    """
    A pool of the driver (cuMemAllocAsync), as other libraries use it.
    """
    def __new__(cls, /, context: Any | None = None, kind: str = "device", *, own: bool = False, maximum: SupportsIndex | None = None, release_threshold: SupportsIndex = 0) -> DriverPool:
        """
        `kind` is "device", "pinned" or "managed". A pool with `maximum` bytes, or one that is `own`, is a new pool;
        otherwise it is the one that the driver has for everybody. `release_threshold` is how many unused bytes a new pool
        keeps at each synchronization.
        """
    def trim_to(self, /, keep: SupportsIndex = 0) -> None:
        """
        Returns unused memory to the device, but keeps `keep` bytes.
        """

@final
class Event:
    """
    An event: a point in the work of a stream.

    >>> stream = cuda_mem.Stream()
    >>> event = stream.record()
    >>> event.synchronize()
    >>> event.is_done
    True
    """
    def __new__(cls, /, context: Any | None = None, *, timing: bool = False) -> Event:
        """
        An event that nothing recorded yet. With `timing`, it measures times.
        """
    def __repr__(self, /) -> str: ...
    def elapsed(self, /, later: Event) -> float:
        """
        The seconds from this event to a later one. Both need `timing`, and their work must be done.
        """
    @property
    def handle(self, /) -> int:
        """
        The driver's handle, a CUevent.
        """
    @property
    def is_done(self, /) -> bool:
        """
        Whether the work before the event is done.
        """
    def record(self, /, stream: Any) -> None:
        """
        Records the event after all work of the stream so far.
        """
    def synchronize(self, /, timeout: SupportsFloat | SupportsIndex | None = None) -> None:
        """
        Waits for the work before the event. Raises WaitTimeoutError after `timeout` seconds.
        """

@final
class FileReader:
    """
    Reads files into the memory of a device, at the rate of the link or of the disk: threads read into page-locked memory,
    from which the device copies. Any number of threads may use one reader, and a program needs only one.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "weights"
    >>> path.write_bytes(b"header, weights")
    15
    >>> reader = cuda_mem.FileReader()
    >>> reader.read(path, offset=8).to_bytes()
    b'weights'
    """
    def __new__(cls, /, context: Any | None = None) -> FileReader:
        """
        `context` is a Context, a Device, an ordinal, or None for device 0.
        """
    def __repr__(self, /) -> str: ...
    @property
    def context(self, /) -> Context:
        """
        The context.
        """
    def read(self, /, file: Any, offset: SupportsIndex = 0, size: SupportsIndex | None = None, *, memory: MemoryResource | None = None, stream: Any | None = None) -> Buffer:
        """
        Reads `size` bytes of a file from `offset` on into a new buffer; without `size`, all bytes up to the end of the file.
        `file` is a path, an open file, or a descriptor, whose position does not matter and does not change.

        The buffer is one of `memory`, a MemoryResource; by default one of DeviceMemory. `stream` becomes its home stream, as in
        MemoryResource.allocate. The bytes are there when this returns.

        What is in the page cache comes from there. The rest comes from the disk past the page cache, and does not fill it.

        Raises FileError if the file is shorter, is a pipe or a folder, or cannot be read, and what `open` raises for a path.
        """
    @property
    def staging(self, /) -> int:
        """
        How many bytes of page-locked memory the reader has for further reads.
        """
    def trim(self, /) -> None:
        """
        Frees page-locked memory that no read uses.
        """

@final
class ManagedMemory(MemoryResource):
    """
    Memory that the driver moves between the host and devices.
    """
    def __new__(cls, /, context: Any | None = None) -> ManagedMemory:
        """
        Raises UnsupportedError if the device has none.
        """

@final
class MappedMemory(MemoryResource):
    """
    Memory of a device that the CPU addresses directly, over vkgdr. The CPU's stores reach the device without a copy of the
    driver. Call Buffer.flush after the CPU has written, and Buffer.invalidate before it reads what the device wrote.

    >>> buffer = cuda_mem.MappedMemory().allocate(4096)
    >>> memoryview(buffer)[:3] = b"abc"
    >>> buffer.flush(0, 3)
    >>> buffer.to_bytes(0, 3)
    b'abc'
    """
    def __new__(cls, /, context: Any | None = None, *, coherence: str = "preferred") -> MappedMemory:
        """
        `coherence` is "preferred", "required" for memory that is coherent by itself, or else an error, or
        "force_non_coherent", which finds missing flushes.
        """

@disjoint_base
class MemoryResource:
    """
    A source of memory: DeviceMemory, PinnedMemory, ManagedMemory, MappedMemory, VirtualMemory, DriverPool, Pool or
    RingPool. It cannot be made by itself.
    """
    def __repr__(self, /) -> str: ...
    def allocate(self, /, size: int, *, stream: Any | None = None) -> Buffer:
        """
        Allocates `size` bytes, whose contents are undefined. `stream` becomes the buffer's home stream, in whose order it
        is used and freed: a Stream, an object with `__cuda_stream__`, or None for the legacy default stream. A size of 0
        is allowed. Raises OutOfMemoryError if there is no room.
        """
    @property
    def context(self, /) -> Context:
        """
        The context.
        """
    def copy_of(self, /, data: Any, *, stream: Any | None = None) -> Buffer:
        """
        Allocates memory for the bytes of an object with the buffer protocol, such as bytes or a contiguous numpy array, and
        copies them. The copy is done when this returns.
        """
    @property
    def is_device_accessible(self, /) -> bool:
        """
        Whether devices address the memory.
        """
    @property
    def is_host_accessible(self, /) -> bool:
        """
        Whether the CPU addresses the memory.
        """

@final
class PinnedMemory(MemoryResource):
    """
    Page-locked memory of the host, which devices access directly.

    >>> buffer = cuda_mem.PinnedMemory().copy_of(b"abc")
    >>> bytes(buffer)
    b'abc'
    """
    def __new__(cls, /, context: Any | None = None, *, write_combined: bool = False, progress: Any | None = None) -> PinnedMemory:
        """
        `write_combined` memory is written fast and read slowly by the CPU. `progress(done, total)` is called in bytes while
        256 MiB or more are allocated: the first half is done when the pages exist, the second when they are locked. An
        exception from it cancels the allocation and is raised there.
        """

@final
class Pool(MemoryResource):
    """
    A stream-ordered pool over any source of memory. A pair of allocation and free on one stream makes no driver call.

    >>> pool = cuda_mem.Pool(cuda_mem.DeviceMemory(), maximum=1 << 30)
    >>> with pool.allocate(4096) as buffer:
    ...     pool.statistics().blocks
    1
    """
    def __new__(cls, /, source: MemoryResource, *, initial: SupportsIndex | None = None, smallest_growth: SupportsIndex | None = None, largest_growth: SupportsIndex | None = None, maximum: SupportsIndex | None = None, reuse: str = "when_passed", trace_capacity: SupportsIndex = 0) -> Pool:
        """
        A pool over `source`. Sizes are in bytes: `initial` is reserved at once, 2 MiB by default, `smallest_growth` and
        `largest_growth` bound what is reserved at a time, and `maximum` bounds all. Raises ArgumentError if `initial`
        exceeds the maximum, or if the maximum is below what the pool takes at least: 256 bytes, or over VirtualMemory
        one chunk (2 MiB on an H100). `reuse` is "when_passed", "same_stream_only" or "wait":
        whether memory that another stream freed is reused once its work is done, never, or after a wait. With a
        `trace_capacity`, snapshots contain that many of the newest events.
        """
    @property
    def is_asleep(self, /) -> bool:
        """
        Whether the pool sleeps.
        """
    def release_unused(self, /) -> None:
        """
        Waits for the work on freed memory, and returns all unused memory to the source.
        """
    def reserve(self, /, size: SupportsIndex) -> None:
        """
        Reserves memory so that the pool has `size` bytes.
        """
    def reset_peaks(self, /) -> None:
        """
        Sets the peaks of the figures to the present values.
        """
    def set_name(self, /, address: SupportsIndex, name: str) -> bool:
        """
        Gives a name to the block that contains the address; snapshots show it. Returns whether there is such a block.
        """
    def sleep(self, /, *, contents: str = "save", host: MemoryResource | None = None, patience: SupportsFloat | SupportsIndex = 10.0) -> Slept:
        """
        Puts the pool to sleep: its memory goes back to the device, and its addresses stay. After `wake`, buffers, pointers
        and captured graphs are valid again. While it sleeps, allocations and work on its buffers raise AsleepError, and a
        kernel that uses its memory ends the context: launch none. Buffers may be closed. `contents` is "save", which
        copies them to host memory and back, or "discard". `host` is where they are saved: PinnedMemory, or a pool over it,
        which is faster if it has room already. By default the call allocates page-locked memory.

        Waits for queued work, and at most `patience` seconds for work that waits for the CPU: WaitTimeoutError, and
        the pool stays awake. Raises SleepError if the pool sleeps already, and UnsupportedError if it does not grow in
        place: over DeviceMemory with a maximum of at least 64 MiB, or VirtualMemory of the device.

        >>> pool = cuda_mem.Pool(cuda_mem.DeviceMemory())
        >>> weights = pool.copy_of(b"weights")
        >>> pool.sleep()
        Slept(saved=256, released=2097152)
        >>> pool.wake()
        >>> weights.to_bytes()
        b'weights'
        """
    def snapshot(self, /) -> Any:
        """
        All regions and blocks: a PoolSnapshot, which a notebook shows as a picture.
        """
    def statistics(self, /) -> PoolStatistics:
        """
        The figures of the pool.
        """
    def trim_to(self, /, keep: SupportsIndex = 0) -> None:
        """
        Returns unused memory to the source, but keeps `keep` bytes. Does not wait for work.
        """
    def wake(self, /) -> None:
        """
        Gives a pool that sleeps memory at its addresses again, and restores its contents. Raises SleepError if it is
        awake, and OutOfMemoryError if the device has no room: it then sleeps on, and may be woken later.
        """

@final
class PoolStatistics:
    """
    Figures of a pool. Sizes are in bytes.
    """
    def __repr__(self, /) -> str: ...
    @property
    def active(self, /) -> int:
        """
        The sizes of allocated blocks and of blocks in threads' caches.
        """
    @property
    def active_peak(self, /) -> int:
        """
        The same, at most since the start or the last `Pool.reset_peaks`.
        """
    @property
    def allocated(self, /) -> int:
        """
        The sizes of allocated blocks.
        """
    @property
    def allocations(self, /) -> int:
        """
        All allocations since the start.
        """
    @property
    def blocks(self, /) -> int:
        """
        Allocated blocks.
        """
    @property
    def events_recorded(self, /) -> int:
        """
        Events that the pool recorded.
        """
    @property
    def fragmentation(self, /) -> float:
        """
        From 0, all free memory in one range, to 1.
        """
    @property
    def in_caches(self, /) -> int:
        """
        The free memory in blocks that threads keep at hand.
        """
    @property
    def largest_free(self, /) -> int:
        """
        The largest free range.
        """
    @property
    def out_of_memory(self, /) -> int:
        """
        Requests without room.
        """
    @property
    def requested(self, /) -> int:
        """
        The sizes that were asked for, of allocated blocks.
        """
    @property
    def reserved(self, /) -> int:
        """
        The memory that the pool has from its source, now.
        """
    @property
    def reserved_peak(self, /) -> int:
        """
        The same, at most since the start or the last `Pool.reset_peaks`.
        """
    @property
    def waits(self, /) -> int:
        """
        How often the pool made a stream wait.
        """

@final
class RawMemory:
    """
    The memory behind cuda_mem.vkgdr.RawMemory, which documents the methods.
    """
    def __buffer__(self, flags: int, /) -> memoryview:
        """
        The memory for the CPU.
        """
    def __len__(self, /) -> int: ...
    def __new__(cls, /, owner: Vkgdr, size: SupportsIndex, flags: SupportsIndex = 0) -> RawMemory: ...
    @property
    def device_ptr(self, /) -> int: ...
    def flush(self, /, offset: SupportsIndex, size: SupportsIndex) -> None: ...
    def free(self, /) -> None: ...
    def invalidate(self, /, offset: SupportsIndex, size: SupportsIndex) -> None: ...
    @property
    def is_coherent(self, /) -> bool: ...
    @property
    def non_coherent_atom_size(self, /) -> int: ...

@final
class RingPool(MemoryResource):
    """
    A ring of memory for blocks that are freed in the order of their allocation, such as staging of uploads.
    """
    def __new__(cls, /, source: MemoryResource, capacity: SupportsIndex, *, timeout: SupportsFloat | SupportsIndex | None = None) -> RingPool:
        """
        A ring of `capacity` bytes over `source`. If it is full, an allocation waits for the work on blocks that were closed.
        If the oldest block is still open, None refuses the allocation with OutOfMemoryError, because this thread may be the
        one that must close it, and a `timeout` waits for other threads to do so, at most that many seconds. 0 waits for
        nothing.
        """

@final
class Slept:
    """
    What a pool did when it fell asleep. Sizes are in bytes.
    """
    def __new__(cls, /, saved: SupportsIndex, released: SupportsIndex) -> Slept: ...
    def __repr__(self, /) -> str: ...
    @property
    def released(self, /) -> int:
        """
        The memory that the device got back.
        """
    @property
    def saved(self, /) -> int:
        """
        The contents in host memory.
        """

@final
class Stream:
    """
    A stream: work on it runs in order. Objects of other libraries that have `__cuda_stream__` are streams too: each
    argument `stream` takes them. Such an object lives while buffers and streams on its stream are open, also if only the
    object itself has them.

    >>> stream = cuda_mem.Stream()
    >>> stream.synchronize()
    >>> stream.is_done
    True
    """
    def __cuda_stream__(self, /) -> tuple[int, int]:
        """
        The protocol for other libraries: (0, handle).
        """
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __new__(cls, /, context: Any | None = None, *, blocking: bool = False, priority: SupportsIndex = 0) -> Stream:
        """
        A new stream. `context` is a Context, a Device, an ordinal, or None for device 0. A `blocking` stream waits for
        the legacy default stream, which waits for it too. Smaller priorities are more urgent.
        """
    def __repr__(self, /) -> str: ...
    @property
    def context(self, /) -> Context:
        """
        The context.
        """
    @staticmethod
    def from_handle(stream: Any, context: Any | None = None) -> Stream:
        """
        The stream of another library: an object with `__cuda_stream__`, which this one keeps alive, or a handle, whose
        stream the program keeps while this object and buffers on it live. A number that is not the handle of a stream
        ends the process in the driver.
        """
    @property
    def handle(self, /) -> int:
        """
        The driver's handle, a CUstream.
        """
    @property
    def is_done(self, /) -> bool:
        """
        Whether all work queued so far is done.
        """
    @staticmethod
    def legacy_default(context: Any | None = None) -> Stream:
        """
        The legacy default stream, which PyTorch and CuPy use unless they are told otherwise.
        """
    @staticmethod
    def per_thread_default(context: Any | None = None) -> Stream:
        """
        The default stream of the calling thread.
        """
    def record(self, /, *, timing: bool = False) -> Event:
        """
        Records a new event after all work so far.
        """
    def synchronize(self, /, timeout: SupportsFloat | SupportsIndex | None = None) -> None:
        """
        Waits until all work queued so far is done. Raises WaitTimeoutError after `timeout` seconds.
        """
    def wait(self, /, other: Any) -> None:
        """
        Makes later work of this stream wait for an event, or for all work so far of another stream. The CPU does not
        wait. Both may be of another device; an object with `__cuda_stream__` is taken for a stream of this one's device, so
        pass `Stream.from_handle(object, context)` for one of another.
        """

@final
class VirtualMemory(MemoryResource):
    """
    Physical memory of a device at reserved addresses: buffers that grow without a copy.

    >>> buffer = cuda_mem.VirtualMemory().allocate_growable(1 << 30)
    >>> buffer.grow_to(1 << 21)
    False
    >>> buffer.size
    2097152
    """
    def __new__(cls, /, context: Any | None = None) -> VirtualMemory: ...
    def allocate_growable(self, /, capacity: SupportsIndex, *, stream: Any | None = None) -> Buffer:
        """
        Makes a buffer of 0 bytes that grows to `capacity` bytes without moving, by Buffer.grow_to, and beyond that by a move.
        """

@final
class Vkgdr:
    """
    The handle behind cuda_mem.vkgdr.Vkgdr.
    """
    def __new__(cls, /, device: SupportsIndex, flags: SupportsIndex = 0) -> Vkgdr: ...

def from_array_interface(array: Any, *, stream: Any | None = None, context: Any | None = None) -> Array:
    """
    As from_dlpack, for arrays with `__cuda_array_interface__` or `__array_interface__`. `stream` waits for the stream that
    the interface names. The array object lives as long as the memory is used.
    """

def from_dlpack(array: Any, *, stream: Any | None = None, context: Any | None = None) -> Array:
    """
    An Array of another library's array, by DLPack: its memory, without a copy. The other library's work is ordered before
    `stream`, which becomes the home stream; without one, the legacy default stream of `context` does (a Context, a Device,
    an ordinal, or None for device 0). The other library keeps the memory while the Array or anything made from it lives.
    Raises BufferError for memory of other kinds of devices.
    """

def take_drop_errors() -> list[str]:
    """
    Returns the texts of errors that happened while memory, streams or events were freed without a caller, as by the
    garbage collector, and forgets them. Without this call they become warnings of the class DropErrorWarning at the next
    allocation or close.

    >>> cuda_mem.take_drop_errors()
    []
    """
