"""The software GPU: libcuda.so.1 and libnvidia-ml.so.1 over host memory. `softgpu run -- python program.py` uses them."""

import os
import sys
from pathlib import Path
from typing import NoReturn

__version__ = "0.1.0"
__all__ = ["library_path", "main"]

_FOLDER = Path(__file__).resolve().parent


def library_path() -> str:
    """The path of the driver's library. Its folder has no other libraries than NVML's, so LD_LIBRARY_PATH can name it."""
    return str(_FOLDER / "libcuda.so.1")


def main() -> NoReturn:
    """The command softgpu: `softgpu run --help` says what it does."""
    os.execv(_FOLDER / "softgpu", ["softgpu", *sys.argv[1:]])
