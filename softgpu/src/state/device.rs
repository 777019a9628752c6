//! Devices: who they are, and how much of their memory is taken.

use super::context::Context;
use super::graph_memory::GraphMemory;
use super::pool::Pool;
use super::sync::lock;
use crate::call::Result;
use cuda_sys::CUresult;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) store: Arc<Store>,
    /// Its primary context, which exists all along and is alive while it is retained.
    pub(crate) primary: Arc<Context>,
    /// How often the primary context is retained; changed only under `turning`.
    pub(crate) retained: AtomicUsize,
    /// Held while the primary context's life begins or ends.
    pub(crate) turning: Mutex<()>,
    pub(crate) graph_memory: Arc<GraphMemory>,
    /// The pool that it always has.
    pub(crate) default_pool: (u64, Arc<Pool>),
    /// The pool that cuMemAllocAsync draws from.
    pub(crate) pool: Mutex<(u64, Arc<Pool>)>,
}

impl Device {
    /// The pool that cuMemAllocAsync draws from.
    pub(crate) fn current_pool(&self) -> (u64, Arc<Pool>) {
        lock(&self.pool).clone()
    }
}

/// A device's memory, as an account.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) total: u64,
    used: AtomicU64,
}

impl Store {
    pub(crate) fn new(total: u64) -> Arc<Self> {
        Arc::new(Self { total, used: AtomicU64::new(0) })
    }

    pub(crate) fn free(&self) -> u64 {
        self.total - self.used.load(Ordering::Relaxed)
    }

    /// Takes memory, if there is as much.
    pub(crate) fn take(self: &Arc<Self>, size: usize) -> Result<Charge> {
        let size = size as u64;
        let take = |used: u64| used.checked_add(size).filter(|used| *used <= self.total);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(Charge { store: self.clone(), size }),
            Err(_) => Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY),
        }
    }
}

/// Memory taken from a device, given back when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    store: Arc<Store>,
    size: u64,
}

impl Charge {
    /// In bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.store.used.fetch_sub(self.size, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_runs_out_at_its_size_and_comes_back() {
        let store = Store::new(100);
        let most = store.take(60).unwrap();
        assert_eq!(store.take(41).unwrap_err(), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(store.take(usize::MAX).unwrap_err(), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        let rest = store.take(40).unwrap();
        assert_eq!(store.free(), 0);
        drop((most, rest));
        assert_eq!(store.free(), 100);
    }
}
