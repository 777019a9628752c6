//! Pools of page-locked memory.

use super::slab::SlabPool;
use super::{DriverPool, DriverPoolOptions, Inner, Ownership};
use crate::error::call;
use crate::resource::{Accessibility, Location, check_node, kind};
use crate::{Context, Device, Error, Feature, Result, Support};
use core::ptr;
use cuda_sys::{CUdevice_attribute, CUmemAllocationType, CUmemLocation, CUmemLocationType, CUresult, Capability};

/// A pool of page-locked memory of the host.
///
/// ```
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
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
    /// A pool of its own, of memory of any NUMA node. All devices may address its memory, or the context's and those in
    /// [`accessible_from`](DriverPoolOptions::accessible_from), if it names some; the driver itself would let none. Unless the
    /// options say otherwise it may grow to the size of the host's physical memory.
    ///
    /// A driver without pools of host memory ([`Feature::HostPools`]) is served by a pool of this crate's own: stream-ordered
    /// as the driver's, drawn from cuMemHostAlloc in chunks ([`is_driver_pool`](DriverPool::is_driver_pool) tells).
    ///
    /// # Errors
    ///
    /// The options ask for a shareable pool: only [those of one node](Self::on_numa_node) are; the driver refuses.
    #[doc(alias = "cuMemPoolCreate")]
    pub fn new(context: &Context, options: &DriverPoolOptions) -> Result<Self> {
        if options.shareable {
            return Err(Error::InvalidArgument {
                call: "PinnedPool::new",
                argument: "options.shareable",
                value: "true".into(),
                rule: "the driver shares host pools of one NUMA node only: make it with on_numa_node or near_device",
            });
        }
        let support = context.device().supports(Feature::HostPools)?;
        if support == Support::No {
            return Self::of_slabs(context, options);
        }
        match Self::at(context, options, &Location::Host) {
            Err(error) if support == Support::Unknown && is_refusal(&error) => Self::of_slabs(context, options),
            other => other,
        }
    }

    /// A pool of its own, of memory of one NUMA node; else as [`new`](Self::new). Other processes can
    /// [import](Self::import) it, if the options say so.
    ///
    /// # Errors
    ///
    /// The host has no such node: [`Error::InvalidArgument`]. The device has no pools of one node's memory:
    /// [`Error::Unsupported`]. The driver refuses.
    pub fn on_numa_node(context: &Context, node: i32, options: &DriverPoolOptions) -> Result<Self> {
        check_node("PinnedPool::on_numa_node", node)?;
        context.device().require(Feature::HostNumaPools)?;
        if options.shareable {
            context.device().require(Feature::SharedPools)?;
        }
        Self::at(context, options, &Location::HostNuma(node))
    }

    /// As [`on_numa_node`](Self::on_numa_node), with the node that the context's device is attached to.
    ///
    /// # Errors
    ///
    /// As [`on_numa_node`](Self::on_numa_node); the driver does not know the device's node.
    #[doc(alias = "CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID")]
    pub fn near_device(context: &Context, options: &DriverPoolOptions) -> Result<Self> {
        context.device().require(Feature::HostNumaPools)?;
        let node = context.device().attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID)?;
        if node < 0 {
            return Err(Error::InvalidArgument {
                call: "PinnedPool::near_device",
                argument: "the device's NUMA node",
                value: node.to_string().into(),
                rule: "the driver must know it; name a node with on_numa_node, or take PinnedPool::new",
            });
        }
        Self::on_numa_node(context, node, options)
    }

    /// The pool of host memory that the driver allocates from at present. It belongs to the whole process: what is set on it
    /// is set for all. All devices are given access to it here, since by itself the driver lets none.
    ///
    /// # Errors
    ///
    /// The driver is older than CUDA 13.0, or has no pools of host memory: [`Error::Unsupported`]. The driver refuses.
    #[doc(alias = "cuMemGetMemPool")]
    pub fn current(context: &Context) -> Result<Self> {
        require_located("the driver's present pool of host memory", context)?;
        context.device().require(Feature::HostPools)?;
        let mut location = Location::Host.to_raw("PinnedPool::current")?;
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is writable, the location readable.
        unsafe { call!(cuda.cuMemGetMemPool(&mut raw, &mut location, PINNED)) }?;
        let pool = Self::from_inner(Inner::new(context, raw, Ownership::Borrowed, location, Accessibility::BOTH));
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

    /// Gives access to the context's device and to those named, or to all that can have it.
    pub(super) fn open(&self, named: &[Device]) -> Result<()> {
        self.allow_access(self.context().device())?;
        if !named.is_empty() {
            return named.iter().try_for_each(|device| self.allow_access(device));
        }
        self.context().driver().devices()?.iter().try_for_each(|device| match self.allow_access(device) {
            // A device that has no such pools is no reason to have none on the others.
            Err(error) if error.driver_code() == Some(CUresult::CUDA_ERROR_NOT_SUPPORTED) => Ok(()),
            other => other,
        })
    }

    fn of_slabs(context: &Context, options: &DriverPoolOptions) -> Result<Self> {
        let location = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST, id: 0 };
        let mut inner = Inner::new(context, ptr::null_mut(), Ownership::Owned, location, Accessibility::BOTH);
        inner.slab = Some(SlabPool::new(context, options));
        Ok(Self::from_inner(inner))
    }
}

/// Whether a driver refuses pools of a place as such.
fn is_refusal(error: &Error) -> bool {
    matches!(error.driver_code(), Some(CUresult::CUDA_ERROR_NOT_SUPPORTED | CUresult::CUDA_ERROR_INVALID_VALUE))
}

/// Checks that the driver knows pools by their place.
pub(super) fn require_located(feature: &'static str, context: &Context) -> Result<()> {
    if context.driver().raw().supports(Capability::LocatedPools) {
        return Ok(());
    }
    Err(Error::Unsupported { feature, needs: "a driver of CUDA 13.0".into() })
}
