//! Keeps submissions to a stream apart from captures of it.
//!
//! Another thread may begin to capture a stream at any moment. So a check whether the stream captures says nothing
//! about the call after it. A [`Submission`] keeps captures of its stream from beginning, from the check to the end of
//! the call. The stream then does the work and does not record it.
//!
//! While a thread captures a stream, no other thread may use the stream. Calls of other threads are refused before they
//! reach the driver: driver 580.159 crashes if one thread ends a capture while another uses the stream.
//!
//! Captures of other libraries are not seen here: [`Stream::borrow_raw`](crate::Stream::borrow_raw) leaves them to its
//! caller.

use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;

/// Set while a capture begins. The other bits count submissions.
const BEGINNING: u32 = 1 << 31;

thread_local! {
    /// Number of this thread's submissions that are under way.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// Counts the submissions to one stream, excludes them while a capture begins, and records which thread captures.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    submissions: AtomicU32,
    /// The thread whose capture includes the stream, or 0. Changes from 0 only while the gate is closed.
    captured_by: AtomicUsize,
}

/// A nonzero number that no other living thread has.
fn this_thread() -> usize {
    OWN.with(|own| core::ptr::from_ref(own).addr())
}

impl Gate {
    /// Begins a submission. Submissions do not wait for each other, so they may nest. None while another thread
    /// captures the stream.
    pub fn submit(&self) -> Option<Submission<'_>> {
        while self.submissions.fetch_add(1, Ordering::Acquire) & BEGINNING != 0 {
            self.submissions.fetch_sub(1, Ordering::Relaxed);
            while self.submissions.load(Ordering::Relaxed) & BEGINNING != 0 {
                // The other thread is inside one short driver call.
                thread::yield_now();
            }
        }
        OWN.set(OWN.get() + 1);
        let submission = Submission { gate: self, on_this_thread: PhantomData };
        if self.is_captured_elsewhere() { None } else { Some(submission) }
    }

    /// Whether another thread captures the stream.
    fn is_captured_elsewhere(&self) -> bool {
        let thread = self.captured_by.load(Ordering::Acquire);
        thread != 0 && thread != this_thread()
    }

    /// Whether the calling thread captures the stream.
    pub fn is_captured_here(&self) -> bool {
        self.captured_by.load(Ordering::Relaxed) == this_thread()
    }

    /// Whether a capture of this crate includes the stream.
    pub fn is_captured(&self) -> bool {
        self.captured_by.load(Ordering::Relaxed) != 0
    }

    /// Records that the stream's capture has ended. Called by the thread that captured.
    pub fn end_capture(&self) {
        self.captured_by.store(0, Ordering::Release);
    }

    /// Keeps submissions out while a capture begins. None while a submission is under way or another capture begins.
    pub fn try_close(&self) -> Option<Beginning<'_>> {
        let closed = self.submissions.compare_exchange(0, BEGINNING, Ordering::Acquire, Ordering::Relaxed);
        // Not then_some: the drop of an unneeded `Beginning` would open the gate that another thread closed.
        closed.is_ok().then(|| Beginning(self))
    }
}

/// Whether this thread is inside a submission, to any stream. It must not wait for itself.
pub(crate) fn is_submitting() -> bool {
    OWN.get() != 0
}

/// Keeps captures of the stream from beginning while it lives.
#[must_use = "captures are kept from beginning only while this lives"]
pub(crate) struct Submission<'gate> {
    gate: &'gate Gate,
    /// Not `Send`: the submission is counted for its thread.
    on_this_thread: PhantomData<*const ()>,
}

impl Drop for Submission<'_> {
    fn drop(&mut self) {
        OWN.set(OWN.get() - 1);
        self.gate.submissions.fetch_sub(1, Ordering::Release);
    }
}

/// Keeps submissions to the stream out while it lives.
#[must_use = "submissions are kept out only while this lives"]
pub(crate) struct Beginning<'gate>(&'gate Gate);

impl Beginning<'_> {
    /// Whether another thread already captures the stream.
    pub fn is_refused(&self) -> bool {
        self.0.is_captured_elsewhere()
    }

    /// Records that a capture of this thread includes the stream from now on.
    pub fn captured(&self) {
        self.0.captured_by.store(this_thread(), Ordering::Release);
    }
}

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        self.0.submissions.fetch_and(!BEGINNING, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicUsize;

    #[test]
    fn submissions_may_nest_and_keep_captures_from_beginning() {
        let gate = Gate::default();
        let outer = gate.submit();
        let inner = gate.submit();
        assert!(outer.is_some() && inner.is_some());
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
    fn a_stream_is_its_capturing_threads() {
        let gate = Gate::default();
        gate.try_close().expect("nobody submits").captured();
        assert!(gate.submit().is_some() && gate.try_close().is_some_and(|beginning| !beginning.is_refused()));
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!(gate.submit().is_none() && !is_submitting());
                assert!(gate.try_close().is_some_and(|beginning| beginning.is_refused()));
            });
        });
        gate.end_capture();
        thread::scope(|scope| {
            scope.spawn(|| assert!(gate.submit().is_some()));
        });
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
