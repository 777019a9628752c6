"""Runs checks, each in a process of its own, and prints a line for each: `ok`, `FAILED`, or `skipped:` with what is missing.

The last line has the numbers, in the form that the table of the GPU bundle reads.
"""

import subprocess
import sys
import traceback
from collections.abc import Callable

OK, SKIPPED = 0, 3


class Missing(Exception):
    """The machine lacks what a check needs."""


def run(name: str, check: Callable[[], str]) -> int:
    """Runs a check in this process. Returns the exit status."""
    try:
        print(f"ok      {name}: {check()}", flush=True)
        return OK
    except (ModuleNotFoundError, Missing) as error:
        print(f"skipped: {name}: {error}", flush=True)
        return SKIPPED
    except Exception:
        traceback.print_exc()
        print(f"FAILED  {name}", flush=True)
        return 1


def main(checks: dict[str, Callable[[], str]]) -> int:
    """Runs the check that the command line names, or all. Returns the exit status of the program."""
    if sys.argv[1:]:
        return run(sys.argv[1], checks[sys.argv[1]])
    statuses = [subprocess.run([sys.executable, sys.argv[0], name], timeout=600).returncode for name in checks]
    passed, skipped = statuses.count(OK), statuses.count(SKIPPED)
    failed = len(statuses) - passed - skipped
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed; {skipped} ignored")
    return int(failed > 0)
