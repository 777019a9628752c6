"""Buffers of every source: bytes, copies, fills, slices, and their end."""

import array
import ctypes
import threading
import weakref

import cuda_mem
import pytest

SIZE = 4096


def test_bytes_are_written_filled_and_read(source: cuda_mem.MemoryResource) -> None:
    with source.allocate(SIZE) as buffer:
        assert (buffer.size, len(buffer), buffer.is_closed) == (SIZE, SIZE, False)
        assert buffer.handle != 0
        buffer.fill(0)
        buffer.copy_from(b"abcd", offset=4)
        buffer.fill(b"\x01\x02", offset=8, size=4)
        assert buffer.to_bytes(0, 14) == b"\0\0\0\0abcd\x01\x02\x01\x02\0\0"
        target = bytearray(4)
        buffer.copy_to(target, offset=4)
        assert target == b"abcd"
        assert repr(buffer).startswith("Buffer(handle=0x")
    assert (buffer.size, buffer.is_closed, repr(buffer)) == (0, True, "Buffer(closed)")


def test_a_buffer_is_copied_to_another(source: cuda_mem.MemoryResource) -> None:
    one, two = source.copy_of(bytes(range(64))), source.allocate(64)
    two.fill(0)
    two.copy_from(one, offset=8, source_offset=16, size=8)
    assert two.to_bytes() == bytes(8) + bytes(range(16, 24)) + bytes(48)
    one.copy_from(one, offset=0, source_offset=32, size=32)
    assert one.to_bytes(0, 32) == bytes(range(32, 64))
    assert not one.equals(two) and one.equals(one)


def test_pieces_are_copied_by_each_way(source: cuda_mem.MemoryResource) -> None:
    one, two = source.copy_of(bytes(range(64))), source.allocate(64)
    stream = cuda_mem.Stream()
    for way in ("fastest", "copy_engines", "kernel"):
        two.fill(0)
        two.copy_pieces(one, [(8 * n, 56 - 8 * n, 4) for n in range(8)], stream=stream, way=way)
        assert two.to_bytes() == b"".join(bytes(range(56 - 8 * n, 60 - 8 * n)) + bytes(4) for n in range(8))
    two.copy_pieces(one, [])
    with pytest.raises(ValueError, match="way is"):
        two.copy_pieces(one, [(0, 0, 1)], way="engines")
    with pytest.raises(ValueError, match="another buffer"):
        two.copy_pieces(two, [(0, 8, 1)])
    with pytest.raises(ValueError, match="overlap"):
        two.copy_pieces(one, [(0, 0, 2), (1, 8, 2)])
    with pytest.raises(cuda_mem.ArgumentError):
        two.copy_pieces(one, [(63, 0, 2)])


def test_progress_of_large_memory_ends_at_its_size() -> None:
    size = 256 << 20
    seen: list[tuple[int, int]] = []
    memory = cuda_mem.PinnedMemory(progress=lambda done, total: seen.append((done, total)))
    memory.allocate(1000).close()
    assert seen == []
    with memory.allocate(size) as buffer:
        buffer.fill(b"xy", offset=size - 4)
        assert buffer.to_bytes(size - 4, 4) == b"xyxy"
    assert seen[-1] == (size, size) and all(done <= total == size for done, total in seen)


def test_an_exception_of_the_progress_cancels_and_is_raised() -> None:
    class Enough(Exception):
        pass

    def hear(done: int, total: int) -> None:
        raise Enough(f"{done <= total}")

    memory = cuda_mem.PinnedMemory(progress=hear)
    for _ in range(2):
        with pytest.raises(Enough, match="True"):
            memory.allocate(256 << 20)
    with pytest.raises(cuda_mem.ArgumentError, match="progress is 3"):
        cuda_mem.PinnedMemory(progress=3)


def test_values_of_all_widths_fill_memory() -> None:
    buffer = cuda_mem.DeviceMemory().allocate(32)
    for width in (1, 2, 4, 8, 16):
        value = bytes(range(1, width + 1))
        buffer.fill(value)
        assert buffer.to_bytes() == value * (32 // width)
    for wrong in (b"abc", b"", 256, -1):
        with pytest.raises(cuda_mem.ArgumentError):
            buffer.fill(wrong)
    with pytest.raises(cuda_mem.ArgumentError):
        buffer.fill(b"ab", offset=1, size=4)


def test_slices_share_the_memory() -> None:
    buffer = cuda_mem.PinnedMemory().copy_of(bytes(range(16)))
    part = buffer[4:8]
    assert part.to_bytes() == b"\x04\x05\x06\x07"
    part.fill(9)
    assert buffer.to_bytes(3, 6) == b"\x03\x09\x09\x09\x09\x08"
    with pytest.raises(cuda_mem.SharedError, match="no other clone or slice"):
        buffer.close()
    assert buffer.to_bytes(0, 1) == b"\0", "a refused close changes nothing"
    part.close()
    buffer.close()


def test_typed_objects_are_read_and_written_as_bytes() -> None:
    numbers = array.array("d", [1.5, 2.5])
    buffer = cuda_mem.DeviceMemory().copy_of(numbers)
    back = array.array("d", [0.0, 0.0])
    buffer.copy_to(back)
    assert back == numbers
    assert cuda_mem.DeviceMemory().copy_of(b"").to_bytes() == b""


def test_objects_of_addresses_are_refused_everywhere() -> None:
    np = pytest.importorskip("numpy")
    buffer = cuda_mem.PinnedMemory().allocate(128)
    kinds = (ctypes.c_wchar_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.py_object, ctypes.POINTER(ctypes.c_int))
    things = [("dtype object", np.array([None, 1])), ("dtype .*'a'", np.zeros(2, dtype=[("a", "f4"), ("b", "O")]))]
    things += [("format", (kind * 2)()) for kind in (*kinds, ctypes.CFUNCTYPE(None))]
    for named, thing in things:
        for call in (buffer.copy_from, buffer.copy_to, buffer.fill, cuda_mem.PinnedMemory().copy_of):
            with pytest.raises(TypeError, match=f"(source|destination|value|data) has elements of {named}"):
                call(thing)
    values = [("O", "c8"), ("P", "c16"), ("X", "i1"), ("z", "f2")]
    for kind in ("c8", "c16", "U2", "?", "f2", "S3", "V5", values):
        thing = np.zeros(3, dtype=kind)
        buffer.copy_from(thing)
        buffer.copy_to(thing)


def test_growable_buffers_grow_until_they_are_shared() -> None:
    buffer = cuda_mem.VirtualMemory().allocate_growable(1 << 24)
    assert buffer.size == 0
    buffer.grow_to(1 << 22)
    address = buffer.handle
    buffer.copy_from(b"kept")
    buffer.grow_to(1 << 23)
    assert (buffer.size, buffer.handle, buffer.to_bytes(0, 5)) == (1 << 23, address, b"kept\0")
    buffer.shrink_to(1 << 21)
    assert buffer.size == 1 << 21
    part = buffer[:4]
    with pytest.raises(cuda_mem.ArgumentError, match="does not grow"):
        buffer.grow_to(1 << 22)
    with pytest.raises(cuda_mem.ArgumentError, match="does not grow"):
        cuda_mem.DeviceMemory().allocate(4).grow_to(8)
    del part


def test_growth_beyond_the_capacity_moves_the_memory() -> None:
    buffer = cuda_mem.VirtualMemory().allocate_growable(1 << 21)
    assert not buffer.grow_to(1 << 21)
    before = buffer.handle
    buffer.copy_from(b"kept")
    assert buffer.grow_to(1 << 22) and not buffer.grow_to(1 << 22)
    assert buffer.handle != before and buffer.to_bytes(0, 5) == b"kept\0"
    # Whoever has the addresses keeps them: growth is refused.
    array = buffer.view()
    with pytest.raises(cuda_mem.ArgumentError, match="does not grow"):
        buffer.grow_to(1 << 24)
    assert array.handle == buffer.handle


def test_mapped_memory_reaches_the_device_after_a_flush() -> None:
    np = pytest.importorskip("numpy")
    buffer = cuda_mem.MappedMemory(coherence="force_non_coherent").allocate(SIZE)
    assert buffer.atom > 1
    elements = buffer.numpy(np.float32)
    elements[:] = np.arange(SIZE // 4)
    buffer.flush(0, SIZE)
    there = cuda_mem.DeviceMemory().allocate(SIZE)
    there.copy_from(buffer)
    assert there.to_bytes() == elements.tobytes()
    buffer.fill(0, size=64)
    buffer.synchronize()
    buffer.invalidate(0, 64)
    assert not elements[:16].any() and elements[16] == 16
    for call in (buffer.flush, buffer.invalidate):
        with pytest.raises(cuda_mem.ArgumentError, match="outside of memory of 4096"):
            call(1, SIZE)


def test_a_buffer_is_weakly_referenced_and_freed_by_its_drop() -> None:
    pool = cuda_mem.Pool(cuda_mem.DeviceMemory())
    buffer = pool.allocate(SIZE)
    reference = weakref.ref(buffer)
    assert pool.statistics().blocks == 1
    del buffer
    assert reference() is None and pool.statistics().blocks == 0


def test_another_thread_may_use_and_close_a_buffer() -> None:
    pool = cuda_mem.Pool(cuda_mem.PinnedMemory())
    buffers = [pool.allocate(SIZE, stream=cuda_mem.Stream()) for _ in range(8)]

    def work(buffer: cuda_mem.Buffer) -> None:
        for number in range(50):
            buffer.fill(number)
            assert buffer.to_bytes(0, 1)[0] == number
        buffer.close()

    threads = [threading.Thread(target=work, args=[buffer]) for buffer in buffers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(buffer.is_closed for buffer in buffers)
    assert pool.statistics().blocks == 0


def test_growth_under_a_view_is_refused() -> None:
    buffer = cuda_mem.PinnedMemory().allocate(8)
    view = memoryview(buffer)
    with pytest.raises(cuda_mem.SharedError, match="1 users"):
        buffer.grow_to(16)
    view.release()
    buffer.close()


def test_an_exception_of_the_body_goes_on() -> None:
    numpy = pytest.importorskip("numpy")
    pool = cuda_mem.Pool(cuda_mem.PinnedMemory())
    with pytest.raises(IndexError):
        with pool.allocate(8) as buffer:
            array = buffer.numpy(numpy.uint8)
            array[100] = 9


def test_views_refuse_other_byte_orders_and_offsets_outside() -> None:
    numpy = pytest.importorskip("numpy")
    buffer = cuda_mem.DeviceMemory().allocate(64)
    with pytest.raises(cuda_mem.ArgumentError, match="machine's order"):
        buffer.view(numpy.dtype(">i4"))
    with pytest.raises(cuda_mem.ArgumentError, match="at most 64"):
        buffer.view("uint8", offset=65)
    assert buffer.view("uint8", offset=64).shape == (0,)
    with pytest.raises(cuda_mem.ArgumentError, match="from_dlpack"):
        buffer.view("float32").numpy()
