"""Three programs as users write them, on a GPU: numpy to PyTorch through mapped memory, a pinned pool under a file reader, and
PyTorch on our pool.

    python programs.py [mapped | files | torch]
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import checks
import cuda_mem
import cuda_mem.torch


def torch_with_gpu() -> Any:
    import torch

    if not torch.cuda.is_available():
        raise checks.Missing("torch without a GPU")
    return torch


def mapped() -> str:
    """numpy writes the device's memory, PyTorch computes there, and numpy reads what PyTorch wrote."""
    import numpy as np

    torch = torch_with_gpu()
    try:
        memory = cuda_mem.MappedMemory()
    except cuda_mem.Error as error:
        raise checks.Missing(str(error)) from error
    rows, columns, rounds = 64, 1024, 100
    buffer = memory.allocate(4 * rows * columns)
    numbers = buffer.numpy(np.float32, (rows, columns))
    tensor = torch.from_dlpack(buffer.view("float32", (rows, columns)))
    assert tensor.is_cuda and tensor.data_ptr() == buffer.handle, "PyTorch has the memory itself"
    random = np.random.default_rng(1)
    for number in range(rounds):
        # Small whole numbers: each sum is exact.
        written = random.integers(-1000, 1000, (rows, columns)).astype(np.float32)
        numbers[:] = written
        buffer.flush()
        sums = tensor.sum(dim=1)
        tensor.mul_(2)
        torch.cuda.synchronize()
        buffer.invalidate()
        assert (sums.cpu().numpy() == written.sum(axis=1)).all(), f"round {number}: what PyTorch read"
        assert (numbers == 2 * written).all(), f"round {number}: what numpy read"
    return f"{rounds} rounds of {numbers.nbytes >> 10} KiB each way, coherence atom {buffer.atom}"


def files() -> str:
    """A file goes through a pinned pool into device memory, which PyTorch reads."""
    torch = torch_with_gpu()
    size, part = 256 << 20, 4 << 20
    stream = cuda_mem.Stream()
    staging = cuda_mem.Pool(cuda_mem.PinnedMemory(), maximum=8 * part)
    target = cuda_mem.DeviceMemory().allocate(size, stream=stream)
    with tempfile.TemporaryFile() as file:
        block = os.urandom(part)
        for number in range(size // part):
            file.write(number.to_bytes(4, "little") + block[4:])
        file.seek(0)
        begin, place = time.perf_counter(), 0
        while place < size:
            buffer = staging.allocate(part, stream=stream)
            # Waits for the last copy out of this memory.
            with memoryview(buffer) as view:
                count = file.readinto(view)
            assert count == part
            target.copy_from(buffer, offset=place)
            # The pool gives the memory out again after the copy.
            buffer.close()
            place += count
        stream.synchronize()
        seconds = time.perf_counter() - begin
    tensor = torch.from_dlpack(target)
    expected = torch.frombuffer(bytearray(block), dtype=torch.uint8).cuda()
    found = tensor.view(size // part, part)
    assert bool((found[:, 4:] == expected[4:]).all()), "the blocks"
    numbers = found[:, :4].contiguous().view(torch.int32).flatten()
    assert numbers.tolist() == list(range(size // part)), "the order of the blocks"
    peak = staging.statistics().reserved_peak
    return f"{size >> 20} MiB in {seconds:.3f} s ({size / seconds / 1e9:.1f} GB/s), {peak >> 20} MiB of pinned memory"


def train(allocator: str) -> dict[str, Any]:
    """The losses of a small training with batches of many sizes, and what our pool served."""
    import torch

    if allocator == "pool":
        cuda_mem.torch.use(trace_capacity=1000)
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(512, 512), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(512, 512)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(7)
    losses = []
    for step in range(60):
        batch = torch.randn(32 + 48 * (step % 7), 512, generator=generator).cuda()
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    data = cuda_mem.torch.snapshot().data if allocator == "pool" else None
    return {"losses": losses, "statistics": data and data["statistics"]}


def torch_on_the_pool() -> str:
    """The losses of a training on our pool are those on PyTorch's own allocator."""
    torch = torch_with_gpu()
    seen = {}
    for allocator in ("own", "pool"):
        # The library of matrix products computes the same in each run only with this setting.
        environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        command = [sys.executable, sys.argv[0], "train", allocator]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=300, check=True)
        seen[allocator] = json.loads(done.stdout.splitlines()[-1])
    own, pool = seen["own"]["losses"], seen["pool"]["losses"]
    assert own == pool, f"the losses differ: {own} and {pool}"
    assert own[-1] < own[0], f"the training learns nothing: {own}"
    statistics = seen["pool"]["statistics"]
    assert statistics["blocks"]["total"] > 1000, f"PyTorch used the pool: {statistics}"
    return f"torch {torch.__version__}: {len(own)} equal losses, {own[0]:.4f} to {own[-1]:.4f}; the pool served {statistics['blocks']}"


CHECKS = {"mapped": mapped, "files": files, "torch": torch_on_the_pool}

if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        print(json.dumps(train(sys.argv[2])))
    else:
        sys.exit(checks.main(CHECKS))
