"""Compiles the module for the pyarrow that is installed. The version is pyarrow's minor release, by which pip finds the release
that fits, and the number of the C library's release. scripts/arrow-wheel copies the headers of that library beside this file."""

import os
import re
from pathlib import Path

import numpy
import pyarrow
from Cython.Build import cythonize
from setuptools import Extension, setup

major, minor = map(int, pyarrow.__version__.split(".")[:2])
header = Path("include/cudamem.h").read_text()
release = [int(re.search(rf"define CUDAMEM_VERSION_{part} (\d+)", header)[1]) for part in ("MAJOR", "MINOR", "PATCH")]
number = release[0] * 1_000_000 + release[1] * 1000 + release[2]
# A library of another major version has another interface; before 1.0, one of another minor version may have.
next_release = f"{release[0] + 1}" if release[0] else f"0.{release[1] + 1}"

Path("src/cuda_mem_arrow/_built.py").write_text(f'"""Written by setup.py."""\n\nPYARROW = "{major}.{minor}"\n')
extension = Extension(
    "cuda_mem_arrow._arrow",
    ["native/_arrow.pyx", *sorted(str(path) for path in Path("native").glob("*.cc"))],
    # Headers of Arrow include those of numpy; the module does not use numpy.
    include_dirs=["include", "native", pyarrow.get_include(), numpy.get_include()],
    library_dirs=pyarrow.get_library_dirs(),
    # The import of pyarrow loads these libraries before.
    libraries=[f":{name}.so.{major * 100 + minor}" for name in ("libarrow", "libarrow_python")],
    extra_compile_args=[
        *["-std=c++20", "-fvisibility=hidden", "-g0", "-Wno-unused-variable"],
        *os.environ.get("CUDA_MEM_ARROW_FLAGS", "").split(),
    ],
    language="c++",
)
setup(
    version=f"{major}.{minor}.{number}",
    install_requires=[f"pyarrow=={major}.{minor}.*", f"cuda-mem>={'.'.join(map(str, release))},<{next_release}"],
    ext_modules=cythonize([extension], compiler_directives={"binding": True, "show_performance_hints": False}),
)
