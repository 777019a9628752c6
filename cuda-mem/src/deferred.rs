//! Puts off frees that wait for the whole context while queued work waits for the CPU.
//!
//! A free outside of stream order waits for the whole device. While queued work waits for the CPU (see
//! [`cpu_released`](crate::cpu_released)), such a free goes into a list of its driver context. When no queued work
//! waits for the CPU any more, the next free or allocation of such memory, wait for the context, or launch of a host
//! function empties the list. The end of the context empties it too.

use crate::beside_captures::relaxed;
use crate::capture_errors::is_for_a_capture;
use crate::cpu_released::CpuReleased;
use crate::drop_errors::DropErrors;
use crate::error::call;
use crate::kernels::{Kernel, SignalKernels, StridedKernels};
use crate::{Context, Driver, Error, Result, Stream};
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use cuda_sys::CUresult;
use once_cell::sync::OnceCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// What this crate's values for one driver context share.
#[derive(Default)]
pub(crate) struct ContextState {
    pub released: Arc<CpuReleased>,
    pub kernels: Kernels,
    deferred: Mutex<Vec<Deferred>>,
    /// Length of `deferred`, readable without its lock.
    count: AtomicUsize,
}

/// This crate's kernels, once loaded.
#[derive(Default)]
pub(crate) struct Kernels {
    pub differ: OnceCell<Kernel>,
    pub signal: OnceCell<SignalKernels>,
    pub strided: OnceCell<StridedKernels>,
    /// Whether the program has queued work that waits for the CPU, or is about to.
    pub wanted: AtomicBool,
}

type Free = Box<dyn FnMut(&cuda_sys::Driver) -> Result<()> + Send>;

/// A free that was put off. It holds no reference to its context, which would keep the context alive for ever.
pub(crate) struct Deferred {
    doing: &'static str,
    /// Called again if a capture forbade it.
    free: Free,
    drop_errors: Arc<DropErrors>,
    failed: Option<Error>,
}

impl Deferred {
    /// Reports a failed free, after the `DeviceWait`: a hook may queue work, which waits for the end of that.
    pub fn tell(&mut self) {
        if let Some(error) = self.failed.take() {
            self.drop_errors.push(self.doing, error);
        }
    }
}

/// States by library, and by the context's address and number.
type States = BTreeMap<(usize, usize, u64), Weak<ContextState>>;

/// Answers [`is_armed`].
type Armed = fn(&Driver, context: (usize, Option<u64>)) -> bool;

static ARMED: OnceLock<Armed> = OnceLock::new();

/// Sets the function that [`is_armed`] asks. Called before the first stream waits for a word.
pub(crate) fn set_armed(known: Armed) {
    let _ = ARMED.set(known);
}

/// Whether a stream of a context waits for a word that the CPU may have to write.
pub(crate) fn is_armed(driver: &Driver, context: (usize, Option<u64>)) -> bool {
    ARMED.get().is_some_and(|known| known(driver, context))
}

static STATES: Mutex<States> = Mutex::new(BTreeMap::new());

impl ContextState {
    /// Returns the state of a context. Drivers before CUDA 12.0 do not number contexts. There each value gets its own
    /// state, because a later context at the same address would look the same.
    pub fn of(library: usize, raw: usize, id: Option<u64>) -> Arc<Self> {
        let Some(id) = id else { return Arc::default() };
        let mut states = STATES.lock().unwrap_or_else(PoisonError::into_inner);
        states.retain(|_, state| state.strong_count() > 0);
        if let Some(state) = states.get(&(library, raw, id)).and_then(Weak::upgrade) {
            return state;
        }
        let state = Arc::default();
        states.insert((library, raw, id), Arc::downgrade(&state));
        state
    }

    fn list(&self) -> MutexGuard<'_, Vec<Deferred>> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, frees: impl IntoIterator<Item = Deferred>) {
        let mut list = self.list();
        list.extend(frees);
        self.count.store(list.len(), Ordering::Release);
    }

    fn take(&self) -> Vec<Deferred> {
        let mut list = self.list();
        self.count.store(0, Ordering::Release);
        core::mem::take(&mut *list)
    }

    pub fn has_deferred(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }
}

impl Context {
    /// Frees memory by a call that waits for all work of this context, after the work queued on `home` so far, if
    /// given. While queued work waits for the CPU, puts the free off; its error is then a drop error.
    ///
    /// `free` runs with the context current, again if a capture forbade it, and never if the context ends first. Its
    /// captured values are dropped afterwards, possibly on another thread.
    pub(crate) fn free_by_waiting(
        &self,
        doing: &'static str,
        home: Option<&Stream>,
        mut free: impl FnMut(&cuda_sys::Driver) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let elsewhere = home.filter(|home| home.context() != self);
        if let Some(home) = home
            && home.is_capturing()?
        {
            // Waiting for a stream that captures would end the capture.
            elsewhere.map_or(Ok(()), |home| home.check_not_capturing(doing))?;
            self.put_off(doing, free);
            return Ok(());
        }
        // Deferred frees wait for the work of this context only.
        elsewhere.map_or(Ok(()), Stream::drain)?;
        let Some(wait) = self.try_quiet() else {
            self.put_off(doing, free);
            return Ok(());
        };
        // In relaxed mode, a capture of another stream forbids neither the wait nor the free.
        let relaxed = relaxed(self.driver())?;
        let worked = home.map_or(Ok(()), Stream::drain);
        let freed = worked.and_then(|()| self.bind()).and_then(|_current| free(self.driver().raw()));
        drop((relaxed, wait));
        if freed.as_ref().is_err_and(is_for_a_capture) {
            // Another library's capture, which this crate did not see.
            self.put_off(doing, free);
            return Ok(());
        }
        self.free_deferred();
        freed
    }

    /// Puts off a free, as [`free_by_waiting`](Self::free_by_waiting) does.
    pub(crate) fn put_off(
        &self,
        doing: &'static str,
        free: impl FnMut(&cuda_sys::Driver) -> Result<()> + Send + 'static,
    ) {
        self.state().put([Deferred {
            doing,
            free: Box::new(free),
            drop_errors: self.drop_errors().clone(),
            failed: None,
        }]);
    }

    /// Calls `allocate`. If memory has run out, does the deferred frees and calls it once more.
    pub(crate) fn with_room<T>(&self, allocate: impl Fn() -> Result<T>) -> Result<T> {
        match allocate() {
            Err(error) if error.driver_code() == Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY) && self.free_deferred() => {
                allocate()
            }
            other => other,
        }
    }
}

impl ContextState {
    /// Does the deferred frees in the current context, while the caller holds a `DeviceWait`. Returns the finished
    /// frees. Drop them after the `DeviceWait`: they may own anything.
    pub fn free_all(&self, driver: &Driver) -> Vec<Deferred> {
        let cuda = driver.raw();
        let _relaxed = relaxed(driver);
        let (frees, mut done) = (self.take(), Vec::new());
        // SAFETY: the context is current. The caller's `DeviceWait` keeps out work that waits for the CPU.
        if let Err(error) = unsafe { call!(cuda.cuCtxSynchronize()) }
            && is_for_a_capture(&error)
        {
            self.put(frees);
            return done;
        }
        // If the context is broken, no call works any more, and each free reports its own error.
        for mut deferred in frees {
            match (deferred.free)(cuda) {
                Err(error) if is_for_a_capture(&error) => {
                    self.put([deferred]);
                    continue;
                }
                Err(error) if !error.is_teardown() => deferred.failed = Some(error),
                _ => {}
            }
            done.push(deferred);
        }
        done
    }

    /// Discards the deferred frees of a context that has ended. Its end has freed the memory.
    pub fn forget_deferred(&self) {
        drop(self.take());
    }
}

impl fmt::Debug for ContextState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextState").field("deferred", &self.count).finish_non_exhaustive()
    }
}
