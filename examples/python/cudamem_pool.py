"""The pools of libcudamem for Python libraries: one pool for each device, by address. Copy this file into a program.

    import cudamem_pool
    pools = cudamem_pool.Pools("libcudamem.so", maximum=40 << 30)
    pools.use_in_cupy()    # or use_in_torch(), or rmm.mr.set_current_device_resource(pools.for_rmm())

SPDX-License-Identifier: MIT OR Apache-2.0
"""

import ctypes
import json
import pickle

# A flag: the pools allocate regions by cuMemAlloc, and do not grow in place.
REGIONS = 4


class Options(ctypes.Structure):
    """cudamem_pool_options. Zeros are the defaults; sizes are in bytes."""

    _fields_ = [("size", ctypes.c_size_t)] + [(name, ctypes.c_uint64) for name in (
        "initial", "smallest_growth", "largest_growth", "maximum", "front_capacity", "trace_capacity")] + [
        ("growth_factor", ctypes.c_double), ("reuse", ctypes.c_int32), ("flags", ctypes.c_uint32),
        ("on_out_of_memory", ctypes.c_void_p), ("user", ctypes.c_void_p)]


class Pools:
    """The pools of cudamem_malloc. Their options can be set once in a process, before the first allocation."""

    def __init__(self, library="libcudamem.so", **options):
        self.path = library
        self.library = loaded = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        loaded.cudamem_last_error_message.restype = ctypes.c_char_p
        size, device, stream, handle = ctypes.c_size_t, ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64
        loaded.cudamem_malloc.argtypes = [size, device, stream, ctypes.POINTER(handle)]
        loaded.cudamem_free.argtypes = [handle, size, device, stream]
        loaded.cudamem_malloc_get_pool.argtypes = [device, ctypes.POINTER(handle)]
        loaded.cudamem_resource_destroy.argtypes = [handle]
        loaded.cudamem_pool_get_statistics.argtypes = [handle, ctypes.c_void_p]
        loaded.cudamem_pool_get_snapshot.argtypes = [handle, ctypes.POINTER(handle)]
        loaded.cudamem_text_get.argtypes = [handle, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(size)]
        loaded.cudamem_text_destroy.argtypes = [handle]
        if options:
            # ctypes takes any name.
            if unknown := set(options) - {field[0] for field in Options._fields_}:
                raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
            chosen = Options(size=ctypes.sizeof(Options), **options)
            self._check(loaded.cudamem_malloc_set_options(ctypes.byref(chosen)))

    def _check(self, status):
        if status != 0:
            message = self.library.cudamem_last_error_message().decode()
            raise MemoryError(message) if status == 6 else RuntimeError(message)

    def malloc(self, size, device=0, stream=0):
        """Allocates bytes for work of a stream (a handle as an integer). Returns the address."""
        address = ctypes.c_uint64()
        self._check(self.library.cudamem_malloc(size, device, stream, ctypes.byref(address)))
        return address.value

    def free(self, address, size, device=0, stream=0):
        """Frees memory that only work queued on the stream so far still uses."""
        self._check(self.library.cudamem_free(address, size, device, stream))

    # ---- Libraries ----

    def use_in_torch(self, glue=None):
        """Makes PyTorch allocate here, and returns the allocator. Call it before PyTorch uses the GPU. `glue` is the path of
        the library of examples/torch/cudamem_torch.cpp, which raises torch.OutOfMemoryError."""
        import torch

        names = ("torch_alloc", "torch_free") if glue else ("cudamem_torch_alloc", "cudamem_torch_free")
        allocator = torch.cuda.memory.CUDAPluggableAllocator(glue or self.path, *names)
        # Without the first, memory goes to the next tensor while a second stream still uses it.
        for name, function in (("set_record_stream_fn", self.library.cudamem_torch_record_stream),
                               ("set_reset_fn", self.library.cudamem_torch_empty_cache)):
            getattr(allocator.allocator(), name)(ctypes.cast(function, ctypes.c_void_p).value)
        torch.cuda.memory.change_current_allocator(allocator)
        return allocator

    def use_in_cupy(self):
        """Makes CuPy allocate here, for its current stream. As CuPy's own pool does, a free waits for the work of the
        stream of the allocation only."""
        import cupy

        live = {}

        def malloc(size, device):
            stream = cupy.cuda.get_current_stream(device).ptr
            try:
                address = self.malloc(size, device, stream)
            except MemoryError as error:
                raise cupy.cuda.memory.OutOfMemoryError(size, 0) from error
            live[address] = (size, stream)
            return address

        def free(address, device):
            size, stream = live.pop(address)
            self.free(address, size, device, stream)

        self._cupy = cupy.cuda.PythonFunctionAllocator(malloc, free)
        cupy.cuda.set_allocator(self._cupy.malloc)

    def for_rmm(self, device=0):
        """A memory resource of RMM."""
        import rmm

        def allocate(size, stream):
            return self.malloc(size, device, _handle(stream))

        def deallocate(address, size, stream):
            self.free(address, size, device, _handle(stream))

        return rmm.mr.CallbackMemoryResource(allocate, deallocate)

    # ---- What the pools hold ----

    def _with_pool(self, device, call):
        pool = ctypes.c_uint64()
        self._check(self.library.cudamem_malloc_get_pool(device, ctypes.byref(pool)))
        try:
            return call(pool)
        finally:
            self._check(self.library.cudamem_resource_destroy(pool))

    def reserved(self, device=0):
        """The bytes that the device's pool has from the device, now and at most."""
        # cudamem_pool_statistics: its size, three flows of 3 words, then figures of 4 words with the peak second:
        # active, inactive_split, reserved, regions; then 9 words.
        words = (ctypes.c_uint64 * 35)(ctypes.sizeof(ctypes.c_uint64) * 35)
        self._with_pool(device, lambda pool: self._check(self.library.cudamem_pool_get_statistics(pool, words)))
        return words[18], words[19]

    def snapshot(self, device=0):
        """All regions and blocks of the device's pool, as `cuda-mem pool-map` reads them."""
        def read(pool):
            text, characters, length = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_size_t()
            self._check(self.library.cudamem_pool_get_snapshot(pool, ctypes.byref(text)))
            self._check(self.library.cudamem_text_get(text, ctypes.byref(characters), ctypes.byref(length)))
            read = json.loads(ctypes.string_at(characters, length.value))
            self._check(self.library.cudamem_text_destroy(text))
            return read

        return self._with_pool(device, read)

    def save_memory_viz(self, path, device=0):
        """Writes a snapshot that https://pytorch.org/memory_viz draws. With the option `trace_capacity`, it shows the
        newest allocations over time."""
        with open(path, "wb") as file:
            pickle.dump(memory_viz(self.snapshot(device)), file)


def _handle(stream):
    """The driver's handle of a stream of RMM."""
    try:
        return int(stream)
    except TypeError:
        return stream.__cuda_stream__()[1]


def memory_viz(snapshot):
    """A snapshot of a pool in the form of torch.cuda.memory._snapshot()."""
    states = {"allocated": "active_allocated", "in_front": "inactive", "pending": "active_pending_free", "free": "inactive"}
    actions = {"allocate": "alloc", "free": "free_completed", "grow": "segment_alloc", "release": "segment_free",
               "out_of_memory": "oom"}
    segments = []
    for region in snapshot["regions"]:
        blocks = []
        for block in region["blocks"]:
            frames = [{"name": block["name"], "filename": "", "line": 0}] if block.get("name") else []
            blocks.append({"address": region["address"] + block["offset"], "size": block["size"],
                           "requested_size": block["size"], "state": states[block["state"]], "frames": frames})
        used = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
        pending = sum(block["size"] for block in blocks if block["state"] == "active_pending_free")
        segments.append({"device": snapshot["device"], "address": region["address"], "total_size": region["size"],
                         "allocated_size": used, "active_size": used + pending, "requested_size": used, "stream": 0,
                         "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": True, "frames": [],
                         "blocks": blocks})
    events = []
    for event in (snapshot.get("trace") or {"events": []})["events"]:
        if event["action"] in actions:
            frames = [{"name": event["name"], "filename": "", "line": 0}] if event.get("name") else []
            events.append({"action": actions[event["action"]], "addr": event["address"], "size": event["size"],
                           "stream": event["stream"], "time_us": event["time_ns"] // 1000, "device": snapshot["device"],
                           "frames": frames})
            if event["action"] == "out_of_memory":
                events[-1]["device_free"] = 0
    return {"segments": segments, "device_traces": [[]] * snapshot["device"] + [events], "external_annotations": [],
            "allocator_settings": {}}
