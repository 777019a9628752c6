"""Blocks of samples, as a radio telescope makes them: the CPU writes a block while CuPy transforms the one before it and adds up
the power in each channel. Each of two slots has a stream, and an event after which the CPU writes it again.

    python ffts.py [--memory own | pinned | mapped] [--brief]

own: CuPy's page-locked memory. pinned: page-locked memory of a pool of cuda_mem. mapped: memory of the GPU that the CPU writes
directly, so nothing is copied afterwards; vkgdr's programs do so. With the last two, CuPy's arrays come from cuda_mem's pools too.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

import cuda_mem.cupy
import report
from report import np

CHANNELS = 4096


class CupyPinned:
    """A slot of CuPy's own page-locked memory, whose blocks are copied to the device."""

    def __init__(self, samples: int) -> None:
        import cupy
        import cupyx

        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.host, self.on_gpu = cupyx.empty_pinned(samples, np.int16), cupy.empty(samples, np.int16)
        self.read = self.stream.record()

    def send(self) -> None:
        self.on_gpu.set(self.host, stream=self.stream)


class Pinned:
    """A slot of page-locked memory of a pool, whose blocks are copied to the device."""

    def __init__(self, samples: int, pool: cuda_mem.Pool) -> None:
        self.stream = cuda_mem.Stream()
        self.buffer = pool.allocate(2 * samples, stream=self.stream)
        self.device = cuda_mem.DeviceMemory().allocate(2 * samples, stream=self.stream)
        self.host, self.on_gpu = self.buffer.numpy(np.int16), self.device.view("int16")
        self.read = self.stream.record()

    def send(self) -> None:
        self.device.copy_from(self.buffer)


class Mapped:
    """A slot of the device's memory, which the CPU writes: nothing is left to copy."""

    def __init__(self, samples: int, memory: cuda_mem.MappedMemory) -> None:
        self.stream = cuda_mem.Stream()
        self.device = memory.allocate(2 * samples, stream=self.stream)
        self.host, self.on_gpu = self.device.numpy(np.int16), self.device.view("int16")
        self.read = self.stream.record()

    def send(self) -> None:
        self.device.flush()


def pipeline(slots: list[Any], blocks: Iterable[Any], work: Callable[[Any], None]) -> None:
    """Writes blocks into the slots in turn. `work` queues what the device does with a slot, on the slot's stream."""
    for number, block in enumerate(blocks):
        slot = slots[number % len(slots)]
        slot.read.synchronize()
        np.copyto(slot.host, block)
        slot.send()
        work(slot)
        slot.read = slot.stream.record()
    for slot in slots:
        slot.read.synchronize()


def power(xp: Any, samples: Any) -> Any:
    """The sum of the power in each channel, by numpy or CuPy."""
    spectra = xp.fft.rfft(samples.reshape(-1, 2 * CHANNELS).astype(xp.float32))
    return xp.square(xp.abs(spectra)).sum(axis=0, dtype=xp.float64)


def signals(samples: int) -> list[Any]:
    """Noise with a tone, each in another channel."""
    random, time_ = np.random.default_rng(1), np.arange(samples)
    return [
        (random.integers(-500, 500, samples) + 400 * np.sin(np.pi * channel / CHANNELS * time_)).astype(np.int16)
        for channel in (300, 1000, 1700, 2400, 3100)
    ]


def main() -> None:
    arguments = report.parser(__doc__, ["own", "pinned", "mapped"]).parse_args()
    try:
        import cupy
    except ImportError as error:
        report.skip(f"{error}: pip install cupy-cuda13x")
    report.needs_kernels()

    samples, count = (16 * CHANNELS, 40) if arguments.brief else (8 << 20, 512)
    slots: list[Any]
    if arguments.memory == "own":
        slots = [CupyPinned(samples) for _ in range(2)]
    else:
        cuda_mem.cupy.use()
        pinned = cuda_mem.Pool(cuda_mem.PinnedMemory())
        mapped = report.mapped_memory() if arguments.memory == "mapped" else None
        slots = [Mapped(samples, mapped) if mapped else Pinned(samples, pinned) for _ in range(2)]
    streams, arrays = {}, {}
    for slot in slots:
        streams[slot] = slot.stream if arguments.memory == "own" else cupy.cuda.ExternalStream(slot.stream.handle)
        with streams[slot]:
            arrays[slot] = slot.on_gpu if arguments.memory == "own" else cupy.from_dlpack(slot.on_gpu)
    total, before = cupy.zeros(CHANNELS + 1), cupy.cuda.Event(disable_timing=True)

    def work(slot: Any) -> None:
        nonlocal total
        with streams[slot] as stream:
            # One block after the other: they share the sum, and the memory of CuPy's plan.
            stream.wait_event(before)
            total += power(cupy, arrays[slot])
            before.record(stream)

    blocks = signals(samples)
    # Compiles the kernels.
    pipeline(slots, blocks[:2], work)
    total.fill(0)
    cupy.cuda.Device().synchronize()
    begin = time.perf_counter()
    pipeline(slots, (blocks[number % len(blocks)] for number in range(count)), work)
    found = total.get()
    seconds = time.perf_counter() - begin

    expected = sum(power(np, block) * len(range(number, count, len(blocks))) for number, block in enumerate(blocks))
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    strongest = sorted(int(channel) for channel in np.argsort(found)[-5:])
    if arguments.memory == "own":
        # CuPy does not tell the size of its pool of page-locked memory.
        device_pool, pinned_pool = cupy.get_default_memory_pool().total_bytes(), sum(slot.host.nbytes for slot in slots)
    else:
        device_pool = report.peak_of_pools() + sum(slot.device.size for slot in slots)
        pinned_pool = pinned.statistics().reserved_peak if arguments.memory == "pinned" else 0
    size = count * blocks[0].nbytes
    result = f"{size >> 20} MiB of samples, strongest channels {strongest}"
    report.line(arguments.memory, seconds, result, device_pool=device_pool, pinned_pool=pinned_pool)


if __name__ == "__main__":
    main()
