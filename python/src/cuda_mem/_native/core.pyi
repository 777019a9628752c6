# Made by scripts/python-stubs from python/rust. Do not edit.
"""
The native part of `cuda_mem.core`.
"""

from . import Context
from _typeshed import SupportsGetItem, SupportsLenAndGetItem
from typing import Any, Self, Final, SupportsIndex, final
from typing_extensions import disjoint_base

__all__ = ["Buffer", "EventBase", "MemoryResource", "PoolBase", "SourceBase", "StreamBase", "StridedLayout", "StridedMemoryView", "Ticket", "_MemPoolAttributes", "advise", "can_use_pools", "context_of_stream", "copy_batch", "create_context", "current_context", "device_attribute", "device_count", "discard", "prefetch", "primary_context", "range_attribute", "set_current_context", "synchronize_current"]

@disjoint_base
class Buffer:
    """
    Memory. A memory resource makes it; `with` closes it. Its work runs on the streams that the calls name, and its free
    waits for that work.

    A close is refused while a numpy array or another library uses the memory.
    """
    def __buffer__(self, flags: int, /) -> memoryview:
        """
        The memory for the CPU.
        """
    def __dlpack__(self, /, *, stream: SupportsIndex | None = None, max_version: Any | None = None, dl_device: Any | None = None, copy: bool | None = None) -> Any:
        """
        DLPack's protocol: an array of int8. The memory is ordered before the consumer's `stream`.
        """
    def __dlpack_device__(self, /) -> tuple[int, int]:
        """
        DLPack's device: (type, number).
        """
    def __enter__(self, /) -> Buffer: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __exit__(self, /, kind: Any, value: Any, traceback: Any) -> None: ...
    def __hash__(self, /) -> int: ...
    def __new__(cls, /, *arguments: Any, **_options: Any) -> Self: ...
    def __reduce__(self, /) -> Any: ...
    def __repr__(self, /) -> str: ...
    @property
    def _origin(self, /) -> tuple[Any, Any] | None:
        """
        The resource and the descriptor of an import.
        """
    def close(self, /, stream: Any | None = None) -> None:
        """
        Frees the memory in order of `stream`, or of the stream of the allocation. Does nothing if the buffer is closed.
        """
    def copy_from(self, /, src: Buffer, *, stream: Any, options: Any | None = None) -> None:
        """
        Copies all of `src`, of the same size, to this buffer on `stream`.
        """
    def copy_to(self, /, dst: Buffer | None = None, *, stream: Any, options: Any | None = None) -> Buffer:
        """
        Copies all of this buffer to `dst`, of the same size, on `stream`; without `dst`, to a new buffer of the same
        resource. Returns the destination.
        """
    @property
    def device_id(self, /) -> Any:
        """
        The ordinal of the device; -1 for memory of the host.
        """
    def fill(self, /, value: Any, *, stream: Any) -> None:
        """
        Fills the buffer on `stream` with an integer from 0 to 255, or with a pattern of 1, 2 or 4 bytes: an object with the
        buffer protocol, such as bytes or a number of numpy.
        """
    @classmethod
    def from_handle(cls, /, ptr: Any, size: SupportsIndex, mr: Any | None = None, owner: Any | None = None, *, stream: Any | None = None) -> Any:
        """
        A buffer of an address. With a resource `mr`, the buffer owns the memory: `mr.deallocate(ptr, size, stream=...)`
        frees it, in order of `stream` or of the default stream. With an `owner`, the buffer keeps that. Otherwise the
        program keeps the memory.
        """
    @classmethod
    def from_ipc_descriptor(cls, /, mr: Any, ipc_descriptor: Any, *, stream: Any) -> Any:
        """
        Imports memory of another process. Raises CUDAError for memory of another resource.
        """
    @property
    def handle(self, /) -> int:
        """
        The address as an integer; 0 when the buffer is closed.
        """
    @property
    def ipc_descriptor(self, /) -> Any:
        """
        What another process imports the memory by. The resource must be made with `ipc_enabled`.
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
    @property
    def is_mapped(self, /) -> bool:
        """
        Whether another process made the memory.
        """
    @property
    def memory_resource(self, /) -> Any | None:
        """
        The memory resource, or None.
        """
    @property
    def owner(self, /) -> Any | None:
        """
        The owner of memory of another library, or None.
        """
    def set_deallocation_stream(self, /, stream: Any) -> None:
        """
        Makes `stream` the one in whose order the memory is freed. It does not wait for earlier work that the program queued
        by itself.
        """
    @property
    def size(self, /) -> int:
        """
        The size in bytes; 0 when the buffer is closed.
        """

@disjoint_base
class EventBase:
    """
    What `cuda_mem.core.Event` derives from.
    """
    def __new__(cls, /, *, context: Context | None = None, timing: bool = False, blocking_sync: bool = False, shareable: bool = False, descriptor: bytes | None = None) -> Self:
        """
        A new event of a context, or the import of another process's.
        """
    def _context(self, /) -> Context:
        """
        The context.
        """
    def _export(self, /) -> bytes:
        """
        What another process imports the event by.
        """
    def _hold_up(self, /, stream: Any) -> None:
        """
        Makes later work of a stream wait for the event.
        """
    def _record(self, /, stream: Any) -> None:
        """
        Records the event after all work of a stream so far.
        """
    def _since(self, /, earlier: EventBase) -> float:
        """
        The milliseconds since an earlier event.
        """
    def close(self, /) -> None:
        """
        Gives the event up.
        """
    @property
    def handle(self, /) -> int:
        """
        The driver's handle, a CUevent; 0 when the event is closed.
        """
    @property
    def is_closed(self, /) -> bool:
        """
        Whether the event is closed.
        """
    @property
    def is_done(self, /) -> bool:
        """
        Whether the work before the event is done.
        """
    def sync(self, /) -> None:
        """
        Waits for the work before the event.
        """

@disjoint_base
class MemoryResource:
    """
    Abstract base of memory resources. A subclass defines `allocate`, which returns `Buffer.from_handle(..., mr=self)`,
    `deallocate` and the properties.
    """
    def __new__(cls, /, *_arguments: Any, **_options: Any) -> Self: ...
    def allocate(self, /, size: int, *, stream: Any) -> Any:
        """
        Allocates a Buffer of `size` bytes in order of `stream`.
        """
    def deallocate(self, /, ptr: Any, size: int, *, stream: Any) -> None:
        """
        Frees what a Buffer of this resource had, in order of `stream`.
        """
    @property
    def device_id(self, /) -> int:
        """
        The ordinal of the device.
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

@disjoint_base
class PoolBase(MemoryResource):
    """
    What the resources over pools of the driver derive from.
    """
    def __new__(cls, /, *_arguments: Any, **_options: Any) -> Self: ...
    def _access(self, /, ordinal: SupportsIndex) -> str:
        """
        The access of a device to the pool's memory: "rw", "r" or "".
        """
    def _change_access(self, /, added: SupportsGetItem[int, SupportsIndex], removed: SupportsGetItem[int, SupportsIndex]) -> None:
        """
        Gives devices access to the pool's memory, and takes it from others.
        """
    def _export_file(self, /) -> int:
        """
        A new file descriptor, by which other processes import the pool.
        """
    def _export_pointer(self, /, buffer: Buffer) -> bytes:
        """
        The 64 bytes by which another process imports a buffer of the pool.
        """
    def _import_pointer(self, /, buffer_type: type, bytes: SupportsLenAndGetItem[SupportsIndex], size: SupportsIndex, stream: Any, descriptor: Any) -> Any:
        """
        A buffer of the pool of another process, by the 64 bytes that the other made.
        """
    def _open_current(self, /, kind: str, ordinal: SupportsIndex | None, buffer_type: type | None = None) -> None:
        """
        The driver's current pool of a kind.
        """
    def _open_file(self, /, kind: str, ordinal: SupportsIndex | None, file: SupportsIndex) -> None:
        """
        The pool of another process, by a file descriptor, which stays the caller's.
        """
    def _open_new(self, /, kind: str, ordinal: SupportsIndex | None, max_size: SupportsIndex = 0, shareable: bool = False, location: tuple[str, SupportsIndex] | None = None, buffer_type: type | None = None) -> None:
        """
        A new pool of a kind.
        """
    def allocate(self, /, size: int, *, stream: Any) -> Any:
        """
        Allocates a Buffer of `size` bytes in order of `stream`, which is required.
        """
    @property
    def attributes(self, /) -> _MemPoolAttributes:
        """
        The state of the pool.
        """
    def close(self, /) -> None:
        """
        Gives the pool up. A pool that this resource made ends with its last buffer.
        """
    def deallocate(self, /, ptr: Any, size: int, *, stream: Any) -> None:
        """
        Frees memory of this pool by its address, in order of `stream`.
        """
    @property
    def handle(self, /) -> int:
        """
        The driver's handle, a CUmemoryPool; 0 when the resource is closed.
        """
    @property
    def is_closed(self, /) -> bool:
        """
        Whether the resource is closed.
        """
    @property
    def is_handle_owned(self, /) -> bool:
        """
        Whether the resource made or imported the pool, rather than using the driver's current one.
        """
    @property
    def is_mapped(self, /) -> bool:
        """
        Whether another process made the pool. Nothing can be allocated from it then.
        """

@disjoint_base
class SourceBase(MemoryResource):
    """
    What the resources over cuda-mem's sources without a pool derive from.
    """
    def __new__(cls, /, *_arguments: Any, **_options: Any) -> Self: ...
    def _allocate(self, /, size: SupportsIndex, stream: Any | None, resource: Any | None = None) -> Buffer:
        """
        Allocates `size` bytes.
        """
    def _deallocate(self, /, address: SupportsIndex, size: SupportsIndex, stream: Any | None) -> None:
        """
        Frees memory by its address.
        """
    def _extend(self, /, buffer: Buffer, added: SupportsIndex, resource: Any) -> Buffer:
        """
        A second mapping of a buffer of virtual memory, with `added` bytes more at its end.
        """
    def _granularity(self, /) -> int:
        """
        The unit of virtual memory in bytes.
        """
    def _graph_attributes(self, /) -> tuple[int, int, int, int]:
        """
        The bytes that graphs have: used, the most used, reserved, the most reserved.
        """
    def _open_device(self, /, ordinal: SupportsIndex) -> None:
        """
        Memory of a device, each allocation by the driver.
        """
    def _open_graph(self, /, ordinal: SupportsIndex) -> None:
        """
        Memory of a device's graphs.
        """
    def _open_pinned(self, /) -> None:
        """
        Page-locked memory.
        """
    def _open_virtual(self, /, ordinal: SupportsIndex, *, node: SupportsIndex | None, shareable: bool, gpu_direct_rdma: bool, minimum: bool, alignment: SupportsIndex, address_hint: SupportsIndex, peers: SupportsGetItem[int, SupportsIndex]) -> None:
        """
        Virtual memory of a device (`node` None), of the host (-1) or of a node of the host.
        """
    def _reset_high_marks(self, /) -> None:
        """
        Resets both maxima.
        """
    def _set_access(self, /, buffer: Buffer, ordinal: SupportsIndex, access: str | None) -> None:
        """
        Sets the access of a device to a buffer of virtual memory: "rw", "r" or None.
        """
    def _trim(self, /) -> None:
        """
        Returns memory that no graph uses to the system.
        """

@disjoint_base
class StreamBase:
    """
    What `cuda_mem.core.Stream` derives from.
    """
    def __cuda_stream__(self, /) -> tuple[int, int]:
        """
        The protocol for other libraries: (0, handle).
        """
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __new__(cls, /, *, handle: SupportsIndex | None = None, owner: Any | None = None, context: Context | None = None, nonblocking: bool = True, priority: SupportsIndex = 0) -> Self:
        """
        Of a handle of a stream; of an object that has one; or, without both, a new stream of a context.
        """
    def _context(self, /) -> Context:
        """
        The context of the stream; for a default stream the current one.
        """
    @property
    def _is_capturing(self, /) -> bool:
        """
        Whether the stream captures a graph.
        """
    def _wait_for_stream(self, /, other: Any) -> None:
        """
        Makes later work wait for all work so far of another stream.
        """
    def close(self, /) -> None:
        """
        Gives the stream up. Buffers and events that need it keep it. Default streams stay.
        """
    @property
    def handle(self, /) -> int:
        """
        The driver's handle, a CUstream; 0 when the stream is closed.
        """
    @property
    def is_closed(self, /) -> bool:
        """
        Whether the stream is closed.
        """
    @property
    def is_nonblocking(self, /) -> bool:
        """
        Whether the stream does not wait for the legacy default stream.
        """
    @property
    def priority(self, /) -> int:
        """
        The priority. Smaller is more urgent.
        """
    def sync(self, /) -> None:
        """
        Waits until all work queued so far is done.
        """

@final
class StridedLayout:
    """
    The positions of an array's elements in memory: shape, strides and the offset of the first element, in elements, and
    the size of an element, in bytes. A layout is a value without memory.

    Without `strides` the layout is dense in C order, and its `strides` is None. With `divide_strides`, `strides` counts
    bytes.

    >>> layout = cuda_mem.core.StridedLayout((480, 640, 3), None, 1)
    >>> layout[:, ::-1].strides, layout[:, ::-1].slice_offset
    ((1920, -3, 1), 1917)
    """
    def __eq__(self, other: object, /) -> bool:
        """
        By value. Strides that are only implied equal the same strides.
        """
    def __getitem__(self, slices: Any, /) -> StridedLayout: ...
    def __new__(cls, /, shape: Any, strides: Any | None, itemsize: SupportsIndex, divide_strides: bool = False) -> StridedLayout: ...
    def __repr__(self, /) -> str: ...
    def broadcast_to(self, /, shape: Any) -> StridedLayout:
        """
        Repeats axes of extent 1, and adds axes in front, all with stride 0.
        """
    @classmethod
    def dense(cls, /, shape: Any, itemsize: SupportsIndex, stride_order: Any | None = None) -> StridedLayout:
        """
        A layout without gaps. `stride_order` is "C", "F", or a tuple of the axes from the slowest to the fastest.
        """
    @classmethod
    def dense_like(cls, /, other: StridedLayout, stride_order: Any | None = None) -> StridedLayout:
        """
        A layout without gaps and without an offset, with the shape and the item size of another. "K", the default, keeps
        the order of its strides.
        """
    def flattened(self, /, start_axis: SupportsIndex = 0, end_axis: SupportsIndex = ..., mask: SupportsIndex | None = None) -> StridedLayout:
        """
        Merges neighbouring axes that form one run of memory: those from `start_axis` to `end_axis`, and of these the ones
        that `mask` allows.
        """
    def flattened_axis_mask(self, /) -> int:
        """
        The axes that `flattened` can merge: bit n for axis n and the one before it. Masks of layouts of the same shape
        combine by `&`.
        """
    @property
    def is_contiguous_any(self, /) -> bool:
        """
        Whether the elements lie without gaps in some order of the axes.
        """
    @property
    def is_contiguous_c(self, /) -> bool:
        """
        Whether the elements lie without gaps, and the last axis runs fastest.
        """
    @property
    def is_contiguous_f(self, /) -> bool:
        """
        Whether the elements lie without gaps, and the first axis runs fastest.
        """
    @property
    def is_dense(self, /) -> bool:
        """
        Whether the elements lie without gaps from offset 0 on.
        """
    @property
    def is_unique(self, /) -> bool:
        """
        Whether no two elements share memory. False for contrived strides for which nothing but a long search would tell.
        """
    @property
    def itemsize(self, /) -> int:
        """
        The size of an element in bytes.
        """
    def max_compatible_itemsize(self, /, max_itemsize: SupportsIndex = 16, data_ptr: SupportsIndex = 0, axis: SupportsIndex = ...) -> int:
        """
        The largest item size, at most `max_itemsize`, to which `repacked` can change this layout along `axis`.
        """
    @property
    def max_offset(self, /) -> int:
        """
        The highest offset of an element.
        """
    @property
    def min_offset(self, /) -> int:
        """
        The lowest offset of an element.
        """
    @property
    def ndim(self, /) -> int:
        """
        The number of dimensions.
        """
    @property
    def offset_bounds(self, /) -> tuple[int, int]:
        """
        The lowest and the highest offset of an element, in elements; (0, -1) without elements.
        """
    def permuted(self, /, axis_order: Any) -> StridedLayout:
        """
        The axes in another order.
        """
    def repacked(self, /, itemsize: SupportsIndex, data_ptr: SupportsIndex = 0, axis: SupportsIndex = ..., keep_dim: bool = True) -> StridedLayout:
        """
        The same bytes as elements of another size. The extent of `axis` changes; its stride must be 1. A `data_ptr` other
        than 0 is checked for its alignment. Without `keep_dim`, an axis whose extent becomes 1 is removed.
        """
    def required_size_in_bytes(self, /) -> int:
        """
        The size in bytes of memory that begins at offset 0 and holds all elements. ValueError if elements lie before it.
        """
    def reshaped(self, /, shape: Any) -> StridedLayout:
        """
        The same elements, in C order, in another shape. One extent may be -1.
        """
    @property
    def shape(self, /) -> tuple[int, ...]:
        """
        The extents.
        """
    @property
    def slice_offset(self, /) -> int:
        """
        The offset of the element with indices 0, in elements.
        """
    @property
    def slice_offset_in_bytes(self, /) -> int:
        """
        The offset of the element with indices 0, in bytes.
        """
    def sliced(self, /, slices: Any) -> StridedLayout:
        """
        A part: an int, a slice, or a tuple of these, as in `layout[2, ::-1]`.
        """
    def squeezed(self, /) -> StridedLayout:
        """
        Without the axes of extent 1. Without elements, one axis of extent 0 is left.
        """
    @property
    def stride_order(self, /) -> tuple[int, ...]:
        """
        The axes from the largest stride to the smallest.
        """
    @property
    def strides(self, /) -> tuple[int, ...] | None:
        """
        The strides in elements; None if the layout was made without.
        """
    @property
    def strides_in_bytes(self, /) -> tuple[int, ...] | None:
        """
        The strides in bytes; None if the layout was made without strides.
        """
    def to_dense(self, /, stride_order: Any | None = None) -> StridedLayout:
        """
        As dense_like, of this layout.
        """
    def unsqueezed(self, /, axis: Any) -> StridedLayout:
        """
        With axes of extent 1 at the positions of `axis` in the new shape, an int or a tuple.
        """
    @property
    def volume(self, /) -> int:
        """
        The number of elements.
        """

@final
class StridedMemoryView:
    """
    A view of memory of this or another library, by DLPack, an array interface, or a Buffer: the address, the shape, the
    strides, the element type and the device, without a copy. The object that exports the memory lives as long as the view.

    >>> view = cuda_mem.core.utils.StridedMemoryView.from_any_interface(numpy.arange(6).reshape(2, 3), stream_ptr=-1)
    >>> view.shape, view.dtype, view.device_id
    ((2, 3), dtype('int64'), -1)
    """
    __c_dlpack_exchange_api__: Final[Any]
    """
    The same under its older name.
    """
    __dlpack_c_exchange_api__: Final[Any]
    """
    DLPack's exchange API: C functions for other libraries.
    """
    def __dlpack__(self, /, *, stream: Any | None = None, max_version: Any | None = None, dl_device: Any | None = None, copy: bool | None = None) -> Any:
        """
        DLPack's protocol. As in cuda.core, the stream is not used: nothing is ordered, unless `dl_device` or `copy` asks for
        a copy, which is made in order with the consumer's stream.
        """
    def __dlpack_device__(self, /) -> tuple[int, int]:
        """
        DLPack's device: (type, number).
        """
    def __new__(cls, /, obj: Any | None = None, stream_ptr: Any | None = None) -> StridedMemoryView:
        """
        Deprecated: call from_any_interface, from_dlpack or from_cuda_array_interface.
        """
    def __repr__(self, /) -> str: ...
    @property
    def _layout(self, /) -> StridedLayout:
        """
        The layout.
        """
    def as_tensor_map(self, /, box_dim: Any | None = None, **options: Any) -> Any:
        """
        A descriptor for tiled copies in kernels, made by cuda.core, which must be installed.
        """
    def copy_from(self, /, other: StridedMemoryView, stream: Any | None = None, allocator: Any | None = None, blocking: bool | None = None) -> None:
        """
        Copies the elements of another view of the same shape and type into this one, whatever their layouts and devices, on
        `stream`: a Stream, or None for the legacy default stream. `allocator` serves temporary memory, if some is needed.
        With `blocking` None, the call waits for the end of the copy if the CPU addresses one of the sides. Copies within
        memory of the CPU use no stream.
        """
    def copy_to(self, /, other: StridedMemoryView, stream: Any | None = None, allocator: Any | None = None, blocking: bool | None = None) -> None:
        """
        Copies the elements of this view into another one; see copy_from.
        """
    @property
    def device_id(self, /) -> int:
        """
        The ordinal of the device; -1 for memory of the CPU.
        """
    @property
    def dtype(self, /) -> Any | None:
        """
        The numpy dtype of the elements; None if the view was made without one. Types such as bfloat16 need ml_dtypes.
        """
    @property
    def exporting_obj(self, /) -> Any | None:
        """
        The object that exports the memory.
        """
    @classmethod
    def from_any_interface(cls, /, obj: Any, stream_ptr: Any | None = None) -> StridedMemoryView:
        """
        A view by DLPack, or else by the CUDA array interface.
        """
    @classmethod
    def from_array_interface(cls, /, obj: Any) -> StridedMemoryView:
        """
        A view of an object with `__array_interface__`, version 3, such as a numpy array. `device_id` is that of the current
        context, or -1 without one.
        """
    @classmethod
    def from_buffer(cls, /, buffer: Any, shape: Any | None = None, strides: Any | None = None, *, itemsize: SupportsIndex | None = None, dtype: Any | None = None, is_readonly: bool = False, layout: StridedLayout | None = None) -> StridedMemoryView:
        """
        A view of a Buffer. `strides` counts elements. Of `itemsize` and `dtype` one is needed. As before cuda.core 0.5, a
        StridedLayout may stand for the shape, and a dtype for the strides then. The elements must lie within the buffer. Nothing
        is ordered: the program orders its work on the buffer.
        """
    @classmethod
    def from_cuda_array_interface(cls, /, obj: Any, stream_ptr: Any | None = None) -> StridedMemoryView:
        """
        A view of an object with `__cuda_array_interface__`, version 3. The stream of `stream_ptr`, a number, waits for the
        stream that the interface names. -1 needs no order.
        """
    @classmethod
    def from_dlpack(cls, /, obj: Any, stream_ptr: Any | None = None) -> StridedMemoryView:
        """
        A view of an object with DLPack's methods. `stream_ptr` is the stream, as a number, on which the view will be used;
        the exporter orders its work before it. -1 needs no order.
        """
    @property
    def is_device_accessible(self, /) -> bool:
        """
        Whether devices address the memory.
        """
    @property
    def layout(self, /) -> StridedLayout:
        """
        The layout.
        """
    @property
    def ptr(self, /) -> int:
        """
        The address of the element with indices 0.
        """
    @property
    def readonly(self, /) -> bool:
        """
        Whether nobody may write the memory.
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
    def strides(self, /) -> tuple[int, ...] | None:
        """
        The strides in elements; None if the exporter has left them out, because the array is dense in C order.
        """
    def view(self, /, layout: StridedLayout | None = None, dtype: Any | None = None) -> StridedMemoryView:
        """
        The same memory in another layout, as another type of the same size, or both. The layout's offset counts from the
        first element of the exporting object, or from the begin of the buffer. Without arguments it is this view.
        """

@final
class Ticket:
    """
    What makes an object of a subclass of Buffer. Only this module makes one.
    """

@final
class _MemPoolAttributes:
    """
    The state of a pool. It keeps the pool.
    """
    def __repr__(self, /) -> str: ...
    @property
    def release_threshold(self, /) -> int:
        """
        The bytes that stay reserved when a wait ends.
        """
    @property
    def reserved_mem_current(self, /) -> int:
        """
        The bytes that the pool has of the device.
        """
    @property
    def reserved_mem_high(self, /) -> int:
        """
        The most bytes that the pool had of the device.
        """
    @property
    def reuse_allow_internal_dependencies(self, /) -> bool:
        """
        Whether the driver makes a stream wait in order to use another's free.
        """
    @property
    def reuse_allow_opportunistic(self, /) -> bool:
        """
        Whether a free that is done is used on any stream.
        """
    @property
    def reuse_follow_event_dependencies(self, /) -> bool:
        """
        Whether a free of one stream is used on another that an event orders after it.
        """
    @property
    def used_mem_current(self, /) -> int:
        """
        The bytes that buffers have.
        """
    @property
    def used_mem_high(self, /) -> int:
        """
        The most bytes that buffers had.
        """

def advise(buffer: Buffer, advice: str, is_set: bool, to: tuple[str, SupportsIndex] | None = None) -> None:
    """
    Advises the driver: "read_mostly", "preferred_location", "accessed_by", each with whether it is set.
    """

def can_use_pools(ordinal: SupportsIndex) -> bool:
    """
    Whether a device has pools of the driver.
    """

def context_of_stream(handle: SupportsIndex) -> Context:
    """
    The context of a stream, by the stream's handle.
    """

def copy_batch(stream: Any, srcs: SupportsGetItem[int, Buffer], dsts: SupportsGetItem[int, Buffer], waits: bool) -> None:
    """
    Copies buffers to others of the same sizes, one to one.
    """

def create_context(ordinal: SupportsIndex) -> Context:
    """
    A new context of a device, beside the primary one.
    """

def current_context() -> Context | None:
    """
    The current context of this thread, or None.
    """

def device_attribute(ordinal: SupportsIndex, attribute: SupportsIndex) -> int | None:
    """
    An attribute of a device, by its number in the driver's enumeration; None if the driver does not know it.
    """

def device_count() -> int:
    """
    The number of devices.
    """

def discard(stream: Any, buffers: SupportsGetItem[int, Buffer], to: SupportsGetItem[int, tuple[str, SupportsIndex]] | None = None) -> None:
    """
    Drops the contents of buffers on a stream, and moves them if locations are given.
    """

def prefetch(stream: Any, buffers: SupportsGetItem[int, Buffer], to: SupportsGetItem[int, tuple[str, SupportsIndex]]) -> None:
    """
    Moves buffers on a stream: all to one location, or each to its own.
    """

def primary_context(ordinal: SupportsIndex) -> Context:
    """
    The primary context of a device. The thread keeps it.
    """

def range_attribute(buffer: Buffer, name: str) -> Any:
    """
    What the driver says about the memory: "read_mostly" as a bool, the others as lists of locations.
    """

def set_current_context(context: Context | None) -> None:
    """
    Makes a context current on this thread, or none.
    """

def synchronize_current() -> None:
    """
    Waits for all work of the current context.
    """
