"""Checks PyTorch programs with a second stream on the pools of the Python package, on a GPU.

    python torch_streams.py [--steps 30]

- `slow`: a slow kernel of a second stream reads a tensor that is dropped and allocated anew: right with
  `cudamem_torch_record_stream`, wrong without it.
- `prefetch`: a loader that copies each batch on its own stream and calls `Tensor.record_stream`.
- `fsdp`: `FullyShardedDataParallel` (version 1) on two GPUs; left out where there is one.
- `time`: the time of torch.empty with and without the function.

The losses must be those of PyTorch's own allocator, and each run counts the calls of the function: none is a failure. It
prints one line for each check. Each run is a process of its own. The exit status is 1 if a check failed.
"""

import argparse
import ctypes
import json
import os
import socket
import statistics
import subprocess
import sys
import time

# Multicast of NVLink is not for machines that programs share. Children inherit both.
os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"

import cuda_mem.torch  # noqa: E402

RECORD_STREAM = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def begin(torch, arguments):
    """Sets the allocator. Returns a function that tells how often PyTorch called cudamem_torch_record_stream."""
    if arguments.allocator == "own":
        return lambda: None
    allocator = cuda_mem.torch.use()
    calls = [0]
    real = RECORD_STREAM(("cudamem_torch_record_stream", ctypes.CDLL(cuda_mem.library_path())))

    def counted(pointer, stream):
        calls[0] += 1
        if arguments.allocator == "pool":
            real(pointer, stream)

    # PyTorch does not keep it.
    begin.kept = RECORD_STREAM(counted)
    if arguments.part != "time":
        allocator.allocator().set_record_stream_fn(ctypes.cast(begin.kept, ctypes.c_void_p).value)
    return lambda: calls[0]


# ---- The parts. Each returns what is compared. ----

def slow(torch, arguments):
    """How many of 20 readers saw the memory of a later tensor."""
    side, wrong, size = torch.cuda.Stream(), 0, 8 << 20
    for value in range(20):
        tensor = torch.full((size,), value, dtype=torch.int32, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)
            tensor.record_stream(side)
            seen = tensor.clone()
        del tensor
        later = [torch.full((size,), -1, dtype=torch.int32, device="cuda") for _ in range(3)]
        torch.cuda.synchronize()
        wrong += not bool((seen == value).all())
        del later, seen
    return wrong


def model_of(torch):
    torch.manual_seed(1)
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(1024, 1024), torch.nn.GELU())]
    return torch.nn.Sequential(*layers, torch.nn.Linear(1024, 1024))


def batches_of(torch, steps, seed=7):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(256 + 64 * (step % 5), 1024, generator=generator).pin_memory() for step in range(steps)]


def step_of(torch, model, optimizer, batch):
    loss = (model(batch) - batch).square().mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.detach()


def prefetch(torch, arguments):
    """The losses of a training whose batches come over a second stream."""
    model = model_of(torch).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    side, losses = torch.cuda.Stream(), []

    def load(batch):
        with torch.cuda.stream(side):
            return batch.cuda(non_blocking=True) * 1.0

    batches = batches_of(torch, arguments.steps)
    following = load(batches[0])
    for step in range(arguments.steps):
        batch = following
        torch.cuda.current_stream().wait_stream(side)
        batch.record_stream(torch.cuda.current_stream())
        torch.cuda._sleep(5_000_000)
        loss = step_of(torch, model, optimizer, batch)
        del batch
        if step + 1 < arguments.steps:
            following = load(batches[step + 1])
        losses.append(loss)
    return [loss.item() for loss in losses]


def fsdp(torch, arguments):
    """The losses of one rank of FullyShardedDataParallel."""
    import torch.distributed as distributed
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    torch.cuda.set_device(arguments.rank)
    distributed.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{arguments.port}", rank=arguments.rank, world_size=2)
    model = FullyShardedDataParallel(
        model_of(torch).cuda(), auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear}), limit_all_gathers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    batches = batches_of(torch, arguments.steps, 7 + arguments.rank)
    losses = [step_of(torch, model, optimizer, batch.cuda(non_blocking=True)) for batch in batches]
    losses = [loss.item() for loss in losses]
    distributed.destroy_process_group()
    return losses


def time_of_empty(torch, arguments, size=256, rounds=20, calls=5000):
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


PARTS = {"slow": slow, "prefetch": prefetch, "fsdp": fsdp, "time": time_of_empty}


# ---- Runs and checks ----

def start(arguments, part, allocator, *more):
    command = [sys.executable, os.path.abspath(__file__), "--steps", str(arguments.steps), "--part", part, "--allocator",
               allocator, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def ended(process):
    """What the run returned, and the calls of the function."""
    try:
        text, _ = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    if process.returncode:
        raise RuntimeError(f"the run ended with status {process.returncode}")
    return json.loads(text.splitlines()[-1])


def run(arguments, part, allocator):
    if part != "fsdp":
        return ended(start(arguments, part, allocator))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = [start(arguments, part, allocator, "--rank", str(rank), "--port", port) for rank in range(2)]
    results = []
    try:
        results = [ended(rank) for rank in ranks]
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
    calls = [calls for _, calls in results]
    return [losses for losses, _ in results], None if None in calls else min(calls)


def check_slow(arguments):
    wrong, calls = run(arguments, "slow", "pool")
    without, _ = run(arguments, "slow", "silent")
    assert calls, "PyTorch never called the function"
    assert wrong == 0, f"{wrong} of 20 readers saw another tensor"
    assert without, "without the function no reader saw another tensor: the check shows nothing"
    return f"0 of 20 wrong with the function ({calls} calls), {without} of 20 without it"


def check_losses(arguments, part):
    own, _ = run(arguments, part, "own")
    losses, calls = run(arguments, part, "pool")
    assert calls, "PyTorch never called the function"
    assert losses == own, f"{losses} in place of {own}"
    return f"{arguments.steps} equal losses, {calls} calls"


def check_time(arguments):
    times = {"pool": [], "silent": []}
    for _ in range(3):
        for allocator, list_ in times.items():
            list_.append(run(arguments, "time", allocator)[0])
    return ", ".join(f"torch.empty(256) {name}: {min(list_):.2f} us" for name, list_ in times.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--allocator", choices=["own", "pool", "silent"], default="own",
                        help="`silent`: the pool, whose function does nothing")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    try:
        import torch
    except ModuleNotFoundError as error:
        print(f"skipped: {error}")
        return 0
    if arguments.part:
        calls = begin(torch, arguments)
        result = PARTS[arguments.part](torch, arguments)
        print(json.dumps([result, calls()]), flush=True)
        return 0
    print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.device_count()} GPUs", flush=True)
    checks = {"a slow reader on a second stream": lambda: check_slow(arguments),
              "a prefetcher with its own stream": lambda: check_losses(arguments, "prefetch"),
              "FullyShardedDataParallel on two GPUs": lambda: check_losses(arguments, "fsdp"),
              "the time of torch.empty": lambda: check_time(arguments)}
    if torch.cuda.device_count() < 2:
        del checks["FullyShardedDataParallel on two GPUs"]
        print("skipped: FullyShardedDataParallel needs two GPUs", flush=True)
    failed = False
    for name, test in checks.items():
        try:
            print(f"ok      {name}: {test()}", flush=True)
        except Exception as error:
            failed = True
            print(f"FAILED  {name}: {type(error).__name__}: {error}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
