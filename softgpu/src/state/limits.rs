//! Limits of a context. softgpu's kernels need no stack, heap or cache, so it only keeps the values.

use crate::call::Result;
use cuda_sys::{CUlimit, CUresult};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The limits of a fresh context, by their numbers. They are the defaults that CUDA's documentation states; for the L2
/// cache, which it does not state, 64.
const DEFAULTS: [usize; 7] = [1024, 1 << 20, 8 << 20, 0, 2048, 64, 0];

/// The largest number of bytes that the L2 cache fetches at once.
const MOST_L2_FETCH: usize = 128;

#[derive(Debug)]
pub(crate) struct Limits([AtomicUsize; DEFAULTS.len()]);

impl Default for Limits {
    fn default() -> Self {
        Self(DEFAULTS.map(AtomicUsize::new))
    }
}

impl Limits {
    pub(crate) fn get(&self, limit: CUlimit) -> Result<usize> {
        Ok(self.0[index(limit)?].load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, limit: CUlimit, value: usize) -> Result {
        let most = match limit {
            CUlimit::CU_LIMIT_MAX_L2_FETCH_GRANULARITY => MOST_L2_FETCH,
            // As cuDeviceGetAttribute reports, no device has a cache for lines that persist.
            CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE => 0,
            _ => usize::MAX,
        };
        self.0[index(limit)?].store(value.min(most), Ordering::Relaxed);
        Ok(())
    }

    /// Restores the defaults.
    pub(crate) fn reset(&self) {
        self.0.iter().zip(DEFAULTS).for_each(|(limit, usual)| limit.store(usual, Ordering::Relaxed));
    }
}

/// The place of a limit. Devices of compute capability 9.0 and later have no limit for the depth of launches by
/// kernels. The limits from 7 on belong to contexts of graphics APIs.
fn index(limit: CUlimit) -> Result<usize> {
    match limit.0 as usize {
        index if index < DEFAULTS.len() && limit != CUlimit::CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH => Ok(index),
        _ => Err(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT),
    }
}
