//! The synchronisation primitives of [`serial_ends`](super::serial_ends). The tests under loom replace them by loom's.

pub(super) use crate::locks::Mutex;
pub(super) use core::sync::atomic::{Ordering, fence};
