//! Resources that can do more than allocate. Each keeps its concrete type, so that its own functions find it.

use crate::call::{Outcome, invalid, new_handle, object};
use crate::handle::Use;
use crate::handles::cudamem_resource;
use crate::resource::{Resource, ResourceObject};
use core::ops::Deref;
use cuda_mem::adaptor::{
    Aligned, FailureInjection, Fallback, Guarded, Limit, Logging, Recording, Retry, Statistics, Tracking,
};
use cuda_mem::memory::GraphMemory;
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{DeviceMemory, ResourceHandle, VirtualMemory};
use cuda_mem::pool::RingPool;

/// A concrete type of resource.
pub trait ResourceType: ResourceHandle + Sized {
    /// Stores the resource with its type.
    fn keep(self) -> Typed;

    /// The resource, if it has this type.
    fn of(made: &Typed) -> Option<&Self>;

    /// The C function that makes a resource of this type.
    const MAKER: &'static str;
}

macro_rules! sorts {
    ($($name:ident($sort:ty) by $maker:literal;)*) => {
        /// A resource with its concrete type.
        #[derive(Debug)]
        pub enum Typed {
            $(#[doc = concat!("Made by ", $maker, ".")] $name($sort),)*
        }

        $(impl ResourceType for $sort {
            fn keep(self) -> Typed {
                Typed::$name(self)
            }

            fn of(made: &Typed) -> Option<&Self> {
                if let Typed::$name(sort) = made { Some(sort) } else { None }
            }

            const MAKER: &'static str = $maker;
        })*
    };
}
sorts! {
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
    Ring(RingPool<Any>) by "cudamem_ring_pool_create";
    Virtual(VirtualMemory<Any>) by "cudamem_resource_create_virtual";
    Device(DeviceMemory) by "cudamem_resource_create_device";
    Graph(GraphMemory) by "cudamem_resource_create_graph";
}

/// Makes a handle for a resource with its concrete type.
pub fn new_resource<S: ResourceType>(made: S) -> Outcome<cudamem_resource> {
    new_handle(Resource::Made { shared: made.share(), made: made.keep() }.into())
}

/// A use of a resource that was checked to have the type `S`.
pub struct TypedUse<S> {
    resource: Use<ResourceObject>,
    look: fn(&Typed) -> Option<&S>,
}

impl<S> Deref for TypedUse<S> {
    type Target = S;

    fn deref(&self) -> &S {
        match &**self.resource {
            Resource::Made { made, .. } => (self.look)(made),
            _ => None,
        }
        .unwrap_or_else(|| unreachable!("checked when this was made"))
    }
}

/// Finds the resource of an argument, and checks that it has the type `S`.
pub fn of_sort<S: ResourceType>(argument: &'static str, handle: cudamem_resource) -> Outcome<TypedUse<S>> {
    let resource = object(argument, handle)?;
    match &**resource {
        Resource::Made { made, .. } if S::of(made).is_some() => Ok(TypedUse { resource, look: S::of }),
        _ => Err(invalid(argument, "another resource", format!("it must be made by {}", S::MAKER))),
    }
}
