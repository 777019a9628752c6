"""Ends: closed buffers, ends of the process, forks, subinterpreters. Each in a process of its own where it must be."""

import os
import pickle
import subprocess
import sys
import textwrap
import threading

import cuda_mem
import pytest


def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of Python."""
    command = [sys.executable, "-X", "faulthandler", *arguments, "-c", textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})


def test_a_closed_buffer_refuses_every_use() -> None:
    buffer = cuda_mem.PinnedMemory().allocate(16)
    buffer.close()
    buffer.close()
    uses = [
        lambda: buffer.handle,
        lambda: buffer.host_pointer,
        lambda: buffer.stream,
        lambda: buffer.context,
        lambda: buffer.atom,
        lambda: buffer.is_managed,
        lambda: buffer.fill(0),
        lambda: buffer.to_bytes(),
        lambda: buffer.copy_from(b"x"),
        lambda: buffer.copy_from(buffer),
        lambda: buffer.copy_to(bytearray(1)),
        lambda: buffer.equals(buffer),
        lambda: buffer.flush(),
        lambda: buffer.invalidate(),
        lambda: buffer.slice(),
        lambda: buffer[0:1],
        lambda: buffer.view(),
        lambda: buffer.grow_to(1),
        lambda: buffer.synchronize(),
        lambda: buffer.set_stream(cuda_mem.Stream()),
        lambda: buffer.record_use(cuda_mem.Stream()),
        lambda: buffer.__dlpack__(),
        lambda: buffer.__dlpack_device__(),
        lambda: memoryview(buffer),
        lambda: buffer.__cuda_array_interface__,
    ]
    for use in uses:
        with pytest.raises(cuda_mem.ClosedError, match="the Buffer has been closed: make another one"):
            use()
    assert not hasattr(buffer, "nothing") and isinstance(cuda_mem.ClosedError("x"), ValueError)


def test_a_close_under_another_threads_use_is_refused_or_done() -> None:
    pool = cuda_mem.Pool(cuda_mem.PinnedMemory())
    for _ in range(50):
        buffer = pool.allocate(1 << 16)
        seen: list[BaseException] = []

        def use() -> None:
            try:
                for number in range(20):
                    buffer.fill(number)
                    buffer.to_bytes()
            except cuda_mem.ClosedError as error:
                seen.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        try:
            buffer.close()
        except cuda_mem.SharedError:
            pass
        thread.join()
        buffer.close()
        assert len(seen) <= 1


def test_memory_is_not_pickled() -> None:
    buffer = cuda_mem.PinnedMemory().allocate(16)
    for thing in (buffer, cuda_mem.Stream(), cuda_mem.PinnedMemory(), buffer.view(), cuda_mem.Context()):
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(thing)


def test_exceptions_are_pythons_own_kinds_too() -> None:
    kinds = {
        cuda_mem.OutOfMemoryError: MemoryError,
        cuda_mem.ArgumentError: ValueError,
        cuda_mem.ClosedError: ValueError,
        cuda_mem.SharedError: BufferError,
        cuda_mem.ExchangeError: BufferError,
        cuda_mem.WaitTimeoutError: TimeoutError,
        cuda_mem.SleepError: RuntimeError,
        cuda_mem.AsleepError: cuda_mem.SleepError,
        cuda_mem.UnsupportedError: NotImplementedError,
        cuda_mem.DriverError: RuntimeError,
        cuda_mem.ForkedError: RuntimeError,
    }
    for kind, builtin in kinds.items():
        assert issubclass(kind, cuda_mem.Error) and issubclass(kind, builtin) and kind.__module__ == "cuda_mem"
        assert pickle.loads(pickle.dumps(kind("text"))).args == ("text",)


@pytest.mark.parametrize("number", range(20))
def test_a_process_ends_while_threads_allocate(number: int) -> None:
    done = run(
        """
        import cuda_mem, threading, time
        pool = cuda_mem.Pool(cuda_mem.PinnedMemory())
        def work():
            stream = cuda_mem.Stream()
            while True:
                buffer = pool.allocate(4096, stream=stream)
                buffer.fill(1)
                view = memoryview(buffer)
                del view
                buffer.close()
        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        left = [pool.allocate(100) for _ in range(10)]
        cycle = [pool.allocate(100)]
        cycle.append(cycle)
        del cycle
        time.sleep(0.05)
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_child_gets_an_error_with_advice() -> None:
    done = run(
        """
        import cuda_mem, cuda_mem._pools, os, warnings
        warnings.simplefilter("ignore")
        pool = cuda_mem.Pool(cuda_mem.PinnedMemory())
        buffer = pool.allocate(64)
        child = os.fork()
        if child == 0:
            for use in (lambda: pool.allocate(64), lambda: buffer.fill(0), lambda: buffer.close(), lambda: buffer.handle,
                        cuda_mem.Stream, lambda: memoryview(buffer), lambda: buffer.to_bytes(), lambda: buffer.view(),
                        lambda: buffer.size, lambda: len(buffer), lambda: buffer[:4], pool.statistics, pool.snapshot,
                        pool.reset_peaks, lambda: pool.set_name(1, "x"), pool.release_unused,
                        lambda: cuda_mem._pools.malloc(64)):
                try:
                    use()
                    os._exit(1)
                except cuda_mem.ForkedError as error:
                    assert "spawn" in str(error), error
            assert repr(buffer) == "Buffer(of the parent process)" and not buffer.is_closed
            assert cuda_mem.take_drop_errors() == []
            del buffer, pool
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        buffer.close()
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


# What a program has when it forks.
THINGS = {
    "pool": "pool := cuda_mem.Pool(cuda_mem.DeviceMemory()), pool.allocate(64)",
    "ring": "ring := cuda_mem.RingPool(cuda_mem.PinnedMemory(), 4096), ring.allocate(64)",
    "driver_pool": "cuda_mem.DriverPool(own=True).allocate(64)",
    "buffer": "cuda_mem.DeviceMemory().allocate(64)",
    "managed": "cuda_mem.ManagedMemory().allocate(64)",
    "mapped": "mapped := cuda_mem.MappedMemory().allocate(64), memoryview(mapped)",
    "growable": "cuda_mem.VirtualMemory().allocate_growable(1 << 22)",
    "exports": "b := cuda_mem.PinnedMemory().allocate(64), memoryview(b), b[:4], b.view(), b.__dlpack__()",
    "stream": "stream := cuda_mem.Stream(), cuda_mem.DeviceMemory().copy_of(b'x', stream=stream), stream.synchronize()",
    "event": "cuda_mem.Stream().record(timing=True), cuda_mem.Event()",
    "vkgdr": "cuda_mem.vkgdr.RawMemory(cuda_mem.vkgdr.Vkgdr(0), 64)",
    "malloc": "cuda_mem._pools.malloc(64)",
}


@pytest.mark.parametrize("thing", THINGS)
@pytest.mark.parametrize("is_dropped", [False, True])
def test_a_forked_child_ends_well(thing: str, is_dropped: bool) -> None:
    done = run(
        f"""
        import ctypes, cuda_mem, cuda_mem._pools, cuda_mem.vkgdr, gc, multiprocessing, os, sys, warnings
        warnings.simplefilter("ignore")
        driver, context = ctypes.CDLL(os.environ["CUDA_MEM_LIBCUDA"]), ctypes.c_void_p()
        assert driver.cuInit(0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert driver.cuCtxSetCurrent(context) == 0
        thing = [{THINGS[thing]}]
        process = multiprocessing.get_context("fork").Process(target=int)
        process.start()
        process.join()
        assert process.exitcode == 0, process.exitcode
        child = os.fork()
        if child == 0:
            if {is_dropped}:
                del thing
                for name in ("pool", "ring", "mapped", "b", "stream"):
                    globals().pop(name, None)
                gc.collect()
            sys.exit(0)
        found = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert found == 0, found
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_subinterpreter_is_refused() -> None:
    done = run(
        """
        import sys
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            import _interpreters as interpreters
        import cuda_mem
        program = '''if True:
            try:
                import cuda_mem
                raise SystemExit("imported")
            except ImportError as error:
                assert "interpreter" in str(error), error
            '''
        number = interpreters.create()
        found = (interpreters.run_string if hasattr(interpreters, "run_string") else interpreters.exec)(number, program)
        assert found is None, found
        cuda_mem.PinnedMemory().allocate(1).close()
        """
    )
    assert done.returncode == 0, done.stderr


def test_a_process_gives_everything_back_that_it_closed() -> None:
    done = run(
        """
        import cuda_mem, ctypes, gc, os
        driver = ctypes.CDLL(os.environ["CUDA_MEM_LIBCUDA"])
        driver.softgpu_memory_used.restype = ctypes.c_uint64
        driver.softgpu_misuse_report.restype = ctypes.c_char_p
        before = driver.softgpu_memory_used(0)
        for make in (cuda_mem.DeviceMemory, cuda_mem.ManagedMemory, cuda_mem.MappedMemory, cuda_mem.VirtualMemory):
            with make().allocate(1 << 20) as buffer:
                buffer.fill(1)
        pool = cuda_mem.Pool(cuda_mem.DeviceMemory())
        buffers = [pool.allocate(1 << 16, stream=cuda_mem.Stream()) for _ in range(20)]
        buffers[0].view().__dlpack__(max_version=(1, 0))
        del buffers, buffer, pool
        gc.collect()
        cuda_mem.Context().synchronize()
        assert driver.softgpu_memory_used(0) == before, (driver.softgpu_memory_used(0), before)
        assert driver.softgpu_misuse_report() == b""
        assert cuda_mem.take_drop_errors() == []
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_failed_drop_becomes_a_warning_and_a_failed_close_an_error() -> None:
    done = run(
        """
        import cuda_mem, gc, warnings
        warnings.simplefilter("error")
        memory = cuda_mem.DriverPool()
        first, second = memory.allocate(64), memory.allocate(64)
        try:
            first.close()
            raise SystemExit("closed")
        except cuda_mem.DriverError as error:
            assert error.code == 1 and not first.is_closed
        del first
        gc.collect()
        try:
            memory.allocate(64)
            raise SystemExit("no warning")
        except cuda_mem.DropErrorWarning as warning:
            assert "CUDA_ERROR_INVALID_VALUE" in str(warning), warning
        memory.allocate(64).close()
        assert cuda_mem.take_drop_errors() == []
        """,
        SOFTGPU_FAIL="cuMemFreeAsync:1=1,cuMemFreeAsync:2=1",
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_owner_is_dropped_on_a_thread_that_python_did_not_make() -> None:
    done = run(
        """
        import cuda_mem, gc, threading, weakref
        class Owner:
            def __init__(self):
                self.stream = cuda_mem.Stream()
            def __cuda_stream__(self):
                return self.stream.__cuda_stream__()
        # The memory's last part ends on threads of all kinds: it keeps the stream's owner.
        pool = cuda_mem.Pool(cuda_mem.DeviceMemory())
        owners = []
        for _ in range(20):
            owner = Owner()
            owners.append(weakref.ref(owner))
            buffer = pool.allocate(1 << 20, stream=owner)
            buffer.fill(1)
            del owner
            thread = threading.Thread(target=lambda taken: taken.pop().close(), args=[[buffer]])
            del buffer
            thread.start()
            thread.join()
        cuda_mem.Context().synchronize()
        pool.release_unused()
        del pool
        gc.collect()
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_import_is_quick_and_loads_no_other_library() -> None:
    done = run(
        """
        import sys
        before = set(sys.modules)
        import cuda_mem
        assert not {"numpy", "torch", "ctypes"} & (set(sys.modules) - before)
        """,
        "-X",
        "importtime",
    )
    assert done.returncode == 0, done.stderr
    own = [line for line in done.stderr.splitlines() if line.rsplit("|", 1)[-1].strip().startswith("cuda_mem")]
    total = int(own[-1].split("|")[1])
    # 5 ms is the promise for a quiet machine; beside other work it takes longer.
    assert total < 50_000, own
