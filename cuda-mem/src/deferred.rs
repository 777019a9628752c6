//! Frees that wait for all work of their context, and are put off while queued work waits for the CPU.
//!
//! A free that is not in stream order waits for the whole device. While work waits for the CPU (see
//! [`cpu_released`](crate::cpu_released)) such a free is kept in a list, one for each context of the driver. The next free or
//! allocation of such memory, wait for the context, or launch of a host function in a quiet moment empties the list, and so does
//! the context's end.

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

/// What all values of this crate for one context of the driver share.
#[derive(Default)]
pub(crate) struct ContextState {
    pub released: Arc<CpuReleased>,
    pub kernels: Kernels,
    deferred: Mutex<Vec<Deferred>>,
    /// How many frees are in the list, to be read without its lock.
    count: AtomicUsize,
}

/// The kernels of this crate, once loaded.
#[derive(Default)]
pub(crate) struct Kernels {
    pub differ: OnceCell<Kernel>,
    pub signal: OnceCell<SignalKernels>,
    pub strided: OnceCell<StridedKernels>,
    /// Whether work that waits for the CPU was queued, or is about to be.
    pub wanted: AtomicBool,
}

/// A call that frees.
type Free = Box<dyn FnMut(&cuda_sys::Driver) -> Result<()> + Send>;

/// A free that was put off. It holds nothing of its context, which would never end.
pub(crate) struct Deferred {
    doing: &'static str,
    /// Tried again where a capture forbids it.
    free: Free,
    drop_errors: Arc<DropErrors>,
    failed: Option<Error>,
}

impl Deferred {
    /// Tells of a free that failed. A hook may give work to streams, which waits for the end of a quiet moment.
    pub fn tell(&mut self) {
        if let Some(error) = self.failed.take() {
            self.drop_errors.push(self.doing, error);
        }
    }
}

/// Contexts by library, address and number.
type States = BTreeMap<(usize, usize, u64), Weak<ContextState>>;

/// Whether a stream of a context waits for a word in memory that the CPU may have to write.
type Armed = fn(&Driver, context: (usize, Option<u64>)) -> bool;

static ARMED: OnceLock<Armed> = OnceLock::new();

/// Sets who knows which streams wait for words. Before the first of them does.
pub(crate) fn set_armed(known: Armed) {
    let _ = ARMED.set(known);
}

/// Whether a stream of a context waits for a word that the CPU may have to write.
pub(crate) fn is_armed(driver: &Driver, context: (usize, Option<u64>)) -> bool {
    ARMED.get().is_some_and(|known| known(driver, context))
}

static STATES: Mutex<States> = Mutex::new(BTreeMap::new());

impl ContextState {
    /// The state of a context. Without a number, which drivers before CUDA 12.0 do not give, each value has its own: a later
    /// context at the same address would be taken for the same.
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
    /// Frees memory by a call that waits for all work of this context, after the work given to `home` so far, if there is
    /// any: now, or in the next quiet moment. An error of a free that is put off is a drop error.
    ///
    /// `free` is called with the context current, again after it failed because of a capture, and never if the context
    /// ends before. What it owns is dropped afterwards, maybe on another thread.
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
            // A wait for a stream that captures would end the capture.
            elsewhere.map_or(Ok(()), |home| home.check_not_capturing(doing))?;
            self.put_off(doing, free);
            return Ok(());
        }
        // The list's frees come after all work of this context only.
        elsewhere.map_or(Ok(()), Stream::drain)?;
        let Some(wait) = self.try_quiet() else {
            self.put_off(doing, free);
            return Ok(());
        };
        // A capture of another stream forbids neither the wait nor the free.
        let relaxed = relaxed(self.driver())?;
        let worked = home.map_or(Ok(()), Stream::drain);
        let freed = worked.and_then(|()| self.bind()).and_then(|_current| free(self.driver().raw()));
        drop((relaxed, wait));
        if freed.as_ref().is_err_and(is_for_a_capture) {
            // One that is not known here.
            self.put_off(doing, free);
            return Ok(());
        }
        self.free_deferred();
        freed
    }

    /// Puts a free off until the next quiet moment, as [`free_by_waiting`](Self::free_by_waiting) does.
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

    /// Makes a call that allocates; if memory has run out, once more after frees that were put off.
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
    /// Does the frees that were put off, in the current context and in a quiet moment. Gives those that are done with: what they
    /// own is to be dropped after that moment, for it may be anything.
    pub fn free_all(&self, driver: &Driver) -> Vec<Deferred> {
        let cuda = driver.raw();
        let _relaxed = relaxed(driver);
        let (frees, mut done) = (self.take(), Vec::new());
        // SAFETY: the context is current. It is alone: in a quiet moment.
        if let Err(error) = unsafe { call!(cuda.cuCtxSynchronize()) }
            && is_for_a_capture(&error)
        {
            self.put(frees);
            return done;
        }
        // A context that is broken works no more, and each free tells its error.
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

    /// Forgets the frees of a context that has ended, which has freed the memory.
    pub fn forget_deferred(&self) {
        drop(self.take());
    }
}

impl fmt::Debug for ContextState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextState").field("deferred", &self.count).finish_non_exhaustive()
    }
}
