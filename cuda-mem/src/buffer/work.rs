//! Whether device work may be under way that the CPU has to wait for.

use core::sync::atomic::{AtomicU64, Ordering};

/// How often work was noted, and up to which note it was waited for. A flag would lose work that is noted while another
/// thread waits.
#[derive(Debug)]
pub(super) struct Work {
    noted: AtomicU64,
    passed: AtomicU64,
}

impl Work {
    /// Work that was not waited for.
    pub fn new() -> Self {
        Self { noted: AtomicU64::new(1), passed: AtomicU64::new(0) }
    }

    /// Notes work that was given to the home stream, or that the home stream waits for. Not before: who waits in between
    /// would take it for done.
    #[inline]
    pub fn note(&self) {
        self.noted.fetch_add(1, Ordering::Release);
    }

    /// The number to [tell](Self::pass) when the home stream was waited for; none where nothing is under way.
    #[inline]
    pub fn pending(&self) -> Option<u64> {
        let noted = self.noted.load(Ordering::Acquire);
        (self.passed.load(Ordering::Acquire) != noted).then_some(noted)
    }

    /// What was noted up to a number has been waited for.
    #[inline]
    pub fn pass(&self, noted: u64) {
        // Of two that wait at once the last may tell less: then one more waits.
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
        // One that began earlier ends later.
        work.pass(first);
        assert_eq!(work.pending(), Some(second));
        work.note();
        assert!(work.pending().is_some());
    }
}
