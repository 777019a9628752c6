//! Sources of memory, from which buffers are allocated.
//!
//! | source | location | addressable by |
//! |---|---|---|
//! | [`DeviceMemory`], [`DevicePool`] | the device: plain allocations, the driver's pools | devices |
//! | [`VirtualMemory`] | physical memory at reserved addresses; [grows](crate::buffer::GrowableBuffer) without copies | devices |
//! | [`PinnedMemory`], [`PinnedPool`] | page-locked host memory, also of one NUMA node | the CPU and devices |
//! | [`RegisteredMemory`] | host memory that the program already has | the CPU and devices |
//! | [`ManagedMemory`], [`ManagedPool`] | moves between host and devices | the CPU and devices |
//! | [`MappedMemory`](crate::MappedMemory) | the device | the CPU and devices |
//! | [`GraphMemory`] | the device; each launch of a graph allocates it | devices |
//!
//! Each source is a [`ResourceHandle`], cheap to clone, whose type names the [`kind`] of its memory. A
//! [`SharedResource`] is any of them. [Pools](crate::pool) and [adaptors](crate::adaptor) wrap sources and are handles
//! too. [`Device::supports`](crate::Device::supports) tells whether a device has an optional
//! [`Feature`](crate::Feature).
//!
//! ```
//! let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
//! # let stream = cuda_mem::Stream::new(&context)?;
//! use cuda_mem::memory::{DeviceMemory, ManagedMemory, PinnedMemory, ResourceHandle, SharedResource};
//! use cuda_mem::{Buffer, Feature, Support};
//! let mut sources: Vec<SharedResource> = vec![DeviceMemory::new(&context).share(), PinnedMemory::new(&context).share()];
//! if context.device().supports(Feature::Managed)? == Support::Yes {
//!     sources.push(ManagedMemory::new(&context)?.share());
//! }
//! for source in &sources {
//!     let buffer = Buffer::from_slice(source, &[1u8, 2, 3], &stream)?; // kind `Any`, queried at run time
//!     assert_eq!(buffer.to_vec()?, [1, 2, 3]);
//!     println!("{:?}", buffer.accessibility());
//! }
//! # Ok::<(), cuda_mem::Error>(())
//! ```

pub(crate) mod asleep;
#[cfg(feature = "sharing")]
pub(crate) mod descriptor;
mod device;
mod graph;
mod host_pages;
mod host_pool;
mod in_order;
mod managed;
pub mod mapped;
pub(crate) mod peers;
mod pinned;
pub(crate) mod pool;
mod registered;
pub(crate) mod resource;
pub(crate) mod virtual_memory;

#[cfg(feature = "sharing")]
pub use crate::memory::descriptor::BlockExport;
pub use crate::memory::resource::kind;
pub use crate::memory::resource::{
    Accessibility, Block, BlockKind, DeviceAccessible, HostAccessible, Kind, Location, MemoryResource, PendingUse,
    PointerInfo, ResourceHandle, SharedResource,
};
pub use device::DeviceMemory;
pub use graph::{GraphMemory, GraphMemoryAttributes};
pub use managed::{Attachment, ManagedMemory};
pub use pinned::{PinnedMemory, PinnedOptions};
pub use pool::{DevicePool, DriverPool, DriverPoolOptions, PoolAccess, PoolAttributes};
pub use pool::{ManagedPool, PinnedPool};
pub use registered::{BorrowedHostMemory, HostOwner, RegisterOptions, RegisteredMemory};
pub(crate) use virtual_memory::ChunkMap;
pub use virtual_memory::{
    Granularity, Growth, PhysicalLocation, PhysicalMemory, PhysicalOptions, VirtualMemory, VirtualOptions,
};

pub(crate) use device::DRIVER_ALIGNMENT;
