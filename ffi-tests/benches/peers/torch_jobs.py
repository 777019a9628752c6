"""Runs a training job and an inference job on PyTorch's allocators and on the pool of the Python package, and compares them.

    python torch_jobs.py [--glue /path/to/libcudamem_torch.so] [--jobs train,serve] [--allocators own,expandable,regions,pool]
        [--rounds N] [--steps N] [--trace FOLDER]

It prints one line for each job and allocator: the peak of what the job asked for, the peak of what the allocator
reserved, the overhead, the time of a step after the first quarter, and the last result, which must be equal for all
allocators. Each run is a process of its own. `--trace` records what the job asks for, as logs in RMM's format
(NAME.csv), on PyTorch's own allocator.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time

import cuda_mem.torch


# torch_logs.py runs the jobs without a GPU.
DEVICE = "cuda"

# ---- The jobs ----

def train(torch, steps):
    """Trains a transformer on ragged batches: 2 to 16 sequences of 64 to 2048 tokens. Yields the loss of each step."""
    vocabulary, width, layers, heads = 32000, 1024, 12, 16
    functional = torch.nn.functional

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.projections = torch.nn.Linear(width, 3 * width)
            self.out = torch.nn.Linear(width, width)
            self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

        def forward(self, x):
            batch, length, _ = x.shape
            parts = self.projections(self.first(x)).view(batch, length, 3, heads, width // heads)
            query, key, value = (part.transpose(1, 2) for part in parts.unbind(2))
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(functional.gelu(self.up(self.second(x))))

    torch.manual_seed(1)
    choice = random.Random(1)
    tokens_in = torch.nn.Embedding(vocabulary, width).to(DEVICE)
    blocks = torch.nn.ModuleList(Block() for _ in range(layers)).to(DEVICE)
    tokens_out = torch.nn.Linear(width, vocabulary).to(DEVICE)
    parameters = [*tokens_in.parameters(), *blocks.parameters(), *tokens_out.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)
    for _ in range(steps):
        count = choice.randint(2, 16)
        length = max(choice.randint(64, 2048) for _ in range(count))
        batch = torch.randint(vocabulary, (count, length + 1), generator=torch.Generator().manual_seed(count * length))
        batch = batch.to(DEVICE, non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            x = tokens_in(batch[:, :-1])
            for block in blocks:
                x = block(x)
            logits = tokens_out(x)
            loss = functional.cross_entropy(logits.float().view(-1, vocabulary), batch[:, 1:].reshape(-1))
        del x, logits
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield loss.item()


def serve(torch, steps):
    """Serves requests whose caches of keys and values grow, and which end out of order. Yields a sum of each step."""
    layers, heads, size, width, most, grain = 8, 8, 128, 1024, 64, 128
    functional = torch.nn.functional
    torch.manual_seed(2)
    choice = random.Random(2)
    weights = [[torch.randn(width, 3 * width, device=DEVICE, dtype=torch.bfloat16) / 32,
                torch.randn(width, 4 * width, device=DEVICE, dtype=torch.bfloat16) / 32,
                torch.randn(4 * width, width, device=DEVICE, dtype=torch.bfloat16) / 64] for _ in range(layers)]

    def log_uniform(low, high):
        return int(low * (high / low) ** choice.random())

    def attend(x, layer, request):
        """Appends the keys and values of x to the request's cache, and attends to all of them."""
        length = x.shape[0]
        query, key, value = (x @ layer[0]).view(length, 3, heads, size).permute(1, 2, 0, 3)
        cache, used = request["caches"][request["layer"]], request["used"]
        if cache is None or cache.shape[2] < used + length:
            capacity = (used + length + grain - 1) // grain * grain
            grown = torch.empty(2, heads, capacity, size, device=DEVICE, dtype=torch.bfloat16)
            if cache is not None:
                grown[:, :, :used] = cache[:, :, :used]
            cache = request["caches"][request["layer"]] = grown
        cache[0, :, used:used + length], cache[1, :, used:used + length] = key, value
        keys, values = cache[0, :, :used + length], cache[1, :, :used + length]
        mixed = functional.scaled_dot_product_attention(query[None], keys[None], values[None], is_causal=length > 1)
        return mixed[0].transpose(0, 1).reshape(length, width)

    def forward(x, requests, lengths):
        for number, layer in enumerate(weights):
            for request in requests:
                request["layer"] = number
            parts = [attend(part, layer, request) for part, request in zip(x.split(lengths), requests)]
            x = x + torch.cat(parts)
            x = x + functional.gelu(x @ layer[1]) @ layer[2]
            x = functional.layer_norm(x, (width,))
        for request, length in zip(requests, lengths):
            request["used"] += length
        return x

    live = []
    for _ in range(steps):
        # Two requests arrive in each step, as long as there is room.
        for _ in range(2):
            if len(live) < most:
                length = log_uniform(32, 4096)
                request = {"caches": [None] * layers, "used": 0, "left": log_uniform(16, 512)}
                prompt = torch.randn(length, width, device=DEVICE, dtype=torch.bfloat16)
                request["x"] = forward(prompt, [request], [length])[-1:]
                live.append(request)
        x = forward(torch.cat([request["x"] for request in live]), live, [1] * len(live))
        for row, request in enumerate(live):
            request["x"] = x[row:row + 1]
            request["left"] -= 1
        live = [request for request in live if request["left"] > 0]
        yield x.float().square().sum().item()


JOBS = {"train": (train, 40), "serve": (serve, 120)}


# ---- The allocators ----

class OfTorch:
    def __init__(self, torch):
        self.torch = torch

    def peaks(self):
        """The peaks of the bytes asked for and reserved."""
        stats = self.torch.cuda.memory_stats()
        return stats["requested_bytes.all.peak"], stats["reserved_bytes.all.peak"]


class OfPool:
    def __init__(self, glue, regions):
        cuda_mem.torch.use(glue, regions=regions)

    def peaks(self):
        """The pool does not know the peak of what was asked for: the program takes it from another run."""
        return None, cuda_mem.torch.snapshot().data["statistics"]["reserved"]["peak"]


def trace_of(torch, folder, name):
    snapshot = torch.cuda.memory._snapshot()
    handles = {}
    with open(os.path.join(folder, f"{name}.csv"), "w") as log:
        log.write("Thread,Time,Action,Pointer,Size,Stream\n")
        for event in snapshot["device_traces"][0]:
            action = {"alloc": "allocate", "free_completed": "free"}.get(event["action"])
            if action:
                microseconds = event["time_us"] % 86_400_000_000
                seconds, microseconds = divmod(microseconds, 1_000_000)
                minutes, seconds = divmod(seconds, 60)
                hours, minutes = divmod(minutes, 60)
                when = f"{hours:02}:{minutes:02}:{seconds:02}.{microseconds:06}"
                stream = handles.setdefault(event["stream"], len(handles) + 1)
                log.write(f"1,{when},{action},{event['addr']:#x},{event['size']},{stream:#x}\n")


def run(arguments):
    name, kind = arguments.run
    if kind == "expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    import torch

    if kind in ("regions", "pool"):
        allocator = OfPool(arguments.glue, kind == "regions")
    else:
        allocator = OfTorch(torch)
    if arguments.trace:
        torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=20_000_000)
    job, steps = JOBS[name]
    times, result = [], None
    for result in job(torch, arguments.steps or steps):
        times.append(time.perf_counter())
    if arguments.trace:
        trace_of(torch, arguments.trace, name)
    asked, reserved = allocator.peaks()
    spent = [1000 * (after - before) for before, after in zip(times, times[1:])]
    late = spent[len(spent) // 4:]
    print(json.dumps({"asked": asked, "reserved": reserved, "mean": statistics.mean(late), "median": statistics.median(late),
                      "first": sum(spent[:len(spent) // 4]), "result": result}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--glue", help="the library of examples/torch/cudamem_torch.cpp")
    parser.add_argument("--jobs", default="train,serve")
    parser.add_argument("--allocators", default="own,expandable,regions,pool")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--rounds", type=int, default=1, help="runs of each job and allocator")
    parser.add_argument("--trace", metavar="FOLDER")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run(arguments)
        return False
    failed = False
    for job in arguments.jobs.split(","):
        asked, expected = None, None
        for kind in arguments.allocators.split(",") * arguments.rounds:
            done = subprocess.run([sys.executable, *sys.argv, "--run", job, kind], capture_output=True, text=True)
            if done.returncode != 0:
                print(f"FAILED  {job} {kind}: {done.stderr[-1500:]}", flush=True)
                failed = True
                continue
            seen = json.loads(done.stdout.splitlines()[-1])
            asked = asked or seen["asked"]
            expected = expected if expected is not None else seen["result"]
            # Sums of floats by atomic additions differ a little from run to run.
            equal = abs(seen["result"] - expected) <= 1e-3 * abs(expected)
            failed |= not equal
            overhead = f"{100 * (seen['reserved'] / asked - 1):6.1f}%" if asked else "     ?"
            print(f"{job:5}  {kind:10}  asked {(asked or 0) / 2**30:6.2f} GiB, reserved {seen['reserved'] / 2**30:6.2f} GiB, "
                  f"overhead {overhead}; a step {seen['mean']:7.2f} ms, median {seen['median']:7.2f}; first quarter "
                  f"{seen['first']:8.1f} ms; result {seen['result']:.5f} {'ok' if equal else 'DIFFERENT'}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
