//! Decides when one piece of work comes after another, and when work is complete.
//!
//! A stream that captures a graph records its work and does none of it. An event recorded on it marks no point in time,
//! and a wait for that event orders nothing outside the graph. So an ordering is either *in force*, or it exists in a
//! graph only. All code that concludes "this work comes after that work" uses this module, which tells the two apart:
//! CPU accesses, frees, moves to another stream, `record_use`, the pools' events.
//!
//! | order of this stream after another | |
//! |---|---|
//! | `order_after` | in force, or an error: for memory and for what the CPU concludes |
//! | `order_after_or_wait` | in force; if that is impossible, waits: for frees |
//! | `order_work_after` | for work that is queued next: in force, or in the graph that records the work |
//! | `order_work_after_or_wait` | the same after that work was queued on the other stream, so it must not fail |
//! | `order_after_event_or_wait`, `order_free_after_event` | in force, or waits: after a copy that read the memory |
//!
//! | wait for a stream or an event | |
//! |---|---|
//! | `synchronize` (public) | fails if work ran without its condition |
//! | `wait_for_work` | ignores that: for frees |
//! | `wait_beside_captures` | also while this thread captures another stream |
//! | `wait_certainly` | returns only when the work is known to be complete |
//! | `wait_before_free` | waits before memory is freed, and asks again if the driver does not tell |
//! | `run_copy` | queues a copy of borrowed host memory, and waits so |
//! | `drain` | waits before a copy for which the driver would wait with its lock: `host_copies` |
//!
//! Host memory that a copy borrows returns to the caller only when the copy is known to be complete. A wait that the
//! driver refuses says nothing about the copy.

use crate::driver::context::Liveness;
use crate::driver::relaxed::beside_captures;
use crate::error::call;
use crate::error::capture_errors::{capturing, is_for_a_capture};
use crate::error::{CaptureRefusal, check_not_forked};
use crate::lifetime::capture_numbers::{self, CaptureId, Membership};
use crate::lifetime::captures::captures_under_way;
use crate::lifetime::inside_host_function;
use crate::lifetime::submission::{Beginning, Submission, Submitted, is_submitting};
use crate::lifetime::waiting::{self, Target};
use crate::stream::Running;
use crate::stream::host_copies::{CopySide, waits_within};
use crate::{Context, Error, Event, Result, Stream};
use core::sync::atomic::Ordering;
use core::time::Duration;
use cuda_sys::CUstreamCaptureStatus;
use std::io::Write;

/// How often a wait before a free is made that the driver refuses.
const WAITS_BEFORE_FREE: usize = 3;
/// Failed waits after which the process ends, if none of them tells whether the work is complete.
const ATTEMPTS: u32 = 16;
/// Pause between two checks whether submissions have ended.
const SUBMISSION_PAUSE: Duration = Duration::from_micros(20);
/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

impl Running<'_> {
    /// Orders later work of the stream after all work queued on `other` so far. The ordering is in force when this
    /// returns.
    pub fn order_after(&self, other: &Running<'_>) -> Result<()> {
        let (stream, other_stream) = (self.stream(), other.stream());
        if stream == other_stream {
            return Ok(());
        }
        let event = Event::new(other_stream.context())?;
        event.mark(other)?;
        stream.wait(&event)
    }
}

impl Stream {
    /// Orders later work of this stream after all work queued on `other` so far. The ordering is in force when this
    /// returns.
    ///
    /// # Errors
    ///
    /// One of the streams captures a graph, so the ordering would exist in the graph only.
    pub(crate) fn order_after(&self, other: &Stream) -> Result<()> {
        const CALL: &str = "Stream::wait";
        if self == other {
            return Ok(());
        }
        self.context().driver().check_same(CALL, "event", other.context().driver())?;
        let (other, this) = (other.running(CALL)?, self.running(CALL)?);
        this.order_after(&other)
    }

    /// Orders later work of this stream after all work queued on `other` so far, for memory that would be lost without
    /// the ordering. If the streams cannot be ordered, waits for the work of `other`.
    ///
    /// # Errors
    ///
    /// As [`order_after`](Self::order_after). Does not wait for a stream that captures, because that would end the capture.
    pub(crate) fn order_after_or_wait(&self, other: &Stream) -> Result<()> {
        self.order_after(other).or_else(|error| match other.is_capturing() {
            Ok(false) => other.wait_beside_captures(),
            _ => Err(error),
        })
    }

    /// Orders the work that is queued on this stream next after all work queued on `other` so far. If this stream
    /// captures, its graph records the work, and the ordering too.
    pub(crate) fn order_work_after(&self, other: &Stream) -> Result<()> {
        const CALL: &str = "Stream::wait";
        if self == other {
            return Ok(());
        }
        self.context().check_alive()?;
        let submission = self.submit(CALL)?;
        match self.submitted(&submission)? {
            Submitted::WillRun => {
                self.context().driver().check_same(CALL, "event", other.context().driver())?;
                let (this, running) = (Running::new(self, submission), other.running(CALL)?);
                let there = other.context();
                let is_far = self.context().device().ordinal() != there.device().ordinal();
                // Two events between devices took 7 to 9 us of a small copy's 17 to 19 (H200).
                if is_far && there.is_idle(other.raw()) == Ok(true) {
                    return Ok(());
                }
                this.order_after(&running)
            }
            // Refused if `other` takes no part in the capture.
            Submitted::RecordedOnly => self.join(other),
        }
    }

    /// The counterpart of [`order_work_after`](Self::order_work_after), after the work was queued on `other`. That work
    /// may have begun, so if the streams cannot be ordered, this waits until it is complete.
    ///
    /// # Errors
    ///
    /// The work failed. Or this thread captures `other`, and the streams cannot be ordered in the capture.
    pub(crate) fn order_work_after_or_wait(&self, other: &Stream) -> Result<()> {
        self.order_work_after(other).or_else(|error| {
            // A stream that this thread captures does no work, and a wait for it would never end.
            if matches!(other.gate().membership(), Membership::Here(_)) { Err(error) } else { other.wait_certainly() }
        })
    }

    /// Orders later work of this stream after the work before a [marked](Event::mark) event. If that is impossible, waits
    /// until the work is over.
    pub(crate) fn order_after_event_or_wait(&self, event: &Event) {
        if let Err(error) = self.order_after_event(event)
            && !matches!(error, Error::Forked { .. })
        {
            // An error of the work, which is over.
            let _ = event.wait_certainly();
        }
    }

    /// The same before a free, which can happen later.
    ///
    /// # Errors
    ///
    /// The stream captures. A host function, or a child of the process that loaded the driver, calls this.
    pub(crate) fn order_free_after_event(&self, event: &Event) -> Result<()> {
        match self.order_after_event(event) {
            Err(error)
                if inside_host_function() || is_for_a_capture(&error) || matches!(error, Error::Forked { .. }) =>
            {
                Err(error)
            }
            Err(_) => {
                let _ = event.wait_certainly();
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn order_after_event(&self, event: &Event) -> Result<()> {
        const CALL: &str = "Stream::wait";
        // The end of a context ends its work.
        if event.context().liveness() != Liveness::Alive || event.is_over() == Ok(true) {
            return Ok(());
        }
        let _running = self.running(CALL)?;
        self.wait(event)
    }

    /// Whether the stream does work that is queued during a submission. Asks the driver only about streams that another
    /// library may capture: a question that meets the end of a capture crashes the driver (580.159).
    ///
    /// # Errors
    ///
    /// The driver cannot tell, because the stream is the legacy default stream and another stream captures.
    #[inline]
    pub(crate) fn submitted(&self, submission: &Submission<'_>) -> Result<Submitted> {
        match submission.membership() {
            Membership::Here(_) => Ok(Submitted::RecordedOnly),
            Membership::Free if !self.is_borrowed() => Ok(Submitted::WillRun),
            _ => self.ask_whether_capturing(),
        }
    }

    #[cold]
    fn ask_whether_capturing(&self) -> Result<Submitted> {
        let (cuda, _current) = (self.context().driver().raw(), self.enter()?);
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: `status` is writable and the stream lives.
        unsafe { call!(cuda.cuStreamIsCapturing(self.raw(), &mut status)) }?;
        if status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
            return Ok(Submitted::RecordedOnly);
        }
        self.gate().leave_capture();
        Ok(Submitted::WillRun)
    }

    /// Whether the stream records new work. Also true if the capture was invalidated and has not ended yet.
    ///
    /// # Errors
    ///
    /// This is the legacy default stream, and a blocking stream of the context captures.
    #[doc(alias = "cuStreamIsCapturing")]
    pub fn is_capturing(&self) -> Result<bool> {
        // The driver crashes on a stream of a context that has ended.
        self.context().check_alive()?;
        match self.gate().submit() {
            Ok(submission) => Ok(self.submitted(&submission)? == Submitted::RecordedOnly),
            Err(CaptureRefusal::OtherThread) => Ok(true),
            Err(refusal) => Err(refusal.of("Stream::is_capturing")),
        }
    }

    /// Refuses a stream that captures.
    ///
    /// # Errors
    ///
    /// As [`running`](Self::running).
    pub(crate) fn check_not_capturing(&self, call: &'static str) -> Result<()> {
        self.running(call).map(drop)
    }

    /// Refuses a stream that captures, for memory that must not become part of a graph. Asks the driver only if this crate
    /// has begun a capture, or if the stream has another owner, who may capture it.
    #[inline]
    pub(crate) fn check_may_allocate(&self, call: &'static str) -> Result<()> {
        check_not_forked(call)?;
        if captures_under_way() || self.may_be_captured_by_others() { self.check_not_capturing(call) } else { Ok(()) }
    }

    /// Refuses a stream that captures, and keeps captures from beginning while the result lives. Only driver calls may
    /// be made meanwhile: a caller's function may capture the stream itself.
    ///
    /// # Errors
    ///
    /// The stream captures. Or the driver cannot tell, because the stream is the legacy default stream and another
    /// stream captures. The context has ended.
    #[inline]
    pub(crate) fn running(&self, call: &'static str) -> Result<Running<'_>> {
        self.context().check_alive()?;
        let submission = self.enter_gate(call)?;
        self.running_in(call, submission)
    }

    /// Refuses a stream that captures, and keeps captures from beginning while the result lives; for callers with a
    /// lock. Does not wait for the begin of a capture, and counts it as a capture.
    pub(crate) fn try_running(&self, call: &'static str) -> Result<Running<'_>> {
        check_not_forked(call)?;
        self.context().check_alive()?;
        let submission = self.gate().try_submit().map_err(|refusal| refusal.of(call))?;
        self.running_in(call, submission)
    }

    #[inline]
    fn running_in<'stream>(
        &'stream self,
        call: &'static str,
        submission: Submission<'stream>,
    ) -> Result<Running<'stream>> {
        match self.submitted(&submission)? {
            Submitted::WillRun => Ok(Running::new(self, submission)),
            Submitted::RecordedOnly => Err(capturing(call)),
        }
    }

    /// Keeps captures of the stream from beginning while the result lives. A capture of this thread may record the
    /// work: [`submitted`](Self::submitted) tells.
    ///
    /// # Errors
    ///
    /// Another thread captures the stream, or a capture forbids the legacy default stream. The stream captures, and must
    /// [record nothing](Self::records_nothing).
    #[inline]
    pub(crate) fn submit(&self, call: &'static str) -> Result<Submission<'_>> {
        let submission = self.enter_gate(call)?;
        if self.records_nothing() {
            self.check_runs(call, &submission)?;
        }
        Ok(submission)
    }

    /// Keeps captures of the stream from beginning while the result lives, for callers that queue no work that a
    /// capture could record.
    #[inline]
    pub(crate) fn enter_gate(&self, call: &'static str) -> Result<Submission<'_>> {
        check_not_forked(call)?;
        self.gate().submit().map_err(|refusal| refusal.of(call))
    }

    #[cold]
    fn check_runs(&self, call: &'static str, submission: &Submission<'_>) -> Result<()> {
        match self.submitted(submission)? {
            Submitted::WillRun => Ok(()),
            Submitted::RecordedOnly => Err(CaptureRefusal::OthersLaunch.of(call)),
        }
    }

    /// Makes a call after which the stream is part of a capture of this thread.
    ///
    /// # Errors
    ///
    /// As [`apart_from_submissions`](Self::apart_from_submissions).
    pub(crate) fn join_capture(
        &self,
        call: &'static &'static str,
        id: CaptureId,
        join: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.core().is_altered.store(true, Ordering::Relaxed);
        if matches!(self.gate().membership(), Membership::Here(_)) {
            // A part of this capture already, or of another one of this thread, which the driver refuses.
            return join();
        }
        // While a blocking stream captures, no call may use the legacy default stream.
        let legacy = self.is_blocking()?.then(|| Stream::legacy_default(self.context()));
        let Some(legacy) = legacy.filter(|legacy| legacy.raw() != self.raw() && !self.raw().is_null()) else {
            return self.apart_from_submissions(call, |beginning| {
                join()?;
                beginning.captured(id);
                Ok(())
            });
        };
        let (beginning, forbidden) = self.close_with(&legacy, call)?;
        if beginning.is_refused() {
            return Err(CaptureRefusal::OtherThread.of(call));
        }
        join()?;
        forbidden.forbid_default_stream();
        beginning.captured(id);
        let core = legacy.core().clone();
        capture_numbers::at_end(id, move || core.gate.allow_default_stream());
        Ok(())
    }

    /// Makes a call that may add the stream to a capture. First waits for the submissions of other threads.
    ///
    /// # Errors
    ///
    /// The call fails; this thread is inside a submission; another thread captures the stream.
    pub(crate) fn apart_from_submissions(
        &self,
        call: &'static &'static str,
        begin: impl FnOnce(&Beginning<'_>) -> Result<()>,
    ) -> Result<()> {
        let beginning = self.close(call)?;
        if beginning.is_refused() {
            return Err(CaptureRefusal::OtherThread.of(call));
        }
        begin(&beginning)
    }

    /// Keeps submissions to the stream out while the result lives. First waits for those of other threads.
    ///
    /// # Errors
    ///
    /// This thread is inside a submission, for which it would wait.
    fn close(&self, call: &'static &'static str) -> Result<Beginning<'_>> {
        self.after_submissions(call, || self.gate().try_close())
    }

    /// Keeps submissions to two streams out while the results live. A submission to one of them may enter the other, so
    /// neither stays closed during a wait for the other.
    fn close_with<'streams>(
        &'streams self,
        other: &'streams Stream,
        call: &'static &'static str,
    ) -> Result<(Beginning<'streams>, Beginning<'streams>)> {
        self.after_submissions(call, || Some((self.gate().try_close()?, other.gate().try_close()?)))
    }

    /// Repeats `close` until it succeeds. A submission takes long if the driver waits inside it, as in a copy to pageable
    /// memory.
    fn after_submissions<R>(&self, call: &'static &'static str, close: impl Fn() -> Option<R>) -> Result<R> {
        if is_submitting() {
            let value = "called by this crate while it queues work on a stream";
            let rule = "a memory resource, an iterator or a hook must not begin captures: begin them elsewhere";
            return Err(Error::invalid(call, "the calling function", value, rule));
        }
        let wait = || {
            loop {
                waiting::nap(SUBMISSION_PAUSE);
                if let Some(closed) = close() {
                    return closed;
                }
            }
        };
        Ok(close().unwrap_or_else(|| waiting::during(call, Target::stream(self), wait)))
    }

    /// Waits for the work queued so far, before memory is freed that it uses. Asks again if the driver does not tell whether
    /// the work is done: after an error the memory is lost.
    ///
    /// # Errors
    ///
    /// The stream captures. The context has ended. The driver does not tell.
    pub(crate) fn wait_before_free(&self) -> Result<()> {
        let mut waited = self.wait_beside_captures();
        for _ in 1..WAITS_BEFORE_FREE {
            match &waited {
                Err(error) if is_for_a_capture(error) => break,
                // A broken context runs no work any more.
                Err(error) if self.context().is_broken_by(error) => return Ok(()),
                Err(_) => waited = self.wait_beside_captures(),
                Ok(()) => break,
            }
        }
        waited
    }

    /// Waits for the work queued so far, without the context's lock.
    ///
    /// # Errors
    ///
    /// The stream captures. Earlier work failed.
    pub(crate) fn drain(&self, call: &'static &'static str) -> Result<()> {
        let running = self.running(call)?;
        if self.is_certainly_idle(&running) {
            return Ok(());
        }
        drop(running);
        self.drain_busy(call)
    }

    /// Whether a copy on this stream waits for nothing. A copy on a blocking stream also waits for other streams.
    pub(crate) fn is_certainly_idle(&self, _running: &Running<'_>) -> bool {
        matches!(self.is_blocking(), Ok(false)) && matches!(self.context().is_idle(self.raw()), Ok(true))
    }

    #[cold]
    fn drain_busy(&self, call: &'static &'static str) -> Result<()> {
        if waiting::is_interruptible() {
            // Nothing is queued yet. What follows then waits for little.
            self.wait_unless_interrupted(call)?;
        }
        // A capture that begins meanwhile would refuse the copy. It ends.
        let wait = || {
            beside_captures(self.context().driver(), || self.wait_in(call))?;
            self.check_not_capturing(call)
        };
        repeat_until_certain(self.context(), wait)
    }

    /// Queues a copy of `size` bytes that uses the caller's host memory, and first waits as
    /// [`drain`](Self::drain), if the driver would wait within the copy. Returns when the copy is complete, even if it fails.
    ///
    /// # Errors
    ///
    /// The stream captures, and the copy was not queued. The copy or earlier work failed. Earlier work ran without the
    /// condition that it waited for.
    pub(crate) fn run_copy(
        &self,
        call: &'static &'static str,
        (to, from): (CopySide, CopySide),
        size: usize,
        copy: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut running = self.running(call)?;
        if waits_within(to, from, size) && !self.is_certainly_idle(&running) {
            drop(running);
            self.drain_busy(call)?;
            running = self.running(call)?;
        }
        // The driver itself blocks in copies to and from pageable memory.
        let begun = waiting::during(call, Target::stream(self), copy);
        drop(running);
        begun.and(self.wait_certainly())?;
        self.check_released()
    }

    /// Waits until all work queued on the stream so far is complete, and returns only when that is certain. If another
    /// thread captures the stream, waits for the end of that capture. If the driver cannot tell whether the work still
    /// runs, ends the process.
    ///
    /// The caller has checked that the calling thread does not capture the stream.
    ///
    /// # Errors
    ///
    /// The work failed. It is complete nevertheless.
    pub(crate) fn wait_certainly(&self) -> Result<()> {
        repeat_until_certain(self.context(), || self.wait_beside_captures())
    }
}

impl Event {
    /// Waits until the work before a [marked](Self::mark) event is complete, and returns only when that is certain.
    /// Otherwise as [`Stream::wait_certainly`].
    pub(crate) fn wait_certainly(&self) -> Result<()> {
        repeat_until_certain(self.context(), || self.wait_beside_captures())
    }
}

/// Repeats a wait until the awaited work is certainly complete.
fn repeat_until_certain(context: &Context, wait: impl Fn() -> Result<()>) -> Result<()> {
    wait().or_else(|error| {
        let again = || repeat_after(error, context, wait);
        waiting::during(&"a wait beside another thread's capture", Target::context(context), again)
    })
}

/// Repeats a wait that failed until the awaited work is certainly complete.
fn repeat_after(mut error: Error, context: &Context, wait: impl Fn() -> Result<()>) -> Result<()> {
    let mut failed = Attempts::default();
    let mut pause = Duration::from_micros(10);
    loop {
        if context.liveness() != Liveness::Alive {
            // Destroying a context ends its work.
            return Err(error);
        }
        match failed.add(error, |error| context.is_broken_by(error)) {
            Verdict::Over(error) => return Err(error),
            Verdict::Again => {}
            Verdict::Unknown(error) => give_up(&error),
        }
        waiting::nap(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
        error = match wait() {
            Ok(()) => return failed.first.map_or(Ok(()), Err),
            Err(error) => error,
        };
    }
}

/// What a failed wait tells about the work.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    /// No work runs in the context any more.
    Over(Error),
    /// Repeat the wait.
    Again,
    /// The driver cannot tell.
    Unknown(Error),
}

/// The failed waits.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// The first failure that no capture caused.
    first: Option<Error>,
    failed: u32,
}

impl Attempts {
    /// `ends_all` asks whether the context is broken, which has ended its work.
    pub fn add(&mut self, error: Error, ends_all: impl FnOnce(&Error) -> bool) -> Verdict {
        if is_for_a_capture(&error) {
            // Another thread's capture, which will end.
            return Verdict::Again;
        }
        self.failed += 1;
        let is_over = ends_all(&error);
        let first = self.first.get_or_insert(error).clone();
        if is_over {
            Verdict::Over(first)
        } else if self.failed == ATTEMPTS {
            Verdict::Unknown(first)
        } else {
            Verdict::Again
        }
    }
}

#[cold]
fn give_up(error: &Error) -> ! {
    // Not eprintln!: it panics if nobody reads stderr, and the panic would return to the caller.
    let _ = writeln!(
        std::io::stderr(),
        "cuda-mem: the driver cannot tell whether a copy to or from this process's memory is complete (after \
         {ATTEMPTS} failed waits, the first with: {error}). The copy may still write to memory that the program uses \
         for something else, so the process ends here."
    );
    std::process::abort();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DriverError;
    use cuda_sys::CUresult;

    #[test]
    #[cfg_attr(miri, ignore = "needs the software GPU")]
    fn a_stream_that_does_not_capture_is_let_through() -> Result<()> {
        let context = crate::Driver::software()?.device(0)?.primary_context()?;
        let stream = Stream::new(&context)?;
        assert!(!stream.is_capturing()?);
        stream.check_not_capturing("test")
    }

    fn error(code: CUresult) -> Error {
        DriverError { call: "cuStreamSynchronize", code }.into()
    }

    fn never(_: &Error) -> bool {
        false
    }

    #[test]
    fn a_capture_says_nothing_of_the_work() {
        let mut failed = Attempts::default();
        for _ in 0..1000 {
            assert_eq!(failed.add(error(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED), never), Verdict::Again);
            assert_eq!(failed.add(error(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT), never), Verdict::Again);
        }
        assert_eq!(failed.first, None);
    }

    #[test]
    fn a_context_is_broken_when_another_call_says_so_too() {
        let broken = error(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        let mut failed = Attempts::default();
        assert_eq!(failed.add(broken.clone(), never), Verdict::Again);
        assert_eq!(failed.add(broken.clone(), Error::may_break_the_context), Verdict::Over(broken));
        let other = error(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(failed.add(other, Error::may_break_the_context), Verdict::Again);
    }

    #[test]
    fn other_errors_are_given_up_in_the_end_with_the_first_of_them() {
        let mut failed = Attempts::default();
        let first = error(CUresult::CUDA_ERROR_INVALID_VALUE);
        assert_eq!(failed.add(first.clone(), never), Verdict::Again);
        for _ in 2..ATTEMPTS {
            assert_eq!(failed.add(error(CUresult::CUDA_ERROR_OUT_OF_MEMORY), never), Verdict::Again);
        }
        assert_eq!(failed.add(error(CUresult::CUDA_ERROR_OUT_OF_MEMORY), never), Verdict::Unknown(first));
    }
}
