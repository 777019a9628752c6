"""Signals during waits: a handler's exception ends the wait, and everything goes on as before."""

import ctypes
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cuda_mem
import pytest
from conftest import software_gpu

SIZE = 4096


class Stop(Exception):
    """Raised by the handler."""


class Busy:
    """A stream whose work waits until `release`."""

    def __init__(self) -> None:
        self.stream, self.gate = cuda_mem.Stream(), cuda_mem.PinnedMemory().copy_of(bytes(4))
        self.word = memoryview(self.gate)
        handle, address = ctypes.c_void_p(self.stream.handle), ctypes.c_uint64(self.gate.handle)
        assert software_gpu().cuStreamWaitValue32_v2(handle, address, 1, 0) == 0

    def release(self) -> None:
        self.word[0] = 1
        self.stream.synchronize()


@pytest.fixture
def busy() -> Iterator[Busy]:
    busy = Busy()
    yield busy
    busy.release()


@contextmanager
def stopped() -> Iterator[None]:
    """Expects that a signal ends the body."""

    def stop(number: int, frame: Any) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    begin = time.monotonic()
    try:
        with pytest.raises(Stop):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert 0.1 <= time.monotonic() - begin < 5


def test_waits_for_streams_and_events_end(busy: Busy) -> None:
    event = busy.stream.record()
    for wait in (busy.stream.synchronize, event.synchronize):
        for limit in (None, 60.0):
            with stopped():
                wait(limit)
    assert not busy.stream.is_done and not event.is_done
    busy.release()
    event.synchronize()
    assert event.is_done


@pytest.mark.parametrize("memory", [cuda_mem.DeviceMemory, cuda_mem.PinnedMemory, cuda_mem.ManagedMemory])
@pytest.mark.parametrize("is_shared", [False, True])
def test_waits_for_buffers_end(busy: Busy, memory: type[cuda_mem.MemoryResource], is_shared: bool) -> None:
    buffer, other = memory().allocate(SIZE, stream=busy.stream), memory().copy_of(bytes(SIZE))
    part = buffer.slice() if is_shared else None
    buffer.fill(7)
    waits: list[Callable[[], object]] = [
        buffer.synchronize,
        buffer.to_bytes,
        lambda: buffer.copy_to(bytearray(SIZE)),
        lambda: buffer.equals(other),
    ]
    if buffer.is_host_accessible:
        waits += [lambda: memoryview(buffer)]
    for wait in waits:
        with stopped():
            wait()
    busy.release()
    assert buffer.to_bytes(0, 2) == b"\x07\x07" and not buffer.equals(other)
    del part, waits
    buffer.close()


def test_waits_for_arrays_end(busy: Busy) -> None:
    np = pytest.importorskip("numpy")
    pinned = cuda_mem.PinnedMemory().allocate(SIZE, stream=busy.stream).view("float32")
    device = cuda_mem.DeviceMemory().allocate(SIZE, stream=busy.stream).view("float32")
    waits: list[Callable[[], object]] = [
        pinned.synchronize,
        lambda: pinned.__array_interface__,
        lambda: np.from_dlpack(device, device="cpu"),
        lambda: cuda_mem.from_dlpack(np.zeros(SIZE // 4, dtype="f4")).copy_from(device),
    ]
    for wait in waits:
        with stopped():
            wait()
    busy.release()
    assert np.from_dlpack(device, device="cpu").shape == (SIZE // 4,)


@pytest.mark.parametrize("is_freed", [False, True])
@pytest.mark.parametrize("is_below_a_pool", [False, True])
def test_waits_for_room_in_a_ring_end(busy: Busy, is_freed: bool, is_below_a_pool: bool) -> None:
    ring = cuda_mem.RingPool(cuda_mem.PinnedMemory(), SIZE, timeout=60)
    # The pool takes its smallest region, 256 bytes, at once.
    source = cuda_mem.Pool(ring, initial=0, smallest_growth=256) if is_below_a_pool else ring
    first = ring.allocate(SIZE - 256, stream=busy.stream)
    if is_freed:
        first.close()
    for _ in range(3):
        with stopped():
            source.allocate(SIZE - 256)
    busy.release()
    first.close()
    # The pool's region precedes the freed block in the ring, and stays.
    source.allocate(256 if is_below_a_pool else SIZE - 256).close()


def test_a_growth_that_was_ended_changed_nothing(busy: Busy) -> None:
    buffer = cuda_mem.VirtualMemory().allocate_growable(1 << 21, stream=busy.stream)
    buffer.grow_to(1 << 21)
    for change in (lambda: buffer.grow_to(1 << 22), lambda: buffer.shrink_to(0)):
        with stopped():
            change()
        assert buffer.size == 1 << 21
    busy.release()
    assert buffer.grow_to(1 << 22)


def test_a_pools_wait_for_freed_memory_ends(busy: Busy) -> None:
    pool = cuda_mem.Pool(cuda_mem.PinnedMemory())
    pool.allocate(SIZE, stream=busy.stream).close()
    with stopped():
        pool.release_unused()
    busy.release()
    pool.release_unused()
    assert pool.statistics().reserved == 0


def test_a_handler_without_an_exception_lets_the_wait_go_on(busy: Busy) -> None:
    seen: list[int] = []

    def release(number: int, frame: Any) -> None:
        seen.append(number)
        # The handler may use the package.
        assert cuda_mem.PinnedMemory().copy_of(b"x").to_bytes() == b"x"
        busy.word[0] = 1

    before = signal.signal(signal.SIGALRM, release)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        busy.stream.synchronize()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert seen == [signal.SIGALRM]


def test_other_threads_wait_to_the_end(busy: Busy) -> None:
    done: list[bool] = []

    def wait() -> None:
        busy.stream.synchronize()
        done.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    with stopped():
        busy.stream.synchronize()
    assert not done
    busy.release()
    thread.join(30)
    assert done == [True]
