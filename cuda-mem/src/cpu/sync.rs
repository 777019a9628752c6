//! The synchronisation primitives of [`presence`](super::presence). The tests under loom replace them by loom's.

pub(super) use super::asymmetric_fence::light_fence;
pub(super) use core::sync::atomic::{AtomicUsize, Ordering};
pub(super) use std::thread::yield_now;
