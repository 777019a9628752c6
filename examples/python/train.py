"""Trains a GPT-2 of Hugging Face transformers on batches of many sizes. PyTorch's memory comes from the pools of cuda_mem by one
line: cuda_mem.torch.use().

    python train.py [--memory own | expandable | ours] [--brief]

The weights and the tokens are random: nothing is downloaded. The losses are the same with each allocator.
"""

import math
import random
import time
from collections.abc import Iterator
from typing import Any

import report


def sizes(steps: int, most: int, longest: int) -> Iterator[tuple[int, int]]:
    """The number of sequences and their length, for each step."""
    choice = random.Random(1)
    for _ in range(steps):
        yield choice.randint(2, most), choice.randint(longest // 16, longest)


def train(torch: Any, model: Any, batches: list[Any]) -> tuple[list[float], float]:
    """The losses, and the seconds after the first step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    losses, begin = [], 0.0
    for batch in batches:
        tokens = batch.cuda(non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
        if not begin:
            torch.cuda.synchronize()
            begin = time.perf_counter()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    return [loss.item() for loss in losses], seconds


def main() -> None:
    arguments = report.parser(__doc__, ["own", "expandable", "ours"]).parse_args()
    torch, transformers = report.torch_and_transformers(arguments.memory)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    small = {"n_layer": 2, "n_embd": 128, "n_head": 4} if arguments.brief else {}
    # 124 million parameters, with the defaults of the configuration.
    config = transformers.GPT2Config(use_cache=False, **small)
    model = transformers.GPT2LMHeadModel(config).cuda().train()
    # Few of the tokens occur, which the model learns.
    shapes = sizes(8, 4, 128) if arguments.brief else sizes(200, 16, 1024)
    batches = [torch.randint(1000, shape, generator=torch.Generator().manual_seed(3)) for shape in shapes]

    losses, seconds = train(torch, model, batches)
    assert all(map(math.isfinite, losses)) and losses[-1] < losses[0], f"the training learns nothing: {losses}"
    result = f"{len(losses)} losses from {losses[0]:.6f} to {losses[-1]:.6f}, their sum {math.fsum(losses)!r}"
    report.line(arguments.memory, seconds, result, device_pool=report.peak_of_torch(torch, arguments.memory))


if __name__ == "__main__":
    main()
