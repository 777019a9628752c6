//! The synchronisation primitives of fronts. The tests under loom replace them by loom's.

pub(super) use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(super) use std::thread::yield_now;

/// A cell for callers that have made sure of exclusive access.
#[derive(Debug)]
pub(super) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Calls `read` with the address of the value.
    #[inline]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Calls `change` with the address of the value.
    #[inline]
    pub fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
        change(self.0.get())
    }
}
