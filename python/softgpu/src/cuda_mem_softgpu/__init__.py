"""The software GPU: a libcuda.so.1 over host memory. `python -m cuda_mem.softgpu run -- python program.py` uses it."""

from pathlib import Path

__version__ = "0.1.0"
__all__ = ["library_path"]


def library_path() -> str:
    """The path of the library. Its folder contains no other library, so it can be named in LD_LIBRARY_PATH."""
    return str(Path(__file__).resolve().parent / "libcuda.so.1")
