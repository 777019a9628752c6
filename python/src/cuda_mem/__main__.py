"""`python -m cuda_mem doctor`: what this machine offers, and what is missing."""

import importlib.metadata
import json
import platform
import sys

import cuda_mem


def doctor() -> int:
    """Prints what was found, a line for each. Returns 0 if memory of device 0 can be used."""
    print(f"cuda_mem {cuda_mem.__version__} on Python {platform.python_version()}, {cuda_mem.library_path()}")
    for name in ("numpy", "torch", "cupy", "rmm", "numba-cuda", "cuda-core"):
        try:
            print(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            print(f"{name}: not installed")
    try:
        driver = cuda_mem.Driver()
        release = driver.release
        print(f"driver: {driver.library}" + (f", CUDA {release[0]}.{release[1]}" if release else ""))
        for ordinal in range(driver.device_count):
            device = cuda_mem.Device(ordinal)
            print(f"device {ordinal}: {device.name}, {device.total_memory >> 20} MiB, {device.uuid}")
        memory = cuda_mem.Context(0).memory_info()
        print(f"memory of device 0: {memory['free'] >> 20} MiB free of {memory['total'] >> 20} MiB")
        with cuda_mem.DeviceMemory().copy_of(b"doctor") as buffer:
            assert buffer.to_bytes() == b"doctor"
        print("device memory: works")
    except cuda_mem.Error as error:
        print(f"driver: {error}")
        return 1
    try:
        with cuda_mem.MappedMemory().allocate(4096) as buffer:
            print(f"mapped memory: works, atom {buffer.atom}")
    except cuda_mem.Error as error:
        print(f"mapped memory: {error}")
        try:
            print(json.dumps(json.loads(driver.describe_vkgdr()), indent=2))
        except (cuda_mem.Error, ValueError):
            pass
    return 0


if __name__ == "__main__":
    if sys.argv[1:] != ["doctor"]:
        sys.exit("usage: python -m cuda_mem doctor")
    sys.exit(doctor())
