"""Files, messages and arrays in device memory: what pyarrow's own tests do not ask."""

import ctypes
import threading
from collections.abc import Callable

import cuda_mem
import numpy as np
import pyarrow as pa
import pytest
from cuda_mem import arrow


@pytest.fixture
def context() -> arrow.Context:
    return arrow.Context(0)


@pytest.fixture
def batch() -> pa.RecordBatch:
    words = pa.array(["a", "b", None, "a"]).dictionary_encode()
    return pa.record_batch({"number": pa.array([1, 2, 3, None], pa.int32()), "word": words})


def test_writes_beyond_the_end_write_nothing(context: arrow.Context) -> None:
    buffer = context.buffer_from_data(b"....")
    writer = arrow.BufferWriter(buffer)
    writer.seek(4)
    writer.seek(-1, 1)
    for write in (lambda: writer.write(b"12"), lambda: writer.writeat(3, b"12"), lambda: writer.seek(5)):
        with pytest.raises(OSError, match="the buffer has 4 bytes"):
            write()
    with pytest.raises(ValueError, match="whence"):
        writer.seek(0, 2)
    assert buffer.to_pybytes() == b"...."
    empty = arrow.BufferWriter(context.new_buffer(0))
    assert empty.seek(0) == 0 and empty.write(b"") == 0


def test_writes_at_a_position_keep_what_is_collected(context: arrow.Context) -> None:
    buffer = context.buffer_from_data(b"." * 12)
    writer = arrow.BufferWriter(buffer)
    writer.buffer_size = 8
    writer.write(b"abc")
    assert writer.num_bytes_buffered == 3 and buffer.to_pybytes() == b"." * 12
    writer.writeat(8, b"xy")
    writer.write(b"z")
    assert writer.tell() == 11
    writer.close()
    assert buffer.to_pybytes() == b"abc.....xyz."
    with pytest.raises(ValueError, match="closed"):
        writer.write(b"1")


def test_a_writer_that_ends_writes_what_it_collected(context: arrow.Context) -> None:
    buffer = context.buffer_from_data(b"....")
    writer = arrow.BufferWriter(buffer)
    writer.buffer_size = 100
    writer.write(b"ab")
    del writer
    assert buffer.to_pybytes() == b"ab.."


def test_device_memory_is_written_and_read_as_slices(context: arrow.Context) -> None:
    buffer = context.new_buffer(6)
    writer = arrow.BufferWriter(buffer)
    writer.buffer_size = 4
    writer.write(b"a")
    writer.write(context.buffer_from_data(b"bcd"))
    writer.writeat(4, context.buffer_from_data(b"ef"))
    reader = arrow.BufferReader(buffer)
    part = reader.read_buffer(4)
    assert part.address == buffer.address and part.to_pybytes() == b"abcd"
    assert reader.read_buffer(100).to_pybytes() == b"ef"
    with pytest.raises(OSError, match="-1 bytes"):
        reader.read_buffer(-1)
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.read_buffer(1)


def test_messages_are_read_from_buffers_and_readers(context: arrow.Context, batch: pa.RecordBatch) -> None:
    buffer = arrow.serialize_record_batch(batch, context)
    for source in (buffer, arrow.BufferReader(buffer)):
        message = arrow.read_message(source)
        assert message.type == "record batch" and not message.body.is_cpu
    with pytest.raises(EOFError):
        arrow.read_message(context.new_buffer(0))
    with pytest.raises(ValueError, match="no message"):
        arrow.read_record_batch(context.new_buffer(0), batch.schema)
    with pytest.raises((OSError, ValueError)):
        arrow.read_record_batch(buffer.slice(0, 100), batch.schema)


def test_batches_on_the_device_are_serialized_there(context: arrow.Context) -> None:
    batch = pa.record_batch({"number": pa.array([1, 2, 3, None], pa.int32()), "text": ["a", "", None, "bcd"]})
    there = batch.copy_to(context.memory_manager)
    message = arrow.serialize_record_batch(there, context)
    assert message.to_pybytes() == batch.serialize().to_pybytes()
    again = arrow.read_record_batch(message, batch.schema)
    assert again.copy_to(pa.default_cpu_memory_manager()).equals(batch)


def test_dictionaries_stay_with_their_batches(context: arrow.Context, batch: pa.RecordBatch) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write(batch)
    stream = context.buffer_from_data(sink.getvalue())
    there = pa.ipc.open_stream(arrow.BufferReader(stream)).read_next_batch()
    assert not there["number"].buffers()[1].is_cpu
    assert there.copy_to(pa.default_cpu_memory_manager()).equals(batch)


def test_imported_arrays_are_device_buffers(context: arrow.Context) -> None:
    array = pa.array([5, 6, 7], pa.int64())
    there = array.copy_to(context.memory_manager)
    imported = import_with(there, lambda exported: None)
    buffer = arrow.CudaBuffer.from_buffer(imported.buffers()[1])
    del there, imported
    assert np.frombuffer(buffer.copy_to_host(), np.int64).tolist() == [5, 6, 7]


class Exported(ctypes.Structure):
    """ArrowDeviceArray: an ArrowArray of 80 bytes, and where it lies."""

    _fields_ = [
        ("array", ctypes.c_uint64 * 10),
        ("device_id", ctypes.c_int64),
        ("device_type", ctypes.c_int32),
        ("sync_event", ctypes.c_void_p),
        ("reserved", ctypes.c_int64 * 3),
    ]


def import_with(array: pa.Array, change: Callable[[Exported], None]) -> pa.Array:
    exported = Exported()
    array._export_to_c_device(ctypes.addressof(exported))
    change(exported)
    return pa.Array._import_from_c_device(ctypes.addressof(exported), array.type)


def test_an_import_waits_for_the_producers_event(context: arrow.Context) -> None:
    library = ctypes.CDLL(cuda_mem.library_path())
    go = threading.Event()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: go.wait(10) and None)
    handle, stream = ctypes.c_uint64(), ctypes.c_uint64()
    assert library.cudamem_context_open_primary(0, ctypes.byref(handle)) == 0
    assert library.cudamem_stream_create(handle, None, ctypes.byref(stream)) == 0
    assert library.cudamem_stream_launch_host_function(stream, function, None) == 0
    event, raw = cuda_mem.Event(), ctypes.c_void_p()
    assert library.cudamem_get_raw(stream, ctypes.byref(raw)) == 0
    event.record(cuda_mem.Stream.from_handle(raw.value))
    pointer = ctypes.c_void_p(event.handle)
    there = pa.array([1, 2]).copy_to(context.memory_manager)

    def change(exported: Exported) -> None:
        exported.sync_event = ctypes.addressof(pointer)

    imported: list[pa.Array] = []
    thread = threading.Thread(target=lambda: imported.append(import_with(there, change)))
    thread.start()
    thread.join(0.2)
    waited = thread.is_alive()
    go.set()
    thread.join()
    assert waited and imported[0].copy_to(pa.default_cpu_memory_manager()).to_pylist() == [1, 2]
    assert library.cudamem_stream_destroy(stream) == 0 and library.cudamem_context_destroy(handle) == 0
