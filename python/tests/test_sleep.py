"""Pools that sleep: their memory goes back to the device, and their addresses stay."""

import ctypes
import faulthandler
import threading
from collections.abc import Callable

import cuda_mem
import pytest
from conftest import software_gpu

MIB = 1 << 20


@pytest.fixture
def pool() -> cuda_mem.Pool:
    return cuda_mem.Pool(cuda_mem.DeviceMemory())


def test_a_pool_wakes_with_its_contents_at_its_addresses(pool: cuda_mem.Pool) -> None:
    text = bytes(range(256)) * 20_000
    weights, small = pool.copy_of(text), pool.copy_of(b"small")
    address, reserved = weights.handle, pool.statistics().reserved
    slept = pool.sleep()
    assert pool.is_asleep and pool.statistics().reserved == 0
    assert len(text) < slept.saved <= slept.released == reserved
    assert repr(slept) == f"Slept(saved={slept.saved}, released={reserved})"
    pool.wake()
    assert not pool.is_asleep and pool.statistics().reserved == reserved
    assert (weights.handle, weights.to_bytes(), small.to_bytes()) == (address, text, b"small")


def test_use_of_memory_that_sleeps_is_an_exception(pool: cuda_mem.Pool) -> None:
    weights, freed = pool.copy_of(b"weights"), pool.allocate(300)
    pool.sleep()
    freed.close()
    uses: tuple[Callable[[], object], ...] = (
        lambda: pool.allocate(1),
        lambda: pool.allocate(100 * MIB),
        lambda: pool.copy_of(b"more"),
        lambda: weights.to_bytes(),
        lambda: weights.fill(0),
        lambda: weights.copy_from(b"other"),
        lambda: pool.reserve(1000 * MIB),
    )
    for use in uses:
        with pytest.raises(cuda_mem.AsleepError, match=r"asleep: wake the pool first \(Pool.wake\)"):
            use()
    pool.wake()
    assert weights.to_bytes() == b"weights"


def test_contents_lie_in_the_memory_of_the_program_or_nowhere(pool: cuda_mem.Pool) -> None:
    weights, host = pool.copy_of(b"weights"), cuda_mem.Pool(cuda_mem.PinnedMemory())
    slept = pool.sleep(host=host)
    assert slept.saved > 0 and host.statistics().blocks > 0
    pool.wake()
    assert (weights.to_bytes(), host.statistics().blocks) == (b"weights", 0)
    slept = pool.sleep(contents="discard", host=host)
    assert (slept.saved, host.statistics().blocks) == (0, 0) and slept.released >= 2 * MIB
    pool.wake()
    weights.copy_from(b"weights")
    assert weights.to_bytes() == b"weights"


def test_a_pool_sleeps_once_and_wakes_once(pool: cuda_mem.Pool) -> None:
    with pytest.raises(cuda_mem.SleepError, match="awake"):
        pool.wake()
    pool.sleep()
    with pytest.raises(cuda_mem.SleepError, match="asleep already"):
        pool.sleep()
    pool.wake()


def test_wrong_arguments_leave_the_pool_awake(pool: cuda_mem.Pool) -> None:
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(cuda_mem.ArgumentError, match="patience is"):
            pool.sleep(patience=wrong)
    with pytest.raises(cuda_mem.ArgumentError, match="contents is"):
        pool.sleep(contents="keep")
    pool.copy_of(b"weights")
    kept = pool.copy_of(b"weights")
    with pytest.raises(cuda_mem.ArgumentError, match="page-locked host memory"):
        pool.sleep(host=cuda_mem.DeviceMemory())
    assert not pool.is_asleep and kept.to_bytes() == b"weights"


def test_pools_that_cannot_sleep_say_why() -> None:
    for other in (cuda_mem.Pool(cuda_mem.PinnedMemory()), cuda_mem.Pool(cuda_mem.DeviceMemory(), maximum=4 * MIB)):
        with pytest.raises(cuda_mem.UnsupportedError, match="over DeviceMemory with a maximum of at least 64 MiB"):
            other.sleep()
        assert not other.is_asleep


def test_other_threads_run_while_a_pool_waits_for_work(pool: cuda_mem.Pool) -> None:
    stream, gate = cuda_mem.Stream(), cuda_mem.PinnedMemory().copy_of(bytes(4))
    kept = pool.allocate(MIB, stream=stream)
    word = memoryview(gate)
    assert software_gpu().cuStreamWaitValue32_v2(ctypes.c_void_p(stream.handle), ctypes.c_uint64(gate.handle), 1, 0) == 0
    kept.fill(1)

    def open_gate() -> None:
        word[0] = 1

    # If the call kept the interpreter's lock, it would never end.
    faulthandler.dump_traceback_later(60, exit=True)
    threading.Timer(0.1, open_gate).start()
    pool.sleep()
    faulthandler.cancel_dump_traceback_later()
    assert word[0] == 1
    pool.wake()
    assert kept.to_bytes(0, 1) == b"\1"
