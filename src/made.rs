//! The object behind a resource's handle. It keeps the resource's concrete type, so that the functions of one type find
//! it.

use crate::call::{Outcome, handle_type, invalid, new_handle, object};
use crate::handle::Use;
use crate::handles::cudamem_resource;
use core::marker::PhantomData;
use core::ops::Deref;
use cuda_mem::adaptor::{
    Aligned, FailureInjection, Fallback, Guarded, Limit, Logging, Recording, Retry, Statistics, Tracking,
};
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{
    DeviceMemory, DriverPool, GraphMemory, ManagedMemory, PinnedMemory, ResourceHandle, SharedResource, VirtualMemory,
};
use cuda_mem::pool::{Addresses, Pool, RingPool};
use cuda_mem::{Buffer, MappedMemory, Stream};
use std::sync::OnceLock;

/// A concrete type of resource.
pub trait ResourceType: ResourceHandle + Sized {
    /// Stores the resource with its type.
    fn keep(self) -> Resource;

    /// The resource, if it has this type.
    fn of(resource: &Resource) -> Option<&Self>;

    /// The C function that makes a resource of this type.
    const MAKER: &'static str;
}

macro_rules! resource_types {
    ($($name:ident($type:ty) by $maker:literal;)*) => {
        /// A resource with its concrete type.
        #[derive(Clone, Debug)]
        pub enum Resource {
            $(#[doc = concat!("Made by ", $maker, ".")] $name($type),)*
        }

        impl Resource {
            fn shared(&self) -> SharedResource {
                match self {
                    $(Resource::$name(resource) => resource.share(),)*
                }
            }
        }

        $(impl ResourceType for $type {
            fn keep(self) -> Resource {
                Resource::$name(self)
            }

            fn of(resource: &Resource) -> Option<&Self> {
                if let Resource::$name(found) = resource { Some(found) } else { None }
            }

            const MAKER: &'static str = $maker;
        })*
    };
}
resource_types! {
    Device(DeviceMemory) by "cudamem_resource_create_device";
    Pinned(PinnedMemory) by "cudamem_resource_create_pinned";
    Managed(ManagedMemory) by "cudamem_resource_create_managed";
    Mapped(MappedMemory) by "cudamem_resource_create_mapped";
    Virtual(VirtualMemory<Any>) by "cudamem_resource_create_virtual";
    Graph(GraphMemory) by "cudamem_resource_create_graph";
    DriverPool(DriverPool<Any>) by "cudamem_resource_create_driver_pool";
    Pool(Pool<Any>) by "cudamem_pool_create";
    Ring(RingPool<Any>) by "cudamem_ring_pool_create";
    Statistics(Statistics<Any>) by "cudamem_resource_create_adaptor with CUDAMEM_ADAPTOR_STATISTICS";
    Limit(Limit<Any>) by "cudamem_resource_create_adaptor with CUDAMEM_ADAPTOR_LIMIT";
    Tracking(Tracking<Any>) by "cudamem_resource_create_adaptor with CUDAMEM_ADAPTOR_TRACKING";
    Logging(Logging<Any>) by "cudamem_resource_create_logging";
    Recording(Recording<Any>) by "cudamem_resource_create_adaptor with CUDAMEM_ADAPTOR_RECORDING";
    Fallback(Fallback<Any>) by "cudamem_resource_create_fallback";
    Retry(Retry<Any>) by "cudamem_resource_create_retry";
    Aligned(Aligned<Any>) by "cudamem_resource_create_adaptor with CUDAMEM_ADAPTOR_ALIGNED";
    FailureInjection(FailureInjection<Any>) by "cudamem_resource_create_failing";
    Guarded(Guarded<Any>) by "cudamem_resource_create_guarded";
}

/// What a resource's handle names: the resource, and its memory by address.
#[derive(Debug)]
pub struct ResourceObject {
    /// The resource with its concrete type.
    pub resource: Resource,
    /// The resource as its users share it.
    shared: SharedResource,
    /// Made at first use.
    addresses: OnceLock<Addresses>,
}

handle_type!(cudamem_resource: ResourceObject);

impl From<Resource> for ResourceObject {
    fn from(resource: Resource) -> Self {
        Self { shared: resource.shared(), resource, addresses: OnceLock::new() }
    }
}

impl ResourceObject {
    /// The resource as its users share it.
    pub fn share(&self) -> SharedResource {
        match &self.resource {
            // A pool spreads its users over several counts.
            Resource::Pool(pool) => pool.share(),
            _ => self.shared.clone(),
        }
    }

    /// Allocates bytes. The memory's contents are any bytes, and any byte is a valid `u8`.
    #[inline]
    pub fn allocate(&self, size: usize, stream: &Stream) -> cuda_mem::Result<Buffer<u8, Any>> {
        // SAFETY: driver memory always holds bytes, and every byte is a valid `u8`.
        unsafe {
            match &self.resource {
                Resource::Pool(pool) => Buffer::uninit_assumed(pool, size, stream),
                _ => Buffer::uninit_assumed(&self.shared, size, stream),
            }
        }
    }

    /// The resource's memory by address.
    #[inline]
    pub fn addresses(&self) -> cuda_mem::Result<&Addresses> {
        match self.addresses.get() {
            Some(addresses) => Ok(addresses),
            None => self.make_addresses(),
        }
    }

    #[cold]
    fn make_addresses(&self) -> cuda_mem::Result<&Addresses> {
        let made = match &self.resource {
            Resource::Pool(pool) => Addresses::of_pool(pool),
            _ => Addresses::new(&self.shared),
        }?;
        // Another thread may have been faster. This one's table is then empty.
        Ok(self.addresses.get_or_init(|| made))
    }
}

/// Makes a handle for a resource.
pub fn new_resource(made: impl ResourceType) -> Outcome<cudamem_resource> {
    new_handle(made.keep().into())
}

/// A use of a resource that was checked to have the type `S`.
pub struct TypedUse<S> {
    resource: Use<ResourceObject>,
    checked: PhantomData<S>,
}

impl<S: ResourceType> Deref for TypedUse<S> {
    type Target = S;

    fn deref(&self) -> &S {
        S::of(&self.resource.resource).unwrap_or_else(|| unreachable!("checked when this was made"))
    }
}

/// Finds the resource of an argument, and checks that it has the type `S`.
pub fn of_type<S: ResourceType>(argument: &'static str, handle: cudamem_resource) -> Outcome<TypedUse<S>> {
    let resource = object(argument, handle)?;
    if S::of(&resource.resource).is_none() {
        return Err(invalid(argument, "another resource", format!("it must be made by {}", S::MAKER)));
    }
    Ok(TypedUse { resource, checked: PhantomData })
}
