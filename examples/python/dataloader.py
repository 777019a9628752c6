"""Clips of sound of many lengths go through a DataLoader of PyTorch to the GPU. The pages of a batch are page-locked, so its copy
does not hold up the CPU.

    python dataloader.py [--memory own | ours] [--workers N] [--brief]

own: the loader collates a batch, and copies it to PyTorch's page-locked memory (pin_memory=True). ours: `collate` writes the batch
into a pool of page-locked memory, where it stays until its copy to the GPU is done. With workers, which are processes without a
GPU, both copy what the workers have collated.
"""

import time
from collections.abc import Iterable, Iterator
from typing import Any

import cuda_mem
import report
from report import np


class Clips:
    """A data set: clips of whole numbers as float32, cut out of one noise."""

    def __init__(self, count: int, shortest: int, longest: int) -> None:
        random = np.random.default_rng(1)
        self.noise = random.integers(-100, 100, 4 * longest).astype(np.float32)
        self.lengths = random.integers(shortest, longest + 1, count)
        self.begins = random.integers(0, len(self.noise) - self.lengths)
        self.sums = np.concatenate([[0.0], np.cumsum(self.noise, dtype=np.float64)])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Any:
        return self.noise[self.begins[index] : self.begins[index] + self.lengths[index]]

    def batch_sums(self, size: int) -> list[float]:
        """The sum of each batch."""
        sums = self.sums[self.begins + self.lengths] - self.sums[self.begins]
        return [float(sums[begin : begin + size].sum()) for begin in range(0, len(sums), size)]


class PinnedBatches:
    """Batches in a pool of page-locked memory. `stream` copies them to the GPU."""

    def __init__(self) -> None:
        self.stream = cuda_mem.Stream()
        self.pool = cuda_mem.Pool(cuda_mem.PinnedMemory())

    def array(self, shape: tuple[int, ...]) -> Any:
        """An array that nobody copies from any more. When it ends, the pool gives the memory out again after the copies out
        of it that are queued."""
        return self.pool.allocate(4 * int(np.prod(shape)), stream=self.stream).numpy(np.float32, shape)

    def collate(self, clips: list[Any]) -> Any:
        """The clips as the rows of an array, with zeros behind them."""
        return fill_up(clips, self.array((len(clips), max(map(len, clips)))))

    def land(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Batches that worker processes have collated, in page-locked memory."""
        for batch in batches:
            pinned = self.array(batch.shape)
            np.copyto(pinned, batch)
            yield pinned


def fill_up(clips: list[Any], rows: Any) -> Any:
    for row, clip in zip(rows, clips):
        row[: len(clip)] = clip
        row[len(clip) :] = 0
    return rows


def collate_pageable(clips: list[Any]) -> Any:
    return fill_up(clips, np.empty((len(clips), max(map(len, clips))), np.float32))


def main() -> None:
    parser = report.parser(__doc__, ["own", "ours"])
    parser.add_argument("--workers", type=int, default=0, help="processes that collate")
    arguments = parser.parse_args()
    try:
        import torch
        from torch.utils.data import DataLoader
    except ImportError as error:
        report.skip(f"{error}: pip install torch")
    report.needs_kernels()

    clips, size = (Clips(64, 160, 1600), 8) if arguments.brief else (Clips(64 * 200, 16_000, 240_000), 64)

    def collate(rows: list[Any]) -> Any:
        return torch.from_numpy(collate_pageable(rows))

    batches = PinnedBatches()
    if arguments.memory == "own":
        copies = torch.cuda.Stream()
        loader = DataLoader(clips, size, num_workers=arguments.workers, collate_fn=collate, pin_memory=True)
    else:
        copies = torch.cuda.ExternalStream(batches.stream.handle)
        if arguments.workers:
            arrays = batches.land(DataLoader(clips, size, num_workers=arguments.workers, collate_fn=collate))
        else:
            arrays = DataLoader(clips, size, collate_fn=batches.collate)
        loader = map(torch.from_numpy, arrays)

    sums, moved = [], 0
    begin = time.perf_counter()
    for batch in loader:
        assert batch.is_pinned()
        with torch.cuda.stream(copies):
            on_gpu = batch.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(copies)
        on_gpu.record_stream(torch.cuda.current_stream())
        # What a model would do with the batch.
        sums.append(on_gpu.sum(dtype=torch.float64))
        moved += batch.nbytes
        del batch
    found = [value.item() for value in sums]
    seconds = time.perf_counter() - begin
    assert found == clips.batch_sums(size), "what the GPU has seen"
    if arguments.memory == "own":
        pinned = torch.cuda.host_memory_stats()["allocated_bytes.peak"]
    else:
        pinned = batches.pool.statistics().reserved_peak
    result = f"{len(found)} batches, {moved >> 20} MiB"
    report.line(arguments.memory, seconds, result, device_pool=torch.cuda.max_memory_reserved(), pinned_pool=pinned)


if __name__ == "__main__":
    main()
