//! The synchronisation primitives of [`serial_ends`](super::serial_ends) and [`capture_count`](super::capture_count). The
//! tests under loom replace them by loom's.

use super::waiting::{self, Target};
pub(super) use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// Waits for another thread, with pauses, until `is_done`.
pub(super) fn until(call: &'static &'static str, is_done: impl FnMut() -> bool) {
    waiting::pause_until(call, Target::THREAD, is_done);
}
