"""Buffers of cuda_mem.core: cuda.core's behaviours, and what this package does beyond them."""

import ctypes
import gc
import sys
import weakref
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy
import pytest
from cuda_mem.core import (
    Buffer,
    CUDAError,
    Device,
    DeviceMemoryResource,
    LegacyPinnedMemoryResource,
    MemoryResource,
    PinnedMemoryResource,
    Stream,
)
from cuda_mem.core.utils import CopyOptions, copy_batch


@pytest.fixture
def device() -> Device:
    device = Device(0)
    device.set_current()
    return device


@pytest.fixture
def stream(device: Device) -> Iterator[Stream]:
    stream = device.create_stream()
    yield stream
    stream.close()


class HeapResource(MemoryResource):
    """Memory of ctypes, which counts its frees."""

    def __init__(self) -> None:
        self.live: dict[int, Any] = {}
        self.streams: list[Any] = []

    def allocate(self, size: int, *, stream: Any = None) -> Buffer:
        memory = (ctypes.c_ubyte * size)()
        self.live[ctypes.addressof(memory)] = memory
        return Buffer.from_handle(ctypes.addressof(memory), size, mr=self)

    def deallocate(self, ptr: Any, size: int, *, stream: Any = None) -> None:
        self.streams.append(stream)
        del self.live[ptr]

    is_device_accessible = False
    is_host_accessible = True
    device_id = -1


def test_copies_and_fills_run_on_the_stream_that_is_named(stream: Stream) -> None:
    pinned, other = PinnedMemoryResource(), Device(0).create_stream()
    with pinned.allocate(64, stream=stream) as first, pinned.allocate(64, stream=other) as second:
        first.fill(b"\x01\x02\x03\x04", stream=stream)
        # Without a wait in between: the copy comes after the work of both streams.
        assert first.copy_to(second, stream=stream) is second
        third = second.copy_to(stream=other)
        other.sync()
        assert bytes(third) == b"\x01\x02\x03\x04" * 16
        assert third.memory_resource is pinned
        third.close()
    assert second.is_closed and (second.handle, second.size, second.memory_resource) == (0, 0, None)
    second.close()


@pytest.mark.parametrize(
    ("value", "size", "error"),
    [(-1, 8, OverflowError), (256, 8, OverflowError), ("a", 8, TypeError), (b"abc", 9, ValueError), (b"ab", 9, ValueError)],
)
def test_fills_refuse_values_and_sizes(stream: Stream, value: Any, size: int, error: type[Exception]) -> None:
    with PinnedMemoryResource().allocate(size, stream=stream) as buffer, pytest.raises(error):
        buffer.fill(value, stream=stream)


def test_copies_refuse_other_sizes_and_closed_buffers(stream: Stream) -> None:
    memory = LegacyPinnedMemoryResource()
    one, two = memory.allocate(8), memory.allocate(9)
    with pytest.raises(ValueError, match=r"sizes are: src=8, dst=9"):
        one.copy_to(two, stream=stream)
    one.close()
    with pytest.raises(RuntimeError, match="closed"):
        two.copy_from(one, stream=stream)
    two.close()


def test_a_resource_of_python_frees_once_with_the_stream_of_the_close(stream: Stream) -> None:
    memory = HeapResource()
    first, second = memory.allocate(8), memory.allocate(8)
    first.close(stream)
    assert memory.streams == [stream]
    del second
    gc.collect()
    assert memory.live == {} and len(memory.streams) == 2


class KeepingResource(MemoryResource):
    """A resource that keeps its buffer."""

    freed: ClassVar[list[int]] = []

    def __init__(self) -> None:
        self.memory = (ctypes.c_ubyte * 8)()
        self.kept = Buffer.from_handle(ctypes.addressof(self.memory), 8, mr=self)

    def deallocate(self, ptr: Any, size: int, *, stream: Any = None) -> None:
        self.freed.append(size)

    is_device_accessible = False
    is_host_accessible = True


def test_a_cycle_of_a_buffer_and_its_resource_is_collected() -> None:
    memory = KeepingResource()
    seen = weakref.ref(memory)
    del memory
    gc.collect()
    assert seen() is None and KeepingResource.freed == [8]


def test_an_abstract_resource_names_the_member_that_is_missing(stream: Stream) -> None:
    class Unfinished(MemoryResource):
        pass

    with pytest.raises(TypeError, match=r"MemoryResource\.allocate must be implemented by subclasses"):
        Unfinished().allocate(8, stream=stream)
    with pytest.raises(RuntimeError, match="cannot be instantiated directly"):
        Buffer()


def test_memory_of_an_address_is_what_the_driver_says(device: Device, stream: Stream) -> None:
    memory = (ctypes.c_ubyte * 8)()
    count = sys.getrefcount(memory)
    heap = Buffer.from_handle(ctypes.addressof(memory), 8, owner=memory)
    assert (heap.is_host_accessible, heap.is_device_accessible, heap.device_id) == (True, False, -1)
    assert heap == Buffer.from_handle(ctypes.addressof(memory), 8) and hash(heap) != hash(None)
    heap.close()
    assert sys.getrefcount(memory) == count
    with device.allocate(8, stream=stream) as owner:
        view = Buffer.from_handle(owner.handle, 8, owner=owner)
        assert (view.is_host_accessible, view.is_device_accessible, view.device_id) == (False, True, 0)
    with pytest.raises(ValueError, match="cannot be both specified"):
        Buffer.from_handle(0, 0, HeapResource(), memory)


def test_a_buffer_is_not_closed_under_an_array_of_it(stream: Stream) -> None:
    buffer = PinnedMemoryResource().allocate(16, stream=stream)
    buffer.fill(7, stream=stream)
    array = numpy.from_dlpack(buffer)  # type: ignore[arg-type]
    view = memoryview(buffer)
    with pytest.raises(BufferError, match="2 users"):
        buffer.close()
    assert array.dtype == numpy.int8 and array.tolist() == list(view) == [7] * 16
    view.release()
    del array
    buffer.close()


def test_dlpack_copies_where_cuda_core_refuses(device: Device, stream: Stream) -> None:
    with device.allocate(4, stream=stream) as buffer:
        buffer.fill(3, stream=stream)
        stream.sync()
        assert buffer.__dlpack_device__() == (2, 0)
        copy = numpy.from_dlpack(buffer, device="cpu", copy=True)  # type: ignore[arg-type]
        assert copy.tolist() == [3] * 4
        with pytest.raises(BufferError, match=r"Expected max_version tuple\[int, int\], got \(9,\)"):
            buffer.__dlpack__(max_version=(9,))
        with pytest.raises(BufferError, match="the CPU does not address"):
            memoryview(buffer)  # type: ignore[arg-type]


def test_batches_copy_all_or_name_what_is_wrong(stream: Stream) -> None:
    memory = LegacyPinnedMemoryResource()
    sources, targets = ([memory.allocate(4) for _ in range(3)] for _ in range(2))
    for index, source in enumerate(sources):
        source.fill(index, stream=stream)
    copy_batch(stream, sources, targets, options=CopyOptions(src_access_order="during_api_call"))
    assert [bytes(target) for target in targets] == [bytes([index] * 4) for index in range(3)]
    for wrong, error, text in [
        ((sources[0], targets), TypeError, "sequence of Buffers"),
        (([], targets), ValueError, "empty buffers sequence"),
        (([1], targets), TypeError, "expected Buffer, got int"),
        ((sources[:2], targets), ValueError, "does not match dsts length"),
        (([memory.allocate(5)], targets[:1]), ValueError, "size mismatch at index 0"),
    ]:
        with pytest.raises(error, match=text):
            copy_batch(stream, *wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="invalid overlap_mode"):
        CopyOptions(overlap_mode="much")  # type: ignore[arg-type]


def test_errors_of_the_driver_are_one_exception(device: Device, stream: Stream) -> None:
    pool = DeviceMemoryResource(device, {"max_size": 1 << 20})
    with pytest.raises(CUDAError, match="CUDA_ERROR_OUT_OF_MEMORY"):
        pool.allocate(1 << 40, stream=stream)
    with pytest.raises(MemoryError):
        pool.allocate(1 << 40, stream=stream)
