//! Counts captures under way, and keeps what waits for the end of the last one.

use super::end_queue::EndQueue;
use super::sync::{AtomicUsize, Ordering, fence};

/// What one wait that would end captures adds to the count of captures.
const ONE_WAIT: usize = 1 << (usize::BITS / 2);

/// The captures under way, or the waits that keep captures out.
#[derive(Debug)]
pub(crate) struct CaptureCount<T> {
    /// The number of captures, plus [`ONE_WAIT`] times the number of waits.
    pub(super) count: AtomicUsize,
    /// The values that wait for the end of the last capture.
    pub(super) waiting: EndQueue<T>,
}

impl<T> CaptureCount<T> {
    #[inline]
    pub fn is_any_under_way(&self) -> bool {
        !self.count.load(Ordering::Relaxed).is_multiple_of(ONE_WAIT)
    }

    /// Counts a capture, unless captures are kept out.
    pub fn try_begin(&self) -> bool {
        let one_more = |count: usize| (count < ONE_WAIT).then_some(count + 1);
        self.count.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more).is_ok()
    }

    /// Counts a capture although captures are kept out.
    pub fn begin_beside_waits(&self) {
        self.count.fetch_add(1, Ordering::Acquire);
    }

    /// Counts the end of a capture. If it was the last one, returns the values that waited for it.
    pub fn end(&self) -> Vec<T> {
        if self.count.fetch_sub(1, Ordering::Release) % ONE_WAIT != 1 {
            return Vec::new();
        }
        // Of two threads, this one has ended the last capture and the other has added a value. After the fences of both,
        // at least one of them sees what the other did, so one of them takes the value.
        fence(Ordering::SeqCst);
        self.waiting.take_all()
    }

    /// Adds a value that waits for the end of the last capture. Returns what no such end will take.
    pub fn keep(&self, value: T) -> Vec<T> {
        self.waiting.push(value);
        fence(Ordering::SeqCst);
        if self.is_any_under_way() { Vec::new() } else { self.waiting.take_all() }
    }

    /// Keeps captures out until [`let_in`](Self::let_in), unless one is under way.
    pub fn try_keep_out(&self) -> bool {
        let one_more = |count: usize| count.is_multiple_of(ONE_WAIT).then_some(count + ONE_WAIT);
        self.count.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more).is_ok()
    }

    /// Keeps new captures out until [`let_in`](Self::let_in).
    pub fn keep_new_out(&self) {
        self.count.fetch_add(ONE_WAIT, Ordering::Acquire);
    }

    pub fn let_in(&self) {
        self.count.fetch_sub(ONE_WAIT, Ordering::Release);
    }
}
