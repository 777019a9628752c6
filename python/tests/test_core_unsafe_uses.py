"""Uses of cuda_mem.core that would crash, hang or read other memory: closes beside copies, drops, wrong sizes and addresses."""

import ctypes
import gc
import os
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import cuda_mem
import numpy
import pytest
from cuda_mem.core import Buffer, Device, DeviceMemoryResource, MemoryResource, PinnedMemoryResource, Stream, VirtualMemoryResource
from cuda_mem.core.utils import StridedMemoryView, copy_batch


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


def queue_slow(stream: Stream | cuda_mem.Stream) -> list[str]:
    """Queues a function of Python that takes a while. The list is filled when it has run."""
    ran: list[str] = []

    def slow(_: Any) -> None:
        time.sleep(0.05)
        ran.append("ran")

    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(slow)
    ran_by_driver = ctypes.CDLL(os.environ["CUDA_MEM_LIBCUDA"])
    assert ran_by_driver.cuLaunchHostFunc(ctypes.c_void_p(int(stream.handle)), function, None) == 0
    KEPT.append(function)
    return ran


KEPT: list[Any] = []
"""The functions that the driver calls."""


class Pages(MemoryResource):
    """Memory of the host that a free fills with other bytes."""

    is_device_accessible = False
    is_host_accessible = True
    device_id = -1

    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}

    def allocate(self, size: int, *, stream: Any = None) -> Buffer:
        memory = ctypes.create_string_buffer(size)
        self.memory[ctypes.addressof(memory)] = memory
        return Buffer.from_handle(ctypes.addressof(memory), size, self)

    def deallocate(self, ptr: int, size: int, *, stream: Any = None) -> None:
        ctypes.memset(ptr, 0xFF, size)
        del self.memory[int(ptr)]


def test_a_copied_view_keeps_its_buffer_open() -> None:
    for _ in range(5):
        buffer = Pages().allocate(32 << 20)
        view = StridedMemoryView.from_buffer(buffer, (32 << 20,), dtype=numpy.dtype("uint8"))
        refused: list[str] = []

        def close(buffer: Buffer = buffer, refused: list[str] = refused) -> None:
            time.sleep(0.001)
            try:
                buffer.close()
            except cuda_mem.SharedError as error:
                refused.append(str(error))

        closing = threading.Thread(target=close)
        closing.start()
        try:
            copied = numpy.from_dlpack(view, copy=True)
        except RuntimeError:
            copied = None
        closing.join()
        # Either the copy or the close came first.
        assert copied is None or not copied.any()


def test_a_capsule_is_of_an_open_buffer(device: Device, stream: Stream) -> None:
    resource, other = DeviceMemoryResource(device), device.create_stream()
    for _ in range(200):
        buffer, capsules = resource.allocate(64, stream=stream), []
        begin = threading.Barrier(2)

        def export(buffer: Buffer = buffer, capsules: list[Any] = capsules, begin: threading.Barrier = begin) -> None:
            begin.wait()
            try:
                capsules.append(buffer.__dlpack__(stream=int(other.handle), max_version=(1, 0)))
            except (RuntimeError, cuda_mem.ClosedError):
                pass

        exporting = threading.Thread(target=export)
        exporting.start()
        begin.wait()
        try:
            buffer.close()
        except cuda_mem.SharedError:
            pass
        exporting.join()
        assert not (capsules and buffer.is_closed)
        capsules.clear()
        buffer.close()
    other.close()


def test_a_free_by_the_collector_leaves_exceptions_alone() -> None:
    resource = Pages()
    with pytest.raises(TypeError, match="len"):
        len(resource.allocate(8))  # type: ignore[arg-type]
    assert not resource.memory


@pytest.mark.parametrize("kind", ["core", "native"])
def test_a_drop_waits_without_the_interpreters_lock(device: Device, stream: Stream, kind: str) -> None:
    if kind == "core":
        buffer: Any = VirtualMemoryResource(device).allocate(4096, stream=stream)
        buffer.fill(0, stream=stream)
        ran = queue_slow(stream)
        buffer.fill(1, stream=stream)
    else:
        home = cuda_mem.Stream()
        buffer = cuda_mem.VirtualMemory().allocate(4096, stream=home)
        ran = queue_slow(home)
        buffer.fill(1)
    del buffer
    stream.sync()
    if kind == "native":
        home.synchronize()
    assert ran == ["ran"]


@pytest.mark.parametrize("kind", ["core", "native"])
def test_an_owner_of_a_stream_outlives_buffers_that_it_keeps(device: Device, kind: str) -> None:
    ended: list[str] = []

    class Inner:
        """What the stream is made of. The collector could end it before the buffers."""

        def __init__(self) -> None:
            self.stream = device.create_stream()

        def __del__(self) -> None:
            ended.append("stream")

    class Owner:
        def __init__(self) -> None:
            self.inner, self.kept = Inner(), list[Any]()

        def __cuda_stream__(self) -> tuple[int, int]:
            return self.inner.stream.__cuda_stream__()

    owner = Owner()
    if kind == "core":
        owner.kept += [DeviceMemoryResource(device).allocate(64, stream=owner), device.create_stream(owner)]
    else:
        owner.kept += [cuda_mem.Pool(cuda_mem.DeviceMemory()).allocate(64, stream=owner)]
        owner.kept += [cuda_mem.DeviceMemory().allocate(64, stream=owner)]
    found = weakref.ref(owner)
    del owner
    gc.collect()
    kept = found()
    assert kept is not None and not ended
    for thing in kept.kept:
        thing.close()
    del kept, thing
    gc.collect()
    assert found() is None and ended == ["stream"]


@pytest.mark.parametrize(("address", "size"), [(0, 64), (4096, 2**63 + 5), (2**64 - 4, 8)])
def test_a_range_that_no_memory_has_is_refused(address: int, size: int) -> None:
    with pytest.raises((ValueError, OverflowError)):
        Buffer.from_handle(address, size)


@pytest.mark.parametrize("address", [4096.7, "a"])
def test_an_address_is_an_integer_or_a_handle(address: Any) -> None:
    with pytest.raises(TypeError, match="address must be"):
        Buffer.from_handle(address, 8)


def test_a_batch_takes_sizes_from_the_buffers_alone(device: Device, stream: Stream) -> None:
    class Liar(Buffer):
        size = 64  # type: ignore[assignment]

    memory = ctypes.create_string_buffer(16)
    small = Liar.from_handle(ctypes.addressof(memory), 16)
    large = PinnedMemoryResource().allocate(64, stream=stream)
    with pytest.raises(ValueError, match="sizes"):
        copy_batch(stream, [large], [small])
    large.close(stream)


def test_exports_see_the_work_of_the_buffers_stream(device: Device, stream: Stream) -> None:
    buffer = DeviceMemoryResource(device).allocate(64, stream=stream)
    view = StridedMemoryView.from_buffer(buffer, (64,), dtype=numpy.dtype("uint8"))
    pinned = PinnedMemoryResource().allocate(64, stream=stream)
    for memory, export in [(buffer, view), (buffer, buffer), (pinned, pinned)]:
        queue_slow(stream)
        memory.fill(7, stream=stream)
        assert numpy.from_dlpack(export, device="cpu")[0] == 7
        memory.fill(1, stream=stream)
        stream.sync()
    del view, export
    buffer.close(stream)
    pinned.close(stream)


def test_virtual_memory_of_a_negative_size_is_refused(device: Device) -> None:
    with pytest.raises(ValueError, match="-5"):
        VirtualMemoryResource(device).allocate(-5)


def test_size_and_address_stay_while_the_stream_of_the_free_changes(device: Device, stream: Stream) -> None:
    other, buffer = device.create_stream(), DeviceMemoryResource(device).allocate(64, stream=stream)
    seen: set[tuple[Any, int]] = set()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.add((buffer.handle, buffer.size))

    looking = threading.Thread(target=look)
    looking.start()
    for round in range(2000):
        buffer.set_deallocation_stream(other if round % 2 else stream)
    over.set()
    looking.join()
    assert seen <= {(buffer.handle, 64)}
    buffer.close(stream)
    other.close()


def test_a_context_ends_without_the_interpreters_lock(device: Device) -> None:
    context = device.create_context()
    device.set_current(context)
    stream = device.create_stream()
    ran = queue_slow(stream)
    del stream
    device.set_current()
    context.close()
    assert ran == ["ran"]
