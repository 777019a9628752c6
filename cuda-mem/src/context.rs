//! Contexts, and which of them is current.

use crate::drop_errors::{DropErrorHook, DropErrorReport, DropErrors};
use crate::error::{DriverError, call};
use crate::kernels::{self, Kernel, SignalKernels, StridedKernels};
use crate::waiting::{self, Target};
use crate::{Device, Driver, Error, Result};
use core::any::Any;
use core::fmt;
use core::marker::PhantomData;
use core::ptr;
use cuda_sys::{CUcontext, CUdevice, CUresult};
use once_cell::sync::OnceCell;
use std::sync::Arc;

/// What keeps a borrowed handle of another library alive.
pub type ForeignOwner = Arc<dyn Any + Send + Sync>;

/// A process's state on one device. Cheap to clone; what is made in it keeps it alive.
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
    inner: Arc<Inner>,
}

struct Inner {
    device: Device,
    raw: CUcontext,
    /// Tells the context from a later one at the same address; drivers before CUDA 12.0 have no such number.
    id: Option<u64>,
    ownership: Ownership,
    drop_errors: Arc<DropErrors>,
    differ_kernel: OnceCell<Kernel>,
    signal_kernels: OnceCell<SignalKernels>,
    strided_kernels: OnceCell<StridedKernels>,
}

enum Ownership {
    /// One count of the device's primary context.
    Primary,
    /// Made by us.
    Owned,
    /// Somebody else's; kept alive by the owner, where there is one.
    Borrowed(#[expect(dead_code, reason = "held for its drop")] Option<ForeignOwner>),
}

// SAFETY: a CUcontext is a token that every thread may pass to the driver.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

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
    /// The context stays alive while this value, its clones and what is made in them live.
    pub unsafe fn borrow_raw(driver: &Driver, raw: CUcontext) -> Result<Self> {
        Self::borrow(driver, raw, None)
    }

    /// Uses a context of another library, and holds `owner` for as long.
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
        let inner = Inner {
            device: device.clone(),
            raw,
            id,
            ownership,
            drop_errors: Arc::default(),
            differ_kernel: OnceCell::new(),
            signal_kernels: OnceCell::new(),
            strided_kernels: OnceCell::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn liveness(&self) -> Liveness {
        self.inner.liveness()
    }

    /// Tells contexts of all drivers apart, a later one at the same address too where the driver numbers them.
    pub(crate) fn key(&self) -> (usize, usize, Option<u64>) {
        (self.driver().library(), self.inner.raw.addr(), self.inner.id)
    }

    /// The driver's handle, and the number that tells it from a later context at the same address.
    pub(crate) fn name(&self) -> (usize, Option<u64>) {
        (self.inner.raw.addr(), self.inner.id)
    }

    /// Makes the context current on this thread until the guard ends; then the one before is current again. A guard that is
    /// forgotten leaves it current on this thread, below what is bound later; nothing else depends on the guard's end.
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
    /// The context has been destroyed, or the driver has shut down.
    #[doc(alias = "cuCtxPushCurrent")]
    pub fn bind(&self) -> Result<Bound<'_>> {
        let bound = Bound::keep_current(self.driver(), self.inner.raw)?;
        // A real driver takes a destroyed context for a push, and breaks its heap with the pop.
        if bound.is_none() && self.liveness() == Liveness::Gone {
            let code = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
            return Err(DriverError { call: "cuCtxPushCurrent_v2", code }.into());
        }
        bound.map_or_else(|| Bound::push(self.driver(), self.inner.raw), Ok)
    }

    /// An error if the context has ended: the driver crashes over what was made in it.
    #[inline]
    pub(crate) fn check_alive(&self) -> Result<()> {
        let code = match self.liveness() {
            Liveness::Alive => return Ok(()),
            Liveness::Gone => CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
            Liveness::DriverGone => CUresult::CUDA_ERROR_DEINITIALIZED,
        };
        Err(DriverError { call: "cuCtxGetId", code }.into())
    }

    /// Waits for all work of the context.
    ///
    /// # Errors
    ///
    /// Earlier work failed.
    #[doc(alias = "cuCtxSynchronize")]
    pub fn synchronize(&self) -> Result<()> {
        let (cuda, _current) = (self.driver().raw(), self.bind()?);
        // SAFETY: the context is current.
        let wait = || unsafe { call!(cuda.cuCtxSynchronize()) };
        waiting::during(&"Context::synchronize", Target::context(self), wait)
    }

    /// Free and whole memory of the device, in bytes.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    #[doc(alias = "cuMemGetInfo")]
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        let (cuda, _current) = (self.driver().raw(), self.bind()?);
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are writable and the context is current.
        unsafe { call!(cuda.cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok(MemoryInfo { free, total })
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

    /// Takes the errors that drops of this context's streams, events and memory have met.
    pub fn take_drop_errors(&self) -> DropErrorReport {
        self.inner.drop_errors.take()
    }

    /// Sets what is called with each such error; `None` ends it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// context.set_drop_error_hook(Some(Arc::new(|error| eprintln!("{error}"))));
    /// // Without a hook, or beside it, at times:
    /// assert_eq!(context.take_drop_errors().errors, []);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn set_drop_error_hook(&self, hook: Option<DropErrorHook>) {
        self.inner.drop_errors.set_hook(hook);
    }

    /// The kernel that compares memory, loaded when it is first needed.
    pub(crate) fn differ_kernel(&self) -> Result<Kernel> {
        self.kept(&self.inner.differ_kernel, kernels::differ).copied()
    }

    /// The kernels of [`signal`](crate::signal), loaded when they are first needed.
    pub(crate) fn signal_kernels(&self) -> Result<&SignalKernels> {
        self.kept(&self.inner.signal_kernels, kernels::signal)
    }

    /// The kernels of strided copies, loaded when they are first needed.
    pub(crate) fn strided_kernels(&self) -> Result<&StridedKernels> {
        self.kept(&self.inner.strided_kernels, kernels::strided)
    }

    fn kept<'a, T>(&self, place: &'a OnceCell<T>, load: fn(&cuda_sys::Driver) -> Result<T>) -> Result<&'a T> {
        place.get_or_try_init(|| {
            let _current = self.bind()?;
            load(self.driver().raw())
        })
    }

    pub(crate) fn drop_errors(&self) -> &Arc<DropErrors> {
        &self.inner.drop_errors
    }

    /// For drops: runs `end` with the context current. A context or driver that has ended is quiet, any other error
    /// is kept.
    pub(crate) fn end(&self, doing: &'static str, end: impl FnOnce(&cuda_sys::Driver) -> Result<()>) {
        if self.liveness() != Liveness::Alive {
            return;
        }
        let result = self.bind().and_then(|_current| end(self.driver().raw()));
        match result {
            Err(error) if !error.is_teardown() => self.inner.drop_errors.push(doing, error),
            _ => {}
        }
    }
}

/// Whether a context is still there. Others may have destroyed it: a foreign owner, or cuDevicePrimaryCtxReset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Liveness {
    Alive,
    /// It was destroyed, and all that was made in it with it.
    Gone,
    /// The driver has shut down, because the process is ending, or is of no use, because it was forked: nothing may be
    /// called.
    DriverGone,
}

impl Inner {
    /// A real driver crashes when a stream of a destroyed context is destroyed, and lets a destroyed context be pushed;
    /// its number is the one thing that may be asked for at any time.
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
                // A driver without such a number, and any other failure, say nothing of the context.
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

impl Drop for Inner {
    fn drop(&mut self) {
        let liveness = self.liveness();
        let driver = self.device.driver();
        let cuda = driver.raw();
        let teardown = driver.teardown();
        let result = match self.ownership {
            _ if liveness == Liveness::DriverGone => Ok(()),
            // SAFETY: the count is ours, and nothing made in it is left: what is made in a context holds it.
            Ownership::Primary => unsafe { call!(cuda.cuDevicePrimaryCtxRelease_v2(self.device.raw())) },
            // SAFETY: the context is ours, and nothing made in it is left.
            Ownership::Owned if liveness == Liveness::Alive => unsafe { call!(cuda.cuCtxDestroy_v2(self.raw)) },
            Ownership::Owned | Ownership::Borrowed(_) => Ok(()),
        };
        // Not around the report of an error: its hook may end other values.
        drop(teardown);
        match result {
            // A primary context that others have reset has no count left to give back.
            Err(_) if liveness != Liveness::Alive => {}
            Err(error) => driver.drop_errors().push("ending a context", error),
            Ok(()) => {}
        }
        // What nobody took does not end unseen.
        for error in self.drop_errors.take().errors {
            driver.drop_errors().push(error.doing, error.error);
        }
    }
}

/// Memory of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// What is free.
    pub free: usize,
    /// What there is.
    pub total: usize,
}

/// A context is current on this thread while this lives. It stays on its thread.
#[must_use = "the context is current only while the guard lives"]
pub struct Bound<'context> {
    driver: &'context Driver,
    pushed: bool,
    /// Which context is current belongs to a thread.
    on_this_thread: PhantomData<*const ()>,
}

impl<'context> Bound<'context> {
    /// Nothing to do, if the context is current already.
    fn keep_current(driver: &'context Driver, raw: CUcontext) -> Result<Option<Self>> {
        let (cuda, mut current) = (driver.raw(), ptr::null_mut());
        // SAFETY: `current` is writable.
        unsafe { call!(cuda.cuCtxGetCurrent(&mut current)) }?;
        Ok((current == raw).then_some(Self { driver, pushed: false, on_this_thread: PhantomData }))
    }

    /// Pushes the context, which is alive.
    fn push(driver: &'context Driver, raw: CUcontext) -> Result<Self> {
        let cuda = driver.raw();
        // SAFETY: the caller has seen that the context is alive.
        unsafe { call!(cuda.cuCtxPushCurrent_v2(raw)) }?;
        Ok(Self { driver, pushed: true, on_this_thread: PhantomData })
    }
}

impl fmt::Debug for Bound<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("pushed", &self.pushed).finish()
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        if !self.pushed {
            return;
        }
        let (cuda, mut popped) = (self.driver.raw(), ptr::null_mut());
        // SAFETY: `popped` is writable; what this guard pushed is on top.
        if let Err(error) = unsafe { call!(cuda.cuCtxPopCurrent_v2(&mut popped)) }
            && !error.is_teardown()
        {
            self.driver.drop_errors().push("making the context before current again", error);
        }
    }
}
