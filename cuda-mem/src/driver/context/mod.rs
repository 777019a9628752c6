//! Contexts, and which context is current.

mod access_gate;
mod bound;
mod end;
mod handle;
mod kept;
mod named;
mod peers;
mod quiet;
mod state;

use crate::error::drop_errors::{DropErrorHook, DropErrorReport, DropErrors};
use crate::error::{DriverError, call, or_older};
use crate::lifetime::check_outside;
use crate::lifetime::waiting::{Target, What};
use crate::{Device, Driver, Error, Result};
use core::any::Any;
use core::fmt;
use core::ptr;
use cuda_sys::{CUcontext, CUdevice, CUresult};
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
pub(crate) use access_gate::BEFORE_ENTRY;
pub(crate) use access_gate::Entered;
pub use bound::Bound;
pub(crate) use handle::{EndingHandle, Handle};
pub(crate) use kept::HostPool;
pub use named::MemoryInfo;
use named::context_id;
pub(crate) use named::{Liveness, NamedContext};
pub(crate) use peers::{AccessDomain, PeerDecision};
use quiet::FreesOfContext;
pub(crate) use state::ContextState;

/// How long to wait for a moment when no queued work waits for the CPU.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Keeps a borrowed handle of another library alive.
pub type ForeignOwner = Arc<dyn Any + Send + Sync>;

/// A process's state on one device. Cheap to clone. Objects that are made in a context keep it alive.
///
/// ```
/// let driver = cuda_mem::Driver::software()?; // softgpu; a GPU: Driver::load()
/// let context = driver.device(0)?.primary_context()?;
/// {
///     let _current = context.bind()?; // current on this thread until the guard ends
/// }
/// context.synchronize()?;
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone)]
pub struct Context {
    inner: Arc<ContextOwner>,
}

struct ContextOwner {
    named: NamedContext,
    ownership: ContextOwnership,
    /// The start of softgpu in which the context was made.
    start: Option<u64>,
    drop_errors: Arc<DropErrors>,
    /// Shared by all values for the same context.
    state: Arc<ContextState>,
    /// What the worker holds of this value.
    frees: Arc<FreesOfContext>,
}

enum ContextOwnership {
    /// We hold one count of the device's primary context.
    Primary,
    /// We made the context.
    Owned,
    /// Another library's context. The owner, if there is one, keeps it alive.
    Borrowed(Option<ForeignOwner>),
}

impl Context {
    /// The primary context of a device of the system's driver, or of the one that the environment names
    /// ([`Driver::load`]).
    ///
    /// ```
    /// use cuda_mem::{Context, Error, Stream};
    /// match Context::open(0) { // a GPU; softgpu, if the environment has CUDA_MEM_LIBCUDA=softgpu
    ///     Ok(context) => println!("{:?}", Stream::new(&context)?),
    ///     Err(error) => println!("{error}"), // what was tried, and what to do
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// No driver is found, or it does not start; the message lists each place with its reason. The driver has no device
    /// with this ordinal. Another process uses the device, which is in exclusive mode.
    pub fn open(ordinal: i32) -> Result<Self> {
        Driver::load()?.device(ordinal)?.primary_context()
    }

    pub(crate) fn primary(device: &Device) -> Result<Self> {
        let (cuda, mut raw) = (device.driver().raw(), ptr::null_mut());
        // SAFETY: `raw` is writable.
        unsafe { call!(cuda.cuDevicePrimaryCtxRetain(&mut raw, device.raw())) }?;
        Self::from_inner(device, raw, ContextOwnership::Primary)
    }

    pub(crate) fn create(device: &Device) -> Result<Self> {
        let (cuda, mut raw) = (device.driver().raw(), ptr::null_mut());
        // SAFETY: `raw` is writable.
        unsafe { call!(cuda.cuCtxCreate_v2(&mut raw, 0, device.raw())) }?;
        let context = Self::from_inner(device, raw, ContextOwnership::Owned)?;
        // cuCtxCreate leaves the context current; this crate never does.
        let mut popped = ptr::null_mut();
        // SAFETY: `popped` is writable; the context just made is on top.
        unsafe { call!(cuda.cuCtxPopCurrent_v2(&mut popped)) }?;
        Ok(context)
    }

    /// Uses a context of another library without owning it.
    ///
    /// # Errors
    ///
    /// The driver does not know the context.
    ///
    /// # Safety
    ///
    /// The context stays alive while this value, its clones and the objects made in them live.
    pub unsafe fn borrow_raw(driver: &Driver, raw: CUcontext) -> Result<Self> {
        Self::borrow(driver, raw, None)
    }

    /// Uses a context of another library without owning it, and holds `owner` meanwhile.
    ///
    /// # Errors
    ///
    /// The driver does not know the context.
    ///
    /// # Safety
    ///
    /// The context stays alive while `owner` does.
    pub unsafe fn borrow_with_owner(driver: &Driver, raw: CUcontext, owner: ForeignOwner) -> Result<Self> {
        Self::borrow(driver, raw, Some(owner))
    }

    fn borrow(driver: &Driver, raw: CUcontext, owner: Option<ForeignOwner>) -> Result<Self> {
        let (cuda, mut device): (_, CUdevice) = (driver.raw(), 0);
        let guard = Bound::push(driver, raw)?;
        // SAFETY: `device` is writable; the guard has made the context current.
        unsafe { call!(cuda.cuCtxGetDevice(&mut device)) }?;
        drop(guard);
        let device = driver.device(device)?;
        Self::from_inner(&device, raw, ContextOwnership::Borrowed(owner))
    }

    fn from_inner(device: &Device, raw: CUcontext, ownership: ContextOwnership) -> Result<Self> {
        let id = or_older(context_id(device.driver(), raw).map(Some), || Ok(None));
        let known = id.as_ref().ok().copied().flatten();
        let state = ContextState::of(device.driver().library(), raw.addr(), known);
        let named = NamedContext { device: device.clone(), raw, id: known };
        let frees = Arc::new(FreesOfContext { context: named.clone(), state: Arc::downgrade(&state) });
        let owner = ContextOwner {
            named,
            ownership,
            start: device.driver().start_number(),
            drop_errors: Arc::default(),
            state,
            frees,
        };
        // Without the number, the values for one context would not know each other. An error ends the owner.
        id.map(|_| Self { inner: Arc::new(owner) })
    }

    pub(crate) fn liveness(&self) -> Liveness {
        self.inner.named.liveness()
    }

    /// Whether a failed call tells the end of the context, and with it of all work.
    pub(crate) fn is_ended_by(&self, error: &Error) -> bool {
        self.inner.named.is_ended_by(error)
    }

    /// An error of a wait, unless the context has ended, and with it the work.
    pub(crate) fn unless_ended(&self, error: Error) -> Result<()> {
        if self.is_ended_by(&error) { Ok(()) } else { Err(error) }
    }

    /// Whether the context is broken, after a call failed in it.
    pub(crate) fn is_broken_by(&self, error: &Error) -> bool {
        error.may_break_the_context() && self.inner.named.is_broken()
    }

    /// The driver's handle, and its number, which differs for a later context at the same address.
    pub(crate) fn name(&self) -> (usize, Option<u64>) {
        (self.inner.named.raw.addr(), self.inner.named.id)
    }

    /// Makes the context current on this thread until the guard ends, then restores the previous one. A forgotten guard
    /// only leaves the context in the thread's stack, below contexts that are bound later.
    ///
    /// ```
    /// let driver = cuda_mem::Driver::software()?; // softgpu; a GPU: Driver::load()
    /// let context = driver.device(0)?.primary_context()?;
    /// let bound = context.bind()?;
    /// // Here calls of other libraries find the context current.
    /// drop(bound);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The context has been destroyed, the driver has shut down, or the thread is in a host function.
    #[doc(alias = "cuCtxPushCurrent")]
    pub fn bind(&self) -> Result<Bound<'_>> {
        check_outside()?;
        self.inner.named.bind()
    }

    /// Returns an error if the context has ended: the driver crashes on objects of such a context.
    #[inline]
    pub(crate) fn check_alive(&self) -> Result<()> {
        check_outside()?;
        let code = match self.liveness() {
            Liveness::Alive => return Ok(()),
            Liveness::Gone => CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
            // In a forked process, the driver's answer says so.
            Liveness::DriverGone => match context_id(self.driver(), self.raw()) {
                Err(forked @ Error::Forked { .. }) => return Err(forked),
                _ => CUresult::CUDA_ERROR_DEINITIALIZED,
            },
        };
        Err(DriverError { call: "cuCtxGetId", code }.into())
    }

    /// Free and total memory of the device, in bytes.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuMemGetInfo")]
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        check_outside()?;
        self.free_postponed();
        self.inner.named.memory_info()
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.inner.named.device
    }

    /// The driver.
    pub fn driver(&self) -> &Driver {
        self.inner.named.device.driver()
    }

    /// The driver's handle. It lives as long as this value and its clones.
    pub fn raw(&self) -> CUcontext {
        self.inner.named.raw
    }

    /// Takes the errors of drops of this context's streams, events and memory.
    pub fn take_drop_errors(&self) -> DropErrorReport {
        self.inner.drop_errors.take()
    }

    /// Sets the hook that receives each such error; `None` removes it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// context.set_drop_error_hook(Some(Arc::new(|error| eprintln!("{error}"))));
    /// // Without a hook, or beside it, call this from time to time: assert_eq!(context.take_drop_errors().errors, []);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn set_drop_error_hook(&self, hook: Option<DropErrorHook>) {
        self.inner.drop_errors.set_hook(hook);
    }

    /// Another library's value that keeps the context alive.
    #[cfg(feature = "cudarc")]
    pub(crate) fn foreign_owner(&self) -> Option<&ForeignOwner> {
        match &self.inner.ownership {
            ContextOwnership::Borrowed(owner) => owner.as_ref(),
            ContextOwnership::Primary | ContextOwnership::Owned => None,
        }
    }

    pub(crate) fn state(&self) -> &ContextState {
        &self.inner.state
    }

    pub(crate) fn drop_errors(&self) -> &Arc<DropErrors> {
        &self.inner.drop_errors
    }

    /// Runs `end` with the context current. Does nothing if the context or the driver has ended.
    pub(crate) fn while_alive(&self, end: impl FnOnce(&cuda_sys::Driver) -> Result<()>) -> Result<()> {
        if self.liveness() != Liveness::Alive {
            return Ok(());
        }
        let ended = self.bind().and_then(|_current| end(self.driver().raw()));
        ended.or_else(|error| self.unless_ended(error))
    }
}

impl Target {
    pub fn context(context: &Context) -> Self {
        Self { what: What::Context, context: context.name(), device: context.device().ordinal(), ..Self::THREAD }
    }

    pub fn event(context: &Context) -> Self {
        Self { what: What::Event, ..Self::context(context) }
    }
}

impl PartialEq for Context {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
            || self.inner.named.raw == other.inner.named.raw
                && self.inner.named.id == other.inner.named.id
                && self.driver().is_same(other.driver())
    }
}

impl Eq for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ownership = match self.inner.ownership {
            ContextOwnership::Primary => "primary",
            ContextOwnership::Owned => "owned",
            ContextOwnership::Borrowed(_) => "borrowed",
        };
        f.debug_struct("Context")
            .field("raw", &self.inner.named.raw)
            .field("device", &self.inner.named.device.ordinal())
            .field("ownership", &ownership)
            .finish()
    }
}
