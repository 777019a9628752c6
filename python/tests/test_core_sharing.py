"""Pools, buffers and events of cuda_mem.core in two processes."""

import multiprocessing
import os
import pickle
from typing import Any

import pytest
from cuda_mem.core import Buffer, Device, DeviceMemoryResource, LegacyPinnedMemoryResource, PinnedMemoryResource
from cuda_mem.core._ipc import IPCAllocationHandle, IPCBufferDescriptor

SIZE = 64
OPTIONS = {"ipc_enabled": True, "max_size": 1 << 21}


def contents(buffer: Buffer, stream: Any) -> bytes:
    copy = LegacyPinnedMemoryResource().allocate(buffer.size)
    copy.copy_from(buffer, stream=stream)
    stream.sync()
    return bytes(copy)


def importer(arguments: Any, pool: Any, buffer: Any, descriptor: Any, further: Any, event: Any) -> None:
    """The other process: sees 1, and writes 2."""
    device = Device()
    device.set_current()
    stream = device.create_stream()
    stream.wait(event)
    assert pool.is_mapped and buffer.is_mapped and buffer.memory_resource is pool
    again = Buffer.from_ipc_descriptor(pool, descriptor, stream=stream)
    assert again.handle == buffer.handle
    assert contents(buffer, stream) == b"\x01" * SIZE
    again.close()
    # Of a pool's later memory, the driver reports another start.
    assert contents(Buffer.from_ipc_descriptor(pool, further, stream=stream), stream) == b"\x03" * SIZE
    buffer.fill(2, stream=stream)
    stream.sync()
    with pytest.raises(TypeError, match="Cannot allocate from a mapped"):
        pool.allocate(8, stream=stream)
    with pytest.raises(ValueError, match="exceeds mapped allocation extent"):
        too_much = IPCBufferDescriptor._init(descriptor._payload, 1 << 30)
        Buffer.from_ipc_descriptor(pool, too_much, stream=stream)
    # A queue pickles after the close.
    buffer.close()
    assert pickle.loads(pickle.dumps(buffer)).size == SIZE
    arguments.put(os.getpid())


@pytest.mark.parametrize("kind", [DeviceMemoryResource, PinnedMemoryResource])
def test_another_process_uses_the_memory(kind: Any) -> None:
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    pool = kind(device, OPTIONS) if kind is DeviceMemoryResource else kind(OPTIONS)
    buffer = pool.allocate(SIZE, stream=stream)
    buffer.fill(1, stream=stream)
    further = pool.allocate(SIZE, stream=stream)
    further.fill(3, stream=stream)
    event = stream.record(options={"ipc_enabled": True})
    event.sync()
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    other = spawn.Process(target=importer, args=(answers, pool, buffer, buffer.ipc_descriptor, further.ipc_descriptor, event))
    other.start()
    assert answers.get(timeout=60) == other.pid
    other.join()
    assert other.exitcode == 0
    assert contents(buffer, stream) == b"\x02" * SIZE
    buffer.close()
    pool.close()


def test_only_pools_that_are_made_for_it_are_shared() -> None:
    device = Device(0)
    device.set_current()
    pool, stream = DeviceMemoryResource(device), device.create_stream()
    with pool.allocate(8, stream=stream) as buffer:
        for share in (lambda: pool.allocation_handle, lambda: buffer.ipc_descriptor, lambda: pickle.dumps(pool)):
            with pytest.raises(RuntimeError, match="not IPC-enabled"):
                share()
    shared = DeviceMemoryResource(device, OPTIONS)
    assert shared.uuid is not None
    assert DeviceMemoryResource.from_registry(shared.uuid) is shared is pickle.loads(pickle.dumps(shared))
    assert DeviceMemoryResource.from_allocation_handle(device, shared.allocation_handle) is shared
    with pytest.raises(TypeError, match="was requested"):
        PinnedMemoryResource.from_allocation_handle(shared.allocation_handle)
    handle = shared.allocation_handle
    shared.close()
    assert handle.is_closed
    with pytest.raises(RuntimeError, match="IPCAllocationHandle has been closed"):
        DeviceMemoryResource.from_allocation_handle(device, handle)
    with pytest.raises(ValueError, match="must be non-negative"):
        IPCAllocationHandle._init(-1, None)
