//! How much of a memory is taken.

use crate::call::Result;
use cuda_sys::CUresult;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
