//! Sources of memory.

mod device;
pub mod kind;
mod pointer;
mod pool;
mod resource;

pub use device::DeviceMemory;
pub use kind::{Accessibility, DeviceAccessible, HostAccessible, Kind};
pub use pointer::PointerInfo;
pub use pool::{DevicePool, DriverPool, PoolAccess, PoolAttributes, PoolOptions};
pub use resource::{Block, MemoryResource, ResourceHandle, SharedResource};

pub(crate) use device::DRIVER_ALIGNMENT;
pub(crate) use resource::{check_alignment, out_of_memory};
