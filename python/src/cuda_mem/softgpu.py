"""Runs a program on the software GPU, which needs no GPU and no driver.

    pip install cuda-mem-softgpu
    python -m cuda_mem.softgpu run -- python program.py

The program, and the libraries that it uses, load the software GPU as libcuda.so.1. It computes nothing by kernels of its
own: it serves memory, streams, events and copies. If the program misuses the GPU, a report says how, and the exit status is 66.
This is the command softgpu of that package, which `softgpu run --help` explains.
"""

import sys

__all__ = ["library_path", "main"]


def library_path() -> str:
    """The path of the software GPU's library, which the package cuda-mem-softgpu contains. ImportError if it is missing."""
    try:
        import cuda_mem_softgpu
    except ImportError as error:
        raise ImportError(f"the software GPU is a package of its own: pip install cuda-mem-softgpu ({error})") from error
    return str(cuda_mem_softgpu.library_path())


def main() -> None:
    """Becomes the command softgpu, with the arguments of this process."""
    try:
        library_path()
    except ImportError as error:
        sys.exit(f"cuda_mem.softgpu: {error}")
    import cuda_mem_softgpu

    cuda_mem_softgpu.main()


if __name__ == "__main__":
    main()
