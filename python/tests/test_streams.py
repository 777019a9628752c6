"""Streams, events, and streams of other libraries."""

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


@pytest.mark.parametrize("limit", [-1.0, float("nan"), 1e300])
def test_impossible_time_limits_are_refused(limit: float) -> None:
    with pytest.raises(cuda_mem.ArgumentError, match="timeout"):
        cuda_mem.Stream().synchronize(limit)
