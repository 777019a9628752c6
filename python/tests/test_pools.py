"""Pools: figures, snapshots, limits."""

import pickle
from pathlib import Path

import cuda_mem
import pytest

MIB = 1 << 20


def test_figures_follow_the_allocations() -> None:
    pool = cuda_mem.Pool(cuda_mem.DeviceMemory(), initial=4 * MIB)
    buffers = [pool.allocate(MIB) for _ in range(3)]
    figures = pool.statistics()
    assert (figures.blocks, figures.allocations, figures.allocated, figures.requested) == (3, 3, 3 * MIB, 3 * MIB)
    assert figures.reserved >= 4 * MIB and figures.reserved_peak >= figures.reserved
    buffers.clear()
    assert (pool.statistics().blocks, pool.statistics().active_peak) == (0, 3 * MIB)
    pool.release_unused()
    assert pool.statistics().active_peak == 3 * MIB
    pool.reset_peaks()
    assert pool.statistics().active_peak == 0
    assert pool.statistics().reserved == 0
    pool.reserve(2 * MIB)
    assert pool.statistics().reserved >= 2 * MIB
    pool.trim_to(0)
    assert "reserved=" in repr(pool.statistics())


def test_a_full_pool_raises_a_memory_error() -> None:
    pool = cuda_mem.Pool(cuda_mem.DeviceMemory(), maximum=4 * MIB)
    kept = pool.allocate(3 * MIB)
    for kind in (MemoryError, cuda_mem.OutOfMemoryError, cuda_mem.Error):
        with pytest.raises(kind, match="no room for"):
            pool.allocate(3 * MIB)
    kept.close()
    pool.allocate(3 * MIB).close()
    assert pool.statistics().out_of_memory == 3


def test_a_snapshot_is_a_picture_and_a_file_of_memory_viz(tmp_path: Path) -> None:
    pool = cuda_mem.Pool(cuda_mem.DeviceMemory(), trace_capacity=100)
    buffer, other = pool.allocate(MIB), pool.allocate(MIB // 2)
    assert pool.set_name(buffer.handle, "weights & <more>") and not pool.set_name(1, "nothing")
    snapshot = pool.snapshot()
    blocks = [block for region in snapshot.data["regions"] for block in region["blocks"]]
    assert sum(block["state"] == "allocated" for block in blocks) == 2
    picture = snapshot._repr_svg_()
    assert picture.startswith("<svg") and picture.endswith("</svg>")
    assert picture.count("<title>") == len(blocks) and "weights &amp; &lt;more&gt;" in picture
    assert cuda_mem.PoolSnapshot.from_json(snapshot.to_json()).data == snapshot.data
    snapshot.save_memory_viz(str(tmp_path / "snapshot.pickle"))
    viz = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())
    assert sum(segment["allocated_size"] for segment in viz["segments"]) == MIB + MIB // 2
    assert [event["action"] for event in viz["device_traces"][0]].count("alloc") == 2
    del other


def test_a_ring_refuses_at_once_when_it_is_full() -> None:
    ring = cuda_mem.RingPool(cuda_mem.PinnedMemory(), 1 << 16, timeout=0)
    first = ring.allocate(40_000)
    with pytest.raises(cuda_mem.OutOfMemoryError):
        ring.allocate(40_000)
    first.close()
    ring.context.synchronize()
    ring.allocate(40_000).close()


@pytest.mark.parametrize("memory", [cuda_mem.PinnedMemory, cuda_mem.DeviceMemory, cuda_mem.VirtualMemory])
def test_sizes_that_contradict_each_other_are_refused(memory: type[cuda_mem.MemoryResource]) -> None:
    source = memory()
    for maximum in (0, 100):
        with pytest.raises(cuda_mem.ArgumentError, match="maximum is"):
            cuda_mem.Pool(source, maximum=maximum)
    with pytest.raises(cuda_mem.ArgumentError, match="initial is"):
        cuda_mem.Pool(source, initial=5 << 20, maximum=4 << 20)
    assert cuda_mem.Pool(source, initial=4 << 20, maximum=4 << 20).statistics().reserved == 4 << 20


def test_the_default_first_region_keeps_to_the_maximum() -> None:
    pool = cuda_mem.Pool(cuda_mem.PinnedMemory(), maximum=4096)
    assert pool.statistics().reserved == 4096
    pool.allocate(4096).close()


def test_pools_stand_on_pools() -> None:
    pool = cuda_mem.Pool(cuda_mem.Pool(cuda_mem.PinnedMemory()))
    assert bytes(pool.copy_of(b"abc")) == b"abc"


@pytest.mark.parametrize(("size", "kind"), [(-1, OverflowError), (1 << 70, OverflowError), (2**63, MemoryError), (2**64 - 1, MemoryError)])
def test_impossible_sizes_are_exceptions(source: cuda_mem.MemoryResource, size: int, kind: type[Exception]) -> None:
    with pytest.raises((kind, cuda_mem.Error)):
        source.allocate(size)


def test_an_allocation_of_nothing_is_a_buffer(source: cuda_mem.MemoryResource) -> None:
    with source.allocate(0) as buffer:
        assert (buffer.size, buffer.to_bytes()) == (0, b"")
        buffer.fill(1)
        buffer.flush()
        assert bytes(memoryview(buffer)) == b""
