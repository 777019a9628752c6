"""Views of cuda.core's buffers, by its own names."""

import ctypes
import gc
import threading
from collections.abc import Iterator

import cuda_mem
import numpy as np
import pytest
from conftest import software_gpu
from cuda_mem.core import (
    Buffer,
    Device,
    DeviceMemoryResource,
    LegacyPinnedMemoryResource,
    ManagedMemoryResource,
    MemoryResource,
    PinnedMemoryResource,
    StridedLayout,
    VirtualMemoryResource,
)
from cuda_mem.core.utils import StridedMemoryView


@pytest.fixture
def device() -> Iterator[Device]:
    device = Device()
    device.set_current()
    yield device


@pytest.fixture(params=["device", "pinned", "managed", "virtual", "legacy"])
def resource(device: Device, request: pytest.FixtureRequest) -> MemoryResource:
    make = {
        "device": lambda: DeviceMemoryResource(device),
        "pinned": PinnedMemoryResource,
        "managed": ManagedMemoryResource,
        "virtual": lambda: VirtualMemoryResource(device),
        "legacy": LegacyPinnedMemoryResource,
    }
    return make[request.param]()


def test_views_of_all_resources_are_copied(device: Device, resource: MemoryResource) -> None:
    stream = device.create_stream()
    buffer = resource.allocate(96, stream=stream)
    view = StridedMemoryView.from_buffer(buffer, (3, 4), dtype=np.dtype("f8"))
    assert view.__dlpack_device__() == buffer.__dlpack_device__()
    source = np.arange(12.0).reshape(4, 3).T
    view.copy_from(StridedMemoryView.from_array_interface(source), stream)
    back = np.zeros((3, 4))
    # Temporary memory comes from resources that the library knows.
    allocator = None if isinstance(resource, VirtualMemoryResource) else resource
    view.copy_to(StridedMemoryView.from_array_interface(back), stream, allocator=allocator)
    assert np.array_equal(back, source)
    buffer.close(stream)
    with pytest.raises(RuntimeError, match="closed"):
        view.copy_from(view, stream)


def test_older_programs_import_the_same_views() -> None:
    from cuda_mem.core import experimental
    from cuda_mem.core.experimental.utils import StridedMemoryView as Older

    assert Older is StridedMemoryView
    assert experimental.StridedLayout is StridedLayout


def test_a_buffer_stays_open_under_an_export_of_its_view(device: Device) -> None:
    buffer = LegacyPinnedMemoryResource().allocate(16)
    view = StridedMemoryView.from_buffer(buffer, (4,), dtype=np.dtype("i4"))
    capsule = view.__dlpack__(max_version=(1, 0))
    with pytest.raises(cuda_mem.SharedError):
        buffer.close()
    del capsule
    gc.collect()
    buffer.close()
    with pytest.raises((RuntimeError, cuda_mem.ClosedError), match="closed"):
        view.__dlpack__()


def test_a_copy_is_ordered_with_the_buffers_own_streams(device: Device) -> None:
    home, other = device.create_stream(), device.create_stream()
    pool = DeviceMemoryResource(device)
    source, target = pool.allocate(64, stream=home), pool.allocate(64, stream=home)
    # The home stream works until it is told to stop.
    stop = threading.Event()
    work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: stop.wait())
    assert software_gpu().cuLaunchHostFunc(ctypes.c_void_p(int(home.handle)), work, None) == 0
    source.fill(7, stream=home)

    def view(buffer: Buffer) -> StridedMemoryView:
        return StridedMemoryView.from_buffer(buffer, (64,), itemsize=1)

    view(target).copy_from(view(source), stream=other)
    source.close(home)
    stop.set()
    host = np.zeros(64, dtype="u1")
    StridedMemoryView.from_buffer(target, (64,), dtype=np.dtype("u1")).copy_to(StridedMemoryView.from_dlpack(host, -1), home)
    assert (host == 7).all()
    target.close(home)
