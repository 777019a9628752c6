"""Views of arrays, by each protocol, and what they give to other libraries."""

import ctypes
import gc
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import cuda_mem
import numpy as np
import pytest
from conftest import software_gpu
from cuda_mem.core import StridedLayout
from cuda_mem.core.utils import StridedMemoryView, args_viewable_as_strided_memory

ARRAYS = [
    np.arange(3, dtype=np.int32),
    np.arange(36, dtype=np.float64).reshape(6, 6)[::2, ::2],
    np.asfortranarray(np.ones((3, 4))),
    np.array(1.5, dtype=np.float16),
    np.arange(24, dtype=np.complex64).reshape(2, 3, 4)[:, ::-1],
    np.zeros((0, 3), dtype=np.uint8),
    np.array([True, False]),
    np.frombuffer(b"12345678", dtype=np.int64),
]


class Buffer:
    """What a view needs of cuda.core's buffers."""

    def __init__(self, memory: cuda_mem.Buffer, has_resource: bool = True) -> None:
        self.memory = memory
        self.memory_resource = self if has_resource else None
        self.handle, self.size = memory.handle, memory.size
        self.device_id = 0 if memory.is_device_accessible else -1
        self.is_device_accessible = memory.is_device_accessible
        self.is_host_accessible = memory.is_host_accessible
        self.is_managed = memory.is_managed


class Interface:
    """An object with the CUDA array interface only."""

    def __init__(self, **said: Any) -> None:
        whole = {"shape": (2,), "typestr": "<f8", "data": (0, False), "version": 3}
        self.__cuda_array_interface__ = whole | said


def strides(array: Any) -> tuple[int, ...]:
    return tuple(stride // array.itemsize for stride in array.strides)


def check(view: StridedMemoryView, array: Any) -> None:
    assert (view.ptr, view.shape, view.size) == (array.ctypes.data, array.shape, array.size)
    assert view.strides == strides(array) or (view.strides is None and array.flags.c_contiguous)
    assert view.dtype == array.dtype
    assert view.exporting_obj is array
    assert view.readonly is not array.flags.writeable
    assert view.is_device_accessible is False


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_arrays_of_the_cpu_are_viewed_by_each_protocol(array: Any) -> None:
    for view in (StridedMemoryView.from_dlpack(array, -1), StridedMemoryView.from_any_interface(array, stream_ptr=-1)):
        check(view, array)
        assert view.device_id == -1
        assert view.__dlpack_device__() == (1, 0)
    check(StridedMemoryView.from_array_interface(array), array)
    with pytest.warns(DeprecationWarning, match="directly from a DLPack-supporting object is deprecated"):
        check(StridedMemoryView(array, stream_ptr=-1), array)
    copy = np.from_dlpack(StridedMemoryView.from_dlpack(array, -1))  # type: ignore[arg-type]
    assert copy.dtype == array.dtype and np.array_equal(copy, array)


def test_an_argument_becomes_a_view_of_what_was_passed() -> None:
    @args_viewable_as_strided_memory((1,))
    def function(factor: int, array: Any, *, more: int) -> Any:
        """Its text."""
        check(array.view(-1), array.obj)
        return factor * array.view(-1).size + more

    assert function(2, np.zeros((2, 3)), more=1) == 13
    assert function.__doc__ == "Its text."
    with pytest.raises(BufferError, match="does not support any data exchange protocol"):
        function(2, [1, 2], more=1)
    with pytest.raises(BufferError, match="stream=None is ambiguous"):
        args_viewable_as_strided_memory((0,))(lambda array: array.view())(np.zeros(2))


def test_buffers_are_viewed_with_a_shape(source: cuda_mem.MemoryResource) -> None:
    memory = source.allocate(4 * 35)
    buffer = Buffer(memory)
    kind = (13 if buffer.is_managed else 3, 0) if buffer.is_host_accessible else (2, 0)
    for order in ("C", "F"):
        layout = StridedLayout.dense((5, 7), 4, order)
        view = StridedMemoryView.from_buffer(buffer, (5, 7), layout.strides, dtype=np.dtype("f4"), is_readonly=True)
        assert view._layout == layout and view.layout is view._layout
        assert (view.ptr, view.dtype, view.readonly) == (memory.handle, np.float32, True)
        assert (view.device_id, view.is_device_accessible, view.exporting_obj) == (0, True, buffer)
        assert view.__dlpack_device__() == kind
        part = view.view(layout[:-2, 3:])
        offset = 3 if order == "C" else 15
        assert (part.ptr, part.shape, part.readonly) == (memory.handle + 4 * offset, (3, 4), True)
        # The offset of a layout counts from the begin of the buffer, also in a part.
        assert part.view(layout[1:]).ptr == view.view(layout[1:]).ptr
    implicit = StridedMemoryView.from_buffer(buffer, (35,), itemsize=4)
    assert implicit.strides is None and implicit.dtype is None
    layout = StridedLayout((7, 5), None, 4)[::2]
    by_layout = StridedMemoryView.from_buffer(buffer, layout, dtype="int32")
    assert by_layout._layout is layout and by_layout.dtype == np.int32
    # The form of before cuda.core 0.5.
    assert StridedMemoryView.from_buffer(buffer, layout, np.dtype("f4")).dtype == np.float32
    assert StridedMemoryView.from_buffer(buffer, layout=layout, dtype="f4").shape == (4, 5)
    with pytest.raises(TypeError, match="a shape or a layout"):
        StridedMemoryView.from_buffer(buffer, dtype="f4")
    with pytest.raises(BufferError, match="dtype"):
        implicit.__dlpack__()


def test_views_stay_within_their_buffer() -> None:
    buffer = Buffer(cuda_mem.DeviceMemory().allocate(20))
    view = StridedMemoryView.from_buffer
    with pytest.raises(ValueError, match="Expected at least 40 bytes, got 20 bytes."):
        view(buffer, (5, 4), dtype=np.dtype("int16"))
    with pytest.raises(ValueError, match="negative memory offsets"):
        view(buffer, (5, 4), (-4, 1), itemsize=1)
    with pytest.raises(ValueError, match="itemsize or dtype must be specified"):
        view(buffer, (5,))
    with pytest.raises(ValueError, match=r"itemsize \(1\) does not match dtype.itemsize \(2\)"):
        view(buffer, (5,), itemsize=1, dtype=np.dtype("int16"))
    with pytest.raises(ValueError, match="does not match the layout's itemsize"):
        view(buffer, StridedLayout((5,), None, 4), dtype="int16")
    with pytest.raises(ValueError, match="got 20 bytes"):
        view(buffer, (10,), itemsize=2).view(StridedLayout((11,), None, 2))
    # Nobody knows the size of memory that no resource has allocated.
    assert view(Buffer(buffer.memory, has_resource=False), (5, 4), itemsize=2).size == 20


def test_page_locked_memory_may_belong_to_no_device() -> None:
    class Unbound(Buffer):
        @property
        def device_id(self) -> int:
            raise RuntimeError("it is bound to no device")

        @device_id.setter
        def device_id(self, value: int) -> None:
            pass

    buffer = Unbound(cuda_mem.PinnedMemory().allocate(8))
    view = StridedMemoryView.from_buffer(buffer, (2,), dtype="i4")
    assert (view.device_id, view.is_device_accessible, view.__dlpack_device__()) == (-1, True, (3, 0))
    view.copy_from(StridedMemoryView.from_dlpack(np.array([1, 2], dtype="i4"), -1))
    assert np.from_dlpack(view).tolist() == [1, 2]  # type: ignore[arg-type]


def test_a_view_of_a_closed_buffer_is_not_used() -> None:
    buffer = Buffer(cuda_mem.PinnedMemory().allocate(8))
    view = StridedMemoryView.from_buffer(buffer, (2,), dtype="i4")
    other = StridedMemoryView.from_dlpack(np.zeros(2, dtype="i4"), -1)
    other.copy_from(view)
    buffer.handle = 0
    for use in (view.__dlpack__, lambda: other.copy_from(view), lambda: view.copy_from(other)):
        with pytest.raises(cuda_mem.ClosedError, match="the buffer of the view is closed"):
            use()


def test_views_of_views_count_from_the_exporting_object() -> None:
    array = np.arange(20, dtype=np.int32)[::-1]
    view = StridedMemoryView.from_dlpack(array, -1)
    part = view.view(view._layout[3:])
    assert (part.ptr, part.strides, part.exporting_obj) == (array[3:].ctypes.data, (-1,), array)
    assert np.array_equal(np.from_dlpack(part), array[3:])  # type: ignore[arg-type]
    again = part.view(part._layout[2:])
    assert np.array_equal(np.from_dlpack(again), array[5:])  # type: ignore[arg-type]
    assert view.view() is view
    floats = view.view(dtype="float32")
    assert floats._layout is view._layout and floats.dtype == np.float32
    assert np.array_equal(np.from_dlpack(floats), array.view("float32"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="does not match"):
        view.view(dtype="float64")


def test_a_view_keeps_its_memory_alive() -> None:
    class Array(np.ndarray[Any, Any]):
        """One that has weak references."""

    array = np.arange(1000).view(Array)
    gone = weakref.ref(array)
    part = StridedMemoryView.from_dlpack(array, -1).view(StridedLayout((10,), None, 8))
    taken = np.from_dlpack(part)  # type: ignore[arg-type]
    del array, part
    gc.collect()
    assert gone() is not None and np.array_equal(taken, np.arange(10))
    del taken
    gc.collect()
    assert gone() is None


def test_views_in_a_circle_are_collected() -> None:
    class Holder:
        """Exports an array, and has the view of itself."""

        view: StridedMemoryView

        def __init__(self) -> None:
            self.array = np.zeros(3)

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    holder = Holder()
    holder.view = StridedMemoryView.from_dlpack(holder, -1)
    gone = weakref.ref(holder)
    del holder
    gc.collect()
    assert gone() is None


def test_capsules_have_the_form_that_was_asked_for() -> None:
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.argtypes = (ctypes.py_object, ctypes.c_char_p)
    view = StridedMemoryView.from_dlpack(np.arange(3), -1)
    assert is_valid(view.__dlpack__(), b"dltensor")
    assert is_valid(view.__dlpack__(max_version=(0, 8)), b"dltensor")
    assert is_valid(view.__dlpack__(max_version=(1, 0)), b"dltensor_versioned")
    with pytest.raises(BufferError, match="max_version"):
        view.__dlpack__(max_version=1)
    with pytest.raises(BufferError, match="dl_device"):
        view.__dlpack__(dl_device=())
    # The old form cannot say that nobody may write.
    constant = StridedMemoryView.from_dlpack(np.frombuffer(b"1234", dtype=np.uint8), -1)
    with pytest.raises(BufferError, match="read-only"):
        constant.__dlpack__()
    assert not np.from_dlpack(constant).flags.writeable  # type: ignore[arg-type]


def test_an_old_exporter_is_asked_without_a_version() -> None:
    class Old:
        versions: list[Any] = []

        def __dlpack__(self, stream: Any = None, **options: Any) -> Any:
            self.versions.append(options.get("max_version"))
            if options:
                raise TypeError("an unknown argument")
            return StridedMemoryView.from_dlpack(array, -1).__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    array = np.arange(3)
    old = Old()
    view = StridedMemoryView.from_any_interface(old, -1)
    assert old.versions == [(1, 3), None]
    assert (view.ptr, view.exporting_obj) == (array.ctypes.data, old)


def test_streams_reach_the_exporter_as_numbers() -> None:
    class Exporter:
        device = (2, 0)
        streams: list[Any] = []

        def __dlpack__(self, *, stream: Any, max_version: Any) -> Any:
            self.streams.append(stream)
            return array.__dlpack__(stream=-1, max_version=max_version)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.device

    class Handle:
        def __int__(self) -> int:
            return 77

    array = cuda_mem.DeviceMemory().allocate(16).view("int32")
    exporter = Exporter()
    for stream in (-1, 0, 1, 2, Handle()):
        view = StridedMemoryView.from_dlpack(exporter, stream)
        assert (view.device_id, view.is_device_accessible, view.ptr) == (0, True, array.handle)
    assert exporter.streams == [-1, None, 1, 2, 77]
    with pytest.raises(BufferError, match="stream=None is ambiguous"):
        StridedMemoryView.from_dlpack(exporter)
    exporter.device = (7, 0)
    with pytest.raises(BufferError, match="device not supported"):
        StridedMemoryView.from_dlpack(exporter, -1)


def test_the_exchange_api_describes_views() -> None:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    capsule: Any = StridedMemoryView.__dlpack_c_exchange_api__
    assert StridedMemoryView.__c_dlpack_exchange_api__ is capsule
    table = ctypes.cast(pointer(capsule, b"dlpack_exchange_api"), ctypes.POINTER(ctypes.c_void_p))
    # After the version (two numbers) and a pointer, there are five functions.
    function = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    export, accept, describe = (function(table[place]) for place in (3, 4, 5))
    array = np.arange(6).reshape(2, 3)
    view = StridedMemoryView.from_dlpack(array, -1)
    out = (ctypes.c_void_p * 6)()
    assert describe(id(view), out) == 0
    assert out[0] == array.ctypes.data and (out[1] or 0) == 1
    assert list((ctypes.c_int64 * 2).from_address(out[3] or 0)) == [2, 3]
    assert list((ctypes.c_int64 * 2).from_address(out[4] or 0)) == [3, 1]
    assert export(id(view), out) == 0
    made = ctypes.c_void_p()
    assert accept(out[0], ctypes.byref(made)) == 0
    other = ctypes.cast(made, ctypes.py_object).value
    assert (other.ptr, other.shape, other.exporting_obj) == (view.ptr, (2, 3), None)
    # The answer was a reference of its own.
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(other))
    with pytest.raises(TypeError, match="must be a StridedMemoryView"):
        export(id(array), out)
    with pytest.raises(RuntimeError, match="tensor cannot be NULL"):
        accept(None, ctypes.byref(made))
    allocate = ctypes.PYFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(table[2])
    with pytest.raises(NotImplementedError, match="not supported"):
        allocate(None, out, None, None)
    current = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)(table[6])
    assert current(2, 0, out) == 0 and out[0] is None


def test_the_cuda_array_interface_is_viewed() -> None:
    memory = cuda_mem.DeviceMemory().allocate(64)
    said = Interface(shape=(4, 2), typestr="<f4", data=(memory.handle, True), strides=(4, 16))
    view = StridedMemoryView.from_any_interface(said, stream_ptr=-1)
    assert (view.ptr, view.shape, view.strides, view.readonly) == (memory.handle, (4, 2), (1, 4), True)
    assert (view.dtype, view.device_id, view.is_device_accessible) == (np.float32, 0, True)
    assert view.__dlpack_device__() == (2, 0)
    pinned = cuda_mem.PinnedMemory().allocate(64)
    assert StridedMemoryView.from_any_interface(pinned.view("int8"), -1).__dlpack_device__() == (3, 0)
    said = Interface(data=(pinned.handle, False), typestr="|V12")
    assert StridedMemoryView.from_any_interface(said, -1).__dlpack_device__() == (3, 0)
    assert StridedMemoryView.from_any_interface(said, -1).dtype == np.dtype("V12")
    empty = StridedMemoryView.from_cuda_array_interface(Interface(shape=(0, 3), strides=(24, 8)), -1)
    assert (empty.size, empty.strides) == (0, (3, 1))
    with pytest.warns(DeprecationWarning, match="CUDA-array-interface-supporting object is deprecated"):
        assert StridedMemoryView(Interface(), -1).shape == (2,)


@pytest.mark.parametrize(
    "said, stream, words",
    [
        ({"version": 2}, -1, "v3 or above"),
        ({"mask": [1, 1]}, -1, "mask is not supported"),
        ({}, None, "stream=None is ambiguous"),
        ({"strides": (10,)}, -1, "strides must be divisible by itemsize"),
    ],
)
def test_other_array_interfaces_are_refused(said: dict[str, Any], stream: Any, words: str) -> None:
    with pytest.raises((BufferError, ValueError), match=words):
        StridedMemoryView.from_cuda_array_interface(Interface(**said), stream)


def test_an_interface_without_a_stream_is_viewed_by_dlpack() -> None:
    class Tensor(Interface):
        """As a tensor of PyTorch on a device."""

        streams: list[Any] = []

        def __dlpack__(self, *, stream: Any, max_version: Any) -> Any:
            self.streams.append(stream)
            return array.__dlpack__(stream=-1, max_version=max_version)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

    array = cuda_mem.DeviceMemory().allocate(16).view("int32")
    tensor = Tensor(version=2)
    view = StridedMemoryView.from_cuda_array_interface(tensor, 77)
    assert (view.ptr, view.dtype, tensor.streams) == (array.handle, np.int32, [77])


def test_a_view_waits_for_the_stream_of_an_array_interface() -> None:
    memory = cuda_mem.PinnedMemory().allocate(8)
    producer, consumer = cuda_mem.Stream(), cuda_mem.Stream()
    # The producer works until it is told to stop.
    stop = threading.Event()
    work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: stop.wait())
    assert software_gpu().cuLaunchHostFunc(ctypes.c_void_p(producer.handle), work, None) == 0
    said = Interface(shape=(8,), typestr="|u1", data=(memory.handle, False), stream=producer.handle)
    StridedMemoryView.from_cuda_array_interface(said, stream_ptr=-1)
    assert consumer.is_done
    StridedMemoryView.from_cuda_array_interface(said, stream_ptr=consumer.handle)
    assert not consumer.is_done
    stop.set()
    consumer.synchronize()


def test_types_that_numpy_lacks_need_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    memory = cuda_mem.DeviceMemory().allocate(64)
    view = StridedMemoryView.from_dlpack(memory.view("float8_e3m4", (64,)), -1)
    assert view.shape == (64,) and view.layout.itemsize == 1
    with pytest.raises(NotImplementedError, match="requires `ml_dtypes`"):
        _ = view.dtype
    # DLPack needs none.
    again = StridedMemoryView.from_dlpack(view, -1)
    assert again.ptr == memory.handle


def test_types_of_ml_dtypes_go_both_ways() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    memory = cuda_mem.PinnedMemory().allocate(64)
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"):
        dtype = np.dtype(getattr(ml_dtypes, name))
        view = StridedMemoryView.from_dlpack(memory.view(name), -1)
        assert view.dtype == dtype and view.layout.itemsize == dtype.itemsize
        mine = StridedMemoryView.from_buffer(Buffer(memory), (8,), dtype=dtype)
        assert StridedMemoryView.from_dlpack(mine, -1).dtype == dtype
        assert cuda_mem.from_dlpack(mine).dtype == name


@pytest.mark.parametrize(
    "dtype, words",
    [
        ([("x", "f4"), ("y", "i4")], "Structured dtypes"),
        ("V8", "Unsupported dtype for DLPack export"),
        ("M8[s]", "Unsupported dtype for DLPack export"),
        (">f8", "Non-native-endian"),
        (("f4", (2,)), "Unsupported dtype for DLPack export"),
    ],
)
def test_other_types_are_not_exported(dtype: Any, words: str) -> None:
    view = StridedMemoryView.from_dlpack(np.zeros(3), -1).view(dtype=np.dtype(dtype))
    assert view.dtype == np.dtype(dtype)
    with pytest.raises(BufferError, match=words):
        view.__dlpack__()


def test_an_empty_view_has_no_layout() -> None:
    with pytest.warns(DeprecationWarning, match="empty StridedMemoryView is deprecated"):
        view = StridedMemoryView()
    assert (view.ptr, view.exporting_obj, view.dtype) == (0, None, None)
    with pytest.raises(ValueError, match="Cannot infer layout"):
        _ = view.shape


def test_a_view_shows_what_it_is_of() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    text = repr(StridedMemoryView.from_dlpack(array, -1))
    lines = [
        f"StridedMemoryView(ptr={array.ctypes.data},",
        "shape=(2, 3),",
        "strides=(3, 1),",
        "itemsize=4,",
        "dtype=numpy.dtypes.Int32DType,",
        "device_id=-1,",
        "is_device_accessible=False,",
        "readonly=False,",
        "exporting_obj=numpy.ndarray)",
    ]
    assert [line.strip() for line in text.splitlines()] == lines
    buffer = Buffer(cuda_mem.DeviceMemory().allocate(4))
    assert "dtype=NoneType," in repr(StridedMemoryView.from_buffer(buffer, (4,), itemsize=1))


# ---- Copies ----


def on_device(array: Any) -> StridedMemoryView:
    """A dense view of as many elements in device memory."""
    memory = cuda_mem.DeviceMemory().allocate(array.nbytes)
    return StridedMemoryView.from_buffer(Buffer(memory), array.shape, dtype=array.dtype)


@pytest.mark.parametrize(
    "key", [np.s_[:], np.s_[::2, ::-1], np.s_[:, 1:3]], ids=["whole", "every second, reversed", "columns"]
)
@pytest.mark.parametrize("dtype", ["int32", "complex128", "S5"])
def test_elements_are_copied_between_cpu_and_device(key: Any, dtype: str) -> None:
    source = np.arange(24).reshape(6, 4).astype(dtype)[key]
    device = on_device(source)
    device.copy_from(StridedMemoryView.from_array_interface(source))
    back = np.zeros(source.shape, dtype=dtype).T.copy().T
    target = StridedMemoryView.from_array_interface(back)
    device.copy_to(target, stream=cuda_mem.Stream(), blocking=True)
    assert np.array_equal(back, source)
    # A part of the device's memory, on a stream, without a wait; the next copy waits.
    stream = cuda_mem.Stream()
    turned = on_device(source)
    turned.copy_from(device, stream=stream, blocking=False)
    part = turned.view(turned.layout[1:, ::-1])
    after = np.zeros(part.shape, dtype=dtype)
    part.copy_to(StridedMemoryView.from_array_interface(after), stream)
    assert np.array_equal(after, source[1:, ::-1])


def test_copies_within_the_cpu_need_no_stream() -> None:
    source, target = np.arange(12).reshape(3, 4), np.zeros((4, 3), dtype=int)
    view = StridedMemoryView.from_dlpack
    view(target.T, -1).copy_from(view(source, -1))
    assert np.array_equal(target, source.T)
    structures = np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "i4"), ("b", "f8")])
    copies = np.zeros_like(structures)
    interface = StridedMemoryView.from_array_interface
    interface(structures).copy_to(interface(copies))
    assert np.array_equal(structures, copies)


def test_copies_that_do_not_fit_are_refused() -> None:
    def view(array: Any) -> StridedMemoryView:
        return StridedMemoryView.from_dlpack(array, -1)

    numbers = view(np.zeros((2, 3), dtype="i4"))
    with pytest.raises(ValueError, match="shape"):
        numbers.copy_from(view(np.zeros((3, 2), dtype="i4")))
    with pytest.raises(ValueError, match="different types"):
        numbers.copy_from(view(np.zeros((2, 3), dtype="f4")))
    with pytest.raises(ValueError, match="read-only"):
        view(np.frombuffer(b"12", dtype="u1")).copy_from(view(np.zeros(2, dtype="u1")))
    with pytest.raises(ValueError, match="read-only"):
        view(np.zeros(2, dtype="u1")).copy_to(view(np.frombuffer(b"12", dtype="u1")))
    line = np.arange(8)
    with pytest.raises(ValueError, match="overlap"):
        view(line[1:]).copy_from(view(line[:-1]))
    with pytest.raises(TypeError, match="allocator must be"):
        numbers.copy_from(view(np.zeros((2, 3), dtype="i4")), allocator=numbers)
    numbers.copy_from(view(np.zeros((2, 3), dtype="i4")), allocator=cuda_mem.PinnedMemory())


@pytest.mark.parametrize("made", [np.asarray, on_device], ids=["cpu", "device"])
def test_dlpack_copies_on_demand(made: Callable[[Any], Any]) -> None:
    source = np.arange(12, dtype="f4").reshape(3, 4)[:, ::-1]
    view = made(source)
    if view is source:
        view = StridedMemoryView.from_dlpack(source, -1)
    else:
        view.copy_from(StridedMemoryView.from_dlpack(source, -1))
    copy = np.from_dlpack(view, device="cpu", copy=True)
    assert np.array_equal(copy, source) and copy.flags.writeable
    source[0, 0] = 99
    assert copy[0, 0] != 99
    if view.is_device_accessible:
        # The CPU cannot address it, so a copy is needed.
        with pytest.raises(BufferError):
            view.__dlpack__(dl_device=(1, 0), copy=False)
        assert np.array_equal(np.from_dlpack(view, device="cpu"), copy)


def test_tensor_maps_are_made_by_cuda_core(monkeypatch: pytest.MonkeyPatch) -> None:
    view = StridedMemoryView.from_dlpack(np.arange(4), -1)
    monkeypatch.setitem(sys.modules, "cuda.core.utils", None)
    with pytest.raises(NotImplementedError, match="pip install cuda-core"):
        view.as_tensor_map((4,))

    class Theirs:
        def __init__(self, array: Any) -> None:
            self.array = np.from_dlpack(array)

        def as_tensor_map(self, box_dim: Any, **options: Any) -> Any:
            return self.array.sum(), box_dim, options

    module = types.ModuleType("cuda.core.utils")
    module.StridedMemoryView = types.SimpleNamespace(from_dlpack=lambda view, stream: Theirs(view))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.core", types.ModuleType("cuda.core"))
    monkeypatch.setitem(sys.modules, "cuda.core.utils", module)
    assert view.as_tensor_map((4,), swizzle="none") == (6, (4,), {"swizzle": "none"})
