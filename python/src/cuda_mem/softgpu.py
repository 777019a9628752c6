"""Runs a program on the software GPU, which needs no GPU and no driver.

    python -m cuda_mem.softgpu run -- python program.py

The program, and the libraries that it uses, load the software GPU as libcuda.so.1. It computes nothing by kernels of its
own: it serves memory, streams, events and copies. The environment variable SOFTGPU_LIBRARY names its library, which
`cargo build --package softgpu-cdylib` makes from the sources of this project: target/debug/libsoftgpu.so.
"""

import hashlib
import os
import sys
from typing import NoReturn

__all__ = ["environment", "library_path", "main"]


def library_path() -> str:
    """The path of the software GPU's library. FileNotFoundError says how to get it."""
    named = os.environ.get("SOFTGPU_LIBRARY")
    if not named:
        text = "SOFTGPU_LIBRARY is not set: it names libsoftgpu.so, which `cargo build --package softgpu-cdylib` makes"
        raise FileNotFoundError(text)
    if not os.path.exists(named):
        raise FileNotFoundError(f"SOFTGPU_LIBRARY names {named}, which does not exist")
    return os.path.abspath(named)


def environment() -> dict[str, str]:
    """The environment of a program on the software GPU: this process's, with CUDA_MEM_LIBCUDA and LD_LIBRARY_PATH set."""
    library = library_path()
    paths = [_folder(library), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {**os.environ, "CUDA_MEM_LIBCUDA": library, "LD_LIBRARY_PATH": ":".join(paths)}


def _folder(library: str) -> str:
    """A folder in which the library has the driver's name, by which other libraries load it."""
    folder, name = os.path.split(library)
    if name == "libcuda.so.1":
        return folder
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(caches, "cuda-mem", hashlib.sha256(library.encode()).hexdigest()[:16])
    os.makedirs(folder, exist_ok=True)
    link = os.path.join(folder, "libcuda.so.1")
    if not os.path.lexists(link):
        try:
            os.symlink(library, link)
        except FileExistsError:
            pass  # Another process was faster.
    return folder


def main(arguments: list[str]) -> NoReturn:
    """The command line: `run -- PROGRAM ARGUMENTS...`."""
    match arguments:
        case ["run", *command]:
            command = command[1:] if command[:1] == ["--"] else command
            if command:
                try:
                    os.execvpe(command[0], command, environment())
                except FileNotFoundError as error:
                    sys.exit(f"cuda_mem.softgpu: {error}")
    sys.exit("usage: python -m cuda_mem.softgpu run -- PROGRAM ARGUMENTS...")


if __name__ == "__main__":
    main(sys.argv[1:])
