"""Generates text with a Llama of Hugging Face transformers: batches and prompts of many sizes, with caches of keys and values that
grow with each token. PyTorch's memory comes from the pools of cuda_mem by one line: cuda_mem.torch.use().

    python generate.py [--memory own | expandable | ours] [--brief]

The weights and the prompts are random: nothing is downloaded. The tokens are the same with each allocator.
"""

import hashlib
import random
import time
from collections.abc import Iterator
from typing import Any

import report


def requests(count: int, most: int, longest: int, new: int) -> Iterator[tuple[list[int], int]]:
    """The lengths of the prompts and the number of new tokens, for each batch."""
    choice = random.Random(2)
    for _ in range(count):
        yield [choice.randint(longest // 64, longest) for _ in range(choice.randint(1, most))], choice.randint(new // 2, new)


def generate(torch: Any, model: Any, lengths: list[int], new: int) -> Any:
    """The tokens that the model adds to random prompts. Short prompts are filled up in front of their begin."""
    longest = max(lengths)
    random_tokens = torch.Generator().manual_seed(sum(lengths))
    tokens = torch.randint(3, model.config.vocab_size, (len(lengths), longest), generator=random_tokens)
    mask = torch.arange(longest) >= longest - torch.tensor(lengths)[:, None]
    tokens[~mask] = 0
    with torch.inference_mode():
        made = model.generate(
            input_ids=tokens.cuda(), attention_mask=mask.long().cuda(), max_new_tokens=new, do_sample=False, pad_token_id=0
        )
    return made[:, longest:].cpu()


def main() -> None:
    arguments = report.parser(__doc__, ["own", "expandable", "ours"]).parse_args()
    torch, transformers = report.torch_and_transformers(arguments.memory)
    # 218 million parameters.
    shape = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 12, "num_attention_heads": 16}
    if arguments.brief:
        shape = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
    # Without a token that ends a text, each text gets all its tokens.
    config = transformers.LlamaConfig(**shape, max_position_embeddings=4096, bos_token_id=None, eos_token_id=None)
    # With fused attention in bfloat16, the tokens differ between PyTorch's own two allocators too.
    config._attn_implementation = "eager"
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config).eval()

    generate(torch, model, [16, 8], 4)
    digest, count = hashlib.sha256(), 0
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for lengths, new in requests(3, 4, 64, 16) if arguments.brief else requests(4, 16, 1024, 64):
        tokens = generate(torch, model, lengths, new)
        assert tokens.shape == (len(lengths), new)
        digest.update(tokens.numpy().tobytes())
        count += tokens.numel()
    seconds = time.perf_counter() - begin
    report.line(arguments.memory, seconds, f"{count} tokens, {digest.hexdigest()[:16]}", device_pool=report.peak_of_torch(torch, arguments.memory))


if __name__ == "__main__":
    main()
