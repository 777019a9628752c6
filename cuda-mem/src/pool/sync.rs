//! The synchronisation primitives of thread caches. The tests under loom replace them by loom's.

pub(super) use crate::cpu::asymmetric_fence::{heavy_fence, prepare as prepare_fences};
pub(super) use crate::cpu::presence::Inside;
pub(super) use crate::cpu::thread_slots::{SLOTS, ThreadSlot as Slot};
pub(super) use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(super) use std::thread::yield_now;

use core::num::NonZeroUsize;

/// Waits until the thread with this number is not inside `place`.
pub(super) fn wait_until_left(number: usize, place: NonZeroUsize) {
    crate::cpu::thread_slots::PRESENCE.wait_until_left(number, place);
}

/// A cell for callers that have made sure of exclusive access.
#[derive(Debug)]
pub(super) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Calls `change` with the address of the value.
    #[inline]
    pub fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
        change(self.0.get())
    }
}
