//! Keeps submissions to a stream apart from captures of it.
//!
//! Another thread may begin to capture a stream at any moment. So a check whether the stream captures says nothing
//! about the call after it. A [`Submission`] keeps captures of its stream from beginning, from the check to the end of
//! the call. So its answer, whether the stream does the work or only records it, stays true while it lives.
//!
//! While a thread captures a stream, no other thread may use the stream, nor an event that the capture recorded. Calls
//! of other threads are refused before they reach the driver: driver 580.159 crashes if one thread ends a capture while
//! another uses a stream or an event of it. So streams and events have the same gate.
//!
//! Captures of other libraries are not seen here: [`Stream::borrow_raw`](crate::Stream::borrow_raw) leaves them to its
//! caller.

use crate::error::CaptureRefusal;
use crate::lifetime::capture_numbers::{CaptureId, CaptureOf, Membership};
use crate::lifetime::waiting::{self, Target};
use crate::locks::{self, Held, Kind};
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// Set while a capture begins. The other bits count submissions.
const BEGINNING: u32 = 1 << 31;

thread_local! {
    /// Number of this thread's submissions that are under way.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// Whether a stream does the work that is given to it.
#[must_use = "work that is only recorded neither initialises, nor orders, nor ends anything"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitted {
    /// The stream does the work.
    WillRun,
    /// A capture records the work. It runs at each launch of the graph, or never.
    RecordedOnly,
}

/// Counts the submissions to one stream, or the uses of one event, and excludes them while it enters a capture.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    submissions: AtomicU32,
    /// For a legacy default stream: number of captures with a blocking stream of its context. Rises only while the gate
    /// is closed.
    forbidden_by: AtomicU32,
    /// Changes to a capture only while the gate is closed.
    capture: CaptureOf,
}

impl Gate {
    /// The gate of the per-thread default stream of a context, which is another stream on each thread.
    pub fn of_each_thread() -> Self {
        Self { capture: CaptureOf::of_each_thread(), ..Self::default() }
    }

    /// Begins a submission. Submissions do not wait for each other, so they may nest. Waits while a capture begins, so the
    /// caller holds no lock.
    ///
    /// # Errors
    ///
    /// Another thread captures the stream, or a capture forbids the legacy default stream.
    #[inline]
    pub fn submit(&self) -> Result<Submission<'_>, CaptureRefusal> {
        // No capture begins inside of an outer submission.
        if cfg!(debug_assertions) && !is_submitting() {
            locks::check_may_wait("a submission begins");
        }
        while !self.try_enter() {
            self.after_beginning();
        }
        self.entered()
    }

    /// Begins a submission without a wait, for callers with a lock. Refuses if a capture begins: it counts as another
    /// thread's.
    #[inline]
    pub fn try_submit(&self) -> Result<Submission<'_>, CaptureRefusal> {
        if self.try_enter() { self.entered() } else { Err(CaptureRefusal::OtherThread) }
    }

    /// Counts a submission, unless a capture begins.
    #[inline]
    fn try_enter(&self) -> bool {
        let is_open = self.submissions.fetch_add(1, Ordering::Acquire) & BEGINNING == 0;
        if !is_open {
            self.submissions.fetch_sub(1, Ordering::Relaxed);
        }
        is_open
    }

    #[inline]
    fn entered(&self) -> Result<Submission<'_>, CaptureRefusal> {
        OWN.set(OWN.get() + 1);
        let mut submission = Submission { gate: self, membership: Membership::Free, _held: Held::new(Kind::Gate) };
        if self.forbidden_by.load(Ordering::Acquire) != 0 {
            return Err(CaptureRefusal::LegacyDefault);
        }
        submission.membership = self.membership();
        if submission.membership == Membership::Elsewhere {
            return Err(CaptureRefusal::OtherThread);
        }
        Ok(submission)
    }

    #[cold]
    fn after_beginning(&self) {
        waiting::during(&"the begin of a capture on another thread", Target::THREAD, || {
            while self.submissions.load(Ordering::Relaxed) & BEGINNING != 0 {
                // The other thread is inside one short driver call.
                thread::yield_now();
            }
        });
    }

    /// The capture that the stream or event is part of.
    #[inline]
    pub fn membership(&self) -> Membership {
        self.capture.membership()
    }

    /// Records that the stream or event is part of no capture any more.
    #[inline]
    pub fn leave_capture(&self) {
        self.capture.leave();
    }

    /// Records that a capture that forbids this legacy default stream has ended.
    pub fn allow_default_stream(&self) {
        self.forbidden_by.fetch_sub(1, Ordering::Release);
    }

    /// Whether a submission is under way or a capture begins. Later submissions see what this thread did before.
    pub fn is_in_use(&self) -> bool {
        self.submissions.fetch_or(0, Ordering::AcqRel) != 0
    }

    /// Keeps submissions out while a capture begins. None while a submission is under way or another capture begins.
    pub fn try_close(&self) -> Option<Beginning<'_>> {
        if self.capture.is_of_each_thread() {
            // Submissions of other threads are to other streams. The callers have checked that this thread has none.
            return Some(Beginning::of(self));
        }
        let closed = self.submissions.compare_exchange(0, BEGINNING, Ordering::Acquire, Ordering::Relaxed);
        // Not then_some: the drop of an unneeded `Beginning` would open the gate that another thread closed.
        closed.is_ok().then(|| Beginning::of(self))
    }
}

/// Whether this thread is inside a submission, to any stream. It must not wait for itself.
pub(crate) fn is_submitting() -> bool {
    OWN.get() != 0
}

/// Keeps captures of the stream from beginning while it lives.
#[must_use = "captures are kept from beginning only while this lives"]
#[derive(Debug)]
pub(crate) struct Submission<'gate> {
    gate: &'gate Gate,
    membership: Membership,
    _held: Held,
}

impl Submission<'_> {
    /// The capture of this thread, or of another library, that records the work.
    #[inline]
    pub fn membership(&self) -> Membership {
        self.membership
    }
}

impl Drop for Submission<'_> {
    #[inline]
    fn drop(&mut self) {
        OWN.set(OWN.get() - 1);
        self.gate.submissions.fetch_sub(1, Ordering::Release);
    }
}

/// Keeps submissions to the stream out while it lives.
#[must_use = "submissions are kept out only while this lives"]
pub(crate) struct Beginning<'gate> {
    gate: &'gate Gate,
    _held: Held,
}

impl<'gate> Beginning<'gate> {
    fn of(gate: &'gate Gate) -> Self {
        Self { gate, _held: Held::new(Kind::Gate) }
    }

    /// Whether another thread already captures the stream.
    pub fn is_refused(&self) -> bool {
        self.gate.membership() == Membership::Elsewhere
    }

    /// Records that a capture of this thread includes the stream or event from now on.
    pub fn captured(&self, id: CaptureId) {
        self.gate.capture.enter(id);
    }

    /// Records that a capture of another library includes the stream or event.
    pub fn captured_by_others(&self) {
        self.gate.capture.enter_foreign();
    }

    /// Forbids the legacy default stream until [`Gate::allow_default_stream`].
    pub fn forbid_default_stream(&self) {
        self.gate.forbidden_by.fetch_add(1, Ordering::Release);
    }
}

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        self.gate.submissions.fetch_and(!BEGINNING, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifetime::capture_numbers;
    use core::sync::atomic::AtomicUsize;
    use std::sync::Arc;

    #[test]
    fn submissions_may_nest_and_keep_captures_from_beginning() {
        let gate = Gate::default();
        let outer = gate.submit();
        let inner = gate.submit();
        assert!(outer.is_ok() && inner.is_ok());
        assert!(is_submitting() && gate.try_close().is_none());
        drop(outer);
        assert!(gate.try_close().is_none());
        drop(inner);
        assert!(!is_submitting());
        let beginning = gate.try_close();
        assert!(beginning.is_some() && gate.try_close().is_none());
        assert!(gate.try_close().is_none(), "a refusal opened the gate");
        drop(beginning);
        assert!(gate.try_close().is_some());
    }

    #[test]
    fn capture_begin_never_blocks_a_caller_that_holds_a_lock() {
        let gate = Gate::default();
        let beginning = gate.try_close();
        assert_eq!(gate.try_submit().map(drop), Err(CaptureRefusal::OtherThread));
        drop(beginning);
        let lock = locks::Mutex::new(());
        let _locked = lock.lock();
        assert!(gate.try_submit().is_ok() && gate.try_close().is_some());
        let waits = || std::panic::catch_unwind(|| gate.submit().map(drop)).is_err();
        assert_eq!(waits(), cfg!(debug_assertions));
        let _outer = gate.try_submit();
        assert!(!waits(), "no capture begins inside of a submission");
    }

    #[test]
    fn a_stream_is_its_capturing_threads() {
        let (gate, id) = (Gate::default(), capture_numbers::begin());
        gate.try_close().expect("nobody submits").captured(id);
        assert_eq!(gate.submit().map(|submission| submission.membership()), Ok(Membership::Here(id)));
        assert!(gate.try_close().is_some_and(|beginning| !beginning.is_refused()));
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(gate.submit().map(drop), Err(CaptureRefusal::OtherThread));
                assert!(!is_submitting());
                assert!(gate.try_close().is_some_and(|beginning| beginning.is_refused()));
            });
        });
        capture_numbers::end(id);
        thread::scope(|scope| {
            scope.spawn(|| assert!(gate.submit().is_ok_and(|submission| submission.membership() == Membership::Free)));
        });
    }

    #[test]
    fn a_capture_of_a_blocking_stream_forbids_the_legacy_one() {
        let (legacy, ids) = (Arc::new(Gate::default()), [capture_numbers::begin(), capture_numbers::begin()]);
        for id in ids {
            legacy.try_close().expect("nobody submits").forbid_default_stream();
            let forbidden = legacy.clone();
            capture_numbers::at_end(id, move || forbidden.allow_default_stream());
        }
        for id in ids {
            assert_eq!(legacy.submit().map(drop), Err(CaptureRefusal::LegacyDefault));
            capture_numbers::end(id);
        }
        assert!(legacy.submit().is_ok() && !is_submitting());
    }

    #[test]
    fn a_beginning_never_falls_into_a_submission() {
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        let (gate, captures, submissions) = (Gate::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        if let Some(_beginning) = gate.try_close() {
                            assert_eq!(submissions.load(Ordering::SeqCst), 0);
                            assert_eq!(captures.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                            thread::yield_now();
                            captures.fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                });
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let _submission = gate.submit().expect("nobody captures");
                        submissions.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(captures.load(Ordering::SeqCst), 0);
                        submissions.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
    }
}
