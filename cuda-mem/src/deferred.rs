//! Puts off frees that wait for the whole context while queued work waits for the CPU.
//!
//! A free outside of stream order waits for the whole device. While queued work waits for the CPU (see
//! [`cpu_released`](crate::cpu_released)), such a free goes into a list of its driver context. When no queued work
//! waits for the CPU any more, the next free or allocation of such memory, wait for the context, or launch of a host
//! function empties the list. The end of the context empties it too.

use crate::capture_errors::is_for_a_capture;
use crate::cpu_released::CpuReleased;
use crate::drop_errors::DropErrors;
use crate::error::{Error, Result, call};
use crate::memory::MemoryState;
use crate::stream_core::StreamCores;
use crate::stream_reserve::StreamReserve;
use core::any::Any;
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// What this crate's values for one driver context share.
#[derive(Default)]
pub(crate) struct ContextState {
    pub released: Arc<CpuReleased>,
    pub streams: StreamCores,
    pub reserve: StreamReserve,
    pub memory: MemoryState,
    /// What the module `kernels` keeps for the context.
    pub kernels: OnceLock<Box<dyn Any + Send + Sync>>,
    deferred: Mutex<Vec<Deferred>>,
    /// Length of `deferred`, readable without its lock.
    count: AtomicUsize,
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

    /// Adds a free to the list. `free` is called again if a capture forbade it.
    pub fn put_off(
        &self,
        doing: &'static str,
        drop_errors: &Arc<DropErrors>,
        free: impl FnMut(&cuda_sys::Driver) -> Result<()> + Send + 'static,
    ) {
        self.put([Deferred { doing, free: Box::new(free), drop_errors: drop_errors.clone(), failed: None }]);
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

impl ContextState {
    /// Does the deferred frees in the current context, while the caller holds a `DeviceWait`. Returns the finished
    /// frees. Drop them after the `DeviceWait`: they may own anything.
    pub fn free_all(&self, cuda: &cuda_sys::Driver) -> Vec<Deferred> {
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
