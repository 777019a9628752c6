"""Runs a program on the software GPU, which needs no GPU and no driver.

    pip install cuda-mem-softgpu
    python -m cuda_mem.softgpu run -- python program.py

The program, and the libraries that it uses, load the software GPU as libcuda.so.1. It computes nothing by kernels of its
own: it serves memory, streams, events and copies.
"""

import os
import sys
from typing import NoReturn

__all__ = ["environment", "library_path", "main"]


def library_path() -> str:
    """The path of the software GPU's library, which the package cuda-mem-softgpu contains. ImportError if it is missing."""
    try:
        import cuda_mem_softgpu
    except ImportError as error:
        raise ImportError(f"the software GPU is a package of its own: pip install cuda-mem-softgpu ({error})") from error
    return str(cuda_mem_softgpu.library_path())


def environment() -> dict[str, str]:
    """The environment of a program on the software GPU: this process's, with CUDA_MEM_LIBCUDA and LD_LIBRARY_PATH set."""
    library = library_path()
    # The library has the driver's name, by which other libraries load it.
    paths = [os.path.dirname(library), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {**os.environ, "CUDA_MEM_LIBCUDA": library, "LD_LIBRARY_PATH": ":".join(paths)}


def main(arguments: list[str]) -> NoReturn:
    """The command line: `run -- PROGRAM ARGUMENTS...`."""
    match arguments:
        case ["run", *command]:
            command = command[1:] if command[:1] == ["--"] else command
            if command:
                try:
                    os.execvpe(command[0], command, environment())
                except (ImportError, FileNotFoundError) as error:
                    sys.exit(f"cuda_mem.softgpu: {error}")
    sys.exit("usage: python -m cuda_mem.softgpu run -- PROGRAM ARGUMENTS...")


if __name__ == "__main__":
    main(sys.argv[1:])
