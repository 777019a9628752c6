"""The programs of examples/python, as far as they run without kernels and without the libraries that they show: how they allocate,
write, hand over and free memory. A GPU runs the rest: examples/python/compare.py, which checks the results of each program.

What moves memory runs in processes of its own, on a software GPU with delays, with mapped memory that is not coherent, and with
reports of missing waits and flushes.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("numpy")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples/python"
sys.path.insert(0, str(EXAMPLES))
compare = __import__("compare")

STRICT = {"SOFTGPU_RACES": "1", "SOFTGPU_SEED": "7", "SOFTGPU_COHERENT": "0", "SOFTGPU_ATOM": "256"}
END = """
driver = ctypes.CDLL(os.environ["CUDA_MEM_LIBCUDA"])
driver.softgpu_misuse_report.restype = ctypes.c_char_p
assert driver.softgpu_misuse_report() == b"", driver.softgpu_misuse_report()
print("done")
"""


def runs(program: str, **environment: str) -> None:
    begin = "import ctypes, os\nimport cuda_mem\nimport numpy as np\n"
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", begin + program + END],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **STRICT, "PYTHONPATH": str(EXAMPLES), **environment},
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stdout + done.stderr


@pytest.mark.parametrize("slot", ["pinned", "mapped"])
def test_ffts_hands_each_block_to_the_device_whole(slot: str) -> None:
    runs(f"""
import ffts
samples, pool, mapped = 1 << 18, cuda_mem.Pool(cuda_mem.PinnedMemory()), cuda_mem.MappedMemory()
slots = [ffts.Pinned(samples, pool) if "{slot}" == "pinned" else ffts.Mapped(samples, mapped) for _ in range(2)]
blocks = [np.full(samples, number, np.int16) for number in range(40)]
seen = []

def work(slot):
    # In place of CuPy's work on the slot's stream.
    seen.append(cuda_mem.PinnedMemory().allocate(2 * samples, stream=slot.stream))
    seen[-1].copy_from(slot.device)

ffts.pipeline(slots, blocks, work)
wrong = [number for number, block in enumerate(blocks) if (seen[number].numpy(np.int16) != block).any()]
assert wrong == [], wrong
slots.clear()
assert pool.statistics().blocks == 0 and pool.statistics().reserved_peak <= 6 << 20, pool.statistics()
""")


def test_ffts_finds_the_tones_of_its_signals() -> None:
    runs("""
import ffts
found = [int(np.argmax(ffts.power(np, block))) for block in ffts.signals(16 * ffts.CHANNELS)]
assert found == [300, 1000, 1700, 2400, 3100], found
""")


@pytest.mark.parametrize("workers", [False, True], ids=["collate", "land"])
def test_dataloader_keeps_batches_until_they_are_copied(workers: bool) -> None:
    # Copies as PyTorch makes them: on the stream, without a word to the pool.
    runs(f"""
import dataloader
clips, size = dataloader.Clips(100, 10_000, 100_000), 4
batches = dataloader.PinnedBatches()
picked = ([clips[index] for index in range(begin, begin + size)] for begin in range(0, len(clips), size))
loader = batches.land(map(dataloader.collate_pageable, picked)) if {workers} else map(batches.collate, picked)
driver, context = ctypes.CDLL(os.environ["CUDA_MEM_LIBCUDA"]), batches.stream.context
assert driver.cuCtxSetCurrent(ctypes.c_void_p(context.handle)) == 0
on_gpu, largest = [], 0
for batch in loader:
    on_gpu.append(cuda_mem.DeviceMemory().allocate(batch.nbytes, stream=batches.stream))
    arguments = [ctypes.c_uint64(on_gpu[-1].handle), ctypes.c_void_p(batch.ctypes.data), ctypes.c_size_t(batch.nbytes)]
    assert driver.cuMemcpyHtoDAsync_v2(*arguments, ctypes.c_void_p(batches.stream.handle)) == 0
    largest = max(largest, batch.nbytes)
    del batch
sums = [float(np.frombuffer(buffer.to_bytes(), np.float32).sum(dtype=np.float64)) for buffer in on_gpu]
assert sums == clips.batch_sums(size), sums
statistics = batches.pool.statistics()
assert statistics.blocks == 0 and statistics.reserved_peak < 3 * largest + (4 << 20), (statistics, largest)
""")


NVIDIA = find_spec("nvidia")


@pytest.mark.skipif(
    NVIDIA is None or find_spec("numba_cuda") is None, reason="Numba is missing: pip install numba-cuda nvidia-cuda-runtime"
)
def test_numba_kernel_shares_mapped_memory_with_numpy() -> None:
    assert NVIDIA is not None
    # Numba asks the CUDA runtime for its version.
    paths = [str(Path(folder) / "cu13/lib") for folder in NVIDIA.submodule_search_locations or []]
    paths += filter(None, [os.environ.get("LD_LIBRARY_PATH")])
    runs(
        """
import numba_kernel
from numba import cuda
numbers = np.arange(1 << 16, dtype=np.float32)
mapped = numba_kernel.Mapped(cuda_mem.MappedMemory(), len(numbers))
on_gpu = cuda.as_cuda_array(mapped.device)
for number in range(5):
    mapped.write(numbers + number)
    assert (on_gpu.copy_to_host() == numbers + number).all(), "what the device reads"
    # In place of the kernel.
    on_gpu.copy_to_device(2 * numbers + number)
    cuda.synchronize()
    assert (mapped.read() == 2 * numbers + number).all(), "what numpy reads"
""",
        LD_LIBRARY_PATH=":".join(paths),
    )


def test_jax_arrays_reads_results_in_the_order_of_work() -> None:
    runs("""
import jax_arrays
shape, stream = (64, 1024), cuda_mem.Stream()
results = jax_arrays.Results(shape)
device = cuda_mem.DeviceMemory().allocate(4 * 64 * 1024, stream=stream)
for number in range(20):
    # In place of JAX's work, on another stream.
    device.fill(np.float32(number))
    assert (results.read(device.view("float32", shape)) == number).all(), number
""")


@pytest.mark.parametrize("lacking", ["", "numpy"])
@pytest.mark.parametrize("name", sorted(compare.PROGRAMS))
def test_each_program_says_what_it_lacks_here(name: str, lacking: str) -> None:
    path = str(EXAMPLES / f"{name}.py")
    # A module that is None cannot be imported.
    for memory in compare.PROGRAMS[name]:
        call = f"""
import runpy, sys
sys.argv, sys.path[0] = [{path!r}, "--memory", {memory!r}, "--brief"], {str(EXAMPLES)!r}
sys.modules.update(dict.fromkeys({lacking.split()!r}))
runpy.run_path({path!r}, run_name="__main__")
"""
        command = [sys.executable, "-c", call]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and done.stdout.startswith(f"skipped: {name}: "), done.stdout + done.stderr
        assert done.stdout.count("\n") == 1


def test_compare_runs_all_programs() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*compare.PROGRAMS, "compare", "load_safetensors", "report"}


def test_compare_reads_the_line_of_figures() -> None:
    call = "import report, sys; sys.argv = ['train.py']; report.line('ours', 1.5, 'its result', device_pool=3 << 20, pinned_pool=5 << 20)"
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, timeout=120, cwd=EXAMPLES)
    found = compare.Runs()
    found.add(done.returncode, done.stdout)
    assert (found.problem, found.seconds, found.device_pool, found.pinned_pool, found.result) == ("", [1.5], 3, 5, "its result")


PROGRAM = """
import sys, time
memory, name = sys.argv[2], {name!r}
if name == "missing":
    print("skipped: missing: a library")
elif name == "broken" and memory == "ours":
    raise SystemExit("no memory")
elif name == "slow" and memory == "ours":
    print("begins", flush=True)
    time.sleep(60)
else:
    time.sleep(3 * (name == "long" and memory == "ours"))
    pool = 100 if memory == "own" else 50
    result = "7" if name in ("good", "long") or memory == "own" else "8"
    memories = f"device pool {{pool}} MiB, pinned pool 0 MiB, 700 MiB in use on the device"
    print(f"{{name}} {{memory}}: {{pool / 100:.3f}} s; {{memories}}; {{result}}")
"""


def compared(folder: Path, names: list[str], *arguments: str) -> tuple[int, str]:
    """What compare.py says of programs that print the figures that they have."""
    for name in names:
        (folder / f"{name}.py").write_text(PROGRAM.format(name=name))
    programs = {name: ("own", "ours") for name in names}
    call = f"import compare, pathlib, sys; sys.exit(compare.main(pathlib.Path({str(folder)!r}), {programs!r}))"
    done = subprocess.run([sys.executable, "-c", call, *arguments], capture_output=True, text=True, timeout=120, cwd=EXAMPLES)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_compare_prints_times_memory_and_ratios(tmp_path: Path) -> None:
    status, said = compared(tmp_path, ["good", "missing"], "--rounds", "2")
    assert status == 0
    assert "| good | own | 2 | 1.00 (1.00 to 1.00) | 1.00 | 100 | 0 | 1.00 | 700 |" in said
    assert "| good | ours | 2 | 0.50 (0.50 to 0.50) | 0.50 | 50 | 0 | 0.50 | 700 |" in said
    assert "| missing | own | | skipped: missing: a library |" in said
    # The memories take turns.
    assert [line.split(":")[0] for line in said.splitlines() if line.startswith("good")] == ["good own", "good ours"] * 2


@pytest.mark.parametrize(
    "name, problem",
    [("broken", "no memory"), ("slow", "the time limit has passed"), ("other", "the results differ: {'own': '7', 'ours': '8'}")],
)
def test_compare_fails_with_a_program(tmp_path: Path, name: str, problem: str) -> None:
    status, said = compared(tmp_path, [name, "good"], "--rounds", "1", "--limit", "8" if name == "slow" else "90")
    assert status == 1 and f"FAILED: {problem}" in said, said
    assert "| good | ours | 1 |" in said, "the other programs go on"


def test_compare_begins_no_round_that_it_cannot_end(tmp_path: Path) -> None:
    status, said = compared(tmp_path, ["long"], "--seconds", "5")
    assert status == 0 and "only 1 of 3 rounds fit into 5 s" in said and "| long | ours | 1 |" in said
    status, said = compared(tmp_path, ["long"], "--seconds", "0")
    assert status == 0 and "only 0 of 3 rounds" in said and "| long | ours | | not run |" in said


def test_load_safetensors_loads_what_a_file_has(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(EXAMPLES / "load_safetensors.py")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.count(", as in the file\n") == 4, done.stdout + done.stderr
    load = __import__("load_safetensors")
    file = tmp_path / "forged.safetensors"
    for header, data, text in [
        (b"", b"", "the file 8"),
        (b"x" * 7, b"", "not one of safetensors"),
        (b"[1]", b"", "not one of safetensors"),
        (b'{"a":{"dtype":"F32","shape":[1]}}', b"1234", "not one of safetensors"),
        (b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}}', b"12345678", "of 4 bytes has bytes 0 to 8"),
        (b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', b"1234", "or beyond the file"),
        (b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[4,0]}}', b"1234", "or too many"),
        (b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}', b"123", "b of 2"),
        (b'{"a":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}}', b"12345678", "a has elements C64"),
    ]:
        # A header that says more than it has.
        length = len(header) if header else 1
        file.write_bytes(length.to_bytes(8, "little") + header + data)
        with pytest.raises(ValueError, match=text):
            load.read_header(file)
