"""Checks PyTorch on the pools of libcudamem, and measures it beside PyTorch's own allocator, on a GPU.

    python torch_pool.py --library /path/to/libcudamem.so [--glue /path/to/libcudamem_torch.so]

It prints one line for each check: `ok` or `FAILED`, the name, and figures. Each part runs in a process of its own, because
a program sets its allocator once. The exit status is 1 if a check failed.
"""

import argparse
import ctypes
import statistics
import subprocess
import sys
import threading
import time
import traceback

failed = False


def check(name, test):
    """Runs one check, and prints one line."""
    global failed
    try:
        figures = test()
        print(f"ok      {name}{': ' + figures if figures else ''}", flush=True)
    except BaseException as error:
        failed = True
        print(f"FAILED  {name}: {type(error).__name__}: {str(error).splitlines()[:1]}", flush=True)
        traceback.print_exc(file=sys.stderr)


def library_of(arguments):
    library = ctypes.CDLL(arguments.library, mode=ctypes.RTLD_GLOBAL)
    library.cudamem_last_error_message.restype = ctypes.c_char_p
    return library


def pluggable(torch, arguments):
    names = ("torch_alloc", "torch_free") if arguments.glue else ("cudamem_torch_alloc", "cudamem_torch_free")
    allocator = torch.cuda.memory.CUDAPluggableAllocator(arguments.glue or arguments.library, *names)
    record_stream = library_of(arguments).cudamem_torch_record_stream
    allocator.allocator().set_record_stream_fn(ctypes.cast(record_stream, ctypes.c_void_p).value)
    return allocator


def time_of_empty(torch, size=256, rounds=20, calls=5000):
    """The median time of one torch.empty with its free, in microseconds."""
    for _ in range(1000):
        torch.empty(size, device="cuda")
    times = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(calls):
            torch.empty(size, device="cuda")
        times.append((time.perf_counter_ns() - start) / calls / 1000)
    return statistics.median(times)


def losses_of_training(torch, steps=30):
    """Trains a small network with batches of ragged sizes."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for step in range(steps):
        batch = torch.randn(64 + (step * 7919) % 1000, 256, device="cuda")
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def threads_with_streams(torch, count=8, rounds=300):
    """Each thread fills tensors on its own stream, and checks that nobody else wrote them."""
    errors = []

    def work(number):
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for step in range(rounds):
                    size = 1 + (step * 104729 + number) % 500_000
                    value = number * rounds + step
                    first = torch.full((size,), value, dtype=torch.int64, device="cuda")
                    second = first + 1
                    del first
                    third = torch.full((size,), -1, dtype=torch.int64, device="cuda")
                    if step % 10 == 0:
                        assert bool((second == value + 1).all()) and bool((third == -1).all()), f"step {step}"
            stream.synchronize()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def graph_with_new_input(torch, pool=None):
    """Captures a graph that allocates, replays it with new input, and allocates between the replays."""
    static = torch.zeros(100_000, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        (static * 2 + 1).sum()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        doubled = static * 2
        result = doubled + 1
        del doubled
    for value in range(1, 20):
        # Memory of the graph must not be given to these.
        others = [torch.full((100_000,), -1.0, device="cuda") for _ in range(4)]
        static.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert bool((result == 2 * value + 1).all()), f"replay {value}"
        assert all(bool((other == -1).all()) for other in others), f"replay {value} wrote memory of others"
        del others
    return "19 replays"


def whole_program(arguments):
    library = library_of(arguments)
    import torch

    torch.cuda.memory.change_current_allocator(pluggable(torch, arguments))

    def reuse():
        first = torch.empty(1 << 20, device="cuda").data_ptr()
        second = torch.empty(1 << 20, device="cuda").data_ptr()
        assert first == second != 0, f"{first:#x}, {second:#x}"

    def devices():
        for device in range(torch.cuda.device_count()):
            tensor = torch.full((1000,), device, device=f"cuda:{device}")
            assert bool((tensor == device).all())
        return f"{torch.cuda.device_count()} devices"

    def out_of_memory():
        if not arguments.glue:
            memory = ctypes.c_uint64(0)
            status = library.cudamem_malloc(ctypes.c_size_t(1 << 50), 0, None, ctypes.byref(memory))
            assert status == 6, status
            return "the library says: " + library.cudamem_last_error_message().decode()[:60] + "... (no glue: see the guide)"
        try:
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            return str(error).splitlines()[0][:80]
        raise AssertionError("no error")

    check("a tensor's memory is reused at once", reuse)
    check("every device has a pool", devices)
    check("training", lambda: "last loss {:.6f}".format(losses_of_training(torch)[-1]))
    check("threads with their own streams", lambda: threads_with_streams(torch))
    check("a graph is replayed with new input", lambda: graph_with_new_input(torch))
    check("out of memory", out_of_memory)
    print(f"time    torch.empty(256), whole program: {time_of_empty(torch):.2f} us", flush=True)


def mem_pool(arguments):
    library_of(arguments)
    import torch

    allocator = pluggable(torch, arguments)
    kept = {}

    def in_pool():
        pool = kept["pool"] = torch.cuda.MemPool(allocator.allocator())
        with torch.cuda.use_mem_pool(pool):
            tensor = torch.full((1 << 20,), 3.0, device="cuda")
        outside = torch.full((1 << 20,), 4.0, device="cuda")
        assert bool((tensor == 3).all()) and bool((outside == 4).all())

    def out_of_memory():
        with torch.cuda.use_mem_pool(kept["pool"]):
            try:
                torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError:
                return "torch.OutOfMemoryError"
        raise AssertionError("no error")

    check("MemPool", in_pool)
    check("a graph captured into a MemPool", lambda: graph_with_new_input(torch, kept["pool"].id))
    check("out of memory in a MemPool", out_of_memory)


def own(arguments):
    import torch

    check("training with PyTorch's own allocator", lambda: "last loss {:.6f}".format(losses_of_training(torch)[-1]))
    print(f"time    torch.empty(256), PyTorch's own: {time_of_empty(torch):.2f} us", flush=True)


PARTS = {"own": own, "whole": whole_program, "mempool": mem_pool}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="libcudamem.so")
    parser.add_argument("--glue", help="the library of examples/torch/cudamem_torch.cpp")
    parser.add_argument("--part", choices=PARTS)
    arguments = parser.parse_args()
    if arguments.part:
        PARTS[arguments.part](arguments)
        return failed
    import torch

    print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}", flush=True)
    # PyTorch's own allocator twice, so that the times show how much the machine changes.
    parts = ["own", "whole", "mempool", "own"]
    return any([subprocess.run([sys.executable, *sys.argv, "--part", part]).returncode for part in parts])


if __name__ == "__main__":
    sys.exit(main())
