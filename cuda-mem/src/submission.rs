//! Work that a stream does rather than records.
//!
//! Another thread may begin to capture a stream at any moment. So a question whether the stream captures says nothing about
//! the call after it. A [`Submission`] keeps captures of its stream from beginning, from the question to the end of the
//! call, so that the work is done and not recorded.
//!
//! While a thread captures a stream, the stream is that thread's: calls of other threads are refused before they reach the
//! driver, which (580.159) crashes where one thread ends a capture and another uses the stream.
//!
//! Captures of other libraries are not seen here: [`Stream::borrow_raw`](crate::Stream::borrow_raw) leaves them to its caller.

use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;

/// Set while a capture begins; the other bits count submissions.
const BEGINNING: u32 = 1 << 31;

thread_local! {
    /// How many submissions this thread has under way.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// Counts the submissions to one stream, keeps them apart from the beginnings of its captures, and knows who captures it.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    submissions: AtomicU32,
    /// The thread whose capture the stream takes part in, or 0. It changes from 0 only while the gate is closed.
    captured_by: AtomicUsize,
}

/// A number that no other living thread has, and that is not 0.
fn this_thread() -> usize {
    OWN.with(|own| core::ptr::from_ref(own).addr())
}

impl Gate {
    /// Enters for one submission. Submissions do not wait for each other, so that one may take place within another. None
    /// while another thread captures the stream.
    pub fn submit(&self) -> Option<Submission<'_>> {
        while self.submissions.fetch_add(1, Ordering::Acquire) & BEGINNING != 0 {
            self.submissions.fetch_sub(1, Ordering::Relaxed);
            while self.submissions.load(Ordering::Relaxed) & BEGINNING != 0 {
                // The other thread is in one short call of the driver.
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

    /// Whether the stream takes part in a capture of this crate's.
    pub fn is_captured(&self) -> bool {
        self.captured_by.load(Ordering::Relaxed) != 0
    }

    /// The capture that the stream takes part in has ended. Called by the thread that captured.
    pub fn end_capture(&self) {
        self.captured_by.store(0, Ordering::Release);
    }

    /// Keeps submissions out while a capture begins. None while a submission is under way.
    pub fn try_close(&self) -> Option<Beginning<'_>> {
        let closed = self.submissions.compare_exchange(0, BEGINNING, Ordering::Acquire, Ordering::Relaxed);
        // Not then_some: the drop of a value that is not wanted would open the gate for whoever has closed it.
        closed.is_ok().then(|| Beginning(self))
    }
}

/// Whether this thread is in the middle of a submission, to whatever stream. It must not wait for itself.
pub(crate) fn is_submitting() -> bool {
    OWN.get() != 0
}

/// While it lives, no capture of the stream begins.
#[must_use = "captures are kept from beginning only while this lives"]
pub(crate) struct Submission<'gate> {
    gate: &'gate Gate,
    /// It is counted as this thread's.
    on_this_thread: PhantomData<*const ()>,
}

impl Drop for Submission<'_> {
    fn drop(&mut self) {
        OWN.set(OWN.get() - 1);
        self.gate.submissions.fetch_sub(1, Ordering::Release);
    }
}

/// While it lives, no submission to the stream begins.
#[must_use = "submissions are kept out only while this lives"]
pub(crate) struct Beginning<'gate>(&'gate Gate);

impl Beginning<'_> {
    /// Whether another thread captures the stream already.
    pub fn is_refused(&self) -> bool {
        self.0.is_captured_elsewhere()
    }

    /// The stream takes part in a capture of this thread's from now on.
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
