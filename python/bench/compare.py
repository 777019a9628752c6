"""Times of our calls beside another package's, in one process."""

import gc
import time
from collections.abc import Callable
from typing import Any


def best(call: Callable[[], Any], calls: int) -> float:
    """The time of a call in ns."""
    begin = time.perf_counter_ns()
    for _ in range(calls):
        call()
    return (time.perf_counter_ns() - begin) / calls


def compare(name: str, ours: Callable[[], Any], theirs: Callable[[], Any], calls: int, rounds: int = 9) -> None:
    """Prints a line. The rounds of both alternate, so that other work of the machine disturbs both alike."""
    best(ours, calls // 10 + 1), best(theirs, calls // 10 + 1)
    gc.collect()
    gc.disable()
    times = [(best(ours, calls), best(theirs, calls)) for _ in range(rounds)]
    gc.enable()
    one, two = min(time for time, _ in times), min(time for _, time in times)
    print(f"{name:44} {one:9.0f} {two:9.0f} {one / two:7.2f}", flush=True)
