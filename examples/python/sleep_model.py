"""A Llama of Hugging Face transformers sleeps between two questions: another program uses its memory meanwhile. The model, and a CUDA
graph of it, lie in a torch.cuda.MemPool over cuda_mem; the addresses stay, so model and graph answer as before.

    python sleep_model.py [--memory own | ours] [--brief]

With `own`, PyTorch's own allocator has the memory, and nothing sleeps. The weights are random: nothing is downloaded.
"""

import hashlib
import subprocess
import sys
import time
from contextlib import nullcontext
from typing import Any

import cuda_mem
import cuda_mem.torch
import report

# Takes memory that is free only while the model sleeps, and writes it.
OTHER = """
import sys, torch
taken = torch.full((int(sys.argv[1]),), 171, dtype=torch.uint8, device="cuda")
assert taken[::1 << 20].min() == 171
"""


class Model:
    """A model and a graph that computes its answer to the tokens in `tokens`. Both lie in the pool."""

    def __init__(self, torch: Any, transformers: Any, brief: bool, pool: Any | None) -> None:
        # 3.2 billion parameters.
        shape = {"hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24}
        if brief:
            shape = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
        config = transformers.LlamaConfig(**shape, use_cache=False)
        config._attn_implementation = "eager"
        with torch.device("cuda"), torch.cuda.use_mem_pool(pool) if pool else nullcontext():
            self.model = transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()
            self.tokens = torch.zeros((1, 64), dtype=torch.int64)
            # The model would make the mask by a copy from the host, which a graph cannot record.
            later = torch.ones((64, 64), dtype=torch.bool).triu(1)
            self.mask = torch.zeros((1, 1, 64, 64), dtype=torch.bfloat16).masked_fill(later, torch.finfo(torch.bfloat16).min)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            self.answer()
        side.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool.id if pool else None):
            self.logits = self.answer()

    def answer(self) -> Any:
        return self.model(input_ids=self.tokens, attention_mask=self.mask).logits

    def ask(self, torch: Any, seed: int) -> tuple[Any, Any]:
        """The answers of the graph and of the model without it."""
        self.tokens.copy_(torch.randint(3, 1000, self.tokens.shape, generator=torch.Generator().manual_seed(seed)))
        self.graph.replay()
        return self.logits.clone(), self.answer()


def sleep(torch: Any) -> str:
    """Puts the memory to sleep, lets another process take it, and wakes it. Returns what happened."""
    torch.cuda.synchronize()
    free, _ = torch.cuda.mem_get_info()
    begin = time.perf_counter()
    slept = cuda_mem.torch.sleep()
    asleep = time.perf_counter()
    # More than was free before, and less than is free now.
    subprocess.run([sys.executable, "-c", OTHER, str(free + slept.released // 2 - (1 << 30))], check=True)
    woken = time.perf_counter()
    cuda_mem.torch.wake()
    end = time.perf_counter()
    return (
        f"{slept.saved >> 20} MiB saved and {slept.released >> 20} MiB released in {asleep - begin:.3f} s, "
        f"awake again in {end - woken:.3f} s"
    )


def main() -> None:
    arguments = report.parser(__doc__, ["own", "ours"]).parse_args()
    # PyTorch's other memory comes from its own allocator.
    torch, transformers = report.torch_and_transformers("own")
    pool = torch.cuda.MemPool(cuda_mem.torch.allocator().allocator()) if arguments.memory == "ours" else None
    with torch.inference_mode():
        model = Model(torch, transformers, arguments.brief, pool)
        before = model.ask(torch, 7)
        begin = time.perf_counter()
        if pool:
            print(sleep(torch), flush=True)
        after = model.ask(torch, 7)
        assert all(map(torch.equal, before, after)), "the model gives another answer after it has slept"
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    digest = hashlib.sha256(after[0].float().cpu().numpy().tobytes()).hexdigest()[:16]
    peak = report.peak_of_torch(torch, arguments.memory)
    report.line(arguments.memory, seconds, f"answers of the graph and of the model, {digest}", device_pool=peak)


if __name__ == "__main__":
    main()
