//! Whether device work may be in progress for which the CPU must wait.

use super::uses::Uses;
use crate::Result;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

/// Counts records of work, and the records waited for. A flag would lose work recorded during another thread's wait.
#[derive(Debug)]
pub(super) struct Work {
    noted: AtomicU64,
    passed: AtomicU64,
    /// Work that the program reported. Mostly there is none.
    uses: OnceLock<Box<Uses>>,
}

impl Work {
    /// One record for which nobody has waited.
    pub fn new() -> Self {
        Self { noted: AtomicU64::new(1), passed: AtomicU64::new(0), uses: OnceLock::new() }
    }

    /// Records work after it was queued on the home stream, or after that stream was made to wait for it. Otherwise a
    /// thread that waits in between takes the work for done.
    #[inline]
    pub fn note(&self) {
        self.noted.fetch_add(1, Ordering::Release);
    }

    /// The number to pass to [`pass`](Self::pass) after a wait for the home stream; `None` if no work is in progress.
    #[inline]
    pub fn pending(&self) -> Option<u64> {
        let noted = self.noted.load(Ordering::Acquire);
        (self.passed.load(Ordering::Acquire) != noted).then_some(noted)
    }

    /// The work that the program reported.
    pub fn uses(&self) -> &Uses {
        self.uses.get_or_init(Box::default)
    }

    /// Waits for the work that the program reported.
    #[inline]
    pub fn settle_uses(&self) -> Result<()> {
        self.uses.get().map_or(Ok(()), |uses| uses.settle())
    }

    /// As [`settle_uses`](Self::settle_uses), but returns only when the work is certainly complete.
    pub fn complete_uses(&self) -> Result<()> {
        self.uses.get().map_or(Ok(()), |uses| uses.complete())
    }

    /// Records that all work up to this number is done.
    #[inline]
    pub fn pass(&self, noted: u64) {
        // Of two concurrent waits, the lower number may be stored last, which only costs another wait.
        self.passed.store(noted, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_is_noted_during_a_wait_is_not_lost() {
        let work = Work::new();
        let first = work.pending().expect("it begins with work");
        work.note();
        let second = work.pending().expect("there is more");
        work.pass(first);
        let third = work.pending().expect("what came during the wait is under way");
        assert_eq!(third, second);
        work.pass(third);
        assert_eq!(work.pending(), None);
        // A wait that began earlier ends later.
        work.pass(first);
        assert_eq!(work.pending(), Some(second));
        work.note();
        assert!(work.pending().is_some());
    }
}
