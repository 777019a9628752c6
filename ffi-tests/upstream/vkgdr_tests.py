#!/usr/bin/env python3
"""Builds upstream's Python module of vkgdr with our header, and runs upstream's tests over our library.

vkgdr_tests.py SOURCE BUILD CUDA: SOURCE is the folder of upstream's source distribution, BUILD the folder for build
results, CUDA the folder of cuda.h. VKGDR_LIBRARY names our library, CUDA_MEM_LIBCUDA the driver.
"""

import ctypes
import gc
import os
import pathlib
import runpy
import shutil
import sys
import warnings

import cffi
import pytest

# The number of tests in upstream's release 0.1.
TESTS = 8
ROOT = pathlib.Path(__file__).resolve().parents[2]


def compile_module(folder, source, **changes):
    """Runs upstream's build script in a new folder, with changed settings."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    shutil.copy(ROOT / "include/vkgdr.h", folder / "vkgdr.h")
    set_source = cffi.FFI.set_source
    try:
        cffi.FFI.set_source = lambda ffi, *names, **settings: set_source(ffi, *names, **{**settings, **changes})
        builder = runpy.run_path(str(folder / "src/vkgdr/build.py"))["ffibuilder"]
    finally:
        cffi.FFI.set_source = set_source
    before = os.getcwd()
    os.chdir(folder)
    try:
        with warnings.catch_warnings():
            # The build tool warns that upstream's settings are old.
            warnings.simplefilter("ignore")
            shutil.copy(builder.compile(tmpdir="."), "src/vkgdr")
    finally:
        os.chdir(before)


def over_our_library(build, source):
    """Builds upstream's module without upstream's vkgdr.c, linked with our library."""
    library = build / "library"
    shutil.rmtree(library, ignore_errors=True)
    library.mkdir(parents=True)
    for name in ("libvkgdr.so", "libvkgdr.so.1"):
        (library / name).symlink_to(pathlib.Path(os.environ["VKGDR_LIBRARY"]).resolve())
    folder = build / "ours"
    own = str(library)
    compile_module(folder, source, sources=[], libraries=["vkgdr"], library_dirs=[own], runtime_library_dirs=[own])
    return folder


class Count:
    """Counts passed tests, and lists the outcomes of the others."""

    def __init__(self):
        self.passed = 0
        self.others = []

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.passed += 1
        elif not report.passed:
            self.others.append(f"{report.nodeid}: {report.outcome}")


def check_driver():
    """Fails if the software GPU reports misuse."""
    driver = ctypes.CDLL(os.environ["CUDA_MEM_LIBCUDA"])
    if hasattr(driver, "softgpu_misuse_report"):
        driver.softgpu_misuse_report.restype = ctypes.c_char_p
        misuse = driver.softgpu_misuse_report()
        assert misuse == b"", misuse


def main():
    source, build, cuda = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    # Upstream's own library must build with our header too. It needs the headers of CUDA and Vulkan.
    os.environ["CFLAGS"] = f"-I{cuda}"
    if os.path.exists("/usr/include/vulkan/vulkan.h"):
        compile_module(build / "upstream", source)
    else:
        assert os.environ.get("CI") != "true", "CI lacks vulkan/vulkan.h"
        print("skipped: upstream's library with our header: vulkan/vulkan.h is missing: apt-get install libvulkan-dev")
    folder = over_our_library(build, source)
    sys.path[:0] = [str(folder / "src"), str(pathlib.Path(__file__).parent)]
    count = Count()
    # Ignores upstream's settings for pytest.
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={folder}", str(folder / "test")]
    status = pytest.main(options, plugins=[count])
    mapped = pathlib.Path("/proc/self/maps").read_text()
    gc.collect()
    check_driver()
    assert os.path.realpath(os.environ["VKGDR_LIBRARY"]) in mapped, "the tests loaded another library"
    assert status == 0 and count.passed == TESTS and not count.others, (status, count.passed, count.others)
    print(f"{count.passed} tests passed")


main()
