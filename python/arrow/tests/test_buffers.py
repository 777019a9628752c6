"""Buffers and contexts: what pyarrow's own tests do not ask."""

import gc
import sys
from pathlib import Path

import cuda_mem
import numpy as np
import pyarrow as pa
import pytest
from conftest import run_beside_a_thread
from cuda_mem import arrow


@pytest.fixture
def context() -> arrow.Context:
    return arrow.Context(0)


def test_contexts_of_a_device_share_their_count(context: arrow.Context) -> None:
    before = context.bytes_allocated
    buffer = arrow.Context(0).new_buffer(100)
    assert context.bytes_allocated == before + 100
    part = buffer.slice(90)
    del buffer
    assert arrow.Context(0).bytes_allocated == before + 100, "a slice has the memory"
    del part
    assert context.bytes_allocated == before


def test_threads_run_while_a_context_is_made(tmp_path: Path) -> None:
    run_beside_a_thread("from cuda_mem import arrow; arrow.Context(0).new_buffer(8)", tmp_path)


def test_a_context_of_another_device_is_refused(context: arrow.Context) -> None:
    assert arrow.Context(0, context.handle).handle == context.handle
    if arrow.Context.get_num_devices() > 1:
        with pytest.raises(ValueError, match="device 0, not of device_number 1"):
            arrow.Context(1, context.handle)


def test_objects_without_memory_are_refused() -> None:
    for make in (arrow.CudaBuffer, arrow.HostBuffer, arrow.IpcMemHandle):
        with pytest.raises(TypeError, match="Do not call"):
            make()
    with pytest.raises(ValueError, match="not initialized"):
        arrow.Context.__new__(arrow.Context).handle
    with pytest.raises(ValueError, match="not initialized"):
        arrow.CudaBuffer.__new__(arrow.CudaBuffer).context


def test_slices_stay_within_their_buffer(context: arrow.Context) -> None:
    buffer = context.buffer_from_data(bytes(range(10)))
    assert buffer[10:].size == 0 and buffer.slice(10).size == 0
    assert buffer.slice(4, 3).slice(1).to_pybytes() == b"\x05\x06"
    assert buffer[-1] == 9
    for offset in (-1, 11):
        with pytest.raises(ValueError, match="offset"):
            buffer.slice(offset)
    with pytest.raises(ValueError, match="-1 bytes"):
        buffer.slice(2, -1)
    with pytest.raises(ValueError, match="offset"):
        context.new_buffer(0).slice(5)


def test_sizes_below_zero_are_refused(context: arrow.Context) -> None:
    host = arrow.new_host_buffer(8)
    for make in (context.new_buffer, arrow.new_host_buffer, lambda size: context.foreign_buffer(host.address, size)):
        with pytest.raises(ValueError, match="negative"):
            make(-1)


def test_copies_are_checked_before_they_run(context: arrow.Context) -> None:
    buffer = context.buffer_from_data(b"abcd")
    with pytest.raises(ValueError, match="available from device buffer"):
        buffer.copy_to_host(nbytes=5, buf=pa.allocate_buffer(8))
    with pytest.raises(ValueError, match="not mutable"):
        buffer.copy_to_host(buf=pa.py_buffer(b"1234"))
    with pytest.raises(ValueError, match="not mutable"):
        buffer.copy_to_host(buf=buffer)
    with pytest.raises(TypeError, match="copy_from_device"):
        buffer.copy_from_host(buffer)
    with pytest.raises(TypeError, match="expected CudaBuffer"):
        buffer.copy_from_device(b"1234")
    assert buffer.to_pybytes() == b"abcd"


def test_data_of_the_host_and_the_device_is_copied(context: arrow.Context) -> None:
    whole = context.buffer_from_data(np.arange(10, dtype=np.uint8))
    # A slice that Arrow makes, of another class.
    part = pa.Buffer.slice(whole, 2, 6)
    assert type(part) is pa.Buffer and not part.is_cpu
    assert context.buffer_from_data(part, 1, 3).to_pybytes() == b"\x03\x04\x05"
    again = arrow.CudaBuffer.from_buffer(part)
    again.copy_from_host(b"\xff", position=5)
    assert whole[7] == 0xFF, "it is the same memory"


def test_the_base_lives_as_long_as_the_last_slice(context: arrow.Context) -> None:
    base = arrow.new_host_buffer(8)
    np.frombuffer(base, np.uint8)[:] = range(8)
    gc.collect()
    count = sys.getrefcount(base)
    part = context.foreign_buffer(base.address, base.size, base).slice(4)
    assert sys.getrefcount(base) == count + 1
    batch = arrow.BufferReader(part).read_buffer(2)
    del part
    assert batch.to_pybytes() == b"\x04\x05" and sys.getrefcount(base) == count + 1
    del batch
    assert sys.getrefcount(base) == count


def test_memory_that_the_device_cannot_read_is_refused(context: arrow.Context) -> None:
    plain = np.zeros(100, np.uint8)
    with pytest.raises(OSError, match="register"):
        context.get_device_address(plain.ctypes.data)
    pinned = arrow.new_host_buffer(10)
    assert context.get_device_address(pinned.address) == pinned.address


def test_buffers_of_this_package_are_viewed(context: arrow.Context) -> None:
    memory = cuda_mem.DeviceMemory().allocate(16)
    memory.copy_from(bytes(range(16)))
    view = context.buffer_from_object(memory)
    assert view.address == memory.handle and view.to_pybytes() == bytes(range(16))
    assert context.buffer_from_object(memory.view("int32", (2, 2))).size == 16


def test_masks_and_gaps_of_arrays_are_refused(context: arrow.Context) -> None:
    class Array:
        def __init__(self, **interface: object) -> None:
            self.__cuda_array_interface__ = {"typestr": "|u1", "version": 3, "data": (buffer.address, False), **interface}

    buffer = context.new_buffer(16)
    assert context.buffer_from_object(Array(shape=(2, 8))).address == buffer.address
    with pytest.raises(ValueError, match="non-contiguous"):
        context.buffer_from_object(Array(shape=(8,), strides=(2,)))
    with pytest.raises(NotImplementedError, match="mask"):
        context.buffer_from_object(Array(shape=(16,), mask=buffer))


def test_buffers_of_two_devices_are_copied() -> None:
    if arrow.Context.get_num_devices() < 2:
        pytest.skip("one device")
    one, two = arrow.Context(0), arrow.Context(1)
    source, target = one.buffer_from_data(b"across"), two.new_buffer(6)
    assert target.copy_from_device(source) == 6 and target.to_pybytes() == b"across"
    array = pa.array([1, None, 3]).copy_to(one.memory_manager).copy_to(two.memory_manager)
    assert array.buffers()[1].device == two.device != one.device
    assert array.copy_to(pa.default_cpu_memory_manager()).to_pylist() == [1, None, 3]
