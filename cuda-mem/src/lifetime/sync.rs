//! The synchronisation primitives of [`serial_ends`](super::serial_ends) and [`capture_count`](super::capture_count). The
//! tests under loom replace them by loom's.

pub(super) use crate::locks::Mutex;
pub(super) use core::sync::atomic::{AtomicUsize, Ordering, fence};
