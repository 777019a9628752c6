"""Devices."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _native
from .._native import core as _core
from ._attributes import NUMBERS
from ._context import Context
from ._event import Event, EventOptions
from ._stream import IsStreamType, Stream, StreamOptions, default_stream

if TYPE_CHECKING:
    from .._native.core import Buffer, MemoryResource

__all__ = ["ComputeCapability", "Device", "DeviceProperties"]

_tls = threading.local()
"""The Device objects of each thread."""

class ComputeCapability(NamedTuple):
    """The version of the hardware."""

    major: int
    minor: int


class DeviceProperties:
    """The attributes of a device, such as `warp_size`, each as an int or a bool. One that the driver does not know
    is -1 or False, as in cuda.core; an unknown name raises AttributeError."""

    __slots__ = ("_ordinal",)

    _ordinal: int

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        raise RuntimeError("DeviceProperties cannot be instantiated directly. Please use Device APIs.")

    @classmethod
    def _of(cls, ordinal: int) -> DeviceProperties:
        made = cls.__new__(cls)
        made._ordinal = ordinal
        return made

    def __getattr__(self, name: str) -> Any:
        try:
            number, is_flag = NUMBERS[name]
        except KeyError:
            raise AttributeError(f"DeviceProperties has no attribute {name!r}") from None
        value = _core.device_attribute(self._ordinal, number)
        if value is None:
            # cuda.core's answer where the driver does not know an attribute.
            return False if is_flag else -1
        return bool(value) if is_flag else value

    def __dir__(self) -> list[str]:
        return sorted(NUMBERS)


class Device:
    """A device: `Device(ordinal)`, or the current one, `Device()`. In a thread, equal devices are one object."""

    __slots__ = ("__weakref__", "_device_id", "_inner", "_memory_resource")

    _device_id: int
    _inner: _native.Device
    _memory_resource: MemoryResource | None

    def __new__(cls, device_id: Device | int | None = None) -> Device:
        if isinstance(device_id, Device):
            return device_id
        if device_id is None:
            context = _core.current_context()
            device_id = 0 if context is None else context.device.ordinal
        if not isinstance(device_id, int):
            raise TypeError(f"device_id must be a Device or an int, not {type(device_id).__name__}")
        if device_id < 0:
            raise ValueError(f"device_id must be >= 0, got {device_id}")
        devices: dict[int, Device] | None = getattr(_tls, "devices", None)
        if devices is None:
            devices = _tls.devices = {}
        if device_id not in devices:
            count = _core.device_count()
            if device_id >= count:
                raise ValueError(f"device_id must be within [0, {count}), got {device_id}")
            made = super().__new__(cls)
            made._device_id, made._inner, made._memory_resource = device_id, _native.Device(device_id), None
            devices[device_id] = made
        return devices[device_id]

    @classmethod
    def get_all_devices(cls) -> tuple[Device, ...]:
        """All devices that the driver shows."""
        return tuple(cls(ordinal) for ordinal in range(_core.device_count()))

    @property
    def device_id(self) -> int:
        """The ordinal."""
        return self._device_id

    @property
    def name(self) -> str:
        """The name."""
        return self._inner.name

    @property
    def uuid(self) -> str:
        """The UUID."""
        return self._inner.uuid.removeprefix("GPU-").removeprefix("MIG-")

    @property
    def pci_bus_id(self) -> str:
        """The place on the PCI bus."""
        return self._inner.pci_bus_id

    @property
    def properties(self) -> DeviceProperties:
        """The attributes."""
        return DeviceProperties._of(self._device_id)

    @property
    def compute_capability(self) -> ComputeCapability:
        """The version of the hardware."""
        properties = self.properties
        return ComputeCapability(properties.compute_capability_major, properties.compute_capability_minor)

    @property
    def arch(self) -> str:
        """The version of the hardware as compilers name it, such as "90"."""
        return "".join(str(part) for part in self.compute_capability)

    def can_access_peer(self, peer: Device | int) -> bool:
        """Whether this device may access the memory of another directly; True for the device itself."""
        other = Device(peer)
        return other._device_id == self._device_id or self._inner.can_access_peer(other._inner)

    def _native_context(self) -> _native.Context:
        """The current context if it is of this device, else the primary one."""
        current = _core.current_context()
        if current is not None and current.device.ordinal == self._device_id:
            return current
        return _core.primary_context(self._device_id)

    @property
    def context(self) -> Context:
        """The context in which this thread uses the device."""
        return Context._of(self._native_context())

    def set_current(self, ctx: Context | None = None) -> Context | None:
        """Makes the device's primary context current on this thread, or the context `ctx`, and then returns the former one,
        if there was one."""
        if ctx is None:
            _core.set_current_context(_core.primary_context(self._device_id))
            return None
        if not isinstance(ctx, Context):
            raise TypeError(f"ctx must be a Context, not {type(ctx).__name__}")
        inner = ctx._open()
        if inner.device.ordinal != self._device_id:
            raise RuntimeError(
                f"the provided context was created on the device with id={inner.device.ordinal}, which is different from "
                f"the target id={self._device_id}"
            )
        former = _core.current_context()
        _core.set_current_context(inner)
        return None if former is None else Context._of(former)

    def create_context(self, options: Any = None) -> Context:
        """A new context of the device, beside the primary one. Green contexts are not made here."""
        if options is not None:
            raise NotImplementedError("green contexts are made by the package cuda-core: pip install cuda-core")
        return Context._of(_core.create_context(self._device_id))

    def create_stream(
        self, obj: IsStreamType | None = None, options: StreamOptions | dict[str, Any] | None = None
    ) -> Stream:
        """A new stream, or the stream of another library's object."""
        if obj is not None and options is not None:
            raise ValueError("obj and options cannot be both specified")
        if obj is not None:
            return Stream._make(owner=obj)
        return Stream._of_options(options, self._native_context())

    def create_event(self, options: EventOptions | dict[str, Any] | None = None) -> Event:
        """A new event, which nothing recorded yet."""
        return Event._of_options(options, self._native_context(), is_bound=False)

    @property
    def default_stream(self) -> Stream:
        """The default stream."""
        return default_stream()

    @property
    def memory_resource(self) -> MemoryResource:
        """The resource of `allocate`: the driver's current pool, unless it is set."""
        if self._memory_resource is None:
            from ._resources import DeviceMemoryResource, _SynchronousMemoryResource

            has_pools = _core.can_use_pools(self._device_id)
            made = DeviceMemoryResource(self) if has_pools else _SynchronousMemoryResource(self)
            self._memory_resource = made
        return self._memory_resource

    @memory_resource.setter
    def memory_resource(self, mr: MemoryResource) -> None:
        if not isinstance(mr, _core.MemoryResource):
            raise TypeError(f"memory_resource must be a MemoryResource, not {type(mr).__name__}")
        self._memory_resource = mr

    def allocate(self, size: int, *, stream: Stream | IsStreamType) -> Buffer:
        """A Buffer of `memory_resource`."""
        buffer: Buffer = self.memory_resource.allocate(size, stream=stream)
        return buffer

    def sync(self) -> None:
        """Waits for all work of the device's context."""
        self._native_context().synchronize()

    def create_graph_builder(self) -> Any:
        """A builder of graphs of the package cuda-core."""
        return self.create_stream().create_graph_builder()

    def to_system_device(self) -> Any:
        """The device for cuda.core.system, of the package cuda-core."""
        from ._forward import real

        return real("cuda.core.Device to_system_device").Device(self._device_id).to_system_device()

    def __int__(self) -> int:
        return self._device_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self._device_id == other._device_id

    def __hash__(self) -> int:
        return hash((Device, self._device_id))

    def __reduce__(self) -> tuple[object, ...]:
        return Device, (self._device_id,)

    def __repr__(self) -> str:
        return f"<Device {self._device_id} ({self.name})>"
