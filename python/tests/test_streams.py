"""Streams, events, and streams of other libraries."""

from collections.abc import Callable

import cuda_mem
import pytest


class OtherStream:
    """A stream of another library."""

    def __init__(self, stream: cuda_mem.Stream, version: int = 0) -> None:
        self.stream, self.version = stream, version

    def __cuda_stream__(self) -> tuple[int, int]:
        return self.version, self.stream.handle


def test_streams_order_events_and_times() -> None:
    stream, other = cuda_mem.Stream(), cuda_mem.Stream(0, blocking=True, priority=-1)
    assert stream != other and stream == cuda_mem.Stream.from_handle(stream.handle)
    begin = stream.record(timing=True)
    buffer = cuda_mem.DeviceMemory().allocate(1 << 20, stream=stream)
    buffer.fill(1)
    end = stream.record(timing=True)
    other.wait(end)
    other.wait(stream)
    other.synchronize(timeout=30)
    assert end.is_done and other.is_done
    assert begin.elapsed(end) >= 0
    event = cuda_mem.Event()
    event.record(other)
    event.synchronize(timeout=30)
    assert stream.context == cuda_mem.Context() and hash(stream.context) == hash(cuda_mem.Context())


def test_a_stream_of_another_library_is_a_home_stream() -> None:
    stream = cuda_mem.Stream()
    other = OtherStream(stream)
    buffer = cuda_mem.Pool(cuda_mem.DeviceMemory()).allocate(16, stream=other)
    assert buffer.stream == stream
    buffer.set_stream(cuda_mem.Stream.legacy_default())
    buffer.record_use(other)
    buffer.close(stream=other)
    assert cuda_mem.Stream.from_handle(other).handle == stream.handle


@pytest.mark.parametrize("wrong", [3, "stream", object(), 1.5, b"x"])
def test_other_objects_are_no_streams(wrong: object) -> None:
    with pytest.raises(TypeError, match="__cuda_stream__"):
        cuda_mem.DeviceMemory().allocate(1, stream=wrong)


def test_a_later_version_of_the_protocol_is_refused() -> None:
    with pytest.raises(cuda_mem.ArgumentError, match="version 1"):
        cuda_mem.DeviceMemory().allocate(1, stream=OtherStream(cuda_mem.Stream(), version=1))


def test_a_failing_protocol_passes_its_exception_on() -> None:
    class Broken:
        def __cuda_stream__(self) -> tuple[int, int]:
            raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        cuda_mem.DeviceMemory().allocate(1, stream=Broken())


@pytest.mark.parametrize("limit", [-1.0, float("nan"), float("inf"), 1e300])
def test_impossible_time_limits_are_refused(limit: float) -> None:
    stream = cuda_mem.Stream()
    for wait in (
        stream.synchronize, stream.record().synchronize, lambda limit: cuda_mem.RingPool(cuda_mem.PinnedMemory(), 256, timeout=limit)
    ):
        with pytest.raises(cuda_mem.ArgumentError, match="timeout is (-1.0|NaN|inf|1e300), but it must be a finite number"):
            wait(limit)


def test_times_of_events_without_time_stamps_say_what_to_do() -> None:
    stream = cuda_mem.Stream()
    for first, second in ((stream.record(), stream.record(timing=True)), (cuda_mem.Event(timing=True), stream.record(timing=True))):
        with pytest.raises(cuda_mem.DriverError, match=r"record\(timing=True\).*recorded"):
            first.elapsed(second)


def test_memory_is_used_by_a_stream_of_another_device() -> None:
    if cuda_mem.Driver().device_count < 2:
        pytest.skip("needs two devices: SOFTGPU_DEVICES=2")
    there = cuda_mem.Stream(1)
    for memory in (cuda_mem.DeviceMemory(0), cuda_mem.PinnedMemory(0), cuda_mem.Pool(cuda_mem.DeviceMemory(0))):
        buffer = memory.allocate(64)
        buffer.record_use(there)
        buffer.record_use(cuda_mem.Stream.from_handle(OtherStream(there), 1))
        buffer.close()
    with pytest.raises(cuda_mem.DriverError, match="of one context"):
        cuda_mem.DeviceMemory(0).allocate(64).record_use(OtherStream(there))


def test_texts_name_arguments_and_nothing_of_rust() -> None:
    pinned = cuda_mem.PinnedMemory()
    pool = cuda_mem.Pool(pinned, maximum=4 << 20)
    buffer = pinned.allocate(64)
    part = buffer[:4]
    numpy = pytest.importorskip("numpy")
    other = type("Other", (), {"__cuda_array_interface__": {"shape": (numpy.int64(3),)}})()
    device = cuda_mem.DeviceMemory().allocate(64)
    calls: list[tuple[str, Callable[[], object]]] = [
        ("context", lambda: cuda_mem.DeviceMemory("0")),  # type: ignore[arg-type]
        ("context", lambda: cuda_mem.Stream(1 << 70)),
        ("shape", lambda: buffer.view("uint8", "x")),
        ("shape", lambda: buffer.view("uint8", [1.5])),
        ("stream", lambda: pinned.allocate(4, stream=b"x")),
        ("value", lambda: buffer.fill("x")),
        ("source", lambda: buffer.copy_from("x")),
        ("destination", lambda: buffer.copy_to(b"x")),
        ("interface", lambda: cuda_mem.from_array_interface(other)),
        ("delete those", buffer.close),
        ("raise its `maximum`", lambda: pool.allocate(8 << 20)),
        ("beyond its `maximum`", lambda: pool.reserve(8 << 20)),
        ("copy is False", lambda: device.__dlpack__(dl_device=(1, 0), copy=False)),
        ("64 bytes", lambda: buffer.view("float32", 100)),
        ("offset is 0.*12 bytes before the memory.*raise the offset", lambda: buffer.view("float32", 4, strides=[-1])),
        ("64 bytes", lambda: buffer.copy_from(b"abc", offset=63)),
        ("larger ring", lambda: cuda_mem.RingPool(pinned, 256).allocate(257)),
    ]
    for expected, call in calls:
        with pytest.raises((cuda_mem.Error, TypeError), match=expected) as caught:
            call()
        assert "::" not in str(caught.value), caught.value
    for name, call in (("size", lambda: pinned.allocate(-1)), ("offset", lambda: buffer.to_bytes("x"))):  # type: ignore[arg-type]
        with pytest.raises((OverflowError, TypeError)) as refused:
            call()
        assert refused.value.__notes__ == [f"while processing '{name}'"]
    del part
