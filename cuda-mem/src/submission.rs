//! Work that a stream does rather than records.
//!
//! Another thread may begin to capture a stream at any moment. So a question whether the stream captures says nothing about
//! the call after it. A [`Submission`] keeps captures of its stream from beginning, from the question to the end of the
//! call, so that the work is done and not recorded. Captures that other libraries begin are not seen here:
//! [`Stream::borrow_raw`] leaves them to its caller.

use crate::waiting::{self, Target};
use crate::{Error, Result, Stream};
use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::thread;

/// Set while a capture begins; the other bits count submissions.
const BEGINNING: u32 = 1 << 31;
/// Between two looks at a gate that is not free.
const PAUSE: Duration = Duration::from_micros(20);

thread_local! {
    /// How many submissions this thread has under way. It must not wait for itself.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// Counts the submissions to one stream, and keeps them apart from the beginnings of its captures.
#[derive(Debug, Default)]
pub(crate) struct Gate(AtomicU32);

impl Gate {
    /// Enters for one submission. Submissions do not wait for each other, so that one may take place within another.
    fn enter(&self) {
        while self.0.fetch_add(1, Ordering::Acquire) & BEGINNING != 0 {
            self.leave();
            while self.0.load(Ordering::Relaxed) & BEGINNING != 0 {
                // The other thread is in one short call of the driver.
                thread::yield_now();
            }
        }
    }

    fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Closes the gate if no submission is under way.
    fn try_close(&self) -> bool {
        self.0.compare_exchange(0, BEGINNING, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn open(&self) {
        self.0.fetch_and(!BEGINNING, Ordering::Release);
    }
}

/// While it lives, no capture of the stream begins.
#[must_use = "captures are kept from beginning only while this lives"]
pub(crate) struct Submission<'stream> {
    gate: &'stream Gate,
    /// It is counted as this thread's.
    on_this_thread: PhantomData<*const ()>,
}

impl Drop for Submission<'_> {
    fn drop(&mut self) {
        OWN.set(OWN.get() - 1);
        self.gate.leave();
    }
}

impl Stream {
    /// Refuses a stream that captures, and keeps captures from beginning while the result lives. That is meant for calls of
    /// the driver alone: a function of the caller's may capture the stream itself.
    ///
    /// # Errors
    ///
    /// As [`check_not_capturing`](Self::check_not_capturing).
    pub(crate) fn submission(&self, call: &'static str) -> Result<Submission<'_>> {
        let submission = self.submission_or_record();
        self.check_not_capturing(call)?;
        Ok(submission)
    }

    /// As [`submission`](Self::submission), for work that a capture may record: of several calls none is recorded, or all.
    pub(crate) fn submission_or_record(&self) -> Submission<'_> {
        self.gate().enter();
        OWN.set(OWN.get() + 1);
        Submission { gate: self.gate(), on_this_thread: PhantomData }
    }

    /// Makes a call that begins a capture of the stream, when no submission of another thread is under way.
    ///
    /// # Errors
    ///
    /// The call's own, or this thread is in the middle of a submission.
    pub(crate) fn apart_from_submissions<R>(
        &self,
        call: &'static &'static str,
        begin: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        struct Open<'a>(&'a Gate);
        impl Drop for Open<'_> {
            fn drop(&mut self) {
                self.0.open();
            }
        }
        if OWN.get() != 0 {
            return Err(Error::InvalidArgument {
                call,
                argument: "the calling function",
                value: "called by this crate while it gives work to a stream".into(),
                rule: "a memory resource or a hook must not begin captures",
            });
        }
        if !self.gate().try_close() {
            self.wait_for_submissions(call);
        }
        let _open = Open(self.gate());
        begin()
    }

    /// A submission takes long where the driver waits in it, as for a copy to pageable memory.
    #[cold]
    fn wait_for_submissions(&self, call: &'static &'static str) {
        waiting::during(call, Target::stream(self), || {
            while !self.gate().try_close() {
                thread::sleep(PAUSE);
            }
        });
    }
}
