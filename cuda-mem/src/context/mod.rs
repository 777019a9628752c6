//! Contexts, and which context is current.

mod bound;

use crate::beside_captures::{WaitWithoutCaptures, relaxed};
use crate::cpu_released::DeviceWait;
use crate::deferred::{ContextState, Deferred};
use crate::drop_errors::{DropErrorHook, DropErrorReport, DropErrors};
use crate::error::{DriverError, call};
use crate::later::{check_outside, drop_later, inside_host_function};
use crate::waiting::{self, Target, What};
use crate::{Device, Driver, Error, Result};
use core::any::Any;
use core::fmt;
use core::ptr;
use cuda_sys::{CUcontext, CUdevice, CUresult};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

pub use bound::Bound;

/// How long to wait for a moment when no queued work waits for the CPU.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Tells whether a stream of a context waits for a word that the CPU may have to write.
type Armed = fn(&Driver, context: (usize, Option<u64>)) -> bool;

static ARMED: OnceLock<Armed> = OnceLock::new();

/// Sets the function that knows such streams. Called before the first stream waits for a word.
pub(crate) fn set_armed(known: Armed) {
    let _ = ARMED.set(known);
}

/// Keeps a borrowed handle of another library alive.
pub type ForeignOwner = Arc<dyn Any + Send + Sync>;

/// A process's state on one device. Cheap to clone. Objects that are made in a context keep it alive.
///
/// ```
/// # let driver = cuda_mem::Driver::software()?;
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
    device: Device,
    raw: CUcontext,
    /// Differs for a later context at the same address. Drivers before CUDA 12.0 have no such number.
    id: Option<u64>,
    ownership: Ownership,
    drop_errors: Arc<DropErrors>,
    /// Shared by all values for the same context.
    state: Arc<ContextState>,
}

enum Ownership {
    /// We hold one count of the device's primary context.
    Primary,
    /// We made the context.
    Owned,
    /// Another library's context. The owner, if there is one, keeps it alive.
    Borrowed(#[expect(dead_code, reason = "held for its drop")] Option<ForeignOwner>),
}

// SAFETY: a CUcontext is a token that every thread may pass to the driver.
unsafe impl Send for ContextOwner {}
// SAFETY: as above.
unsafe impl Sync for ContextOwner {}

impl Context {
    pub(crate) fn primary(device: &Device) -> Result<Self> {
        let (cuda, mut raw) = (device.driver().raw(), ptr::null_mut());
        // SAFETY: `raw` is writable.
        unsafe { call!(cuda.cuDevicePrimaryCtxRetain(&mut raw, device.raw())) }?;
        Ok(Self::from_inner(device, raw, Ownership::Primary))
    }

    pub(crate) fn create(device: &Device) -> Result<Self> {
        let (cuda, mut raw) = (device.driver().raw(), ptr::null_mut());
        // SAFETY: `raw` is writable.
        unsafe { call!(cuda.cuCtxCreate_v2(&mut raw, 0, device.raw())) }?;
        let context = Self::from_inner(device, raw, Ownership::Owned);
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
        Ok(Self::from_inner(&device, raw, Ownership::Borrowed(owner)))
    }

    fn from_inner(device: &Device, raw: CUcontext, ownership: Ownership) -> Self {
        let id = context_id(device.driver(), raw).ok();
        let state = ContextState::of(device.driver().library(), raw.addr(), id);
        let inner = ContextOwner { device: device.clone(), raw, id, ownership, drop_errors: Arc::default(), state };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn liveness(&self) -> Liveness {
        self.inner.liveness()
    }

    /// The driver's handle, and its number, which differs for a later context at the same address.
    pub(crate) fn name(&self) -> (usize, Option<u64>) {
        (self.inner.raw.addr(), self.inner.id)
    }

    /// Makes the context current on this thread until the guard ends, then restores the previous one. A forgotten guard
    /// only leaves the context in the thread's stack, below contexts that are bound later.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
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
        self.inner.bind()
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

    /// Waits for all work of the context. The driver holds the context's lock meanwhile, which blocks calls of other
    /// threads. So this first waits, without the lock, for a moment when no queued work waits for the CPU, as host
    /// functions and waits for flags do. After ten seconds without such a moment, the driver waits for that work too.
    ///
    /// # Errors
    ///
    /// Earlier work failed.
    #[doc(alias = "cuCtxSynchronize")]
    pub fn synchronize(&self) -> Result<()> {
        let wait = || {
            let quiet = self.quiet_moment(&"Context::synchronize", Some(PATIENCE));
            let (cuda, _current) = (self.driver().raw(), self.bind()?);
            // SAFETY: the context is current.
            let done = unsafe { call!(cuda.cuCtxSynchronize()) };
            drop(quiet);
            done
        };
        let done = waiting::during(&"Context::synchronize", Target::context(self), wait);
        self.free_deferred();
        done
    }

    /// Free and total memory of the device, in bytes.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    #[doc(alias = "cuMemGetInfo")]
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        self.free_deferred();
        self.inner.memory_info()
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// The driver.
    pub fn driver(&self) -> &Driver {
        self.inner.device.driver()
    }

    /// The driver's handle. It lives as long as this value and its clones.
    pub fn raw(&self) -> CUcontext {
        self.inner.raw
    }

    /// Takes the errors of drops of this context's streams, events and memory.
    pub fn take_drop_errors(&self) -> DropErrorReport {
        self.inner.drop_errors.take()
    }

    /// Sets the hook that receives each such error; `None` removes it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// context.set_drop_error_hook(Some(Arc::new(|error| eprintln!("{error}"))));
    /// // Without a hook, or beside it, call this from time to time: assert_eq!(context.take_drop_errors().errors, []);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn set_drop_error_hook(&self, hook: Option<DropErrorHook>) {
        self.inner.drop_errors.set_hook(hook);
    }

    /// Waits at most `limit` for a moment when no queued work waits for the CPU. The result keeps such work out.
    pub(crate) fn quiet_moment(&self, call: &'static &'static str, limit: Option<Duration>) -> Option<DeviceWait<'_>> {
        let released = &self.state().released;
        let begin = Instant::now();
        let can_come = || limit.is_none_or(|limit| begin.elapsed() < limit) && self.inner.works();
        let wait = || {
            loop {
                let quiet = released.enter_after_pending(can_come);
                let armed = self.inner.armed();
                if quiet.is_some() && !armed {
                    return quiet;
                }
                drop(quiet);
                if !can_come() {
                    return None;
                }
                if armed {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        };
        self.try_quiet().or_else(|| waiting::during(call, Target::context(self), wait))
    }

    /// Begins a call that waits for all work of the context. Returns `None` if queued work waits for the CPU.
    pub(crate) fn try_quiet(&self) -> Option<DeviceWait<'_>> {
        self.inner.try_quiet()
    }

    /// Whether queued work waits for the CPU now.
    pub(crate) fn waits_for_cpu(&self) -> bool {
        self.state().released.is_pending() || self.inner.armed()
    }

    pub(crate) fn state(&self) -> &ContextState {
        &self.inner.state
    }

    /// Runs the deferred frees (see [`deferred`](crate::deferred)) unless queued work waits for the CPU. Whether it freed anything.
    pub(crate) fn free_deferred(&self) -> bool {
        self.inner.free_deferred()
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
        ended.or_else(|error| if error.is_teardown() { Ok(()) } else { Err(error) })
    }
}

impl Target {
    pub fn context(context: &Context) -> Self {
        Self { what: What::Context, stream: 0, context: context.name(), device: context.device().ordinal() }
    }

    pub fn event(context: &Context) -> Self {
        Self { what: What::Event, ..Self::context(context) }
    }
}

/// Whether a context still exists. A foreign owner or cuDevicePrimaryCtxReset may have destroyed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Liveness {
    Alive,
    /// The context was destroyed, and with it all objects made in it.
    Gone,
    /// The process is ending and the driver has shut down, or the process was forked. No driver call is allowed.
    DriverGone,
}

impl ContextOwner {
    fn bind(&self) -> Result<Bound<'_>> {
        let driver = self.device.driver();
        let bound = Bound::keep_current(driver, self.raw)?;
        // A real driver accepts a push of a destroyed context, and corrupts its heap at the pop.
        if bound.is_none() && self.liveness() == Liveness::Gone {
            let code = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
            return Err(DriverError { call: "cuCtxPushCurrent_v2", code }.into());
        }
        bound.map_or_else(|| Bound::push(driver, self.raw), Ok)
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        let (cuda, _current) = (self.device.driver().raw(), self.bind()?);
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are writable and the context is current.
        unsafe { call!(cuda.cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok(MemoryInfo { free, total })
    }

    /// Whether queued work still makes progress. A context that has ended or is broken calls no more host functions.
    fn works(&self) -> bool {
        self.liveness() == Liveness::Alive && self.memory_info().is_ok()
    }

    fn free_deferred(&self) -> bool {
        if !self.state.has_deferred() {
            return false;
        }
        match self.liveness() {
            Liveness::Alive => WaitWithoutCaptures::begin().is_some_and(|_alone| {
                let quiet = self.try_quiet();
                quiet.is_some_and(|quiet| self.free_now(&self.state, quiet))
            }),
            Liveness::Gone => {
                self.state.forget_deferred();
                false
            }
            Liveness::DriverGone => false,
        }
    }

    /// Runs the deferred frees before the last value for the context ends. If the context ends too, this first waits
    /// for work that waits for the CPU, because the driver would wait for it with its lock held.
    fn finish_deferred(&mut self) {
        let Some(mut state) = Arc::into_inner(core::mem::take(&mut self.state)) else { return };
        self.end_reserve(&state);
        self.run_last_frees(&state);
        if self.liveness() != Liveness::DriverGone {
            let _current = self.bind();
            state.memory.end(self.device.driver(), self.liveness() == Liveness::Alive);
        }
    }

    fn run_last_frees(&self, state: &ContextState) {
        let waits = state.has_deferred() || !matches!(self.ownership, Ownership::Borrowed(_));
        if !waits || self.liveness() != Liveness::Alive {
            return;
        }
        let target = Target {
            what: What::Context,
            stream: 0,
            context: (self.raw.addr(), self.id),
            device: self.device.ordinal(),
        };
        let wait = || state.released.enter_after_pending(|| self.works());
        if let Some(wait) = waiting::during(&"the end of a context", target, wait) {
            self.free_now(state, wait);
        }
    }

    /// Destroys the streams that the last value for the context has kept.
    fn end_reserve(&self, state: &ContextState) {
        let spares = state.reserve.take_all();
        if spares.is_empty() || self.liveness() != Liveness::Alive {
            return;
        }
        let driver = self.device.driver();
        let (cuda, Ok(_current)) = (driver.raw(), self.bind()) else { return };
        for spare in spares {
            // SAFETY: the stream is ours and idle, and its context is alive.
            let destroyed = driver.ends().alone(|| unsafe { call!(cuda.cuStreamDestroy_v2(spare.raw)) });
            if let Err(error) = destroyed {
                driver.drop_errors().push("destroying a stream of the reserve", error);
            }
        }
    }

    /// Begins a call that waits for all work of the context. Returns `None` if queued work waits for the CPU.
    fn try_quiet(&self) -> Option<DeviceWait<'_>> {
        // In this order: a stream that begins to wait for a word later waits until this call is over.
        let wait = self.state.released.enter()?;
        if self.armed() { None } else { Some(wait) }
    }

    /// Whether a stream waits for a flag, counter or ring, whose word the CPU may have to write.
    fn armed(&self) -> bool {
        ARMED.get().is_some_and(|known| known(self.device.driver(), (self.raw.addr(), self.id)))
    }

    /// Runs the deferred frees. Whether it freed anything.
    fn free_now(&self, state: &ContextState, wait: DeviceWait<'_>) -> bool {
        let driver = self.device.driver();
        let free = |_current| {
            let _relaxed = relaxed(driver);
            state.free_all(driver.raw())
        };
        let mut done = self.bind().map(free).unwrap_or_default();
        drop(wait);
        done.iter_mut().for_each(Deferred::tell);
        !done.is_empty()
    }

    /// A real driver crashes when it destroys a stream of a destroyed context, and accepts a push of such a context.
    /// Only the context's number may be queried at any time.
    fn liveness(&self) -> Liveness {
        match context_id(self.device.driver(), self.raw) {
            Ok(id) if self.id.is_none_or(|known| known == id) => Liveness::Alive,
            Ok(_) => Liveness::Gone,
            Err(Error::Forked { .. }) => Liveness::DriverGone,
            Err(error) => match error.driver_code() {
                Some(CUresult::CUDA_ERROR_DEINITIALIZED) => Liveness::DriverGone,
                Some(
                    CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
                    | CUresult::CUDA_ERROR_INVALID_CONTEXT
                    | CUresult::CUDA_ERROR_INVALID_HANDLE
                    | CUresult::CUDA_ERROR_INVALID_VALUE,
                ) => Liveness::Gone,
                // A driver without such a number, and any other failure, say nothing about the context.
                _ => Liveness::Alive,
            },
        }
    }
}

fn context_id(driver: &Driver, raw: CUcontext) -> Result<u64> {
    let (cuda, mut id) = (driver.raw(), 0);
    // SAFETY: `id` is writable; the driver looks the handle up.
    unsafe { call!(cuda.cuCtxGetId(raw, &mut id)) }?;
    Ok(id)
}

impl PartialEq for Context {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
            || self.inner.raw == other.inner.raw
                && self.inner.id == other.inner.id
                && self.driver().is_same(other.driver())
    }
}

impl Eq for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ownership = match self.inner.ownership {
            Ownership::Primary => "primary",
            Ownership::Owned => "owned",
            Ownership::Borrowed(_) => "borrowed",
        };
        f.debug_struct("Context")
            .field("raw", &self.inner.raw)
            .field("device", &self.inner.device.ordinal())
            .field("ownership", &ownership)
            .finish()
    }
}

impl Drop for ContextOwner {
    fn drop(&mut self) {
        if inside_host_function() {
            return drop_later(Self {
                device: self.device.clone(),
                raw: self.raw,
                id: self.id,
                ownership: core::mem::replace(&mut self.ownership, Ownership::Borrowed(None)),
                drop_errors: self.drop_errors.clone(),
                state: core::mem::take(&mut self.state),
            });
        }
        self.finish_deferred();
        let liveness = self.liveness();
        let driver = self.device.driver();
        let cuda = driver.raw();
        let end = || match self.ownership {
            _ if liveness == Liveness::DriverGone => Ok(()),
            // SAFETY: the count is ours, and no object is left in the context: objects hold their context.
            Ownership::Primary => unsafe { call!(cuda.cuDevicePrimaryCtxRelease_v2(self.device.raw())) },
            // SAFETY: the context is ours, and no object is left in it.
            Ownership::Owned if liveness == Liveness::Alive => unsafe { call!(cuda.cuCtxDestroy_v2(self.raw)) },
            Ownership::Owned | Ownership::Borrowed(_) => Ok(()),
        };
        match driver.ends().alone(end) {
            // If another library has reset the primary context, there is no count left to release.
            Err(_) if liveness != Liveness::Alive => {}
            Err(error) => driver.drop_errors().push("ending a context", error),
            Ok(()) => {}
        }
        // Errors that nobody took go to the driver's list.
        driver.drop_errors().inherit(&self.drop_errors);
    }
}

/// Memory of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// The free memory.
    pub free: usize,
    /// The total memory.
    pub total: usize,
}
