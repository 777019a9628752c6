//! Limits of a context. softgpu's kernels need no stack, heap or cache, so it only keeps the values.

use crate::call::{Result, ensure};
use cuda_sys::{CUlimit, CUresult};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The limits of a fresh context, by their numbers, as an H100 has them.
const DEFAULTS: [usize; 9] = [1024, 8_650_752, 8 << 20, 0, 2048, 64, 3 * L2_UNIT, 227 << 10, 0];

/// The limits that programs can set. The others tell how a context shares its device with graphics.
const SETTABLE: usize = 7;

/// The largest number of bytes that the L2 cache fetches at once.
const MOST_L2_FETCH: usize = 128;

/// The unit of the L2 cache for lines that persist.
const L2_UNIT: usize = 3_276_800;

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
        let index = index(limit)?;
        if index >= SETTABLE {
            return Err(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT);
        }
        let kept = match limit {
            CUlimit::CU_LIMIT_MAX_L2_FETCH_GRANULARITY => {
                ensure(value <= MOST_L2_FETCH)?;
                value
            }
            CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE => value.div_ceil(L2_UNIT).saturating_mul(L2_UNIT),
            _ => value,
        };
        self.0[index].store(kept, Ordering::Relaxed);
        Ok(())
    }

    /// Restores the defaults.
    pub(crate) fn reset(&self) {
        self.0.iter().zip(DEFAULTS).for_each(|(limit, usual)| limit.store(usual, Ordering::Relaxed));
    }
}

/// The place of a limit. Devices of compute capability 9.0 and later have no limit for the depth of launches by
/// kernels, and none has a fallback for the shared memory of graphics. CUDA 13.0 knows no limit beyond that.
fn index(limit: CUlimit) -> Result<usize> {
    match limit {
        CUlimit::CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH | CUlimit::CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED => {
            Err(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT)
        }
        CUlimit(number) => {
            let index = number as usize;
            ensure(index < DEFAULTS.len())?;
            Ok(index)
        }
    }
}
