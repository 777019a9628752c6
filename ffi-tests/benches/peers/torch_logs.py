"""Records what the jobs of torch_jobs.py ask for, without a GPU: as logs in RMM's format, which `cuda-mem replay` takes.

    python torch_logs.py JOB STEPS SEED LOG.csv

The jobs run on PyTorch's meta device, whose tensors have sizes and no contents. PyTorch 2.6 or later is needed. The logs
differ from those of a GPU in what kernels ask for themselves: the training job's peak is 28.03 GiB here and 28.09 there.
"""

import contextlib
import os
import random
import sys
import types
import weakref

# The jobs need no allocator here.
sys.modules["cuda_mem"] = types.ModuleType("cuda_mem")
sys.modules["cuda_mem.torch"] = sys.modules["cuda_mem"].torch = types.ModuleType("cuda_mem.torch")

import torch
import torch_jobs
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten


class Recorder(TorchDispatchMode):
    """Notes each new storage, and its end."""

    def __init__(self, log):
        super().__init__()
        self.log, self.known, self.count = log, weakref.WeakSet(), 0
        self.log.write("Thread,Time,Action,Pointer,Size,Stream\n")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        for tensor in tree_flatten(results)[0]:
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "meta":
                self.note(tensor.untyped_storage())
        return results

    def note(self, storage):
        if storage in self.known or storage.nbytes() == 0:
            return
        self.known.add(storage)
        self.count += 1
        line = f"{self.count:#x},{storage.nbytes()},0x1\n"
        self.log.write(f"1,0,allocate,{line}")
        # What lives at the end of the program is not freed.
        weakref.finalize(storage, self.log.write, f"1,0,free,{line}").atexit = False


class Halves:
    """What autocast does on a GPU, which the meta device lacks: linear layers compute in bf16, and cast a weight once."""

    def __init__(self, functional):
        self.linear, self.norm, self.weights = functional.linear, functional.layer_norm, None
        functional.linear, functional.layer_norm = self.of_linear, self.of_norm

    @contextlib.contextmanager
    def autocast(self, *_arguments, **_options):
        self.weights = {}
        yield
        self.weights = None

    def half(self, tensor):
        if tensor is None or tensor.dtype == torch.bfloat16:
            return tensor
        if not tensor.is_leaf:
            return tensor.to(torch.bfloat16)
        if id(tensor) not in self.weights:
            self.weights[id(tensor)] = tensor.to(torch.bfloat16)
        return self.weights[id(tensor)]

    def of_linear(self, x, weight, bias=None):
        if self.weights is None:
            return self.linear(x, weight, bias)
        return self.linear(self.half(x), self.half(weight), self.half(bias))

    def of_norm(self, x, *arguments, **options):
        return self.norm(x if self.weights is None else x.float(), *arguments, **options)


def attention(query, key, value, is_causal=False):
    """The kernel that PyTorch takes on a GPU."""
    return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, 0.0, is_causal)[0]


def main():
    job, steps, seed, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    torch_jobs.DEVICE = "meta"
    seeded = random.Random
    torch_jobs.random = types.SimpleNamespace(Random=lambda usual: seeded(seed or usual))
    torch.autocast = Halves(torch.nn.functional).autocast
    torch.nn.functional.scaled_dot_product_attention = attention
    # A tensor of the meta device has no number to return.
    item = torch.Tensor.item
    torch.Tensor.item = lambda tensor: 0 if tensor.device.type == "meta" else item(tensor)
    with open(path, "w") as log:
        with Recorder(log):
            for _ in torch_jobs.JOBS[job][0](torch, steps):
                pass
        log.flush()
        # The rest of the program frees what the job has left.
        os._exit(0)


if __name__ == "__main__":
    main()
