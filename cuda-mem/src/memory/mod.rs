//! Sources of memory.

mod device;
mod host;
pub mod kind;
mod location;
mod managed;
mod pinned;
mod pointer;
mod pool;
mod registered;
mod resource;
mod virtual_memory;

pub use device::DeviceMemory;
pub use kind::{Accessibility, DeviceAccessible, HostAccessible, Kind};
pub use location::Location;
pub use managed::{Attachment, ManagedMemory};
pub use pinned::{PinnedMemory, PinnedOptions};
pub use pointer::PointerInfo;
pub use pool::{DevicePool, DriverPool, DriverPoolOptions, PoolAccess, PoolAttributes};
pub use pool::{ManagedPool, PinnedPool};
pub use registered::{BorrowedHostMemory, HostOwner, RegisterOptions, RegisteredMemory};
pub use resource::{Block, MemoryResource, ResourceHandle, SharedResource};
pub use virtual_memory::{
    Granularity, GrowableBuffer, Growth, PhysicalLocation, PhysicalMemory, PhysicalOptions, VirtualMemory,
    VirtualOptions,
};

pub(crate) use device::DRIVER_ALIGNMENT;
pub(crate) use resource::{check_alignment, check_not_capturing, out_of_memory};
