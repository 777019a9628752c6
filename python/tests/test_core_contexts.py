"""Contexts of cuda_mem.core: which calls make the primary one, and that other threads of Python run meanwhile."""

from pathlib import Path

from conftest import run_beside_a_thread, run_program

# Each is done on a thread of its own, because a thread keeps the primary contexts that it has met.
CALLS = {
    "set_current": "Device(0).set_current()",
    "the device's resource": "DeviceMemoryResource(0)",
    "a new pool": "DeviceMemoryResource(0, DeviceMemoryResourceOptions())",
    "page-locked memory": "PinnedMemoryResource()",
    "a new page-locked pool": "PinnedMemoryResource(PinnedMemoryResourceOptions())",
    "managed memory": "ManagedMemoryResource(ManagedMemoryResourceOptions(preferred_location=0))",
    "memory of graphs": "cuda_mem._native.core.SourceBase()._open_graph(0)",
    "memory without a pool": "cuda_mem._native.core.SourceBase()._open_device(0)",
    "virtual memory": "VirtualMemoryResource(0)",
    "an address": "Buffer.from_handle(KNOWN.handle, 64).is_managed",
    "a managed range": "ManagedBuffer.from_handle(MANAGED.handle, 64).read_mostly",
    "the package's own context": "cuda_mem.Context(0)",
}


def test_threads_run_while_a_primary_context_is_made(tmp_path: Path) -> None:
    run_beside_a_thread(
        f"""
        import cuda_mem
        from cuda_mem.core import *

        Device(0).set_current()
        STREAM = Device(0).create_stream()
        KNOWN = DeviceMemoryResource(0).allocate(64, stream=STREAM)
        MANAGED = ManagedMemoryResource().allocate(64, stream=STREAM)
        failed = []
        def call(name, work):
            try:
                eval(work)
            except Exception as error:
                failed.append((name, error))
        for name, work in {CALLS!r}.items():
            thread = threading.Thread(target=call, args=(name, work))
            thread.start()
            thread.join()
        assert not failed, failed
        """,
        tmp_path,
    )


def test_the_current_device_needs_no_primary_context() -> None:
    run_program(
        """
        import ctypes, os
        import cuda_mem
        from cuda_mem.core import *

        driver = ctypes.CDLL(os.environ["CUDA_MEM_LIBCUDA"])
        def is_active(ordinal):
            flags, active = ctypes.c_uint(), ctypes.c_int()
            assert driver.cuDevicePrimaryCtxGetState(ordinal, ctypes.byref(flags), ctypes.byref(active)) == 0
            return active.value != 0

        own = Device(1).create_context()
        Device(1).set_current(own)
        assert Device().device_id == 1 and Device().context == own
        stream = Device().create_stream()
        assert stream.context == own and stream.device.device_id == 1
        stream.sync()
        LEGACY_DEFAULT_STREAM.sync()
        buffer = LegacyPinnedMemoryResource().allocate(64, stream=stream)
        buffer.fill(1, stream=stream)
        buffer.close()
        stream.record().sync()
        assert not is_active(0) and not is_active(1)
        # With both, the current one is still the own.
        DeviceMemoryResource(1)
        assert is_active(1) and not is_active(0) and Device().context == own
        """,
        SOFTGPU_DEVICES="2",
    )
