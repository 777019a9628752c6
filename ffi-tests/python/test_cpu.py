"""numpy and pyarrow as consumers and producers of CPU-addressable memory. Plain asserts, ctypes, no test framework."""

import ctypes as c
import gc
import sys

import numpy as np
import pyarrow as pa

import interchange as ic

session = ic.Session()
HOST = (ic.PINNED, ic.MANAGED)
TYPES = ["int8", "uint16", "int32", "uint64", "float16", "float32", "float64", "complex64", "bool"]


def raises(kind, part, text):
    try:
        part()
    except kind as error:
        assert text in str(error), f"{error!r} says nothing of {text!r}"
    else:
        raise AssertionError(f"no error of {text!r}")


def numpy_takes_every_type_and_kind():
    for kind in HOST:
        for dtype in TYPES:
            ours = session.new(kind, dtype, (4, 6))
            expected = np.arange(24).astype(dtype).reshape(4, 6)
            ours.write(expected.tobytes())
            for theirs in (np.from_dlpack(ours), np.asarray(ours)):
                assert theirs.dtype == dtype and (theirs == expected).all()
                assert theirs.ctypes.data == ours.facts()["address"]


def numpy_sees_what_comes_late():
    for kind in HOST:
        ours = session.new(kind, "uint8", 1 << 16)
        for value in range(1, 20):
            session.delay(2000)
            ours.fill(value)
            assert (np.from_dlpack(ours) == value).all(), "the export did not wait"
            session.delay(2000)
            ours.fill(value + 100)
            assert (np.asarray(ours) == value + 100).all(), "the array interface did not wait"


def numpy_writes_into_ours():
    ours = session.new(ic.PINNED, "int32", 100)
    # The memory is writable: by DLPack's rules this needs the versioned capsule.
    np.from_dlpack(ours)[...] = np.arange(100)
    assert ours.read() == np.arange(100, dtype="int32").tobytes()


def strides_and_offsets_go_both_ways():
    whole = session.new(ic.PINNED, "int16", 60)
    whole.write(np.arange(60, dtype="int16").tobytes())
    numbers = np.arange(60, dtype="int16")
    for offset, shape, strides in [(4, (3, 4), (10, 2)), (118, (5,), (-7,)), (20, (2, 3), (0, 1)), (0, (), ()), (0, (0, 3), (3, 1))]:
        expected = np.lib.stride_tricks.as_strided(numbers[offset // 2 :], shape, [2 * stride for stride in strides])
        ours = whole.layout(offset, shape, strides)
        for theirs in (np.from_dlpack(ours), np.asarray(ours)):
            assert theirs.shape == shape and (theirs == expected).all()
        back = session.from_dlpack(np.from_dlpack(ours))
        assert back.facts()["shape"] == list(shape)
        if expected.size:
            assert back.facts()["strides"] == list(strides) or expected.size <= 1
            assert back.facts()["address"] == ours.facts()["address"]


def read_only_stays_so():
    ours = ic.ReadOnly(session.new(ic.PINNED, "int32", 4))
    theirs = np.from_dlpack(ours)
    assert not theirs.flags.writeable
    assert session.from_dlpack(theirs).facts()["read_only"]
    raises(BufferError, lambda: ours.__dlpack__(), "read-only")


def copies_are_copies():
    ours = session.new(ic.PINNED, "int32", 4)
    copy = np.from_dlpack(ours, copy=True)
    ours.fill(255)
    assert (copy == 0).all() and copy.ctypes.data != ours.facts()["address"]
    device = session.new(ic.DEVICE, "int32", 4)
    session.delay(2000)
    device.fill(1)
    assert (np.from_dlpack(device, device="cpu") == 0x01010101).all()


def ours_outlives_its_name():
    ours = session.new(ic.PINNED, "int32", 1000)
    ours.fill(7)
    theirs = np.from_dlpack(ours)
    part = theirs[::3]
    del ours, theirs
    gc.collect()
    again = session.new(ic.PINNED, "int32", 1000)
    again.fill(9)
    assert (part == 0x07070707).all()


def what_nobody_consumes_ends():
    ours = session.new(ic.PINNED, "int32", 1000)
    for versions in (None, (1, 0)):
        del versions
        ours.__dlpack__()
        capsule = ours.__dlpack__(max_version=(1, 0))
        session.from_capsule(capsule)
        raises(BufferError, lambda: session.from_capsule(capsule), "was used")


def numpys_arrays_come_in():
    for dtype in TYPES:
        for theirs in (np.arange(30).astype(dtype), np.arange(30).astype(dtype).reshape(5, 6)[:, ::2], np.zeros((0, 3), dtype)):
            for ours in (session.from_dlpack(theirs), session.from_array_interface(theirs)):
                facts = ours.facts()
                assert facts["dtype"] == dtype and facts["shape"] == list(theirs.shape)
                assert facts["device"] == [1, 0]
                if theirs.size:
                    assert facts["address"] == theirs.ctypes.data
                    assert facts["strides"] == [stride // theirs.itemsize for stride in theirs.strides]
    theirs = np.arange(10, dtype="int32")
    assert session.from_dlpack(theirs).read() == theirs.tobytes()


def theirs_outlives_its_name():
    theirs = np.arange(1000, dtype="int32")
    count = sys.getrefcount(theirs)
    ours = session.from_dlpack(theirs)
    assert sys.getrefcount(theirs) == count + 1
    del ours
    assert sys.getrefcount(theirs) == count


def odd_arrays_are_refused():
    raises(BufferError, lambda: session.from_array_interface(np.zeros(2, ">i4")), "byte order")
    raises(BufferError, lambda: session.from_array_interface(np.zeros(2, "M8[s]")), "typestr")
    odd = np.zeros(2, np.dtype("u1,i4"))["f1"]
    raises(BufferError, lambda: session.from_array_interface(odd), "multiple")
    raises(AttributeError, lambda: session.new(ic.DEVICE, "int8", 2).__array_interface__, "the CPU addresses")
    assert session.from_array_interface(np.zeros(2, np.dtype("u1,i4"))).facts()["dtype"] == "opaque8x5"


# ---- Arrow ----


class DeviceArray(c.Structure):
    _fields_ = [("bytes", c.c_uint8 * 128)]


class Schema(c.Structure):
    _fields_ = [("bytes", c.c_uint8 * 72)]


class Stream(c.Structure):
    _fields_ = [
        ("device_type", c.c_int32),
        ("get_schema", c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p)),
        ("get_next", c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p)),
        ("get_last_error", c.CFUNCTYPE(c.c_char_p, c.c_void_p)),
        ("release", c.CFUNCTYPE(None, c.c_void_p)),
        ("private_data", c.c_void_p),
    ]


def pyarrow_takes_ours():
    for kind in HOST:
        for dtype, theirs in [("int32", pa.int32()), ("float64", pa.float64())]:
            ours = session.new(kind, dtype, 100)
            session.delay(2000)
            ours.write(np.arange(100).astype(dtype).tobytes())
            array, schema = DeviceArray(), Schema()
            ic.checked(ic.to_arrow_(session.pointer, ours.pointer, c.addressof(array), c.addressof(schema), True))
            seen = pa.Array._import_from_c_device(c.addressof(array), c.addressof(schema))
            del ours
            gc.collect()
            seen.validate(full=True)
            assert seen.type == theirs and seen.to_pylist() == list(range(100))


def pyarrows_arrays_come_in():
    for theirs in (pa.array(range(50), pa.int64()), pa.array(range(50), pa.int64())[7:20], pa.array([], pa.int64())):
        array, schema = DeviceArray(), Schema()
        theirs._export_to_c_device(c.addressof(array), c.addressof(schema))
        ours = ic.Tensor(session, ic.checked(ic.from_arrow_(session.pointer, c.addressof(array), c.addressof(schema))))
        assert ours.facts()["dtype"] == "int64" and ours.facts()["shape"] == [len(theirs)]
        values = np.array(theirs.to_pylist(), "int64")
        assert (np.asarray(ours) == values).all()
        # An array that was consumed once cannot be consumed again.
        again = lambda: ic.checked(ic.from_arrow_(session.pointer, c.addressof(array), c.addressof(schema)))
        raises(BufferError, again, "released already")


def streams_give_batches():
    ours = session.new(ic.PINNED, "int32", 10)
    ours.write(np.arange(10, dtype="int32").tobytes())
    stream = Stream()
    ic.checked(ic.to_arrow_stream_(session.pointer, ours.pointer, 3, c.addressof(stream)))
    # pyarrow has no reader for such streams yet, but it has one for their arrays.
    for _ in range(2):
        array, schema = DeviceArray(), Schema()
        assert stream.get_schema(c.addressof(stream), c.addressof(schema)) == 0
        assert stream.get_next(c.addressof(stream), c.addressof(array)) == 0
        batch = pa.RecordBatch._import_from_c_device(c.addressof(array), c.addressof(schema))
        batch.validate(full=True)
        assert batch.schema.names == ["x"] and batch.column("x").to_pylist() == list(range(10))
    assert ic.checked(ic.count_rows_(c.addressof(stream))) == 10
    assert ic.count_rows_(c.addressof(stream)) == -1 and "released already" in ic.error().decode()


tests = [
    numpy_takes_every_type_and_kind, numpy_sees_what_comes_late, numpy_writes_into_ours, strides_and_offsets_go_both_ways,
    read_only_stays_so, copies_are_copies, ours_outlives_its_name, what_nobody_consumes_ends, numpys_arrays_come_in,
    theirs_outlives_its_name, odd_arrays_are_refused, pyarrow_takes_ours, pyarrows_arrays_come_in,
    streams_give_batches,
]
for test in tests:
    test()
    print(f"test {test.__name__} ... ok")
print(f"test result: ok. {len(tests)} passed; 0 failed; 0 ignored")
