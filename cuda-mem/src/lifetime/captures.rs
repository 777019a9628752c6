//! How many captures are under way in this process, and the drops that wait for their end.

use super::end_queue::EndQueue;
use crate::lifetime::waiting;
use crate::locks::{Held, Kind};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;

/// Number of captures under way in this process, plus [`ONE_WAIT`] times the number of waits that would end captures.
static CAPTURES: AtomicUsize = AtomicUsize::new(0);
const ONE_WAIT: usize = 1 << (usize::BITS / 2);
/// Pause between two checks whether such waits have ended.
const PAUSE: Duration = Duration::from_micros(20);
/// Whether a capture ever began.
static EVER: AtomicBool = AtomicBool::new(false);

/// Whether a capture that this crate began is under way. If not, callers need not ask the driver whether a stream
/// captures.
#[inline]
pub(crate) fn captures_under_way() -> bool {
    !CAPTURES.load(Ordering::Relaxed).is_multiple_of(ONE_WAIT)
}

/// A wait for all work of a context, which ends all captures of its streams. No capture begins while this lives.
pub(crate) struct WaitWithoutCaptures {
    _held: Held,
}

impl WaitWithoutCaptures {
    /// None while a capture is under way.
    pub fn begin() -> Option<Self> {
        let one_more = |count: usize| count.is_multiple_of(ONE_WAIT).then_some(count + ONE_WAIT);
        CAPTURES
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more)
            .is_ok()
            .then(|| Self { _held: Held::new(Kind::Gate) })
    }
}

impl Drop for WaitWithoutCaptures {
    fn drop(&mut self) {
        CAPTURES.fetch_sub(ONE_WAIT, Ordering::Release);
    }
}

/// Whether this crate ever began a capture, so that another may begin at any moment.
#[inline]
pub(crate) fn captures_ever_began() -> bool {
    EVER.load(Ordering::Relaxed)
}

/// One capture under way.
pub(crate) struct UnderWay;

impl UnderWay {
    /// Counts a capture. First waits while another thread waits for all work of a context.
    pub fn begin() -> Self {
        EVER.store(true, Ordering::Relaxed);
        let one_more = |count: usize| (count < ONE_WAIT).then_some(count + 1);
        while CAPTURES.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more).is_err() {
            waiting::nap(PAUSE);
        }
        Self
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if CAPTURES.fetch_sub(1, Ordering::Release) == 1 {
            // Without the lock: these drops free memory and may call hooks.
            drop(DROPPED.take_all());
        }
    }
}

/// Values that could not be dropped during a capture.
static DROPPED: EndQueue<Box<dyn Send>> = EndQueue::new();

/// Keeps a value whose drop fails during captures, until no capture of this process is under way.
///
/// # Errors
///
/// Returns the value if no capture of this crate is under way: nothing would drop it later.
pub(crate) fn drop_after_captures(value: Box<dyn Send>) -> Result<(), Box<dyn Send>> {
    DROPPED.push_if(captures_under_way, value)
}
