"""Other libraries and this package exchange 1,000 arrays each way by DLPack, and every byte is compared.

    python exchange.py [numpy | torch | cupy]

The memory is of each kind that the library takes: of the device, pinned, managed, mapped. Types, shapes, strides and offsets are
random, with a fixed seed. Both sides work on streams of their own, with work still queued at each exchange. Each side reads
what the other wrote, then writes all elements anew; the bytes between the elements must stay.
"""

import contextlib
import sys
from typing import Any

import checks
import cuda_mem

try:
    import numpy as np
except ModuleNotFoundError:
    print("skipped: exchange of arrays: No module named 'numpy'")
    sys.exit()

ARRAYS = 1000
# The names of the types, and numpy's types in which their bits are made. numpy has no bfloat16.
TYPES = {
    "bool": "uint8",
    "uint8": "uint8",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "float16": "float16",
    "bfloat16": "int16",
    "float32": "float32",
    "float64": "float64",
    "complex64": "complex64",
}
# The lowest bit of the exponent of each float type: without it, a number is finite, so conversions cannot change its bits.
EXPONENT = {"float16": (2, 10), "bfloat16": (2, 7), "float32": (4, 23), "float64": (8, 52), "complex64": (4, 23)}


class Draw:
    """A random type and layout: a base array, and a part of it."""

    def __init__(self, random: np.random.Generator, types: list[str], may_be_empty: bool = True) -> None:
        self.random = random
        self.type = str(random.choice(types))
        self.carrier = np.dtype(TYPES[self.type])
        dimensions = int(random.integers(0, 5))
        most = {0: 1, 1: 50_000, 2: 200, 3: 30, 4: 10}[dimensions]
        steps = [int(step) for step in random.choice([1, 1, 2, 3], dimensions)]
        extents = [int(random.integers(1, most + 1)) for _ in steps]
        if dimensions and random.integers(50) == 0 and may_be_empty:
            extents[int(random.integers(dimensions))] = 0
        self.base_shape = tuple(extent * step for extent, step in zip(extents, steps))
        self.index = (..., *(slice(None, None, step) for step in steps))
        self.order = [int(axis) for axis in random.permutation(dimensions)]
        self.offset = int(random.integers(0, 100)) * self.carrier.itemsize
        self.tail = int(random.integers(0, 100))

    def values(self, shape: tuple[int, ...]) -> np.ndarray:
        """Random bits of the type, in the carrier's type."""
        size = int(np.prod(shape, dtype=np.int64)) * self.carrier.itemsize
        bits = np.frombuffer(self.random.bytes(size), dtype=np.uint8).copy()
        if self.type == "bool":
            bits &= 1
        elif self.type in EXPONENT:
            width, bit = EXPONENT[self.type]
            words = bits.view(f"u{width}")
            words &= np.array(~(1 << bit) & ((1 << 8 * width) - 1), dtype=words.dtype)
        return bits.view(self.carrier).reshape(shape)

    def part(self, base: Any) -> Any:
        """The part of a base array, numpy's or CuPy's."""
        return base[self.index].transpose(self.order) if self.order else base[self.index]

    def __str__(self) -> str:
        return f"{self.type}, base {self.base_shape}, index {self.index}, order {self.order}, offset {self.offset}"


# ---- The libraries: how each takes, reads, writes and makes arrays, on its own stream ----


class Numpy:
    """numpy, which has no stream: a check of this program too."""

    takes, makes, types = ("pinned", "managed", "mapped"), ("host",), [name for name in TYPES if name != "bfloat16"]
    never_empty: tuple[str, ...] = ()
    stream: cuda_mem.Stream | None = None
    on_stream = staticmethod(contextlib.nullcontext)
    version = np.__version__

    def take(self, ours: cuda_mem.Array) -> Any:
        # numpy takes no other kinds by DLPack.
        return np.from_dlpack(ours) if ours.__dlpack_device__()[0] == 3 else ours.numpy()

    def read(self, theirs: Any) -> bytes:
        return theirs.tobytes()

    def write(self, theirs: Any, values: np.ndarray, type: str) -> None:
        theirs[...] = values.view(theirs.dtype)

    def make(self, values: np.ndarray, kind: str, type: str) -> Any:
        return values.view("bool") if type == "bool" else values

    def part(self, draw: Draw, base: Any) -> Any:
        return draw.part(base)


class Torch:
    never_empty: tuple[str, ...] = ()
    takes, makes, types = ("device", "pinned", "managed", "mapped"), ("device", "pinned"), list(TYPES)

    def __init__(self) -> None:
        import torch

        if not torch.cuda.is_available():
            raise checks.Missing("torch without a GPU")
        self.torch, self.version = torch, torch.__version__
        self.own = torch.cuda.Stream()
        self.stream = cuda_mem.Stream.from_handle(self.own.cuda_stream)

    def on_stream(self) -> Any:
        return self.torch.cuda.stream(self.own)

    def take(self, ours: cuda_mem.Array) -> Any:
        return self.torch.from_dlpack(ours)

    def read(self, theirs: Any) -> bytes:
        dense = theirs.contiguous().cpu()
        return (dense.view(self.torch.int16) if dense.dtype == self.torch.bfloat16 else dense).numpy().tobytes()

    def of_numpy(self, values: np.ndarray, type: str) -> Any:
        # A copy: torch may take memory of numpy that is not aligned or not writable otherwise.
        tensor = self.torch.from_numpy(np.array(values.view("bool") if type == "bool" else values, order="C"))
        return tensor.view(self.torch.bfloat16) if type == "bfloat16" else tensor

    def write(self, theirs: Any, values: np.ndarray, type: str) -> None:
        theirs.copy_(self.of_numpy(values, type).to(theirs.device))

    def make(self, values: np.ndarray, kind: str, type: str) -> Any:
        tensor = self.of_numpy(values, type)
        # The clone is work that is still queued when the tensor is exported.
        return tensor.pin_memory() if kind == "pinned" else tensor.cuda().clone()

    def part(self, draw: Draw, base: Any) -> Any:
        part = base[draw.index]
        return part.permute(draw.order) if draw.order else part


class CuPy:
    takes, makes = ("device", "pinned", "managed", "mapped"), ("device", "managed")
    # CuPy asks for the device of managed memory by the address, which is null in an empty array.
    never_empty = ("managed",)
    types = [name for name in TYPES if name != "bfloat16"]

    def __init__(self) -> None:
        import cupy

        self.cupy, self.version = cupy, cupy.__version__
        if cupy.cuda.runtime.getDeviceCount() == 0:
            raise checks.Missing("CuPy without a GPU")
        self.own = cupy.cuda.Stream(non_blocking=True)
        self.stream = cuda_mem.Stream.from_handle(self.own.ptr)
        self.allocators = {"device": cupy.get_default_memory_pool().malloc, "managed": cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc}

    def on_stream(self) -> Any:
        return self.own

    def take(self, ours: cuda_mem.Array) -> Any:
        return self.cupy.from_dlpack(ours)

    def read(self, theirs: Any) -> bytes:
        return self.cupy.asnumpy(theirs).tobytes()

    def write(self, theirs: Any, values: np.ndarray, type: str) -> None:
        theirs[...] = self.cupy.asarray(values.view(theirs.dtype))

    def make(self, values: np.ndarray, kind: str, type: str) -> Any:
        with self.cupy.cuda.using_allocator(self.allocators[kind]):
            return self.cupy.array(values.view("bool") if type == "bool" else values).copy()

    def part(self, draw: Draw, base: Any) -> Any:
        return draw.part(base)


# ---- The exchange ----


class Exchange:
    def __init__(self, library: Any) -> None:
        self.library = library
        self.stream = cuda_mem.Stream()
        self.random = np.random.default_rng(20261128)
        pinned = cuda_mem.PinnedMemory()
        self.staging = cuda_mem.Pool(pinned)
        self.sources = {
            "device": cuda_mem.Pool(cuda_mem.DeviceMemory()),
            "pinned": cuda_mem.Pool(pinned),
            "managed": cuda_mem.ManagedMemory(),
        }
        try:
            self.sources["mapped"] = cuda_mem.MappedMemory()
        except cuda_mem.Error as error:
            print(f"skipped: mapped memory: {error}")

    def staged(self, values: np.ndarray) -> cuda_mem.Buffer:
        """Pinned memory with the values' bytes."""
        buffer = self.staging.allocate(values.nbytes, stream=self.stream)
        buffer.copy_from(np.ascontiguousarray(values))
        return buffer

    def takes(self) -> list[str]:
        """The kinds of our memory that there are, and that the library takes."""
        kinds = []
        for kind in self.library.takes:
            if kind not in self.sources:
                continue
            try:
                with self.library.on_stream():
                    self.library.take(self.sources[kind].allocate(4, stream=self.stream).view("float32"))
                kinds.append(kind)
            except Exception as error:
                print(f"skipped: {kind} memory: {type(self.library).__name__} refuses it: {type(error).__name__}: {error}")
        return kinds

    def types(self, kind: str) -> list[str]:
        """The types that the library has, both ways."""
        types = []
        for name in self.library.types:
            try:
                with self.library.on_stream():
                    self.library.take(self.sources[kind].allocate(16, stream=self.stream).view(name))
                    base = self.library.make(np.zeros(2, TYPES[name]), self.library.makes[0], name)
                    assert cuda_mem.from_dlpack(base, stream=self.stream).dtype == name
                types.append(name)
            except Exception as error:
                print(f"skipped: {name}: {type(self.library).__name__} refuses it: {type(error).__name__}: {error}")
        return types

    def ours_there(self, kind: str, types: list[str]) -> list[str]:
        """Our array is read and written there, and read here. Returns what was wrong."""
        library, draw, wrong = self.library, Draw(self.random, types, kind not in self.library.never_empty), []
        size = int(np.prod(draw.base_shape, dtype=np.int64)) * draw.carrier.itemsize
        # What the memory must contain, and the elements' places in it.
        image = np.frombuffer(bytearray(self.random.bytes(draw.offset + size + draw.tail)), dtype=np.uint8)
        elements = draw.part(image[draw.offset : draw.offset + size].view(draw.carrier).reshape(draw.base_shape))
        first, second = draw.values(elements.shape), draw.values(elements.shape)
        elements[...] = first
        buffer = self.sources[kind].allocate(image.nbytes, stream=self.stream)
        if kind == "mapped" and self.random.integers(2):
            # The CPU writes the device's memory.
            with memoryview(buffer) as view:
                view[:] = image.tobytes()
            buffer.flush()
        else:
            # In stream order: not done yet when this returns.
            buffer.copy_from(self.staged(image))
        strides = [stride // draw.carrier.itemsize for stride in elements.strides]
        ours = buffer.view(draw.type, elements.shape, strides=strides, offset=draw.offset)
        with library.on_stream():
            theirs = library.take(ours)
            if library.read(theirs) != first.tobytes():
                wrong.append(f"{kind} memory: there: {draw}")
            library.write(theirs, second, draw.type)
            if library.stream is None:
                buffer.flush()
            else:
                self.stream.wait(library.stream)
            del theirs
        elements[...] = second
        if buffer.to_bytes() != image.tobytes():
            wrong.append(f"{kind} memory: back here: {draw}")
        del ours
        # Refused if the library still had the memory.
        buffer.close()
        return wrong

    def theirs_here(self, kind: str, types: list[str]) -> list[str]:
        """Their array is read and written here, and read there."""
        library, draw, wrong = self.library, Draw(self.random, types), []
        image = draw.values(draw.base_shape)
        with library.on_stream():
            base = library.make(image.copy(), kind, draw.type)
            ours = cuda_mem.from_dlpack(library.part(draw, base), stream=self.stream)
        elements = draw.part(image)
        dense = self.staging.allocate(elements.nbytes, stream=self.stream)
        dense.view(draw.type, elements.shape).copy_from(ours)
        if dense.to_bytes() != elements.tobytes():
            wrong.append(f"{kind} memory of theirs: here: {draw}")
        second = draw.values(elements.shape)
        ours.copy_from(self.staged(second).view(draw.type, elements.shape))
        if library.stream is None or kind == "pinned":
            # The CPU reads it there.
            ours.synchronize()
        else:
            library.stream.wait(self.stream)
        del ours
        elements[...] = second
        with library.on_stream():
            if library.read(base) != image.tobytes():
                wrong.append(f"{kind} memory of theirs: back there: {draw}")
        return wrong

    def run(self) -> str:
        takes, wrong = self.takes(), []
        assert takes, "the library takes no kind of memory"
        types = self.types(takes[0])
        for number in range(ARRAYS):
            there, here = takes[number % len(takes)], self.library.makes[number % len(self.library.makes)]
            try:
                wrong += self.ours_there(there, types)
                wrong += self.theirs_here(here, types)
            except Exception as error:
                error.add_note(f"array {number}: {there} memory there, or {here} memory here")
                raise
        for text in wrong[:20]:
            print(f"wrong: {text}")
        assert not wrong, f"{len(wrong)} exchanges were wrong"
        assert cuda_mem.take_drop_errors() == []
        there, here = ", ".join(takes), ", ".join(self.library.makes)
        base = self.library.make(np.zeros(1, np.uint8), self.library.makes[0], "uint8")
        way = "its table of C functions" if hasattr(type(base), "__dlpack_c_exchange_api__") else "its capsules"
        counts = f"{ARRAYS} of our arrays there ({there}), {ARRAYS} of theirs here ({here}, by {way}), {len(types)} types"
        return f"{self.library.version}: {counts}, none wrong"


CHECKS = {
    "numpy": lambda: Exchange(Numpy()).run(),
    "torch": lambda: Exchange(Torch()).run(),
    "cupy": lambda: Exchange(CuPy()).run(),
}

if __name__ == "__main__":
    sys.exit(checks.main(CHECKS))
