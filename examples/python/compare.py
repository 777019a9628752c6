"""Runs the programs of this folder with each memory, in turn, and prints a table in Markdown.

    python compare.py [--rounds N] [--seconds N] [--limit N] [--programs train,ffts] [--brief]

Each run is a process of its own. The memories of a program take turns, so that other work of the machine disturbs all alike; the
table has the median of the times, and the most memory of all rounds. A round begins only if it can end within `--seconds`. The exit
status is 1 if a run failed, or if two memories of a program gave different results.
"""

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

# The first memory is that without cuda_mem.
PROGRAMS = {
    "train": ("own", "expandable", "ours"),
    "generate": ("own", "expandable", "ours"),
    "sleep_model": ("own", "ours"),
    "ffts": ("own", "pinned", "mapped"),
    "dataloader": ("own", "ours"),
    "rmm_pool": ("own", "ours"),
    "numba_kernel": ("own", "ours"),
    "jax_arrays": ("own", "ours"),
}
# What report.line prints.
LINE = re.compile(
    r"^\w+ \w+: ([\d.]+) s; device pool (\d+) MiB, pinned pool (\d+) MiB, (\d+) MiB in use on the device; (.+)$", re.MULTILINE
)


@dataclass
class Runs:
    """The runs of a program with one memory: seconds, and the most memory in MiB. `problem` ends them."""

    seconds: list[float] = field(default_factory=list)
    device_pool: int = 0
    pinned_pool: int = 0
    in_use: int = 0
    result: str = ""
    problem: str = ""

    def add(self, status: int | None, output: str) -> None:
        """Adds a run by its exit status, which is None at the time limit, and its output."""
        skipped = re.search(r"^skipped: .*$", output, re.MULTILINE)
        found = LINE.search(output)
        if status is None:
            self.problem = "FAILED: the time limit has passed"
        elif status == 0 and skipped:
            self.problem = skipped[0]
        elif status != 0 or not found:
            self.problem = f"FAILED: {(output.strip().splitlines() or ['no output'])[-1]}"
        else:
            self.seconds.append(float(found[1]))
            self.device_pool = max(self.device_pool, int(found[2]))
            self.pinned_pool = max(self.pinned_pool, int(found[3]))
            self.in_use = max(self.in_use, int(found[4]))
            if self.result not in ("", found[5]):
                self.problem = f"FAILED: two runs differ: {self.result}, and {found[5]}"
            self.result = found[5]

    def row(self, name: str, memory: str, own: "Runs") -> str:
        """A line of the table, with ratios to the memory without cuda_mem."""
        if not self.seconds:
            return f"| {name} | {memory} | | {self.problem or 'not run'} | | | | | |"

        def ratio(mine: float, other: float) -> str:
            return f"{mine / other:.2f}" if other else ""

        seconds = statistics.median(self.seconds)
        times = f"{seconds:.2f} ({min(self.seconds):.2f} to {max(self.seconds):.2f})"
        of_time = ratio(seconds, statistics.median(own.seconds or [0]))
        of_pools = ratio(self.device_pool + self.pinned_pool, own.device_pool + own.pinned_pool)
        return (
            f"| {name} | {memory} | {len(self.seconds)} | {times} | {of_time} | {self.device_pool} | {self.pinned_pool} | "
            f"{of_pools} | {self.in_use} |"
        )


def run(command: list[str], limit: float) -> tuple[int | None, str]:
    """The exit status of a command, or None at the time limit, and its output."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=limit)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            # With the workers that it has started.
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0]


def different(runs: dict[str, Runs]) -> str:
    """What is wrong if the memories of a program have different results, or an empty text."""
    results = {memory: each.result for memory, each in runs.items() if each.result}
    return f"the results differ: {results}" if len(set(results.values())) > 1 else ""


def main(folder: Path = Path(__file__).parent, programs: dict[str, tuple[str, ...]] = PROGRAMS) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=400, help="for all rounds")
    parser.add_argument("--limit", type=float, default=90, help="seconds for one run")
    parser.add_argument("--programs", default=",".join(programs))
    parser.add_argument("--brief", action="store_true", help="little work, to see that the programs run")
    arguments = parser.parse_args()
    chosen = {name: {memory: Runs() for memory in programs[name]} for name in arguments.programs.split(",")}

    begin, longest = time.monotonic(), 0.0
    for number in range(arguments.rounds):
        start = time.monotonic()
        if start - begin + longest >= arguments.seconds:
            print(f"only {number} of {arguments.rounds} rounds fit into {arguments.seconds:.0f} s", flush=True)
            break
        for name, runs in chosen.items():
            for memory, each in runs.items():
                if each.problem or time.monotonic() - begin > arguments.seconds:
                    continue
                command = [sys.executable, str(folder / f"{name}.py"), "--memory", memory] + ["--brief"] * arguments.brief
                status, output = run(command, arguments.limit)
                each.add(status, output)
                print(output.strip() if each.problem else LINE.search(output)[0], flush=True)  # type: ignore[index]
        longest = max(longest, time.monotonic() - start)

    columns = ["program", "memory", "rounds", "s, median (range)", "of own", "device pool, MiB", "pinned pool, MiB", "of own", "in use, MiB"]
    print("\n| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for name, runs in chosen.items():
        own = next(iter(runs.values()))
        print("\n".join(each.row(name, memory, own) for memory, each in runs.items()))
    problems = [f"{name} {memory}: {each.problem}" for name, runs in chosen.items() for memory, each in runs.items()]
    problems = [text for text in problems if "FAILED" in text]
    problems += [f"{name}: FAILED: {different(runs)}" for name, runs in chosen.items() if different(runs)]
    print("\n".join(["", *problems]) if problems else "", flush=True)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
