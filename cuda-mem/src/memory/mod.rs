//! Sources of memory.

mod device;
mod managed;
mod pinned;
mod pool;
mod registered;
mod virtual_memory;

pub use crate::resource::kind;
pub use crate::resource::{
    Accessibility, Block, DeviceAccessible, HostAccessible, Kind, Location, MemoryResource, PointerInfo,
    ResourceHandle, SharedResource,
};
pub use device::DeviceMemory;
pub use managed::{Attachment, ManagedMemory};
pub use pinned::{PinnedMemory, PinnedOptions};
pub use pool::{DevicePool, DriverPool, DriverPoolOptions, PoolAccess, PoolAttributes};
pub use pool::{ManagedPool, PinnedPool};
pub use registered::{BorrowedHostMemory, HostOwner, RegisterOptions, RegisteredMemory};
pub use virtual_memory::{
    Granularity, GrowableBuffer, Growth, PhysicalLocation, PhysicalMemory, PhysicalOptions, VirtualMemory,
    VirtualOptions,
};

pub(crate) use device::DRIVER_ALIGNMENT;
