"""Measures PyTorch's and CuPy's pools on the workloads of `cuda-mem bench pool`. Run both on one machine, one after the other.

It prints the same rows: a line for each workload, a column for each pool. `--json` prints them as JSON, `--brief` is a short
run, and `--trace FILE` replays a trace of `cuda-mem` or a log of RMM. Peers that are not installed are left out.

Python itself takes part of each time. The column `nothing` shows that part: it calls an allocator that does nothing in the
same way.
"""

import argparse
import csv
import json
import random
import sys
import threading
import time

clock = time.perf_counter_ns


class Nothing:
    """An allocator that does nothing, which shows the cost of Python."""

    name = "nothing"

    def __init__(self):
        self.address = 0

    def stream(self):
        return None

    def bind(self, stream):
        pass

    def allocate(self, size, stream):
        self.address += 1
        return self.address

    def free(self, block, stream):
        pass

    def peak_reserved(self):
        return None

    def synchronize(self):
        pass


class Torch:
    """The caching allocator, through its raw functions."""

    name = "PyTorch, raw"

    def __init__(self):
        import torch

        self.torch = torch
        torch.cuda.init()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        self.raw_allocate = torch._C._cuda_cudaCachingAllocator_raw_alloc
        self.raw_free = torch._C._cuda_cudaCachingAllocator_raw_delete

    def stream(self):
        return self.torch.cuda.Stream()

    def bind(self, stream):
        # The allocator is told the stream by its handle.
        self.torch.cuda.set_device(0)

    def allocate(self, size, stream):
        return self.raw_allocate(size, stream.cuda_stream)

    def free(self, block, stream):
        self.raw_free(block)

    def peak_reserved(self):
        return self.torch.cuda.memory_stats()["reserved_bytes.all.peak"]

    def synchronize(self):
        self.torch.cuda.synchronize()


class TorchTensors(Torch):
    """Tensors, as programs use them. An allocation cannot choose a stream other than the current one."""

    name = "PyTorch, tensors"

    def bind(self, stream):
        super().bind(stream)
        self.torch.cuda.set_stream(stream)

    def allocate(self, size, stream):
        return [self.torch.empty(size, dtype=self.torch.uint8, device="cuda")]

    def free(self, block, stream):
        block.clear()


class CuPy:
    """CuPy's memory pool."""

    name = "CuPy"

    def __init__(self):
        import cupy

        self.cupy = cupy
        self.pool = cupy.cuda.MemoryPool()
        self.peak = 0

    def stream(self):
        return self.cupy.cuda.Stream(non_blocking=True)

    def bind(self, stream):
        self.cupy.cuda.Device(0).use()
        stream.use()

    def allocate(self, size, stream):
        return [self.pool.malloc(size)]

    def free(self, block, stream):
        block.clear()

    def peak_reserved(self):
        # The pool never releases memory by itself.
        return self.pool.total_bytes()

    def synchronize(self):
        self.cupy.cuda.runtime.deviceSynchronize()


def percentile(times, share):
    return times[max(0, -(-len(times) * share // 1000) - 1)]


def clock_ns():
    times = sorted(-(clock() - clock()) for _ in range(1001))
    return times[500]


def singles(call, effort):
    times, end = [], clock() + effort.budget
    while len(times) < effort.samples and clock() < end:
        before = clock()
        call()
        times.append(clock() - before)
    own = clock_ns()
    times = sorted(max(0, one - own) for one in times)
    return {"p50_ns": percentile(times, 500), "p99_ns": percentile(times, 990), "p999_ns": percentile(times, 999)}


def pairs(pool, size, stream, effort):
    def pair():
        pool.free(pool.allocate(size, stream), stream)

    for _ in range(100):
        pair()
    means, end = [], clock() + effort.budget
    while len(means) < 5 or clock() < end:
        before = clock()
        for _ in range(200):
            pair()
        means.append((clock() - before) / 200)
    means.sort()
    return {"mean_ns": means[len(means) // 2], **singles(pair, effort)}


def random_sizes(pool, stream, effort):
    numbers, live = random.Random(1), []
    least, most = effort.live

    def step():
        if len(live) < least or (numbers.getrandbits(1) and len(live) < most):
            size = (numbers.randint(1, effort.largest) + 255) & ~255
            live.append(pool.allocate(size, stream))
        else:
            index = numbers.randrange(len(live))
            live[index], live[-1] = live[-1], live[index]
            pool.free(live.pop(), stream)

    for _ in range(least):
        step()
    count, start = 0, clock()
    while count < 1000 or clock() - start < effort.budget:
        for _ in range(100):
            step()
        count += 100
    figures = {"mean_ns": (clock() - start) / count, **singles(step, effort)}
    for block in live:
        pool.free(block, stream)
    return figures


def holes(pool, count, stream, effort):
    blocks = [pool.allocate(1024, stream) for _ in range(2 * count)]
    for block in blocks[1::2]:
        pool.free(block, stream)
    figures = pairs(pool, 1024, stream, effort)
    for block in blocks[::2]:
        pool.free(block, stream)
    return figures


def threads(pool, count, own_streams, effort):
    """Python's global lock lets one thread run at a time; a free-threaded Python has no such lock."""
    shared, barrier, end, done = pool.stream(), threading.Barrier(count + 1), threading.Event(), []

    def work():
        stream = pool.stream() if own_streams else shared
        pool.bind(stream)
        for _ in range(100):
            pool.free(pool.allocate(4096, stream), stream)
        barrier.wait()
        pairs = 0
        while not end.is_set():
            for _ in range(16):
                pool.free(pool.allocate(4096, stream), stream)
            pairs += 16
        done.append(pairs)

    workers = [threading.Thread(target=work) for _ in range(count)]
    for worker in workers:
        worker.start()
    barrier.wait()
    start = clock()
    time.sleep(effort.budget / 1e9)
    end.set()
    elapsed = clock() - start
    for worker in workers:
        worker.join()
    total = max(1, sum(done))
    return {"mean_ns": elapsed * count / total, "per_second": total / elapsed * 1e9}


def read_trace(path):
    """The allocations and frees of a trace: (action, address, size, stream)."""
    columns = {"action": "Action", "address": "Pointer", "size": "Size", "stream": "Stream"}
    with open(path, newline="") as file:
        first = file.readline()
        own = first.startswith("#cuda-mem-trace,version=1")
        if not own:
            file.seek(0)
        for line in csv.DictReader(file):
            action, address, size, stream = (line[name if own else other] for name, other in columns.items())
            if action in ("allocate", "free") and int(size):
                yield action, address, int(size), stream


def replay(pool, trace):
    """Runs on one thread, in the trace's order."""
    streams, live, times, requested, peak, sizes = {}, {}, [], 0, 0, {}
    for _, _, _, stream in trace:
        if stream not in streams:
            streams[stream] = pool.stream()
    tensors = isinstance(pool, (TorchTensors, CuPy))
    for action, address, size, name in trace:
        stream = streams[name]
        if tensors:
            pool.bind(stream)
        if action == "allocate":
            before = clock()
            block = pool.allocate(size, stream)
            times.append(clock() - before)
            live[address], sizes[address] = (block, stream), size
            requested += size
            peak = max(peak, requested)
        elif address in live:
            block, _ = live.pop(address)
            before = clock()
            pool.free(block, stream)
            times.append(clock() - before)
            requested -= sizes.pop(address)
    reserved = pool.peak_reserved()
    for block, stream in live.values():
        pool.free(block, stream)
    own = clock_ns()
    times = [max(0, one - own) for one in times]
    figures = {"mean_ns": sum(times) / max(1, len(times)), "peak_requested": peak}
    if reserved:
        figures.update(peak_reserved=reserved, fragmentation=max(0.0, 1 - peak / reserved))
    return figures


class Effort:
    def __init__(self, brief):
        self.budget = 3_000_000 if brief else 400_000_000
        self.samples = 200 if brief else 200_000
        self.live = (20, 40) if brief else (1000, 2000)
        self.largest = 1 << 16 if brief else 1 << 20
        self.holes = (64, 256) if brief else (64, 1024, 4096, 16_384, 65_536)
        self.threads = (1, 2) if brief else (1, 2, 4, 8, 16)


def cases(effort, trace):
    for size in (256, 4096, 1 << 20):
        yield "pair", size, "pair", lambda pool, stream, size=size: pairs(pool, size, stream, effort)
    yield "random", None, "operation", lambda pool, stream: random_sizes(pool, stream, effort)
    for count in effort.holes:
        yield "holes", count, "pair", lambda pool, stream, count=count: holes(pool, count, stream, effort)
    for own in (False, True):
        name = "threads, own streams" if own else "threads, one stream"
        for count in effort.threads:
            yield name, count, "pair", lambda pool, _, count=count, own=own: threads(pool, count, own, effort)
    if trace:
        yield "replay", None, "operation", lambda pool, _: replay(pool, trace)


def size_text(size):
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if size >> shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def label(row):
    workload, parameter = row["workload"], row["parameter"]
    if parameter is None:
        return workload
    if workload == "pair":
        return f"pair, {size_text(parameter)}"
    return f"{parameter:,} {workload}"


def short(number):
    return f"{number:.1f}" if number < 100 else f"{number:,.0f}"


def cell(row):
    if "failed" in row:
        return "failed"
    text = short(row["mean_ns"])
    return f"{text} ({short(row['p999_ns'])})" if "p999_ns" in row else text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brief", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--trace", metavar="FILE")
    options = parser.parse_args()
    effort, trace = Effort(options.brief), list(read_trace(options.trace)) if options.trace else None
    rows, missing, names = [], [], []
    for peer in (Nothing, Torch, TorchTensors, CuPy):
        try:
            peer().synchronize()
        except Exception as error:  # any error of its import or its first call
            missing.append(f"{peer.name}: {error!r}"[:200])
            continue
        names.append(peer.name)
        for workload, parameter, unit, run in cases(effort, trace):
            row = {"workload": workload, "parameter": parameter, "subject": peer.name, "unit": unit}
            try:
                pool = peer()
                stream = pool.stream()
                pool.bind(stream)
                row.update(run(pool, stream))
                pool.synchronize()
            except Exception as error:
                row["failed"] = repr(error)[:200]
            rows.append(row)
    if options.json:
        json.dump({"ok": True, "missing": missing, "rows": rows}, sys.stdout, indent=2)
        print()
        return
    print("nanoseconds: the mean (p99.9) of an allocation and its free; of random and replay, of one operation\n")
    print(" " * 26 + "".join(f"{name:>24}" for name in names))
    for text in dict.fromkeys(label(row) for row in rows):
        found = {row["subject"]: cell(row) for row in rows if label(row) == text}
        print(f"{text:<26}" + "".join(f"{found.get(name, '-'):>24}" for name in names))
    for text in missing:
        print("left out:", text)
    for row in rows:
        if "failed" in row:
            print(f"{label(row)}, {row['subject']}: {row['failed']}")


if __name__ == "__main__":
    main()
