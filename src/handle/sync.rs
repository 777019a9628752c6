//! The synchronization primitives of handles. The loom tests replace them with loom's.

pub use core::sync::atomic::{AtomicU64, Ordering, fence};
pub use cuda_mem::uses::{Inside, all_ended, begin, heavy_fence, light_fence};
pub use std::sync::Mutex;

/// Whether this process was forked after the driver was loaded.
pub fn forked() -> bool {
    cuda_mem::check_not_forked("the end of a thread").is_err()
}

/// How many uses of a value are counted before it is lasting. Their locked operations cost as much as the heavy fence that
/// the value's end then takes. A power of two.
pub const COUNTED: u64 = 64;

/// A cell whose user must ensure exclusive access for changes.
#[derive(Debug)]
pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Passes the address to a closure that reads.
    #[inline]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Passes the address to a closure that reads and writes.
    #[inline]
    pub fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
        change(self.0.get())
    }
}
