"""Drivers, devices, contexts and resources."""

import cuda_mem
import pytest


def test_devices_have_names_and_memory() -> None:
    driver = cuda_mem.Driver()
    assert driver.is_software and driver.release is not None and driver.release >= (12, 2)
    assert driver.device_count >= 1
    device = cuda_mem.Device(0)
    assert (int(device), device.ordinal, repr(device)) == (0, 0, "Device(0)")
    assert device.name and device.uuid.startswith("GPU-") and device.total_memory > 0 and ":" in device.pci_bus_id
    assert device == cuda_mem.Device() and hash(device) == hash(cuda_mem.Device()) and device != 0
    context = cuda_mem.Context(device)
    assert context == cuda_mem.Context(0) and context.device == device
    context.synchronize()
    assert 0 < context.memory_info()["free"] <= context.memory_info()["total"]


@pytest.mark.parametrize("ordinal", [-1, 99, 1 << 30])
def test_a_missing_device_is_an_error_with_its_code(ordinal: int) -> None:
    with pytest.raises(cuda_mem.DriverError, match="CUDA_ERROR_INVALID_DEVICE") as caught:
        cuda_mem.Context(ordinal)
    assert caught.value.code == 101
    assert f"device is {ordinal}, of {cuda_mem.Driver().device_count} device" in str(caught.value)
    assert isinstance(caught.value, RuntimeError) and isinstance(caught.value, cuda_mem.Error)


@pytest.mark.parametrize("wrong", ["0", 1.5, [], cuda_mem.Stream])
def test_other_objects_are_no_contexts(wrong: object) -> None:
    with pytest.raises(TypeError):
        cuda_mem.DeviceMemory(wrong)  # type: ignore[arg-type]


def test_sources_say_who_addresses_their_memory(source: cuda_mem.MemoryResource) -> None:
    on_cpu = isinstance(source, (cuda_mem.PinnedMemory, cuda_mem.ManagedMemory, cuda_mem.MappedMemory))
    assert source.is_host_accessible == on_cpu and source.is_device_accessible
    buffer = source.allocate(256)
    assert buffer.is_host_accessible == on_cpu and (buffer.host_pointer is not None) == on_cpu
    assert buffer.is_managed == isinstance(source, cuda_mem.ManagedMemory)
    assert buffer.context == source.context
    assert repr(source) == f"{type(source).__name__}(device=0)"


def test_a_resource_cannot_be_made_by_itself() -> None:
    for kind in (cuda_mem.MemoryResource, cuda_mem.Buffer, cuda_mem.Array, cuda_mem.PoolStatistics):
        with pytest.raises(TypeError):
            kind()


def test_unknown_options_are_refused() -> None:
    with pytest.raises(cuda_mem.ArgumentError, match="kind is"):
        cuda_mem.DriverPool(kind="other")
    with pytest.raises(cuda_mem.ArgumentError, match="coherence is"):
        cuda_mem.MappedMemory(coherence="other")
    with pytest.raises(cuda_mem.ArgumentError, match="reuse is"):
        cuda_mem.Pool(cuda_mem.DeviceMemory(), reuse="other")
    with pytest.raises(TypeError):
        cuda_mem.Pool("device")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["device", "pinned", "managed"])
def test_the_drivers_pools_of_all_kinds_serve(kind: str) -> None:
    for pool in (cuda_mem.DriverPool(kind=kind), cuda_mem.DriverPool(kind=kind, own=True)):
        assert pool.copy_of(b"abc").to_bytes() == b"abc"
        pool.context.synchronize()
        pool.trim_to()
