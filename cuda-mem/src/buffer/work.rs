//! Whether device work may be in progress for which the CPU must wait.

use super::uses::Uses;
use crate::locks::Mutex;
use crate::{Error, Event, Result, Stream};
use core::sync::atomic::{AtomicU64, Ordering};
use once_cell::sync::OnceCell;
use std::sync::OnceLock;

/// The low bits of `noted`: how many views of another library live. While there are any, the work is never waited for to
/// the end, so that a forgotten view has no consequence but waits.
const LENT: u64 = (1 << 20) - 1;
/// One record of work, in the bits above.
const RECORD: u64 = LENT + 1;

/// Counts records of work, and the records waited for. A flag would lose work recorded during another thread's wait.
#[derive(Debug)]
pub(super) struct Work {
    noted: AtomicU64,
    /// As `noted`, without the views.
    passed: AtomicU64,
    /// In one box, because most buffers have none of it.
    rare: OnceLock<Box<RareWork>>,
}

#[derive(Debug, Default)]
struct RareWork {
    /// Work that the program reported.
    uses: Uses,
    /// An event behind the noted work, if somebody asked for one.
    mark: OnceCell<NotedMark>,
}

/// An event behind noted work.
#[derive(Debug)]
struct NotedMark {
    event: Event,
    /// The number of the last noted work before the event.
    covers: AtomicU64,
    /// Held while the event is recorded.
    recording: Mutex<()>,
}

impl Work {
    /// No work, or one record for which nobody has waited.
    #[inline]
    pub fn new(pending: bool) -> Self {
        let (noted, passed) = (AtomicU64::new(RECORD), AtomicU64::new(if pending { 0 } else { RECORD }));
        Self { noted, passed, rare: OnceLock::new() }
    }

    /// Marks the end of the work on the home stream, which waits for all noted work up to this number.
    ///
    /// # Errors
    ///
    /// The stream captures.
    pub fn mark(&self, home: &Stream, noted: u64) -> Result<()> {
        let running = home.running("marking the work on a buffer")?;
        let mark = self.rare().mark.get_or_try_init(|| {
            let event = Event::new(home.context())?;
            Ok::<_, Error>(NotedMark { event, covers: AtomicU64::new(0), recording: Mutex::default() })
        })?;
        let _recording = mark.recording.lock();
        mark.event.mark(&running)?;
        // Views may queue more work, which no mark covers.
        mark.covers.store(noted & !LENT, Ordering::Release);
        Ok(())
    }

    /// Whether there is a mark, which then moves behind further work.
    #[inline]
    pub fn has_mark(&self) -> bool {
        self.rare.get().is_some_and(|rare| rare.mark.get().is_some())
    }

    /// The event behind all noted work, if there is one.
    pub fn marked(&self) -> Option<&Event> {
        let mark = self.rare.get()?.mark.get()?;
        (mark.covers.load(Ordering::Acquire) == self.noted.load(Ordering::Acquire)).then_some(&mark.event)
    }

    /// Whether the program has reported work.
    pub fn has_uses(&self) -> bool {
        self.rare.get().is_some_and(|rare| !rare.uses.is_empty())
    }

    fn rare(&self) -> &RareWork {
        self.rare.get_or_init(Box::default)
    }

    /// Records work after it was queued on the home stream, or after that stream was made to wait for it. Otherwise a
    /// thread that waits in between takes the work for done.
    #[inline]
    pub fn note(&self) {
        self.noted.fetch_add(RECORD, Ordering::Release);
    }

    /// Records that another library may queue work until [`take_back`](Self::take_back). Whether there was room.
    #[cfg(feature = "cudarc")]
    pub fn lend(&self) -> bool {
        let one_more = |noted: u64| (noted & LENT != LENT).then_some(noted + 1);
        self.noted.fetch_update(Ordering::Release, Ordering::Relaxed, one_more).is_ok()
    }

    /// Ends what [`lend`](Self::lend) began, and records the work.
    #[cfg(feature = "cudarc")]
    pub fn take_back(&self) {
        self.noted.fetch_add(RECORD - 1, Ordering::Release);
    }

    /// The number to pass to [`pass`](Self::pass) after a wait for the home stream; `None` if no work is in progress.
    #[inline]
    pub fn pending(&self) -> Option<u64> {
        let noted = self.noted.load(Ordering::Acquire);
        (self.passed.load(Ordering::Acquire) != noted).then_some(noted)
    }

    /// The work that the program reported.
    pub fn uses(&self) -> &Uses {
        &self.rare().uses
    }

    /// Waits for the work that the program reported.
    #[inline]
    pub fn settle_uses(&self) -> Result<()> {
        self.rare.get().map_or(Ok(()), |rare| rare.uses.settle())
    }

    /// Records that all work up to this number is done.
    #[inline]
    pub fn pass(&self, noted: u64) {
        // Of two concurrent waits, the lower number may be stored last, which only costs another wait.
        self.passed.store(noted & !LENT, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_is_noted_during_a_wait_is_not_lost() {
        let work = Work::new(true);
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

    #[test]
    #[cfg(feature = "cudarc")]
    fn no_wait_covers_the_work_of_a_view_that_lives_or_is_forgotten() {
        let work = Work::new(false);
        assert!(work.lend() && work.lend());
        for _ in 0..2 {
            work.pass(work.pending().expect("views live"));
        }
        work.take_back();
        work.pass(work.pending().expect("one view still lives"));
        work.take_back();
        work.pass(work.pending().expect("the views' work is under way"));
        assert_eq!(work.pending(), None);
        // A forgotten view.
        assert!(work.lend());
        work.note();
        work.pass(work.pending().expect("there is work"));
        assert!(work.pending().is_some());
    }

    #[test]
    #[cfg(feature = "cudarc")]
    fn views_beyond_the_limit_are_refused_and_lose_no_work() {
        let work = Work::new(false);
        work.noted.fetch_add(LENT, Ordering::Relaxed);
        assert!(!work.lend());
        work.pass(work.pending().expect("views live"));
        assert!(work.pending().is_some());
    }
}
