//! Devices: their contexts and pools, and how much of their memory is taken.

use super::context::Context;
use super::graph_memory::GraphMemory;
use super::pool::Pool;
use super::sync::lock;
use crate::call::Result;
use cuda_sys::CUresult;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) store: Arc<Store>,
    /// Its primary context, which always exists, and is alive while it is retained.
    pub(crate) primary: Arc<Context>,
    /// How often the primary context is retained. Changes only under `turning`.
    pub(crate) retained: AtomicUsize,
    /// Locked while the primary context's life begins or ends.
    pub(crate) turning: Mutex<()>,
    pub(crate) graph_memory: Arc<GraphMemory>,
    /// Its default pool, which never ends.
    pub(crate) default_pool: (u64, Arc<Pool>),
    /// The pool from which cuMemAllocAsync allocates.
    pub(crate) pool: Mutex<(u64, Arc<Pool>)>,
}

impl Device {
    pub(crate) fn current_pool(&self) -> (u64, Arc<Pool>) {
        lock(&self.pool).clone()
    }
}

/// Counts how much of a memory is used.
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

    /// Takes memory. Fails if less is free.
    pub(crate) fn take(self: &Arc<Self>, size: usize) -> Result<Charge> {
        let size = size as u64;
        let take = |used: u64| used.checked_add(size).filter(|used| *used <= self.total);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(Charge { store: self.clone(), size }),
            Err(_) => Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY),
        }
    }
}

/// Memory taken from a store. Dropping the value gives it back.
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
