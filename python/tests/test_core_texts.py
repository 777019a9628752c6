"""Texts of errors of cuda_mem.core: they name the call, the argument, its value, the limit, and what to do."""

from collections.abc import Callable

import cuda_mem
import pytest
from cuda_mem.core import Buffer, Device, DeviceMemoryResource, LegacyPinnedMemoryResource

HUGE = 10**5000
"""An integer that Python does not write as a text."""


def test_refusals_of_core_say_what_to_do() -> None:
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    pool, pinned = DeviceMemoryResource(device), LegacyPinnedMemoryResource()
    buffer, closed = pinned.allocate(10), pinned.allocate(10)
    closed.close()
    event, gone = stream.record(), device.create_stream()
    event.close()
    gone.close()
    shut = DeviceMemoryResource(device)
    shut.close()
    calls: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (OverflowError, r"^Buffer.fill: value is 256 \(int\).* 0 to 255: pass .* bytes$", lambda: buffer.fill(256, stream=stream)),
        (OverflowError, r"^Buffer.fill: value is -1 \(int\)", lambda: buffer.fill(-1, stream=stream)),
        (OverflowError, r"^Buffer.fill: value is int, but", lambda: buffer.fill(HUGE, stream=stream)),
        (ValueError, r"^Buffer.fill: value has 3 bytes, .* 1, 2 or 4$", lambda: buffer.fill(b"abc", stream=stream)),
        (ValueError, r"^Buffer.fill: the buffer has 10 bytes, .* 4$", lambda: buffer.fill(b"abcd", stream=stream)),
        (TypeError, r"^Buffer.from_handle: mr is 3 \(int\).*owner$", lambda: Buffer.from_handle(1, 8, 3)),
        (TypeError, r"^Buffer.from_handle: mr is .*PinnedMemory\)", lambda: Buffer.from_handle(1, 8, cuda_mem.PinnedMemory())),
        (ValueError, r"^Buffer.from_handle: ptr is 0x0 and size is 8", lambda: Buffer.from_handle(0, 8)),
        (ValueError, r"below 2\*\*63", lambda: Buffer.from_handle(4096, 2**63)),
        (ValueError, r"^Buffer.from_handle: stream requires", lambda: Buffer.from_handle(4096, 8, stream=stream)),
        (TypeError, r"^DeviceMemoryResource.allocate: .*is missing: pass", lambda: pool.allocate(8)),  # type: ignore[call-arg]
        (TypeError, r"^DeviceMemoryResource.deallocate: .*stream is", lambda: pool.deallocate(0, 8, stream=None)),
        (TypeError, r"must be a Stream.* not NoneType$", lambda: buffer.set_deallocation_stream(None)),
        (RuntimeError, "^the Buffer has been closed: make another one$", lambda: closed.fill(1, stream=stream)),
        (RuntimeError, "^the Stream has been closed: make another one$", lambda: buffer.fill(1, stream=gone)),
        (RuntimeError, "^the Event has been closed: make another one$", event.sync),
        (RuntimeError, "^the DeviceMemoryResource has been closed: make", lambda: shut.allocate(8, stream=stream)),
    ]
    for kind, text, call in calls:
        with pytest.raises(kind, match=text) as caught:
            call()
        assert "Base" not in str(caught.value)
    for use in (closed.copy_to, event.sync, gone.sync):
        with pytest.raises(cuda_mem.ClosedError):
            use(stream=stream) if use == closed.copy_to else use()


def test_refusals_of_the_package_name_no_type_of_rust() -> None:
    buffer = cuda_mem.PinnedMemory().allocate(8)
    calls: list[tuple[str, Callable[[], object]]] = [
        (r"^Buffer.fill: value is 256 \(int\)", lambda: buffer.fill(256)),
        (r"^Buffer.fill: value is int, but", lambda: buffer.fill(HUGE)),
        (r"below 2\*\*63", lambda: cuda_mem.PinnedMemory().allocate(2**63)),
    ]
    for text, call in calls:
        with pytest.raises(cuda_mem.Error, match=text) as caught:
            call()
        assert "isize" not in str(caught.value)
