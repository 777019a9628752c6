"""Loads tensors from .safetensors files into the memory of a GPU, all tensors of a file by one read at the rate of the link or of
the disk, and hands each to PyTorch without a copy.

    python load_safetensors.py [FILE]
    python load_safetensors.py --model FOLDER

Without a FILE it makes one. FOLDER is one that `save_pretrained` of Hugging Face transformers wrote: the model gets its weights so,
and must answer as the model that `from_pretrained` loads. Without PyTorch or a GPU it compares the bytes with the file.
"""

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import cuda_mem

# The names of element types, here and there, and the sizes of their elements.
TYPES = {
    "BOOL": ("bool", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "U16": ("uint16", 2),
    "I16": ("int16", 2),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "U32": ("uint32", 4),
    "I32": ("int32", 4),
    "F32": ("float32", 4),
    "U64": ("uint64", 8),
    "I64": ("int64", 8),
    "F64": ("float64", 8),
}
LONGEST_HEADER = 100_000_000


class Tensor(NamedTuple):
    """A tensor of a file: bytes `begin` to `end` of its data."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_header(path: str | Path) -> tuple[int, dict[str, Tensor]]:
    """Where the data of a file begins, and its tensors by their names. Raises ValueError if the header is not valid."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        data = 8 + length
        if length > LONGEST_HEADER or data > size:
            raise ValueError(f"{path}: the header, from byte 8 on, has {length} bytes, and the file {size}")
        try:
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            tensors = {
                name: Tensor(entry["dtype"], tuple(entry["shape"]), *entry["data_offsets"]) for name, entry in header.items()
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: the header, from byte 8 on, is not one of safetensors: {error!r}") from error
    at = 0
    for name, tensor in sorted(tensors.items(), key=lambda entry: entry[1].begin):
        if tensor.dtype not in TYPES:
            raise ValueError(f"{path}: {name} has elements {tensor.dtype}, which this program does not know")
        bytes_of_shape = math.prod(tensor.shape) * TYPES[tensor.dtype][1]
        if not at <= tensor.begin <= tensor.end <= size - data or tensor.end - tensor.begin != bytes_of_shape:
            raise ValueError(
                f"{path}: {name} of {bytes_of_shape} bytes has bytes {tensor.begin} to {tensor.end} from byte {data} on, which are "
                "others' too, or too many, or beyond the file"
            )
        at = tensor.end
    return data, tensors


def load(reader: cuda_mem.FileReader, path: str | Path, stream: Any = None) -> dict[str, cuda_mem.Array]:
    """The tensors of a file by their names, all in one buffer, which lives as long as one of them."""
    data, tensors = read_header(path)
    buffer = reader.read(path, data, stream=stream)
    arrays = {}
    for name, tensor in tensors.items():
        dtype, width = TYPES[tensor.dtype]
        part = buffer.slice(tensor.begin, tensor.end - tensor.begin)
        if tensor.begin % width:
            # Only files of early writers have such tensors.
            part = cuda_mem.DeviceMemory(reader.context).allocate(part.size, stream=stream)
            part.copy_from(buffer, source_offset=tensor.begin, size=part.size)
        arrays[name] = part.view(dtype, tensor.shape)
    return arrays


def write_example(path: Path, elements: int) -> None:
    """A file with tensors of three types."""
    tensors = {"weight.f32": ("F32", 4), "weight.f16": ("F16", 2), "weight.bf16": ("BF16", 2), "bias": ("F32", 4)}
    header, at = {}, 0
    for name, (dtype, width) in tensors.items():
        shape = [7] if name == "bias" else [elements // 64, 64]
        size = math.prod(shape) * width
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps({**header, "__metadata__": {"format": "pt"}}).encode()
    text += b" " * (-len(text) % 8)
    # Each pair of bytes is a finite number in each of the types.
    pattern = bytes(byte for number in range(2048) for byte in (number & 0xFF, 0x38 | number >> 8))
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.write(pattern * (at // len(pattern)) + pattern[: at % len(pattern)])


def rate(path: Path, seconds: float) -> str:
    """A row of the table."""
    return f"{path.stat().st_size / seconds / 1e9:.2f} GB/s, {path.stat().st_size} bytes in {seconds:.3f} s"


def find_torch() -> Any | None:
    """PyTorch with a GPU, or None, with a line that says what is missing."""
    try:
        if cuda_mem.Driver().is_software:
            print("missing: a GPU: the software GPU has no kernels, so the bytes are compared with the file")
            return None
        import torch
    except ImportError as error:
        print(f"missing: PyTorch ({error}): pip install torch; the bytes are compared with the file")
        return None
    if not torch.cuda.is_available():
        print("missing: a PyTorch for CUDA: pip install torch; the bytes are compared with the file")
        return None
    return torch


def compare_bytes(path: Path, arrays: dict[str, cuda_mem.Array]) -> None:
    """Compares the tensors with the bytes of the file."""
    data, tensors = read_header(path)
    assert arrays.keys() == tensors.keys()
    with open(path, "rb") as file:
        for name, tensor in tensors.items():
            host = cuda_mem.PinnedMemory().allocate(tensor.end - tensor.begin)
            host.view(arrays[name].dtype, tensor.shape).copy_from(arrays[name])
            file.seek(data + tensor.begin)
            assert host.to_bytes() == file.read(host.size), f"{name} differs from {path}"
            print(f"{name}: {tensor.dtype} {list(tensor.shape)}, as in the file")


def load_file(path: Path) -> None:
    """Loads a file, and compares it with what safetensors loads, or with its bytes."""
    torch, reader = find_torch(), cuda_mem.FileReader()
    begin = time.perf_counter()
    arrays = load(reader, path)
    print(f"cuda_mem: {rate(path, time.perf_counter() - begin)}")
    if torch is None:
        compare_bytes(path, arrays)
        return
    tensors = {name: torch.from_dlpack(array) for name, array in arrays.items()}
    for name, tensor in tensors.items():
        print(f"{name}: {tensor.dtype} {list(tensor.shape)}")
    try:
        from safetensors.torch import load_file as load_by_safetensors
    except ImportError as error:
        print(f"missing: safetensors ({error}): pip install safetensors; the tensors are not compared")
        return
    torch.cuda.synchronize()
    begin = time.perf_counter()
    others = load_by_safetensors(path, device="cuda")
    torch.cuda.synchronize()
    print(f"safetensors: {rate(path, time.perf_counter() - begin)}")
    assert tensors.keys() == others.keys()
    for name, tensor in tensors.items():
        same = torch.equal(tensor.contiguous().view(torch.uint8), others[name].contiguous().view(torch.uint8))
        assert tensor.dtype == others[name].dtype and same, f"{name} differs from what safetensors loads"
    print(f"{len(tensors)} tensors are equal to those of safetensors")


@contextmanager
def parameters_without_memory(torch: Any) -> Iterator[None]:
    """Modules that are made meanwhile have parameters without memory, which a state then replaces."""
    register = torch.nn.Module.register_parameter

    def without_memory(module: Any, name: str, parameter: Any) -> None:
        if parameter is not None:
            parameter = torch.nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)
        register(module, name, parameter)

    torch.nn.Module.register_parameter = without_memory
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register


def load_model(folder: Path) -> None:
    """Loads a model of transformers from a folder, and compares its answer with that of `from_pretrained`."""
    torch = find_torch()
    if torch is None:
        sys.exit("--model needs what is missing")
    try:
        import transformers
    except ImportError as error:
        sys.exit(f"missing: transformers ({error}): pip install transformers")
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        sys.exit(f"missing: files .safetensors in {folder}: write them by save_pretrained(folder)")
    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.inference_mode():
        begin = time.perf_counter()
        reader, state = cuda_mem.FileReader(), {}
        for file in files:
            state.update({name: torch.from_dlpack(array) for name, array in load(reader, file).items()})
        read = time.perf_counter()
        with torch.device("cuda"), parameters_without_memory(torch):
            model = transformers.AutoModelForCausalLM.from_config(config)
        lacking, unknown = model.load_state_dict(state, strict=False, assign=True)
        model.tie_weights()
        empty = [name for name, value in model.state_dict().items() if value.is_meta]
        assert not unknown and not empty, f"the files lack {empty or lacking}, and the model has no {unknown}"
        model = model.eval()
        ours = time.perf_counter()
        size = sum(file.stat().st_size for file in files)
        print(f"cuda_mem: {size} bytes at {size / (read - begin) / 1e9:.2f} GB/s, the model in {ours - begin:.2f} s")
        begin = time.perf_counter()
        other = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto", device_map="cuda").eval()
        torch.cuda.synchronize()
        print(f"from_pretrained: the model in {time.perf_counter() - begin:.2f} s")
        tokens = torch.arange(3, 67, device="cuda")[None] % config.vocab_size
        answers = [one(input_ids=tokens, use_cache=False).logits for one in (model, other)]
        assert torch.equal(*answers), "the model answers other logits than that of from_pretrained"
        print(f"the logits are equal: {list(answers[0].shape)}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--model", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.model:
        load_model(arguments.model)
    elif arguments.file:
        load_file(arguments.file)
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "example.safetensors")
            write_example(path, 1 << 20)
            load_file(path)


if __name__ == "__main__":
    main()
