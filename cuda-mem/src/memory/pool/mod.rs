//! Pools of the driver: memory allocated and freed in stream order.

mod access;
mod attributes;
mod end;
mod managed;
mod options;
mod pinned;
#[cfg(feature = "sharing")]
mod sharing;

use crate::driver::context::AccessDomain;
use crate::error::{call, forked};
use crate::lifetime::waiting::{Target, watched};
use crate::lifetime::{drop_after_host_function, inside_host_function};
use crate::locks::Mutex;
use crate::memory::device::DRIVER_ALIGNMENT;
use crate::memory::peers::PeerSource;
use crate::memory::resource::{
    Accessibility, Block, BlockKind, MemoryResource, ResourceHandle, SharedResource, check_request,
    host::out_of_host_memory,
    kind::{self, Kind},
    out_of_memory,
};
use crate::{Context, Error, Feature, ForeignOwner, Result, Stream};
use core::fmt;
use core::marker::PhantomData;
use core::ptr;
use cuda_sys::{CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation, CUmemPoolProps, CUmemoryPool};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use end::{EndingPool, FreeingStreams};
#[cfg(feature = "sharing")]
pub(crate) use sharing::{PoolSharing, is_own_pool, own_pool, own_pools};

pub use access::PoolAccess;
pub use attributes::PoolAttributes;
pub use managed::ManagedPool;
pub use options::DriverPoolOptions;
pub use pinned::PinnedPool;

/// A pool of the driver. Allocations and frees are in stream order, and take at most a microsecond while the pool has
/// memory. Buffers keep their pool alive. Cheap to clone.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// use cuda_mem::memory::{DevicePool, DriverPoolOptions};
/// use cuda_mem::{Buffer, Stream};
/// let stream = Stream::new(&context)?;
/// let pool = DevicePool::new(&context, &DriverPoolOptions::default())?;
/// let buffer = Buffer::from_slice(&pool, &[1u32, 2, 3], &stream)?;
/// assert_eq!(buffer.to_vec()?, [1, 2, 3]);
/// assert!(pool.attributes()?.used >= 12);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct DriverPool<K = kind::Any> {
    pub(crate) inner: Arc<PoolResource>,
    kind: PhantomData<K>,
}

/// A pool of device memory.
pub type DevicePool = DriverPool<kind::Device>;

pub(crate) struct PoolResource {
    pub context: Context,
    pub raw: CUmemoryPool,
    pub ownership: PoolOwnership,
    /// Whether other processes may have the pool.
    pub shareable: bool,
    /// What all processes know of a shareable pool.
    #[cfg(feature = "sharing")]
    pub shared: Option<Arc<PoolSharing>>,
    /// Where the memory lies.
    pub location: CUmemLocation,
    /// The accessibility in this process.
    pub accessibility: Accessibility,
    /// The pool's memory, to other devices. All values for the pool share it.
    pub domain: Arc<AccessDomain>,
}

#[derive(Debug)]
pub(crate) enum PoolOwnership {
    /// We made the pool, and destroy it after the frees on these streams.
    Owned(FreeingStreams),
    /// The pool belongs to the driver or another library; or to another process, and the value is a counted import.
    Borrowed(Option<ForeignOwner>),
}

// SAFETY: a CUmemoryPool is a token that every thread may pass to the driver.
unsafe impl Send for PoolResource {}
// SAFETY: as above.
unsafe impl Sync for PoolResource {}

impl DevicePool {
    /// A new pool on the context's device.
    ///
    /// # Errors
    ///
    /// The device has no pools: [`Error::Unsupported`].
    #[doc(alias = "cuMemPoolCreate")]
    pub fn new(context: &Context, options: &DriverPoolOptions) -> Result<Self> {
        context.device().require(Feature::DevicePools)?;
        if options.shareable {
            context.device().require(Feature::SharedPools)?;
        }
        let location = CUmemLocation {
            type_: cuda_sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: context.device().raw(),
        };
        let max_size = match options.max_size {
            None => context.device().total_memory()?,
            Some(size) => size,
        };
        let kind = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        Self::create(context, options, kind, location, max_size, Accessibility::DEVICE)
    }

    /// The pool from which the device now allocates, for cuMemAllocAsync too. It belongs to the whole process: settings
    /// affect all users.
    ///
    /// # Errors
    ///
    /// The device has no pools: [`Error::Unsupported`].
    #[doc(alias = "cuDeviceGetMemPool")]
    pub fn current(context: &Context) -> Result<Self> {
        let (cuda, mut raw) = (context.driver().raw(), ptr::null_mut());
        // SAFETY: `raw` is writable.
        let found = unsafe { call!(cuda.cuDeviceGetMemPool(&mut raw, context.device().raw())) };
        found.or_else(|error| context.device().require(Feature::DevicePools).and(Err(error)))?;
        Ok(Self::of_device(context, raw))
    }

    /// The device's initial pool.
    ///
    /// # Errors
    ///
    /// The device has no pools: [`Error::Unsupported`].
    #[doc(alias = "cuDeviceGetDefaultMemPool")]
    pub fn default_of(context: &Context) -> Result<Self> {
        let (cuda, mut raw) = (context.driver().raw(), ptr::null_mut());
        // SAFETY: `raw` is writable.
        let found = unsafe { call!(cuda.cuDeviceGetDefaultMemPool(&mut raw, context.device().raw())) };
        found.or_else(|error| context.device().require(Feature::DevicePools).and(Err(error)))?;
        Ok(Self::of_device(context, raw))
    }

    /// Makes the device allocate from this pool. This affects cuMemAllocAsync calls of all libraries in the process.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    ///
    /// # Safety
    ///
    /// This pool stays alive while it is the current one, because the driver does not count the use.
    #[doc(alias = "cuDeviceSetMemPool")]
    pub unsafe fn make_current(&self) -> Result<()> {
        let cuda = self.inner.context.driver().raw();
        // SAFETY: the pool lives, and the caller keeps it alive.
        unsafe { call!(cuda.cuDeviceSetMemPool(self.inner.context.device().raw(), self.inner.raw)) }
    }

    fn of_device(context: &Context, raw: CUmemoryPool) -> Self {
        let location = CUmemLocation {
            type_: cuda_sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: context.device().raw(),
        };
        Self::from_inner(PoolResource::new(
            context,
            raw,
            PoolOwnership::Borrowed(None),
            location,
            Accessibility::DEVICE,
        ))
    }
}

impl<K: Kind> DriverPool<K> {
    fn create(
        context: &Context,
        options: &DriverPoolOptions,
        kind: CUmemAllocationType,
        location: CUmemLocation,
        max_size: usize,
        accessibility: Accessibility,
    ) -> Result<Self> {
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let handle_type = if options.shareable {
            CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        } else {
            CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE
        };
        let properties = CUmemPoolProps {
            allocType: kind,
            handleTypes: handle_type,
            location,
            // The driver's value for "no limit" is 0.
            maxSize: if max_size == usize::MAX { 0 } else { max_size },
            ..Default::default()
        };
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is writable, the properties are readable.
        unsafe { call!(cuda.cuMemPoolCreate(&mut raw, &properties)) }?;
        // From here on, the drop of `inner` destroys the pool.
        let mut inner =
            PoolResource::new(context, raw, PoolOwnership::Owned(FreeingStreams::new()), location, accessibility);
        inner.shareable = options.shareable;
        #[cfg(feature = "sharing")]
        if options.shareable {
            inner.shared = Some(Arc::new(PoolSharing::export(&inner)?));
        }
        let pool = Self::from_inner(inner);
        #[cfg(feature = "sharing")]
        pool.inner.register();
        pool.withdraw_inherited_access()?;
        pool.apply(options)?;
        Ok(pool)
    }

    fn from_inner(inner: PoolResource) -> Self {
        Self::from_arc(Arc::new(inner))
    }

    /// Leaves the end of the pool to the caller, who holds no other value for it.
    pub(super) fn disown(self) {
        if let Some(mut inner) = Arc::into_inner(self.inner) {
            inner.ownership = PoolOwnership::Borrowed(None);
        }
    }

    pub(crate) fn from_arc(inner: Arc<PoolResource>) -> Self {
        Self { inner, kind: PhantomData }
    }

    /// Converts to kind `Any`, for programs that choose the kind at run time.
    pub fn into_any(self) -> DriverPool<kind::Any> {
        DriverPool::from_arc(self.inner)
    }

    /// The context in which the pool works.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Whether this value made the pool and destroys it.
    pub fn is_owned(&self) -> bool {
        matches!(self.inner.ownership, PoolOwnership::Owned(_))
    }

    /// The driver's handle. It lives as long as this value, its clones and its buffers.
    pub fn raw(&self) -> CUmemoryPool {
        self.inner.raw
    }
}

/// The domains of pools that have values, by library and handle.
static DOMAINS: Mutex<BTreeMap<(usize, usize), Weak<AccessDomain>>> = Mutex::new(BTreeMap::new());

/// The domain of a pool. A new pool may have the handle of one that was destroyed.
fn domain_of(library: usize, raw: usize, ownership: &PoolOwnership) -> Arc<AccessDomain> {
    let mut domains = DOMAINS.lock();
    domains.retain(|_, domain| domain.strong_count() > 0);
    let known = domains.get(&(library, raw)).and_then(Weak::upgrade);
    known.filter(|_| !matches!(ownership, PoolOwnership::Owned(_))).unwrap_or_else(|| {
        let domain = Arc::default();
        domains.insert((library, raw), Arc::downgrade(&domain));
        domain
    })
}

impl PoolResource {
    /// A pool that cannot be shared.
    pub fn new(
        context: &Context,
        raw: CUmemoryPool,
        ownership: PoolOwnership,
        location: CUmemLocation,
        accessibility: Accessibility,
    ) -> Self {
        let domain = domain_of(context.driver().library(), raw.addr(), &ownership);
        Self {
            context: context.clone(),
            raw,
            ownership,
            shareable: false,
            #[cfg(feature = "sharing")]
            shared: None,
            location,
            accessibility,
            domain,
        }
    }

    /// Whether another process made the pool.
    pub fn is_imported(&self) -> bool {
        matches!(self.ownership, PoolOwnership::Borrowed(Some(_)))
    }

    /// Refuses an imported pool: only the process that made a pool may allocate from it, trim it and query it.
    fn check_own(&self, call: &'static str) -> Result<()> {
        if self.is_imported() { Err(Error::ImportedPool { call }) } else { Ok(()) }
    }
}

impl<K> Clone for DriverPool<K> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), kind: PhantomData }
    }
}

impl<K> PartialEq for DriverPool<K> {
    fn eq(&self, other: &Self) -> bool {
        let same_pool = !self.inner.raw.is_null() && self.inner.raw == other.inner.raw;
        (same_pool || Arc::ptr_eq(&self.inner, &other.inner)) && self.inner.context == other.inner.context
    }
}

impl<K> Eq for DriverPool<K> {}

impl<K> fmt::Debug for DriverPool<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for PoolResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverPool")
            .field("raw", &self.raw)
            .field("device", &self.context.device().ordinal())
            .field("ownership", &self.ownership)
            .finish_non_exhaustive()
    }
}

// SAFETY: every constructor of `DriverPool<K>` makes a pool of kind `K`, and every pool is of kind `Any`.
unsafe impl<K: Kind> ResourceHandle for DriverPool<K> {
    type Kind = K;

    fn share(&self) -> SharedResource {
        self.inner.clone()
    }
}

// SAFETY: the driver's blocks do not overlap, and are valid in order of the given stream.
unsafe impl MemoryResource for PoolResource {
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        const CALL: &str = "DriverPool::allocate";
        self.check_own(CALL)?;
        check_request(CALL, (size, alignment), DRIVER_ALIGNMENT, &self.context, stream)?;
        let allocate = || {
            // This also checks that the stream's context is alive. The allocation needs no current context. What
            // `with_room` does between two tries may run the program's code, so the submission ends here.
            let _submission = stream.running(CALL)?;
            let (cuda, _current, mut pointer) = (self.context.driver().raw(), stream.bind_default()?, 0);
            // SAFETY: `pointer` is writable; pool and stream live.
            unsafe { call!(cuda.cuMemAllocFromPoolAsync(&mut pointer, size, self.raw, stream.raw())) }.map(|()| pointer)
        };
        let refuse = |error| match self.accessibility {
            Accessibility::BOTH => out_of_host_memory(CALL, error, size),
            _ => out_of_memory(CALL, error, size, &self.context),
        };
        let on_device = (!self.accessibility.host).then_some(size);
        let pointer = self.context.with_room(on_device, allocate, refuse)?;
        if self.accessibility.host {
            let block = Block::unified(ptr::with_exposed_provenance_mut(pointer as usize), size);
            return Ok(if self.accessibility.managed { block.of_kind(BlockKind::Managed) } else { block });
        }
        Ok(Block::device(pointer, size))
    }

    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        // A graph cannot free this memory, and the driver's error would not name that reason.
        let _running = stream.running("DriverPool::deallocate")?;
        // The stream's context is alive: the caller's contract.
        let (cuda, _current) = (self.context.driver().raw(), stream.bind_default()?);
        // SAFETY: the caller's contract.
        unsafe { call!(cuda.cuMemFreeAsync(block.device_pointer(), stream.raw())) }?;
        if let PoolOwnership::Owned(freeing) = &self.ownership {
            freeing.note(stream);
        }
        Ok(())
    }

    unsafe fn abandon(&self, block: Block) {
        // SAFETY: the caller's contract.
        unsafe { free_after_end(&self.context, block) };
    }

    fn context(&self) -> &Context {
        &self.context
    }

    fn peer_source(&self) -> Option<PeerSource<'_>> {
        (!self.accessibility.host).then(|| PeerSource::pool(self))
    }

    fn accessibility(&self) -> Accessibility {
        Accessibility { processes: self.shareable, ..self.accessibility }
    }

    #[cfg(feature = "sharing")]
    fn export(&self, block: Block) -> Result<crate::memory::descriptor::BlockExport> {
        self.describe(block)
    }
}

/// Frees a pool's block after its context has ended.
///
/// # Safety
///
/// The block is of a pool of the context's device, and is freed once. Nobody uses it.
pub(super) unsafe fn free_after_end(context: &Context, block: Block) {
    // The pool belongs to the device and outlives the context. So another context of the device frees the block.
    let freed = context.device().primary_context().and_then(|primary| {
        let (cuda, _current) = (primary.driver().raw(), primary.bind()?);
        // SAFETY: this function's contract.
        unsafe { watched!(Target::context(&primary), cuda.cuMemFree_v2(block.device_pointer())) }
    });
    if let Err(error) = freed {
        context.driver().drop_errors().push("freeing a pool's block after its context has ended", error);
    }
}

impl Drop for PoolResource {
    fn drop(&mut self) {
        let PoolOwnership::Owned(freeing) = &self.ownership else { return };
        if forked() {
            return;
        }
        let ending = EndingPool { context: self.context.clone(), raw: self.raw, streams: freeing.take() };
        #[cfg(feature = "sharing")]
        self.forget();
        if inside_host_function() {
            drop_after_host_function(ending);
        }
    }
}
