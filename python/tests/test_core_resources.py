"""Memory resources, devices, streams and events of cuda_mem.core."""

import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import cuda_mem.core
import pytest
from cuda_mem.core import (
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    GraphMemoryResource,
    Host,
    LegacyPinnedMemoryResource,
    ManagedBuffer,
    ManagedMemoryResource,
    ManagedMemoryResourceOptions,
    PinnedMemoryResource,
    PinnedMemoryResourceOptions,
    Stream,
    VirtualMemoryResource,
    VirtualMemoryResourceOptions,
    experimental,
)
from cuda_mem.core.utils import discard_batch, discard_prefetch_batch, prefetch_batch


@pytest.fixture
def device() -> Device:
    device = Device(0)
    device.set_current()
    return device


@pytest.fixture
def stream(device: Device) -> Stream:
    return device.create_stream()


def test_pools_are_the_drivers_current_one_or_new(device: Device, stream: Stream) -> None:
    current, new = DeviceMemoryResource(device), DeviceMemoryResource(0, DeviceMemoryResourceOptions(max_size=1 << 21))
    assert (current.is_handle_owned, new.is_handle_owned) == (False, True)
    assert current.handle == DeviceMemoryResource(device).handle != new.handle
    # A pool that is not kept full returns its memory at each wait.
    assert current.attributes.release_threshold == (1 << 64) - 1
    buffer = new.allocate(1000, stream=stream)
    attributes = new.attributes
    assert attributes.used_mem_current >= 1000 and "used_mem_high=" in repr(attributes)
    new.close()
    with pytest.raises(RuntimeError, match="DeviceMemoryResource has been closed"):
        new.allocate(8, stream=stream)
    # The buffer and the attributes keep the pool.
    buffer.close()
    assert attributes.used_mem_high >= 1000


def test_a_stream_is_required_and_may_be_another_librarys(device: Device, stream: Stream) -> None:
    class Foreign:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, stream.handle

    pool = DeviceMemoryResource(device)
    pool.allocate(8, stream=Foreign()).close(device.default_stream)
    for wrong in (None, 7):
        with pytest.raises(TypeError):
            pool.allocate(8, stream=wrong)  # type: ignore[arg-type]


def test_pinned_pools_know_their_node(device: Device, stream: Stream) -> None:
    assert PinnedMemoryResource().numa_id == PinnedMemoryResource(PinnedMemoryResourceOptions()).numa_id == -1
    node = device.properties.host_numa_id
    if node >= 0:
        assert PinnedMemoryResource({"ipc_enabled": True, "max_size": 1 << 21}).numa_id == node
    with pytest.raises(ValueError, match="numa_id must be >= 0"):
        PinnedMemoryResource({"numa_id": -1})


def test_managed_buffers_have_advice_and_move(device: Device, stream: Stream) -> None:
    memory = ManagedMemoryResource(ManagedMemoryResourceOptions(preferred_location=0))
    assert (memory.preferred_location, memory.device_id) == (("device", 0), 0)
    buffers = [memory.allocate(1 << 16, stream=stream) for _ in range(2)]
    assert all(isinstance(buffer, ManagedBuffer) and buffer.is_managed for buffer in buffers)
    prefetch_batch(stream, buffers, [Host(), device])
    stream.sync()
    assert [buffer.last_prefetch_location for buffer in buffers] == [Host(), device]
    discard_prefetch_batch(stream, buffers, device)
    discard_batch(stream, buffers)
    with pytest.raises(ValueError, match="length"):
        prefetch_batch(stream, buffers, [Host()])
    first = ManagedBuffer.from_handle(buffers[0].handle, buffers[0].size, owner=buffers[0])
    first.read_mostly, first.preferred_location = True, Host()
    assert first.read_mostly and first.preferred_location == Host()
    first.accessed_by = {device, Host()}
    with pytest.raises(ValueError, match="does not support location_type='host_numa'"):
        first.accessed_by = {Host(0)}
    assert first.accessed_by == {device, Host()}
    first.accessed_by -= {Host()}
    assert first.accessed_by == {device}
    with pytest.raises(ValueError, match="location is required"):
        first.prefetch(None, stream=stream)  # type: ignore[arg-type]
    plain = ManagedBuffer.from_handle(device.allocate(8, stream=stream).handle, 8)
    with pytest.raises(ValueError, match="requires a managed-memory allocation"):
        plain.read_mostly = True
    assert pickle.loads(pickle.dumps(Host.numa_current())) is Host.numa_current()


def test_virtual_memory_grows_without_a_copy(device: Device, stream: Stream) -> None:
    memory = VirtualMemoryResource(device)
    small = memory.allocate(1000)
    small.fill(5, stream=stream)
    large = memory.modify_allocation(small, small.size + 1)
    assert large.size >= 2 * small.size and memory.modify_allocation(large, 1) is large
    copy = LegacyPinnedMemoryResource().allocate(large.size)
    # The memory of the first buffer is that of the second, whose close keeps it.
    small.close(stream)
    copy.copy_from(large, stream=stream)
    stream.sync()
    assert bytes(copy)[:3] == b"\x05\x05\x05"
    large.close(stream)
    for options, error in [
        ({"handle_type": "win32"}, NotImplementedError),
        ({"granularity": "much"}, ValueError),
        ({"self_access": "x"}, ValueError),
    ]:
        with pytest.raises(error):
            VirtualMemoryResource(device, VirtualMemoryResourceOptions(**options))  # type: ignore[arg-type]


def test_memory_of_graphs_needs_a_capture(device: Device, stream: Stream) -> None:
    memory = GraphMemoryResource(device)
    assert memory is GraphMemoryResource(0)
    with pytest.raises(RuntimeError, match="non-capturing stream"):
        memory.allocate(8, stream=stream)
    memory.trim()
    memory.attributes.used_mem_high = 0
    with pytest.raises(AttributeError, match=r"may only be set to zero \(got 1\)"):
        memory.attributes.used_mem_high = 1
    with pytest.raises(AttributeError, match="not writable"):
        memory.attributes.used_mem_current = 0  # type: ignore[misc]


def test_devices_are_one_object_in_a_thread(device: Device) -> None:
    assert Device() is Device(0) is Device(device) and pickle.loads(pickle.dumps(device)) is device
    with pytest.raises(ValueError, match=r"device_id must be within \[0, "):
        Device(99)
    assert device.properties.memory_pools_supported is True
    assert device.properties.warp_size == 32
    with pytest.raises(AttributeError):
        device.properties.colour
    assert device.arch == f"{device.compute_capability.major}{device.compute_capability.minor}"
    other = device.create_context()
    former = device.set_current(other)
    assert former is not None and Device().context == other
    with pytest.raises(RuntimeError, match="while it is current"):
        other.close()
    assert device.set_current(former) == other
    other.close()


def test_events_measure_and_order(device: Device, stream: Stream) -> None:
    start = stream.record(options={"timing_enabled": True})
    other = device.create_stream(options={"priority": -1, "nonblocking": False})
    assert not other.is_nonblocking
    other.wait(start)
    other.wait(stream)
    end = other.record(options={"timing_enabled": True})
    end.sync()
    assert end.is_done and end - start >= 0 and end.device == device
    with pytest.raises(TypeError, match="must be bound"):
        device.create_event({"ipc_enabled": True})
    with pytest.raises(TypeError, match="cannot use timing"):
        stream.record(options={"ipc_enabled": True, "timing_enabled": True})
    stream.close()
    with pytest.raises(RuntimeError, match="closed"):
        stream.sync()


def test_the_older_forms_take_no_stream(device: Device) -> None:
    pool = experimental.DeviceMemoryResource(device, {"ipc_enabled": True, "max_size": 1 << 21})
    buffer = pool.allocate(64)
    assert buffer.get_ipc_descriptor().size == 64 and int(pool.get_allocation_handle()) >= 0
    buffer.close()
    managed = experimental.ManagedMemoryResource().allocate(64)
    assert isinstance(managed, ManagedBuffer) and managed.is_managed
    assert experimental.LegacyPinnedMemoryResource is LegacyPinnedMemoryResource
    pool.close()


PEERS = """
from cuda_mem.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions, LegacyPinnedMemoryResource
first, second = Device(0), Device(1)
pool = DeviceMemoryResource(second, DeviceMemoryResourceOptions())
peers = pool.peer_accessible_by
first.set_current()
stream, host = first.create_stream(), LegacyPinnedMemoryResource()
near, far = DeviceMemoryResource(first).allocate(8, stream=stream), pool.allocate(8, stream=second.default_stream)
for allowed in (False, True, False):
    pool.peer_accessible_by = [0, second] if allowed else []
    assert (0 in peers, second in peers, "x" in peers) == (allowed, False, False)
    try:
        near.copy_to(far, stream=stream)
        assert allowed
    except Exception as error:
        assert not allowed and "CUDA_ERROR_INVALID_VALUE" in str(error), error
peers |= {first}
peers ^= {first}
assert peers == set()
try:
    peers.add(7)
    raise SystemExit("a device that is not there became a peer")
except ValueError:
    pass
stream.sync()
"""


def test_peers_reach_the_memory_that_a_pool_gives_them() -> None:
    environment = {**os.environ, "SOFTGPU_DEVICES": "2"}
    subprocess.run([sys.executable, "-c", PEERS], env=environment, check=True)


def test_what_is_not_memory_names_the_package_that_has_it() -> None:
    with pytest.raises(AttributeError):
        cuda_mem.core.Nothing  # noqa: B018
    try:
        import cuda.core  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="pip install cuda-core"):
            cuda_mem.core.Program  # noqa: B018
    else:
        with warnings.catch_warnings():
            assert cuda_mem.core.Program.__module__.startswith("cuda.core")


def test_an_import_loads_neither_numpy_nor_multiprocessing() -> None:
    program = "import sys, cuda_mem.core; print(sorted({'numpy', 'multiprocessing', 'cuda'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True, env={
        **os.environ, "PYTHONPATH": str(Path(cuda_mem.core.__file__).parents[2]),
    })
    assert done.stdout.strip() == "[]"
