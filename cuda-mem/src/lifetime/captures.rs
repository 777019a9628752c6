//! The captures of this process, and the drops that wait for their end.

use super::capture_count::CaptureCount;
use super::capture_numbers;
use super::end_queue::EndQueue;
use crate::error::capture_errors::is_for_a_capture;
use crate::lifetime::waiting;
use crate::locks::later;
use crate::locks::{Held, Kind};
use crate::{Error, Result};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::time::Instant;

/// The captures that this crate began, and the values that could not be dropped during a capture.
static CAPTURES: CaptureCount<Box<dyn Send>> = CaptureCount { count: AtomicUsize::new(0), waiting: EndQueue::new() };
/// Pause between two checks whether waits that keep captures out have ended.
const PAUSE: Duration = Duration::from_micros(20);
/// How long a capture waits for such waits, and a wait for a context for captures. Each may wait for a thread that waits for
/// the other.
const BRIEF: Duration = Duration::from_secs(1);
/// How many captures in a row the end of a value may meet. Captures of other libraries may never end.
const CAPTURES_MET: usize = 100;
/// How many captures wait for the end of such waits. Later waits let them go first.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// Whether a capture ever began.
static EVER: AtomicBool = AtomicBool::new(false);

/// Whether a capture that this crate began is under way. If not, callers need not ask the driver whether a stream
/// captures.
#[inline]
pub(crate) fn captures_under_way() -> bool {
    CAPTURES.is_any_under_way()
}

/// A wait for all work of a context, which ends all captures of its streams. The driver (580.159) crashes if it looks at
/// these streams while a capture ends. No capture begins while this lives, unless it lives for longer than a second.
pub(crate) struct WaitWithoutCaptures {
    _held: Held,
}

impl WaitWithoutCaptures {
    /// None while a capture is under way, or waits to begin.
    pub fn begin() -> Option<Self> {
        if WAITING.load(Ordering::Relaxed) > 0 {
            return None;
        }
        CAPTURES.try_keep_out().then(|| Self { _held: Held::new(Kind::Gate) })
    }

    /// Waits until the captures that are under way have ended, and keeps others from beginning. `None` if they take
    /// longer than a second, or if one of them is this thread's, which would wait for itself.
    pub fn after_captures() -> Option<Self> {
        if capture_numbers::this_thread_captures() {
            return None;
        }
        let begin = Instant::now();
        let ends = |go_on: fn() -> bool| {
            while go_on() && begin.elapsed() < BRIEF {
                waiting::nap(PAUSE);
            }
            !go_on()
        };
        if !ends(|| WAITING.load(Ordering::Relaxed) > 0) {
            return None;
        }
        CAPTURES.keep_new_out();
        let apart = Self { _held: Held::new(Kind::Gate) };
        ends(|| CAPTURES.is_any_under_way()).then_some(apart)
    }
}

impl Drop for WaitWithoutCaptures {
    fn drop(&mut self) {
        CAPTURES.let_in();
    }
}

/// Whether this crate ever began a capture, so that another may begin at any moment.
#[inline]
pub(crate) fn captures_ever_began() -> bool {
    EVER.load(Ordering::Relaxed)
}

/// One capture under way.
pub(crate) struct UnderWay(());

impl UnderWay {
    /// Counts a capture. First waits while another thread waits for all work of a context, but not for long: that work may
    /// wait for this thread. The driver has looked at the streams by then.
    pub fn begin() -> Self {
        EVER.store(true, Ordering::Relaxed);
        if !CAPTURES.try_begin() {
            Self::begin_after_waits();
        }
        Self(())
    }

    #[cold]
    fn begin_after_waits() {
        let begin = Instant::now();
        WAITING.fetch_add(1, Ordering::Relaxed);
        while !CAPTURES.try_begin() {
            if begin.elapsed() > BRIEF {
                CAPTURES.begin_beside_waits();
                break;
            }
            waiting::nap(PAUSE);
        }
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        drop_all(CAPTURES.end());
    }
}

/// Makes calls that end a value, and that captures refuse. Whether the value has ended. If not, a capture is under way, and
/// [`drop_after_captures`] tries again. `end` succeeds if the context has ended.
///
/// # Errors
///
/// The calls fail for another reason, or for one capture of another library after the other.
#[inline]
pub(crate) fn end_beside_captures(mut end: impl FnMut() -> Result<()>) -> Result<bool> {
    end().map_or_else(|error| end_again(error, end), |()| Ok(true))
}

#[cold]
fn end_again(mut error: Error, mut end: impl FnMut() -> Result<()>) -> Result<bool> {
    for _ in 0..CAPTURES_MET {
        if captures_under_way() {
            return Ok(false);
        }
        if !is_for_a_capture(&error) {
            break;
        }
        // That capture has ended meanwhile. Another one may begin.
        match end() {
            Ok(()) => return Ok(true),
            Err(again) => error = again,
        }
    }
    Err(error)
}

/// Keeps a value whose drop fails during captures, until no capture of this process is under way. If none is, drops it
/// now: nothing would drop it later.
pub(crate) fn drop_after_captures(value: impl Send + 'static) {
    drop_all(CAPTURES.keep(Box::new(value)));
}

/// Drops values. These drops free memory and run the program's code, which may panic.
fn drop_all(values: Vec<Box<dyn Send>>) {
    values.into_iter().for_each(|value| later::run(move || drop(value)));
}
