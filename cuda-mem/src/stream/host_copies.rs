//! Copies for which the driver waits within the call.
//!
//! Some copies of host memory are made by the CPU: cuMemcpyAsync then waits for the stream's earlier work, and holds the
//! context's lock meanwhile. Calls of other threads wait for the lock, so nothing goes on if the earlier work waits for such a
//! thread (H200, driver 580: `ffi-tests/benches/peers/copies_behind_work.c`). So these copies are queued only after a wait
//! without the lock.

use crate::error::capture_errors::is_for_a_capture;
use crate::{Result, Stream};

/// Where one side of a copy lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopySide {
    /// Memory of a device, also if the CPU addresses it, and managed memory.
    Device,
    /// Host memory that the driver knows.
    PageLocked,
    /// Host memory that the driver may not know.
    Pageable,
}

/// The driver copies this much pageable memory into its own before it returns, and more than 1 MiB not before earlier work.
const STAGED: usize = 64 << 10;

/// Whether the driver waits for the stream's earlier work before it returns from a copy of `size` bytes.
#[inline]
pub(crate) fn waits_within(to: CopySide, from: CopySide, size: usize) -> bool {
    match (to, from) {
        (CopySide::Pageable, _) | (CopySide::PageLocked, CopySide::PageLocked | CopySide::Pageable) => true,
        (CopySide::Device, CopySide::Pageable) => size > STAGED,
        (CopySide::Device, _) | (CopySide::PageLocked, CopySide::Device) => false,
    }
}

impl Stream {
    /// Waits for the work queued so far if the driver would wait for it within a copy. A capture only records the copy.
    ///
    /// # Errors
    ///
    /// Earlier work failed.
    pub(crate) fn drain_before_copy(
        &self,
        call: &'static &'static str,
        (to, from): (CopySide, CopySide),
        size: usize,
    ) -> Result<()> {
        if waits_within(to, from, size) { self.drain_unless_captured(call) } else { Ok(()) }
    }

    /// Waits for the work queued so far, without the context's lock. Does nothing for a stream that captures.
    ///
    /// # Errors
    ///
    /// Earlier work failed.
    pub(crate) fn drain_unless_captured(&self, call: &'static &'static str) -> Result<()> {
        self.drain(call).or_else(|error| if is_for_a_capture(&error) { Ok(()) } else { Err(error) })
    }
}

#[cfg(test)]
mod tests {
    use super::CopySide::{Device, PageLocked, Pageable};
    use super::*;

    #[test]
    fn copies_by_the_cpu_wait_and_copies_by_a_device_do_not() {
        for side in [Device, PageLocked, Pageable] {
            assert!(waits_within(Pageable, side, 1), "{side:?} to pageable memory");
            assert_eq!(waits_within(PageLocked, side, 1), side != Device, "{side:?} to page-locked memory");
            assert_eq!(waits_within(Device, side, 2 * STAGED), side == Pageable, "much of {side:?} to a device");
            assert!(!waits_within(Device, side, STAGED), "little of {side:?} to a device");
        }
    }
}
