//! Pools of page-locked memory.

use super::{DriverPool, DriverPoolOptions, PoolOwnership, PoolResource};
use crate::error::call;
use crate::memory::resource::{Accessibility, Location, check_node, kind};
use crate::{Context, Device, Error, Feature, Result, Support};
use core::ptr;
use cuda_sys::{CUdevice_attribute, CUmemAllocationType, CUresult, Capability};

/// A pool of page-locked host memory.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// use cuda_mem::memory::{PinnedPool, DriverPoolOptions};
/// use cuda_mem::{Buffer, Stream};
/// let stream = Stream::new(&context)?;
/// let pool = PinnedPool::new(&context, &DriverPoolOptions::default())?;
/// let mut buffer = Buffer::filled(&pool, 100, 7u16, &stream)?; // by the device
/// assert_eq!(buffer.read(..)?[99], 7); // by the CPU
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub type PinnedPool = DriverPool<kind::Pinned>;

const PINNED: CUmemAllocationType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;

impl PinnedPool {
    /// A new pool of memory of any NUMA node. If [`accessible_from`](DriverPoolOptions::accessible_from) names devices,
    /// these and the context's device may address its memory; otherwise all devices may. (The driver's own default is
    /// none.) Without a maximum size, the pool may grow to the size of the host's physical memory.
    ///
    /// On drivers without pools of host memory, a [`Pool`](crate::pool::Pool) over
    /// [`PinnedMemory`](crate::memory::PinnedMemory) is stream-ordered page-locked memory too.
    ///
    /// # Errors
    ///
    /// The driver has no pools of host memory ([`Feature::HostPools`], CUDA 12.6): [`Error::Unsupported`]. The options
    /// request a shareable pool: only [a pool of one node](Self::on_numa_node) can be.
    #[doc(alias = "cuMemPoolCreate")]
    pub fn new(context: &Context, options: &DriverPoolOptions) -> Result<Self> {
        if options.shareable {
            let rule = "the driver shares only host pools of one NUMA node: make it with on_numa_node or near_device";
            return Err(Error::invalid("PinnedPool::new", "options.shareable", "true", rule));
        }
        let support = context.device().supports(Feature::HostPools)?;
        if support == Support::No {
            return Err(no_host_pools());
        }
        match Self::at(context, options, &Location::Host) {
            Err(error) if support == Support::Unknown && is_refusal(&error) => Err(no_host_pools()),
            other => other,
        }
    }

    /// A new pool of memory of one NUMA node; otherwise as [`new`](Self::new). If the options make it shareable, other
    /// processes can [import](Self::import) it.
    ///
    /// # Errors
    ///
    /// The host has no such node: [`Error::InvalidArgument`]. The device has no pools of one node's memory:
    /// [`Error::Unsupported`].
    pub fn on_numa_node(context: &Context, node: i32, options: &DriverPoolOptions) -> Result<Self> {
        check_node("PinnedPool::on_numa_node", node)?;
        context.device().require(Feature::HostNumaPools)?;
        if options.shareable {
            context.device().require(Feature::SharedPools)?;
        }
        Self::at(context, options, &Location::HostNuma(node))
    }

    /// A new pool of memory of the NUMA node to which the context's device is attached. Options as for
    /// [`on_numa_node`](Self::on_numa_node).
    ///
    /// # Errors
    ///
    /// As [`on_numa_node`](Self::on_numa_node). The driver does not know the device's node.
    #[doc(alias = "CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID")]
    pub fn near_device(context: &Context, options: &DriverPoolOptions) -> Result<Self> {
        context.device().require(Feature::HostNumaPools)?;
        let node = context.device().attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID)?;
        if node < 0 {
            let rule = "the driver must know it; name a node with on_numa_node, or use PinnedPool::new";
            return Err(Error::invalid("PinnedPool::near_device", "the device's NUMA node", node, rule));
        }
        Self::on_numa_node(context, node, options)
    }

    /// The pool from which the driver now allocates host memory. It belongs to the whole process: settings affect all
    /// users. This call gives all devices access to it, because by default the driver gives access to none.
    ///
    /// # Errors
    ///
    /// The driver is older than CUDA 13.0, or has no pools of host memory: [`Error::Unsupported`].
    #[doc(alias = "cuMemGetMemPool")]
    pub fn current(context: &Context) -> Result<Self> {
        require_located("the driver's current pool of host memory", context)?;
        context.device().require(Feature::HostPools)?;
        let mut location = Location::Host.to_raw("PinnedPool::current")?;
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is writable, the location readable.
        unsafe { call!(cuda.cuMemGetMemPool(&mut raw, &mut location, PINNED)) }?;
        let pool = Self::from_inner(PoolResource::new(
            context,
            raw,
            PoolOwnership::Borrowed(None),
            location,
            Accessibility::BOTH,
        ));
        pool.open(&[])?;
        Ok(pool)
    }

    fn at(context: &Context, options: &DriverPoolOptions, location: &Location) -> Result<Self> {
        let location = location.to_raw("PinnedPool::new")?;
        let max_size = options.max_size.unwrap_or(usize::MAX);
        let without_access = DriverPoolOptions { accessible_from: Vec::new(), ..options.clone() };
        let pool = Self::create(context, &without_access, PINNED, location, max_size, Accessibility::BOTH)?;
        pool.open(&options.accessible_from)?;
        Ok(pool)
    }

    /// Gives access to the context's device and the named devices; if none is named, to all devices that support it.
    pub(crate) fn open(&self, named: &[Device]) -> Result<()> {
        self.allow_access(self.context().device())?;
        if !named.is_empty() {
            return named.iter().try_for_each(|device| self.allow_access(device));
        }
        self.context().driver().devices()?.iter().try_for_each(|device| match self.allow_access(device) {
            // A device without such pools must not prevent the others from using the pool.
            Err(error) if error.driver_code() == Some(CUresult::CUDA_ERROR_NOT_SUPPORTED) => Ok(()),
            other => other,
        })
    }
}

fn no_host_pools() -> Error {
    Error::Unsupported {
        feature: "a driver's pool of host memory",
        needs: "a driver of CUDA 12.6 and a device with such pools; elsewhere use a Pool over PinnedMemory".into(),
    }
}

/// Whether the driver refuses pools at a location altogether.
fn is_refusal(error: &Error) -> bool {
    matches!(error.driver_code(), Some(CUresult::CUDA_ERROR_NOT_SUPPORTED | CUresult::CUDA_ERROR_INVALID_VALUE))
}

/// Checks that the driver can return its pool of a location.
pub(super) fn require_located(feature: &'static str, context: &Context) -> Result<()> {
    if context.driver().raw().supports(Capability::LocatedPools) {
        return Ok(());
    }
    Err(Error::Unsupported { feature, needs: "a driver of CUDA 13.0".into() })
}
