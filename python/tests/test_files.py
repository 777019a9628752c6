"""Files read into memory."""

import gc
import io
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import cuda_mem
import pytest
from conftest import software_gpu

BYTES = bytes(range(251)) * 4003


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "bytes"
    made.write_bytes(BYTES)
    return made


def test_a_file_is_read_into_any_memory(path: Path, source: cuda_mem.MemoryResource) -> None:
    reader, stream = cuda_mem.FileReader(), cuda_mem.Stream()
    for offset, size in [(0, None), (1, 70_000), (4096, 1), (len(BYTES) - 3, 3), (len(BYTES), 0)]:
        buffer = reader.read(path, offset, size, memory=source, stream=stream)
        expected = BYTES[offset:] if size is None else BYTES[offset : offset + size]
        assert buffer.to_bytes() == expected
        assert buffer.stream.handle == stream.handle
        buffer.close()


def test_a_file_is_a_path_an_open_file_or_a_descriptor(path: Path) -> None:
    reader = cuda_mem.FileReader(0)
    assert repr(reader) == "FileReader(device=0)" and reader.context.device.ordinal == 0
    for name in (path, str(path), os.fsencode(path)):
        assert reader.read(name, 7, 100).to_bytes() == BYTES[7:107]
    with open(path, "rb") as file:
        file.seek(50)
        assert reader.read(file).to_bytes() == BYTES
        assert reader.read(file.fileno(), offset=9).to_bytes() == BYTES[9:]
        assert file.tell() == 50
    with tempfile.TemporaryFile() as unnamed:
        unnamed.write(b"no name")
        unnamed.flush()
        assert reader.read(unnamed, 3).to_bytes() == b"name"
    assert reader.staging > 0
    reader.trim()
    assert reader.staging == 0


def test_what_cannot_be_read_is_an_exception(path: Path, tmp_path: Path) -> None:
    reader = cuda_mem.FileReader()
    with pytest.raises(FileNotFoundError):
        reader.read(tmp_path / "missing")
    for offset, size in [(0, len(BYTES) + 1), (len(BYTES) + 1, None), (2**63, 1), (2**64 - 1, 1)]:
        with pytest.raises(cuda_mem.FileError, match=rf"of {path} were not read: the file has {len(BYTES)} bytes") as caught:
            reader.read(path, offset, size)
        assert isinstance(caught.value, OSError) and caught.value.code is None
    ends, (one, other) = os.pipe(), socket.socketpair()
    folder = os.open(tmp_path, os.O_RDONLY)
    written = os.open(path, os.O_WRONLY)
    for file, text in [(ends[0], "a pipe"), (one, "a socket"), (folder, "a directory"), (written, "open the file for reading")]:
        with pytest.raises(cuda_mem.FileError, match=text):
            reader.read(file, size=1)
    for number in (*ends, folder, written):
        os.close(number)
    one.close()
    other.close()
    refused: tuple[tuple[type[Exception], Callable[[], object]], ...] = (
        (OSError, lambda: reader.read(written)),
        (ValueError, lambda: reader.read(-1)),
        (TypeError, lambda: reader.read(1.5)),
        (TypeError, lambda: reader.read(None)),
        (io.UnsupportedOperation, lambda: reader.read(io.BytesIO(b"no descriptor"))),
        (OverflowError, lambda: reader.read(path, -1)),
        (TypeError, lambda: reader.read(path, memory=3)),
        (TypeError, lambda: reader.read(path, stream=3)),
        (TypeError, lambda: cuda_mem.FileReader("cuda")),
    )
    for kind, call in refused:
        with pytest.raises(kind):
            call()


def test_threads_read_at_once(path: Path) -> None:
    reader, wrong = cuda_mem.FileReader(), []

    def read(number: int) -> None:
        stream = cuda_mem.Stream()
        for turn in range(5):
            offset = number * 997 + turn
            if reader.read(path, offset, 300_000, stream=stream).to_bytes() != BYTES[offset : offset + 300_000]:
                wrong.append(number)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def run_with_fault(number: int, run: Callable[[], cuda_mem.Buffer], check: Callable[[cuda_mem.Buffer], None]) -> tuple[bool, bool]:
    """Runs with a fault at one call: a whole buffer, or an exception. Returns whether the call was made, and whether it raised."""
    driver, buffer, message = software_gpu(), None, ""
    assert driver.softgpu_faults(b"any:%d=999" % number) == 1
    try:
        buffer = run()
    except cuda_mem.Error as error:
        message = str(error)
    failed = driver.softgpu_injected() == 1
    assert driver.softgpu_faults(b"") == 0
    cuda_mem.take_drop_errors()
    if buffer is None:
        assert failed and len(message) > 20
        return True, True
    check(buffer)
    buffer.close()
    return failed, False


def fail_each(reader: cuda_mem.FileReader, run: Callable[[], cuda_mem.Buffer], check: Callable[[cuda_mem.Buffer], None]) -> None:
    """Fails each call of the driver in turn."""
    number, errors, failed = 0, 0, True
    run().close()  # also ends what earlier work has left
    while failed:
        number += 1
        # A run that waits less than others asks the driver less often.
        for _ in range(10):
            reader.trim()  # so that staging is made while calls fail
            failed, raised = run_with_fault(number, run, check)
            errors += raised
            if failed:
                break
    assert number > 1 and errors >= 1


def leaves_nothing(run: Callable[[], None]) -> None:
    """The second run leaves no more objects alive than the first, which fills caches."""
    live = software_gpu().softgpu_ledger_live
    gc.collect()
    run()
    gc.collect()
    before = live()
    run()
    gc.collect()
    begin = time.monotonic()
    # Some objects end on another thread.
    while live() > before and time.monotonic() < begin + 10:
        time.sleep(0.01)
    assert live() <= before


@pytest.mark.parametrize("memory", [cuda_mem.DeviceMemory, cuda_mem.PinnedMemory])
def test_a_fault_at_any_call_gives_no_half_read_buffer(path: Path, memory: Callable[[], cuda_mem.MemoryResource]) -> None:
    reader, stream, source = cuda_mem.FileReader(), cuda_mem.Stream(), memory()

    def check(buffer: cuda_mem.Buffer) -> None:
        assert buffer.to_bytes() == BYTES[5:]

    leaves_nothing(lambda: fail_each(reader, lambda: reader.read(path, 5, memory=source, stream=stream), check))


def test_a_fault_at_any_call_leaves_no_large_memory() -> None:
    reader, pinned, stream = cuda_mem.FileReader(), cuda_mem.PinnedMemory(), cuda_mem.Stream()

    def check(buffer: cuda_mem.Buffer) -> None:
        assert buffer.size == 256 << 20

    leaves_nothing(lambda: fail_each(reader, lambda: pinned.allocate(256 << 20, stream=stream), check))
