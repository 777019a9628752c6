"""DLPack's exchange API, which is a table of C functions, both ways, with a consumer and a producer in ctypes."""

import ctypes as c
import gc
from typing import Any

import cuda_mem
import pytest


class Tensor(c.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", c.c_void_p),
        ("device_type", c.c_int32),
        ("device_id", c.c_int32),
        ("ndim", c.c_int32),
        ("code", c.c_uint8),
        ("bits", c.c_uint8),
        ("lanes", c.c_uint16),
        ("shape", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)),
        ("byte_offset", c.c_uint64),
    ]


class Managed(c.Structure):
    """DLManagedTensorVersioned."""


Deleter = c.PYFUNCTYPE(None, c.POINTER(Managed))
Managed._fields_ = [
    ("major", c.c_uint32),
    ("minor", c.c_uint32),
    ("manager_ctx", c.c_void_p),
    ("deleter", Deleter),
    ("flags", c.c_uint64),
    ("tensor", Tensor),
]
SetError = c.PYFUNCTYPE(None, c.c_void_p, c.c_char_p, c.c_char_p)
Allocate = c.PYFUNCTYPE(c.c_int, c.POINTER(Tensor), c.POINTER(c.POINTER(Managed)), c.c_void_p, SetError)
FromObject = c.PYFUNCTYPE(c.c_int, c.py_object, c.POINTER(c.POINTER(Managed)))
ToObject = c.PYFUNCTYPE(c.c_int, c.POINTER(Managed), c.POINTER(c.py_object))
WorkStream = c.PYFUNCTYPE(c.c_int, c.c_int32, c.c_int32, c.POINTER(c.c_void_p))


class Table(c.Structure):
    """DLPackExchangeAPI."""

    _fields_ = [
        ("major", c.c_uint32),
        ("minor", c.c_uint32),
        ("older", c.c_void_p),
        ("allocate", Allocate),
        ("from_object", FromObject),
        ("to_object", ToObject),
        ("describe", c.c_void_p),
        ("work_stream", WorkStream),
    ]


NAME = b"dlpack_exchange_api"
_pointer, _new = c.pythonapi.PyCapsule_GetPointer, c.pythonapi.PyCapsule_New
_pointer.restype, _pointer.argtypes = c.c_void_p, (c.py_object, c.c_char_p)
_new.restype, _new.argtypes = c.py_object, (c.c_void_p, c.c_char_p, c.c_void_p)


def table_of(kind: type) -> Table:
    return Table.from_address(_pointer(kind.__dlpack_c_exchange_api__, NAME))  # type: ignore[attr-defined]


OURS = table_of(cuda_mem.Array)


def exported(object: Any) -> Any:
    out = c.POINTER(Managed)()
    assert OURS.from_object(object, c.byref(out)) == 0
    return out


def test_both_classes_offer_one_table_of_release_1() -> None:
    assert c.addressof(table_of(cuda_mem.Buffer)) == c.addressof(OURS)
    assert (OURS.major, bool(OURS.older)) == (1, False)
    assert OURS.describe is None, "descriptions without an owner are not offered"


def test_an_array_is_exported_and_keeps_its_memory() -> None:
    stream = cuda_mem.Stream()
    buffer = cuda_mem.Pool(cuda_mem.DeviceMemory()).allocate(48, stream=stream)
    buffer.fill(7)
    out = exported(buffer.view("float32", (2, 3), strides=[1, 2], offset=8))
    tensor = out.contents.tensor
    assert (tensor.data + tensor.byte_offset, tensor.device_type, tensor.device_id) == (buffer.handle + 8, 2, 0)
    assert (tensor.ndim, tensor.shape[:2], tensor.strides[:2]) == (2, [2, 3], [1, 2])
    assert (tensor.code, tensor.bits, tensor.lanes, out.contents.major) == (2, 32, 1, 1)
    # Ordered before our current stream: nothing waits here.
    other = cuda_mem.DeviceMemory().allocate(48)
    other.copy_from(buffer)
    with pytest.raises(cuda_mem.SharedError):
        buffer.close()
    out.contents.deleter(out)
    assert other.to_bytes() == b"\7" * 48
    buffer.close()


def test_a_buffer_is_exported_as_bytes_and_a_closed_one_is_not() -> None:
    buffer = cuda_mem.PinnedMemory().copy_of(b"abc")
    out = exported(buffer)
    assert c.string_at(out.contents.tensor.data, 3) == b"abc" and out.contents.tensor.shape[:1] == [3]
    out.contents.deleter(out)
    buffer.close()
    for wrong, error in ((buffer, cuda_mem.ClosedError), (b"bytes", TypeError), (None, TypeError)):
        with pytest.raises(error):
            OURS.from_object(wrong, c.byref(c.POINTER(Managed)()))


@pytest.mark.parametrize("memory", [cuda_mem.DeviceMemory, cuda_mem.PinnedMemory, cuda_mem.ManagedMemory])
def test_a_tensor_becomes_an_array_which_owns_it(memory: Any) -> None:
    buffer = memory().copy_of(bytes(range(12)))
    made = c.py_object()
    assert OURS.to_object(exported(buffer.view("int32")), c.byref(made)) == 0
    array = made.value
    # The call gave its reference away.
    c.pythonapi.Py_DecRef(made)
    assert (type(array), array.shape, array.dtype, array.handle) == (cuda_mem.Array, (3,), "int32", buffer.handle)
    with pytest.raises(cuda_mem.SharedError):
        buffer.close()
    del array, made
    gc.collect()
    buffer.close()
    with pytest.raises(BufferError):
        OURS.to_object(c.POINTER(Managed)(), c.byref(c.py_object()))


def test_memory_for_others_comes_from_the_pools() -> None:
    import cuda_mem.torch

    said: list[tuple[bytes, bytes]] = []
    note = SetError(lambda context, kind, message: said.append((kind, message)))
    out, shape = c.POINTER(Managed)(), (c.c_int64 * 2)(3, 5)
    prototype = Tensor(device_type=2, device_id=0, ndim=2, code=0, bits=16, lanes=1, shape=shape)
    blocks = lambda: cuda_mem.torch.snapshot(0).data["statistics"]["blocks"]["current"]  # noqa: E731
    before = blocks()
    assert OURS.allocate(c.byref(prototype), c.byref(out), None, note) == 0 and said == []
    tensor = out.contents.tensor
    assert (tensor.shape[:2], tensor.bits, tensor.device_type, blocks()) == ([3, 5], 16, 2, before + 1)
    assert tensor.data % 256 == 0
    out.contents.deleter(out)
    assert blocks() == before
    for device_type, device_id, text in ((3, 0, b"device memory"), (1, 0, b"device memory"), (2, 99, b"99"), (77, 0, b"77")):
        prototype.device_type, prototype.device_id = device_type, device_id
        assert OURS.allocate(c.byref(prototype), c.byref(out), None, note) == -1
        assert said[-1][0] == b"BufferError" and text in said[-1][1], said[-1]


def test_the_current_stream_is_the_legacy_default_stream() -> None:
    stream = c.c_void_p()
    assert OURS.work_stream(2, 0, c.byref(stream)) == 0 and stream.value == 1
    assert OURS.work_stream(1, 0, c.byref(stream)) == 0 and stream.value is None
    assert OURS.work_stream(2, 99, c.byref(stream)) == -1


class Theirs:
    """An array of another library, with a table of its own. Its work runs on its own stream."""

    stream = cuda_mem.Stream()
    requires_grad = False
    calls: list[str] = []

    def __init__(self, array: cuda_mem.Array) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **arguments: Any) -> Any:
        self.calls.append("__dlpack__")
        return self.array.__dlpack__(**arguments)


@FromObject
def _from_object(object: Any, out: Any) -> int:
    object.calls.append("from_object")
    return int(OURS.from_object(object.array, out))


@WorkStream
def _work_stream(device_type: int, device_id: int, out: Any) -> int:
    out[0] = Theirs.stream.handle
    return 0


_table = Table(major=1, minor=3, from_object=_from_object, work_stream=_work_stream)
Theirs.__dlpack_c_exchange_api__ = _new(c.addressof(_table), NAME, None)  # type: ignore[attr-defined]


def test_arrays_of_others_come_by_their_table_in_order() -> None:
    memory = cuda_mem.Pool(cuda_mem.DeviceMemory())
    for _ in range(20):
        buffer = memory.allocate(1 << 16, stream=Theirs.stream)
        buffer.fill(0x11)
        Theirs.calls.clear()
        here = cuda_mem.Stream()
        array = cuda_mem.from_dlpack(Theirs(buffer.view("int32")), stream=here)
        assert Theirs.calls == ["from_object"]
        copy = memory.allocate(1 << 16, stream=here)
        copy.view("int32").copy_from(array)
        assert copy.to_bytes() == b"\x11" * (1 << 16)
        del array
        gc.collect()
        buffer.close()


def test_arrays_that_only_dlpack_may_refuse_do_not_come_by_the_table() -> None:
    theirs = Theirs(cuda_mem.PinnedMemory().copy_of(b"abcd").view())
    for name, value in (("requires_grad", True), ("is_conj", lambda: True), ("is_neg", lambda: True)):
        theirs = Theirs(theirs.array)
        setattr(theirs, name, value)
        Theirs.calls.clear()
        assert cuda_mem.from_dlpack(theirs).size == 4
        assert Theirs.calls == ["__dlpack__"], name


@pytest.mark.parametrize("changes", [{"major": 2}, {"from_object": FromObject()}])
def test_unusable_tables_are_passed_by(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> None:
    table = Table(**{"major": 1, "minor": 3, "from_object": _from_object, "work_stream": _work_stream, **changes})
    capsules = [_new(c.addressof(table), NAME, None), _new(c.addressof(table), b"another name", None), None]
    for capsule in capsules:
        monkeypatch.setattr(Theirs, "__dlpack_c_exchange_api__", capsule)
        Theirs.calls.clear()
        assert cuda_mem.from_dlpack(Theirs(cuda_mem.PinnedMemory().copy_of(b"abcd").view())).size == 4
        assert Theirs.calls == ["__dlpack__"]


def test_the_error_of_another_librarys_table_reaches_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    # The function of ours refuses objects of other classes.
    table = Table(major=1, minor=3, from_object=OURS.from_object, work_stream=_work_stream)
    monkeypatch.setattr(Theirs, "__dlpack_c_exchange_api__", _new(c.addressof(table), NAME, None))
    with pytest.raises(TypeError, match="Theirs"):
        cuda_mem.from_dlpack(Theirs(cuda_mem.PinnedMemory().allocate(4).view()))
