"""What cuda_mem.vkgdr has beyond upstream: checks. Upstream's own tests run in scripts/upstream-vkgdr-tests."""

import ctypes
import os
from collections.abc import Iterator

import pytest
from cuda_mem import vkgdr

np = pytest.importorskip("numpy")


@pytest.fixture
def memory() -> Iterator[vkgdr.RawMemory]:
    """Memory of a current context."""
    driver = ctypes.CDLL(os.environ["CUDA_MEM_LIBCUDA"])
    context = ctypes.c_void_p()
    assert driver.cuInit(0) == 0 and driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    owner = vkgdr.Vkgdr.open_current_context(vkgdr.OpenFlags.FORCE_NON_COHERENT_BIT)
    memory = vkgdr.RawMemory(owner, 4097)
    yield memory
    memory.free()
    del memory, owner
    assert driver.cuCtxDestroy_v2(context) == 0


def test_ranges_are_checked(memory: vkgdr.RawMemory) -> None:
    atom = memory.non_coherent_atom_size
    assert atom > 1 and not memory.is_coherent and len(memory) == 4097 and memory.device_ptr != 0
    for call in (memory.flush, memory.invalidate):
        call(0, 4097)
        call(atom, atom)
        call(4096 - 4096 % atom, 4097 - (4096 - 4096 % atom))
        for offset, size in [(1, atom), (0, 1), (0, 4098), (4097, atom), (2**63, 2**63)]:
            with pytest.raises(vkgdr.VkgdrError):
                call(offset, size)
        with pytest.raises(OverflowError):
            call(-1, 1)


def test_freed_memory_refuses_every_use(memory: vkgdr.RawMemory) -> None:
    array = np.asarray(memory)
    assert array.dtype == "V1" and array.shape == (4097,)
    with pytest.raises(BufferError, match="live"):
        memory.free()
    del array
    memory.free()
    memory.free()
    for use in (
        lambda: memory.device_ptr,
        lambda: memory.is_coherent,
        lambda: memory.non_coherent_atom_size,
        lambda: len(memory),
        lambda: memory.flush(0, 1),
        lambda: np.asarray(memory),
    ):
        with pytest.raises(vkgdr.VkgdrError, match="freed"):
            use()


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(vkgdr.VkgdrError, match="CUDA_ERROR_INVALID_DEVICE"):
        vkgdr.Vkgdr(99)
    with pytest.raises(vkgdr.VkgdrError):
        vkgdr.Vkgdr(0, 0xFFFF)
    owner = vkgdr.Vkgdr(0)
    with pytest.raises(vkgdr.VkgdrError, match="flags"):
        vkgdr.RawMemory(owner, 16, 1)
    for size in (-1, 2**70):
        with pytest.raises(OverflowError):
            vkgdr.RawMemory(owner, size)
    assert list(vkgdr.OpenFlags) == [1, 2, 4] and issubclass(vkgdr.VkgdrError, RuntimeError)
