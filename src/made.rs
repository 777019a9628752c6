//! Handles of resources, which keep the resource's concrete type, so that the functions of one type find it.

use crate::call::{Outcome, handle_type, invalid, new_handle, object};
use crate::handle::Use;
use crate::handles::cudamem_resource;
use core::marker::PhantomData;
use core::ops::Deref;
use cuda_mem::MappedMemory;
use cuda_mem::adaptor::{
    Aligned, FailureInjection, Fallback, Guarded, Limit, Logging, Recording, Retry, Statistics, Tracking,
};
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{DeviceMemory, DriverPool, GraphMemory, ManagedMemory, PinnedMemory, VirtualMemory};
use cuda_mem::pool::{Pool, RingPool};
use cuda_mem_dynamic::{ResourceType, Source};

handle_type!(cudamem_resource: Source);

/// A type of resource that C functions make.
pub trait Made: ResourceType {
    /// The C function that makes a resource of this type.
    const MAKER: &'static str;
}

macro_rules! makers {
    ($($type:ty: $maker:literal;)*) => {
        $(impl Made for $type {
            const MAKER: &'static str = $maker;
        })*
    };
}
makers! {
    DeviceMemory: "cudamem_resource_create_device";
    PinnedMemory: "cudamem_resource_create_pinned";
    ManagedMemory: "cudamem_resource_create_managed";
    MappedMemory: "cudamem_resource_create_mapped";
    VirtualMemory<Any>: "cudamem_resource_create_virtual";
    GraphMemory: "cudamem_resource_create_graph";
    DriverPool<Any>: "cudamem_resource_create_driver_pool";
    Pool<Any>: "cudamem_pool_create";
    RingPool<Any>: "cudamem_ring_pool_create";
    Statistics<Any>: "cudamem_resource_create_adaptor with CUDAMEM_ADAPTOR_STATISTICS";
    Limit<Any>: "cudamem_resource_create_adaptor with CUDAMEM_ADAPTOR_LIMIT";
    Tracking<Any>: "cudamem_resource_create_adaptor with CUDAMEM_ADAPTOR_TRACKING";
    Logging<Any>: "cudamem_resource_create_logging";
    Recording<Any>: "cudamem_resource_create_adaptor with CUDAMEM_ADAPTOR_RECORDING";
    Fallback<Any>: "cudamem_resource_create_fallback";
    Retry<Any>: "cudamem_resource_create_retry";
    Aligned<Any>: "cudamem_resource_create_adaptor with CUDAMEM_ADAPTOR_ALIGNED";
    FailureInjection<Any>: "cudamem_resource_create_failing";
    Guarded<Any>: "cudamem_resource_create_guarded";
}

/// Makes a handle for a resource.
pub fn new_resource(made: impl Made) -> Outcome<cudamem_resource> {
    new_handle(made.into_resource().into())
}

/// A use of a resource that was checked to have the type `S`.
pub struct TypedUse<S> {
    resource: Use<Source>,
    checked: PhantomData<S>,
}

impl<S: Made> Deref for TypedUse<S> {
    type Target = S;

    fn deref(&self) -> &S {
        S::of(&self.resource.resource).unwrap_or_else(|| unreachable!("checked when this was made"))
    }
}

/// Finds the resource of an argument, and checks that it has the type `S`.
pub fn of_type<S: Made>(argument: &'static str, handle: cudamem_resource) -> Outcome<TypedUse<S>> {
    let resource = object(argument, handle)?;
    if S::of(&resource.resource).is_none() {
        return Err(invalid(argument, "another resource", format!("it must be made by {}", S::MAKER)));
    }
    Ok(TypedUse { resource, checked: PhantomData })
}
