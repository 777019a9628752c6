//! Resources that can do more than allocate: each keeps what it was made as.

use crate::call::{Outcome, invalid, new_handle, object};
use crate::handle::Use;
use crate::handles::cudamem_resource;
use crate::resource::Resource;
use core::ops::Deref;
use cuda_mem::adaptor::{
    Aligned, FailureInjection, Fallback, Guarded, Limit, Logging, Recording, Retry, Statistics, Tracking,
};
use cuda_mem::graph::GraphMemory;
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{DeviceMemory, ResourceHandle, VirtualMemory};
use cuda_mem::pool::{FixedSizePool, RingPool};

/// What may be made of a resource.
pub trait Sort: ResourceHandle + Sized {
    /// Keeps it.
    fn keep(self) -> Made;

    /// It, if that is what was kept.
    fn of(made: &Made) -> Option<&Self>;

    /// Which function makes it.
    const MAKER: &'static str;
}

macro_rules! sorts {
    ($($name:ident($sort:ty) by $maker:literal;)*) => {
        /// What a resource was made as.
        #[derive(Debug)]
        pub enum Made {
            $(#[doc = concat!("By ", $maker, ".")] $name($sort),)*
        }

        $(impl Sort for $sort {
            fn keep(self) -> Made {
                Made::$name(self)
            }

            fn of(made: &Made) -> Option<&Self> {
                if let Made::$name(sort) = made { Some(sort) } else { None }
            }

            const MAKER: &'static str = $maker;
        })*
    };
}
sorts! {
    Statistics(Statistics<Any>) by "cudamem_resource_create_statistics";
    Limit(Limit<Any>) by "cudamem_resource_create_limit";
    Tracking(Tracking<Any>) by "cudamem_resource_create_tracking";
    Logging(Logging<Any>) by "cudamem_resource_create_logging";
    Recording(Recording<Any>) by "cudamem_resource_create_recording";
    Fallback(Fallback<Any>) by "cudamem_resource_create_fallback";
    Retry(Retry<Any>) by "cudamem_resource_create_retry";
    Aligned(Aligned<Any>) by "cudamem_resource_create_aligned";
    FailureInjection(FailureInjection<Any>) by "cudamem_resource_create_failing";
    Guarded(Guarded<Any>) by "cudamem_resource_create_guarded";
    FixedSize(FixedSizePool<Any>) by "cudamem_fixed_pool_create";
    Ring(RingPool<Any>) by "cudamem_ring_pool_create";
    Virtual(VirtualMemory<Any>) by "cudamem_resource_create_virtual";
    Device(DeviceMemory) by "cudamem_resource_create_device";
    Graph(GraphMemory) by "cudamem_resource_create_graph";
}

/// A handle of a resource that keeps what it was made as.
pub fn new_resource<S: Sort>(made: S) -> Outcome<cudamem_resource> {
    new_handle(Resource::Made { shared: made.share(), made: made.keep() })
}

/// A resource that is known to be of a sort.
pub struct OfSort<S> {
    resource: Use<Resource>,
    look: fn(&Made) -> Option<&S>,
}

impl<S> Deref for OfSort<S> {
    type Target = S;

    fn deref(&self) -> &S {
        match &*self.resource {
            Resource::Made { made, .. } => (self.look)(made),
            _ => None,
        }
        .unwrap_or_else(|| unreachable!("looked at when this was made"))
    }
}

/// The resource of an argument, which has to be of a sort.
pub fn of_sort<S: Sort>(argument: &'static str, handle: cudamem_resource) -> Outcome<OfSort<S>> {
    let resource = object(argument, handle)?;
    match &*resource {
        Resource::Made { made, .. } if S::of(made).is_some() => Ok(OfSort { resource, look: S::of }),
        _ => Err(invalid(argument, "another resource", format!("it has to be made by {}", S::MAKER))),
    }
}
