"""Measures cuda.core on the workloads of benches/buffers.rs. Run both on one machine, one after the other."""

import statistics
import time

import cuda.core

try:
    from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions
except ImportError:
    from cuda.core.experimental import Device, DeviceMemoryResource, DeviceMemoryResourceOptions


def median(run, rounds=101, batch=200):
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(batch):
            run()
        times.append((time.perf_counter() - start) / batch)
    return statistics.median(times) * 1e9


device = Device(0)
device.set_current()
stream = device.create_stream()
print("cuda.core", cuda.core.__version__, "- allocate and close, ns")


def pair(name, resource):
    for size in (4096, 1 << 20):
        print(f"{name:>32} {size:>10} {median(lambda: resource.allocate(size, stream=stream).close(stream)):>10.0f}")
    stream.sync()


pair("DeviceMemoryResource, current", DeviceMemoryResource(device))
pair("DeviceMemoryResource, own", DeviceMemoryResource(device, DeviceMemoryResourceOptions()))
try:
    from cuda.core import PinnedMemoryResource, PinnedMemoryResourceOptions

    pair("PinnedMemoryResource, own", PinnedMemoryResource(PinnedMemoryResourceOptions()))
except Exception as error:
    print("PinnedMemoryResource:", repr(error)[:200])

print("copies of device buffers of one pool, and waiting for them, ns")
resource = DeviceMemoryResource(device)
for size in (64, 4096, 65536):
    source = resource.allocate(size, stream=stream)
    target = resource.allocate(size, stream=stream)

    def copy():
        source.copy_to(target, stream=stream)
        stream.sync()

    print(f"{size:>10} {median(copy, 51, 50):>10.0f}")
