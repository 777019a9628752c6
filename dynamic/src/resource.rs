//! Any source of memory, with its concrete type.

use cuda_mem::adaptor::{
    Aligned, FailureInjection, Fallback, Guarded, Limit, Logging, Recording, Retry, Statistics, Tracking,
};
use cuda_mem::copy::CopyEngine;
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{
    DeviceMemory, DriverPool, GraphMemory, ManagedMemory, PinnedMemory, ResourceHandle, SharedResource, VirtualMemory,
};
use cuda_mem::pool::{Addresses, Pool, RingPool};
use cuda_mem::{Buffer, MappedMemory, Result, Stream};
use std::os::fd::AsFd;
use std::sync::OnceLock;

/// A concrete type of resource.
pub trait ResourceType: ResourceHandle + Sized {
    /// Stores the resource with its type.
    fn into_resource(self) -> Resource;

    /// The resource, if it has this type.
    fn of(resource: &Resource) -> Option<&Self>;
}

macro_rules! resource_types {
    ($($(#[$documentation:meta])* $name:ident($type:ty),)*) => {
        /// A resource with its concrete type, so that the functions of one type find it.
        #[derive(Clone, Debug)]
        pub enum Resource {
            $($(#[$documentation])* $name($type),)*
        }

        impl Resource {
            /// The resource as its users share it.
            fn shared(&self) -> SharedResource {
                match self {
                    $(Resource::$name(resource) => resource.share(),)*
                }
            }
        }

        $(impl ResourceType for $type {
            fn into_resource(self) -> Resource {
                Resource::$name(self)
            }

            fn of(resource: &Resource) -> Option<&Self> {
                if let Resource::$name(found) = resource { Some(found) } else { None }
            }
        })*
    };
}
resource_types! {
    /// Memory of a device.
    Device(DeviceMemory),
    /// Page-locked memory of the host.
    Pinned(PinnedMemory),
    /// Memory that the driver moves between host and devices.
    Managed(ManagedMemory),
    /// Memory of a device that the CPU addresses.
    Mapped(MappedMemory),
    /// Reserved addresses with physical memory behind them.
    Virtual(VirtualMemory<Any>),
    /// Memory that a graph allocates and frees.
    Graph(GraphMemory),
    /// A pool of the driver.
    DriverPool(DriverPool<Any>),
    /// A pool of cuda-mem.
    Pool(Pool<Any>),
    /// A pool for memory that is freed in the order of its allocation.
    Ring(RingPool<Any>),
    /// An adaptor that counts.
    Statistics(Statistics<Any>),
    /// An adaptor that limits the sum of the sizes.
    Limit(Limit<Any>),
    /// An adaptor that lists the live allocations.
    Tracking(Tracking<Any>),
    /// An adaptor that writes a log.
    Logging(Logging<Any>),
    /// An adaptor that records a trace.
    Recording(Recording<Any>),
    /// An adaptor that allocates from a second resource when the first has no memory.
    Fallback(Fallback<Any>),
    /// An adaptor that asks a function of the program when memory runs out, and tries again.
    Retry(Retry<Any>),
    /// An adaptor that aligns.
    Aligned(Aligned<Any>),
    /// An adaptor that fails where a test wants it to.
    FailureInjection(FailureInjection<Any>),
    /// An adaptor that finds writes outside of blocks.
    Guarded(Guarded<Any>),
}

/// A source of memory of any type, and its memory by address.
#[derive(Debug)]
pub struct Source {
    /// The resource with its concrete type.
    pub resource: Resource,
    /// The resource as its users share it.
    shared: SharedResource,
    /// Made at first use.
    addresses: OnceLock<Addresses>,
}

impl From<Resource> for Source {
    fn from(resource: Resource) -> Self {
        Self { shared: resource.shared(), resource, addresses: OnceLock::new() }
    }
}

impl Source {
    /// The resource as its users share it.
    #[inline]
    pub fn share(&self) -> SharedResource {
        match &self.resource {
            // A pool spreads its users over several counts.
            Resource::Pool(pool) => pool.share(),
            _ => self.shared.clone(),
        }
    }

    /// Allocates `size` bytes, whose contents are any bytes.
    ///
    /// # Errors
    ///
    /// Those of the resource: memory has run out, or the stream belongs to another context.
    #[inline]
    pub fn allocate(&self, size: usize, stream: &Stream) -> Result<Buffer<u8, Any>> {
        // SAFETY: driver memory always holds bytes, and every byte is a valid `u8`.
        unsafe {
            match &self.resource {
                Resource::Pool(pool) => Buffer::uninit_assumed(pool, size, stream),
                _ => Buffer::uninit_assumed(&self.shared, size, stream),
            }
        }
    }

    /// Allocates `size` bytes, and fills them from a file by [`CopyEngine::read_file`].
    ///
    /// # Errors
    ///
    /// As [`allocate`](Self::allocate) and [`CopyEngine::read_file`]. The memory is then freed.
    pub fn read_file(
        &self,
        engine: &CopyEngine,
        file: impl AsFd,
        offset: u64,
        size: usize,
        stream: &Stream,
    ) -> Result<Buffer<u8, Any>> {
        let memory = Buffer::uninit(&self.share(), size, stream)?;
        Ok(engine.read_file(file, offset, memory)?)
    }

    /// The resource's memory by address.
    ///
    /// # Errors
    ///
    /// The process was forked from one that had loaded the driver.
    #[inline]
    pub fn addresses(&self) -> Result<&Addresses> {
        match self.addresses.get() {
            Some(addresses) => Ok(addresses),
            None => self.make_addresses(),
        }
    }

    #[cold]
    fn make_addresses(&self) -> Result<&Addresses> {
        let made = match &self.resource {
            Resource::Pool(pool) => Addresses::of_pool(pool),
            _ => Addresses::new(&self.shared),
        }?;
        // Another thread may have been faster. This one's table is then empty.
        Ok(self.addresses.get_or_init(|| made))
    }
}
