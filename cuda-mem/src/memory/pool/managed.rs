//! Pools of managed memory.

use super::pinned::require_located;
use super::{DriverPool, DriverPoolOptions, PoolOwnership, PoolResource};
use crate::error::call;
use crate::memory::resource::{Accessibility, Location, kind};
use crate::{Context, Error, Feature, Result};
use core::ptr;
use cuda_sys::{CUmemAllocationType, CUmemLocation, CUmemLocationType};

/// A pool of managed memory. It needs CUDA 13.0 and a device with concurrent managed access.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// use cuda_mem::memory::{Location, ManagedPool, DriverPoolOptions};
/// use cuda_mem::{Buffer, Stream};
/// let stream = Stream::new(&context)?;
/// let mut options = DriverPoolOptions::default();
/// options.preferred_location = Some(Location::Device(context.device().clone()));
/// let pool = ManagedPool::new(&context, &options)?;
/// let mut buffer = Buffer::zeroed(&pool, 100, &stream)?;
/// buffer.write(..)?.fill(3u8); // by the CPU
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub type ManagedPool = DriverPool<kind::Managed>;

const MANAGED: CUmemAllocationType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED;

impl ManagedPool {
    /// A new pool, whose memory should lie at the options'
    /// [`preferred_location`](DriverPoolOptions::preferred_location). All devices may address it.
    ///
    /// # Errors
    ///
    /// The driver is older than CUDA 13.0, or the device has no concurrent managed access: [`Error::Unsupported`]. The
    /// options request a shareable pool, or prefer the NUMA node of the calling thread or a node that the host lacks:
    /// [`Error::InvalidArgument`].
    #[doc(alias = "cuMemPoolCreate")]
    pub fn new(context: &Context, options: &DriverPoolOptions) -> Result<Self> {
        const CALL: &str = "ManagedPool::new";
        context.device().require(Feature::ManagedPools)?;
        let invalid = |argument, value: &str, rule| Error::invalid(CALL, argument, value, rule);
        if options.shareable {
            return Err(invalid("options.shareable", "true", "the driver cannot share managed memory"));
        }
        let location = preferred(CALL, options.preferred_location.as_ref())?;
        // Managed memory may exceed the device's memory; the driver has its own limit.
        let max_size = options.max_size.unwrap_or(usize::MAX);
        Self::create(context, options, MANAGED, location, max_size, Accessibility::MANAGED)
    }

    /// The pool from which the driver now allocates managed memory for a location, or without a preferred location. It
    /// belongs to the whole process: settings affect all users.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    #[doc(alias = "cuMemGetMemPool")]
    pub fn current(context: &Context, preferred_location: Option<&Location>) -> Result<Self> {
        require_located("the driver's current pool of managed memory", context)?;
        context.device().require(Feature::ManagedPools)?;
        let mut location = preferred("ManagedPool::current", preferred_location)?;
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is writable, the location readable.
        unsafe { call!(cuda.cuMemGetMemPool(&mut raw, &mut location, MANAGED)) }?;
        Ok(Self::from_inner(PoolResource::new(
            context,
            raw,
            PoolOwnership::Borrowed(None),
            location,
            Accessibility::MANAGED,
        )))
    }
}

fn preferred(call: &'static str, location: Option<&Location>) -> Result<CUmemLocation> {
    match location {
        None => Ok(CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_NONE, id: 0 }),
        Some(Location::HostNumaCurrent) => {
            let rule = "the location must not depend on the thread: name the node";
            Err(Error::invalid(call, "the preferred location", "the calling thread's NUMA node", rule))
        }
        Some(location) => location.to_raw(call),
    }
}
