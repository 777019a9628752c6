"""Exchange with other libraries: DLPack, array interfaces, the buffer protocol."""

import ctypes
import gc
import weakref
from typing import Any

import cuda_mem
import pytest

np = pytest.importorskip("numpy")


def test_pinned_memory_is_a_numpy_array_without_a_copy() -> None:
    buffer = cuda_mem.PinnedMemory().copy_of(np.arange(6, dtype=np.float32))
    view = buffer.view("float32", (2, 3))
    for seen in (np.from_dlpack(view), np.asarray(view), view.numpy(), buffer.numpy(np.float32, (2, 3))):
        assert seen.ctypes.data == buffer.host_pointer and seen.tolist() == [[0, 1, 2], [3, 4, 5]]
        seen[0, 0] = 0
    transposed = np.from_dlpack(buffer.view(np.float32, (3, 2), strides=[1, 3]))
    assert transposed.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert np.from_dlpack(buffer.view(np.dtype("int32"), 2, offset=16)).shape == (2,)


def test_memory_is_not_freed_under_a_consumer() -> None:
    pool = cuda_mem.Pool(cuda_mem.PinnedMemory())
    for export in (np.from_dlpack, memoryview, lambda buffer: buffer.view(), lambda buffer: buffer.numpy(), lambda buffer: buffer[:1]):
        buffer = pool.allocate(64)
        consumer = export(buffer)
        with pytest.raises(BufferError):
            buffer.close()
        del buffer
        gc.collect()
        assert pool.statistics().blocks == 1, "the consumer keeps the memory"
        del consumer
        assert pool.statistics().blocks == 0


def test_device_memory_is_copied_for_the_cpu_only_where_allowed() -> None:
    view = cuda_mem.DeviceMemory().copy_of(np.arange(4.0)).view("float64")
    assert view.__dlpack_device__() == (2, 0)
    assert np.from_dlpack(view, device="cpu").tolist() == [0, 1, 2, 3]
    with pytest.raises(BufferError, match="another device needs a copy"):
        np.from_dlpack(view, device="cpu", copy=False)
    with pytest.raises(BufferError, match="does not address"):
        memoryview(cuda_mem.DeviceMemory().allocate(1))
    with pytest.raises(AttributeError):
        view.__array_interface__
    copy = cuda_mem.from_dlpack(view)
    copied = view.__dlpack__(copy=True, max_version=(1, 1))
    assert "dltensor_versioned" in repr(copied) and copy.handle == view.handle


def test_capsules_have_the_version_that_the_consumer_knows() -> None:
    buffer = cuda_mem.PinnedMemory().allocate(8)
    assert '"dltensor"' in repr(buffer.__dlpack__())
    assert '"dltensor"' in repr(buffer.__dlpack__(max_version=(0, 8)))
    capsule = buffer.__dlpack__(max_version=(1, 3), stream=-1)
    assert '"dltensor_versioned"' in repr(capsule)
    with pytest.raises(BufferError):
        buffer.close()
    del capsule
    buffer.close()


@pytest.mark.parametrize("stream", [0, -2, -(2**63)])
def test_forbidden_stream_numbers_are_refused(stream: int) -> None:
    with pytest.raises(BufferError, match="DLPack allows"):
        cuda_mem.DeviceMemory().allocate(8).__dlpack__(stream=stream)


@pytest.mark.parametrize("arguments", [{"stream": "x"}, {"max_version": 1}, {"dl_device": (1,)}, {"copy": "yes"}, {"stream": 2**70}])
def test_arguments_of_other_types_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        cuda_mem.PinnedMemory().allocate(8).__dlpack__(**arguments)


def test_a_consumer_on_a_stream_is_ordered_and_releases_there() -> None:
    stream = cuda_mem.Stream()
    pool = cuda_mem.Pool(cuda_mem.DeviceMemory())
    buffer = pool.allocate(1 << 16, stream=stream)
    buffer.fill(3)
    for number in (stream.handle, 1, 2, cuda_mem.Stream().handle, -1, None):
        capsule = buffer.__dlpack__(stream=number, max_version=(1, 0))
        del capsule
    buffer.close()


def test_arrays_of_numpy_are_imported_without_a_copy() -> None:
    source = np.arange(12, dtype=np.int16).reshape(3, 4)
    for load in (cuda_mem.from_dlpack, cuda_mem.from_array_interface):
        array = load(source[:, ::2])
        assert (array.shape, array.strides, array.dtype, array.handle) == ((3, 2), (4, 2), "int16", source.ctypes.data)
        assert (array.size, len(array), array.__dlpack_device__()) == (6, 3, (1, 0))
        assert array.numpy().tolist() == [[0, 2], [4, 6], [8, 10]]
    owner = weakref.ref(source.base)
    del source
    gc.collect()
    assert owner() is not None, "the import keeps its owner"
    array.synchronize()
    del array
    gc.collect()


def test_strided_arrays_are_copied_between_devices() -> None:
    source = np.arange(24, dtype=np.float32).reshape(4, 6)
    there = cuda_mem.DeviceMemory().allocate(source.nbytes).view("float32", (6, 4))
    there.copy_from(cuda_mem.from_dlpack(source.T))
    back = cuda_mem.PinnedMemory().allocate(source.nbytes).view("float32", (6, 4))
    back.copy_from(there)
    back.synchronize()
    assert (back.numpy() == source.T).all()
    with pytest.raises(BufferError):
        there.copy_from(there.view("float32", (4, 6)))


class Interface:
    """An object with a CUDA array interface."""

    def __init__(self, **changes: Any) -> None:
        self.buffer = cuda_mem.DeviceMemory().copy_of(np.arange(4, dtype=np.int32))
        said = {"shape": (4,), "typestr": "<i4", "data": (self.buffer.handle, False), "version": 3, "stream": 1}
        self.__cuda_array_interface__ = {**said, **changes}


def test_cuda_array_interfaces_are_imported_and_exported() -> None:
    array = cuda_mem.from_array_interface(Interface())
    assert (array.shape, array.dtype, array.__dlpack_device__()) == ((4,), "int32", (2, 0))
    assert np.from_dlpack(array, device="cpu").tolist() == [0, 1, 2, 3]
    again = array.__cuda_array_interface__
    assert (again["shape"], again["typestr"], again["version"], again["stream"]) == ((4,), "<i4", 3, 1)
    assert cuda_mem.from_array_interface(array).handle == array.handle
    assert cuda_mem.DeviceMemory().allocate(3).__cuda_array_interface__["shape"] == (3,)


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": (-1,)},
        {"shape": (2**62,)},
        {"typestr": "<q9"},
        {"mask": np.zeros(4).tolist()},
        {"stream": 0},
        {"stream": -5},
        {"strides": (3,)},
        {"data": (8, False)},
        {"data": None},
        {"shape": "four"},
    ],
)
def test_wrong_interfaces_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises((cuda_mem.Error, TypeError)):
        cuda_mem.from_array_interface(Interface(**changes))


def test_objects_without_protocols_are_refused() -> None:
    for load in (cuda_mem.from_dlpack, cuda_mem.from_array_interface):
        for wrong in (None, 3, b"bytes", object()):
            with pytest.raises(TypeError):
                load(wrong)


def test_a_capsule_is_imported_once_only() -> None:
    class Again:
        def __init__(self) -> None:
            self.capsule = np.arange(3).__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **arguments: Any) -> Any:
            if "max_version" in arguments:
                raise TypeError("an old producer")
            return self.capsule

    again = Again()
    assert cuda_mem.from_dlpack(again).size == 3
    with pytest.raises(BufferError, match="unused capsule"):
        cuda_mem.from_dlpack(again)


@pytest.mark.parametrize(
    ("dtype", "shape", "options"),
    [
        ("float33", None, {}),
        ("float32", (5,), {}),
        ("float32", (-1,), {}),
        ("float32", (2**62, 2**62), {}),
        ("float32", (2,), {"offset": 12}),
        ("float32", (2,), {"strides": [9]}),
        ("float32", (2,), {"strides": [1, 1]}),
        ("float32", (1,) * 65, {}),
    ],
)
def test_impossible_views_are_refused(dtype: str, shape: Any, options: dict[str, Any]) -> None:
    with pytest.raises(cuda_mem.Error):
        cuda_mem.PinnedMemory().allocate(16).view(dtype, shape, **options)


def test_views_of_other_types_are_refused() -> None:
    buffer = cuda_mem.PinnedMemory().allocate(16)
    for wrong in ([], {}, 1.5):
        with pytest.raises((TypeError, cuda_mem.Error)):
            buffer.view(wrong)
        with pytest.raises((TypeError, cuda_mem.Error)):
            buffer.view("uint8", {"shape": wrong})
    with pytest.raises(TypeError):
        buffer[0]
    with pytest.raises(IndexError):
        buffer[::2]


def test_arrays_that_are_not_contiguous_must_be_copied_first() -> None:
    strided = np.zeros((4, 4))[:, ::2]
    buffer = cuda_mem.PinnedMemory().allocate(64)
    for call in (buffer.copy_from, buffer.copy_to, cuda_mem.PinnedMemory().copy_of):
        with pytest.raises(cuda_mem.ArgumentError, match="ascontiguousarray"):
            call(strided)
    with pytest.raises(TypeError, match="read-only"):
        buffer.copy_to(b"12345678")
    for wrong in (None, 3, "text"):
        with pytest.raises(TypeError):
            buffer.copy_from(wrong)


def test_c_and_python_share_one_library() -> None:
    library = ctypes.CDLL(cuda_mem.library_path())
    library.cudamem_status_name.restype = ctypes.c_char_p
    assert library.cudamem_status_name(6) == b"CUDAMEM_ERROR_OUT_OF_MEMORY"


class Described:
    """An object with a CUDA array interface."""

    def __init__(self, buffer: cuda_mem.Buffer, **changes: Any) -> None:
        self.buffer = buffer
        self.__cuda_array_interface__ = {
            "shape": (16,), "typestr": "<f4", "data": (buffer.handle, False), "version": 3, **changes
        }


def test_an_array_beyond_its_allocation_is_refused(source: cuda_mem.MemoryResource) -> None:
    buffer = source.allocate(64)
    assert cuda_mem.from_array_interface(Described(buffer)).shape == (16,)
    with pytest.raises(cuda_mem.ArgumentError, match="within one allocation"):
        cuda_mem.from_array_interface(Described(buffer, shape=(1 << 50,)))
    # Memory of the driver's calls is known to the byte; that of a pool is a part of more.
    if isinstance(source, (cuda_mem.DeviceMemory, cuda_mem.ManagedMemory)):
        for changes in ({"shape": (17,)}, {"strides": (8,)}, {"data": (buffer.handle + 4, False)}):
            with pytest.raises(cuda_mem.ArgumentError, match="within one allocation"):
                cuda_mem.from_array_interface(Described(buffer, **changes))


def test_an_unknown_version_of_the_interface_is_refused() -> None:
    buffer = cuda_mem.DeviceMemory().allocate(64)
    for version in (0, 1, 2, 3):
        assert cuda_mem.from_array_interface(Described(buffer, version=version)).size == 16
    with pytest.raises(cuda_mem.ExchangeError, match="version 99"):
        cuda_mem.from_array_interface(Described(buffer, version=99))


def test_negative_strides_are_read_from_the_first_element() -> None:
    buffer = cuda_mem.DeviceMemory().copy_of(np.arange(16, dtype="f4"))
    last = {"data": (buffer.handle + 60, False), "strides": (-4,)}
    array = cuda_mem.from_array_interface(Described(buffer, **last))
    assert np.from_dlpack(array, device="cpu").tolist() == list(range(15, -1, -1))
    with pytest.raises(cuda_mem.ArgumentError, match="highest one if strides are negative"):
        cuda_mem.from_array_interface(Described(buffer, strides=(-4,)))
    assert buffer.view("float32", 4, strides=[-1], offset=12).strides == (-1,)
