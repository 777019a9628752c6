"""On a GPU, PyTorch, CuPy, JAX, Numba and cuda.core each import our tensor and export theirs to us, in one process.

Each library writes and reads on its own stream. In every round one side's stream is delayed before it writes, so that a
reader that does not wait sees the previous round. Libraries that are not installed are listed as skipped. The argument is the
number of rounds (default 1000).
"""

import sys
import time

import interchange as ic

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
LENGTH = 1 << 16
MICROSECONDS = 200
KINDS = {"device": ic.DEVICE, "pinned": ic.PINNED, "managed": ic.MANAGED}
session = ic.Session()


def word(byte):
    """An int32 of four equal bytes."""
    return int.from_bytes(bytes([byte]) * 4, "little", signed=True)


def is_all(tensor, byte):
    return tensor.read() == bytes([byte]) * (4 * LENGTH)


class PyTorch:
    takes = ("device", "pinned", "managed")

    def __init__(self):
        import torch

        self.torch = torch
        self.stream = torch.cuda.Stream()
        self.version = torch.__version__

    def on_stream(self):
        return self.torch.cuda.stream(self.stream)

    def handle(self):
        return self.stream.cuda_stream

    def take(self, ours):
        return self.torch.from_dlpack(ours)

    def is_all(self, theirs, value):
        # To PyTorch, a tensor of pinned memory is the CPU's, so read it through a copy on the stream.
        return bool((theirs.to("cuda", non_blocking=True) == value).all())

    def slow_fill(self, theirs, value):
        self.torch.cuda._sleep(MICROSECONDS * 1000)
        if theirs.is_cuda:
            theirs.fill_(value)
        else:
            theirs.copy_(self.torch.full_like(theirs, value, device="cuda"), non_blocking=True)

    def make(self):
        return self.torch.zeros(LENGTH, dtype=self.torch.int32, device="cuda")


class CuPy:
    takes = ("device", "managed")  # it refuses pinned memory

    def __init__(self):
        import cupy

        self.cupy = cupy
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.spin = cupy.RawKernel(
            'extern "C" __global__ void spin(long long n) { long long t = clock64(); while (clock64() - t < n); }', "spin"
        )
        self.version = cupy.__version__

    def on_stream(self):
        return self.stream

    def handle(self):
        return self.stream.ptr

    def take(self, ours):
        return self.cupy.from_dlpack(ours)

    def is_all(self, theirs, value):
        return bool((theirs == value).all())

    def slow_fill(self, theirs, value):
        self.spin((1,), (1,), (MICROSECONDS * 1000,))
        theirs.fill(value)

    def make(self):
        return self.cupy.zeros(LENGTH, "int32")


class Numba:
    takes = ("device", "pinned", "managed")

    def __init__(self):
        import numba
        from numba import cuda

        self.cuda, self.version = cuda, numba.__version__
        self.stream = cuda.stream()

        @cuda.jit
        def fill(array, value, spin):
            for _ in range(spin):
                cuda.nanosleep(1000)
            index = cuda.grid(1)
            if index < array.size:
                array[index] = value

        @cuda.jit
        def count(array, value, wrong):
            index = cuda.grid(1)
            if index < array.size and array[index] != value:
                cuda.atomic.add(wrong, 0, 1)

        self.fill, self.count, self.grid = fill, count, LENGTH // 256
        self.wrong = cuda.to_device([0])
        # Compile now: Numba imports parts of NumPy first here, and not every pair of their releases works.
        fill[1, 1](self.wrong, 0, 0)

    def on_stream(self):
        import contextlib

        return contextlib.nullcontext()

    def handle(self):
        handle = self.stream.handle
        return getattr(handle, "value", handle) or 1

    def take(self, ours):
        # Numba orders its default stream after ours. Its own stream is ordered here.
        theirs = self.cuda.as_cuda_array(ours, sync=False)
        session.hold_back(self.handle())
        theirs.ours = ours
        return theirs

    def is_all(self, theirs, value):
        wrong = self.cuda.to_device([0], stream=self.stream)
        self.count[self.grid, 256, self.stream](theirs, value, wrong)
        return wrong.copy_to_host(stream=self.stream)[0] == 0

    def slow_fill(self, theirs, value):
        self.fill[self.grid, 256, self.stream](theirs, value, MICROSECONDS)

    def make(self):
        return self.cuda.device_array(LENGTH, "int32", stream=self.stream)


class JAX:
    takes = ("device",)

    def __init__(self):
        import jax

        self.jax, self.version = jax, jax.__version__
        if jax.default_backend() != "gpu":
            raise ImportError("jax without a GPU")
        self.slow = jax.jit(lambda value: self.jax.lax.fori_loop(0, 2000, lambda _, x: x * 1 + 0, self.jax.numpy.full(LENGTH, value, "int32")))

    def take(self, ours):
        return self.jax.dlpack.from_dlpack(ours)

    def is_all(self, theirs, value):
        return bool((theirs == value).all())

    def fresh(self, value):
        return self.slow(value)


class CudaCore:
    takes = ("device", "pinned", "managed")

    def __init__(self):
        import cuda.core as core
        from cuda.core.utils import StridedMemoryView

        self.version, self.view = core.__version__, StridedMemoryView
        self.device = core.Device(0)
        self.device.set_current()
        self.stream = self.device.create_stream()
        self.core = core
        self.room = core.LegacyPinnedMemoryResource().allocate(4 * LENGTH)

    def handle(self):
        return int(self.stream.handle)

    def buffer(self, ours):
        view = self.view.from_dlpack(ours, stream_ptr=self.handle())
        return self.core.Buffer.from_handle(view.ptr, 4 * LENGTH, owner=view)


def both_ways(name, library, kind):
    """Our tensor is exported, read and written there, and read here. Theirs is imported, read and written here, and read there."""
    ours = session.new(KINDS[kind], "int32", LENGTH)
    wrong = 0
    for number in range(ROUNDS):
        first, second = number % 100 + 1, number % 100 + 101
        with library.on_stream():
            session.delay(MICROSECONDS)
            ours.fill(first)
            theirs = library.take(ours)
            wrong += not library.is_all(theirs, word(first))
            library.slow_fill(theirs, word(second))
            if name == "Numba" or kind != "device":
                # If no stream is named at the export, its end orders nothing.
                session.wait_for(library.handle())
            # Otherwise its end orders our stream after its stream's current work.
            del theirs
            wrong += not is_all(ours, second)
    return wrong


def theirs_here(name, library):
    wrong = 0
    with library.on_stream():
        theirs = library.make()
        for number in range(ROUNDS):
            first, second = number % 100 + 1, number % 100 + 101
            library.slow_fill(theirs, word(first))
            if name == "Numba":
                ours = session.from_array_interface(theirs, cuda=True)
                session.wait_for(library.handle())
            else:
                ours = session.from_dlpack(theirs)
            wrong += not is_all(ours, first)
            session.delay(MICROSECONDS)
            ours.fill(second)
            session.hold_back(library.handle())
            wrong += not library.is_all(theirs, word(second))
            del ours
    return wrong


def jax_rounds(library):
    wrong = 0
    for number in range(ROUNDS):
        value = number % 200 + 1
        ours = session.new(ic.DEVICE, "int32", LENGTH)
        session.delay(MICROSECONDS)
        ours.fill(value)
        theirs = library.take(ours)
        wrong += not library.is_all(theirs, word(value))
        wrong += not is_all(session.from_dlpack(library.fresh(word(value))), value)
        del theirs
    return wrong


def cuda_core_rounds(library, kind):
    import ctypes

    wrong = 0
    ours = session.new(KINDS[kind], "int32", LENGTH)
    own = library.device.memory_resource.allocate(4 * LENGTH, stream=library.stream)
    for number in range(ROUNDS):
        first, second = number % 100 + 1, number % 100 + 101
        session.delay(MICROSECONDS)
        ours.fill(first)
        # Without a stream, memory that the CPU can address is exported only after its work is done; here a stream is
        # named.
        theirs = library.buffer(ours)
        theirs.copy_to(library.room, stream=library.stream)
        library.stream.sync()
        wrong += ctypes.string_at(int(library.room.handle), 4 * LENGTH) != bytes([first]) * (4 * LENGTH)
        theirs.fill(second, stream=library.stream)
        theirs.close()
        del theirs
        session.wait_for(library.handle())
        wrong += not is_all(ours, second)
        if kind == "device":
            # cuda.core's export ignores the stream, so this test must order the work.
            own.fill(first, stream=library.stream)
            session.wait_for(library.handle())
            seen = session.from_dlpack(own, stream=-1)
            wrong += seen.read() != bytes([first]) * (4 * LENGTH)
            del seen
    own.close(library.stream)
    return wrong


def refused(library, kind):
    """The library's error if it refuses a kind of memory altogether, or None."""
    try:
        with library.on_stream():
            library.take(session.new(KINDS[kind], "int32", LENGTH))
    except Exception as error:  # noqa: BLE001 - each library has errors of its own
        return repr(error)
    return None


def row(name, what, part):
    begin = time.perf_counter()
    try:
        wrong = part()
    except Exception as error:  # noqa: BLE001 - each library has refusals of its own
        print(f"{name:<10} {what:<24} failed: {error!r}", flush=True)
        return 1
    print(f"{name:<10} {what:<24} {ROUNDS:>6} rounds {wrong:>4} wrong {time.perf_counter() - begin:>8.1f} s", flush=True)
    return wrong


def main():
    failed = 0
    for name, make in {"PyTorch": PyTorch, "CuPy": CuPy, "Numba": Numba, "JAX": JAX, "cuda.core": CudaCore}.items():
        try:
            library = make()
        except Exception as error:  # noqa: BLE001 - whatever keeps a library from starting
            print(f"skipped: {name}: {error!r}")
            continue
        print(f"{name} {library.version}")
        for kind in KINDS:
            if kind not in library.takes:
                print(f"skipped: {name} does not take {kind} memory")
            elif name in ("PyTorch", "CuPy", "Numba") and (refusal := refused(library, kind)):
                print(f"skipped: {name} refuses {kind} memory: {refusal}")
            elif name == "JAX":
                failed += row(name, kind + ", both ways", lambda: jax_rounds(library))
            elif name == "cuda.core":
                failed += row(name, kind + ", both ways", lambda: cuda_core_rounds(library, kind))
            else:
                failed += row(name, kind + ", ours there", lambda: both_ways(name, library, kind))
        if hasattr(library, "make"):
            failed += row(name, "theirs here", lambda: theirs_here(name, library))
    sys.exit(failed != 0)


main()
