//! When one piece of work comes after another, and when work is complete.
//!
//! A stream that captures a graph does nothing of what it is given. An event that is recorded on it marks no point in
//! time, and a wait for that event orders nothing outside the graph. So an ordering is either *in force*, or it exists
//! in a graph only. All code that concludes "this work comes after that work" asks this module, which never takes one for
//! the other: CPU accesses, frees, moves to another stream, `record_use`, the pools' events.
//!
//! Host memory that a copy borrows is the caller's again when the copy is known to be complete, and not before: a wait
//! that the driver refuses says nothing about the copy.

use crate::beside_captures::RelaxedCalls;
use crate::capture_errors::{capturing, is_for_a_capture};
use crate::context::Liveness;
use crate::submission::{Beginning, Submission, is_submitting};
use crate::waiting::{self, Target};
use crate::{Context, Error, Event, Result, Stream};
use core::time::Duration;
use cuda_sys::CUresult;
use std::io::Write;

/// How often a wait is tried that fails for no reason that says whether the work goes on.
const ATTEMPTS: u32 = 16;
/// Between two looks whether submissions are over.
const SUBMISSION_PAUSE: Duration = Duration::from_micros(20);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

impl Event {
    /// Sets the event to the stream's present end, as [`record`](Event::record) does, and fails where the event marks no
    /// point in time, because the stream captures a graph. Returns whether the work before it is already complete.
    ///
    /// After an error the event may mark nothing, whatever it marked before.
    pub(crate) fn mark(&self, stream: &Stream) -> Result<bool> {
        self.record(stream)?;
        // Only the event tells for sure: another thread may begin or end a capture at any moment. The question would end
        // a capture of another library's, so it is asked in relaxed mode, whether captures are known here or not.
        let _relaxed = RelaxedCalls::begin(self.context().driver())?;
        self.is_done()
    }
}

impl Stream {
    /// Lets work given to this stream from now on come after all work given to `other` so far. The ordering is in force
    /// when this returns.
    ///
    /// # Errors
    ///
    /// One of the streams captures a graph: the ordering would exist in the graph only. The driver refuses.
    pub(crate) fn follow(&self, other: &Stream) -> Result<()> {
        const CALL: &str = "Stream::wait";
        if self == other {
            return Ok(());
        }
        self.context().driver().check_same(CALL, "event", other.context().driver())?;
        other.check_not_capturing(CALL)?;
        self.check_not_capturing(CALL)?;
        let event = Event::new(other.context())?;
        event.mark(other)?;
        // If a capture of this stream has begun since, the driver refuses an event that was recorded outside of it.
        self.wait(&event)
    }

    /// As [`follow`](Self::follow), for memory that is lost if there is no ordering: where the streams cannot be
    /// ordered, the work of `other` is waited for.
    ///
    /// # Errors
    ///
    /// As [`follow`](Self::follow). A stream that captures is not waited for: that would end its capture.
    pub(crate) fn follow_or_wait(&self, other: &Stream) -> Result<()> {
        self.follow(other).or_else(|error| match other.is_capturing() {
            Ok(false) => other.finish(),
            _ => Err(error),
        })
    }

    /// As [`follow`](Self::follow), for work that is given to this stream next: if this stream captures, the work is
    /// recorded in its graph, and so is the ordering.
    pub(crate) fn follow_for_work(&self, other: &Stream) -> Result<()> {
        if self == other {
            Ok(())
        } else if self.is_capturing()? {
            // The driver refuses a stream that does not take part in the capture.
            self.join(other)
        } else {
            self.follow(other)
        }
    }

    /// The counterpart of [`follow_for_work`](Self::follow_for_work) once the work was given to `other`. The work has
    /// begun, so if the streams cannot be ordered, this waits until it is complete.
    pub(crate) fn follow_work(&self, other: &Stream) -> Result<()> {
        self.follow_for_work(other).or_else(|_| other.complete())
    }

    /// Refuses a stream that records what it is given.
    ///
    /// # Errors
    ///
    /// It captures; or the driver cannot say it: the stream is the legacy default stream, and another stream captures.
    pub(crate) fn check_not_capturing(&self, call: &'static str) -> Result<()> {
        if self.is_capturing()? { Err(capturing(call)) } else { Ok(()) }
    }

    /// Refuses a stream that captures, and keeps captures from beginning while the result lives. That is meant for calls of
    /// the driver alone: a function of the caller's may capture the stream itself.
    ///
    /// # Errors
    ///
    /// As [`check_not_capturing`](Self::check_not_capturing).
    pub(crate) fn submission(&self, call: &'static str) -> Result<Submission<'_>> {
        let submission = self.submit(call)?;
        self.check_not_capturing(call)?;
        Ok(submission)
    }

    /// Keeps captures of the stream from beginning while the result lives. Work may be recorded in a capture of this thread's.
    ///
    /// # Errors
    ///
    /// Another thread captures the stream.
    pub(crate) fn submit(&self, call: &'static str) -> Result<Submission<'_>> {
        self.gate().submit().ok_or_else(|| capturing(call))
    }

    /// Makes a call by which the stream may come to take part in a capture, when no submission of another thread is under way.
    ///
    /// # Errors
    ///
    /// The call's own; this thread is in the middle of a submission; another thread captures the stream.
    pub(crate) fn apart_from_submissions(
        &self,
        call: &'static &'static str,
        begin: impl FnOnce(&Beginning<'_>) -> Result<()>,
    ) -> Result<()> {
        if is_submitting() {
            return Err(Error::InvalidArgument {
                call,
                argument: "the calling function",
                value: "called by this crate while it gives work to a stream".into(),
                rule: "a memory resource, an iterator or a hook must not begin captures",
            });
        }
        let beginning = self.gate().try_close().unwrap_or_else(|| self.wait_for_submissions(call));
        if beginning.is_refused() {
            return Err(capturing(call));
        }
        begin(&beginning)
    }

    /// A submission takes long where the driver waits in it, as for a copy to pageable memory.
    #[cold]
    fn wait_for_submissions(&self, call: &'static &'static str) -> Beginning<'_> {
        waiting::during(call, Target::stream(self), || {
            loop {
                if let Some(beginning) = self.gate().try_close() {
                    return beginning;
                }
                std::thread::sleep(SUBMISSION_PAUSE);
            }
        })
    }

    /// Gives this stream work that uses host memory of the caller's, and returns when the work is complete, also if it
    /// fails.
    ///
    /// # Errors
    ///
    /// The stream captures, and the work was not given to it. The work, or earlier work, failed, or earlier work ran without
    /// what it was to wait for.
    pub(crate) fn complete_with(&self, call: &'static &'static str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let begun = {
            let _submission = self.submission(call)?;
            // The driver itself waits in copies to and from pageable memory.
            waiting::during(call, Target::stream(self), work)
        };
        begun.and(self.complete())?;
        self.check_released()
    }

    /// Waits until all work given to the stream so far is complete. It returns only when that is known, whatever the
    /// driver answers: if another thread captures the stream, it waits until that capture has ended, and if nobody can
    /// say whether the work goes on, it ends the process.
    ///
    /// The caller has seen beforehand that the calling thread does not capture the stream.
    ///
    /// # Errors
    ///
    /// The work failed. It is complete all the same.
    pub(crate) fn complete(&self) -> Result<()> {
        complete(self.context(), || self.finish())
    }
}

impl Event {
    /// As [`Stream::complete`], for the work before an event that was [marked](Self::mark).
    pub(crate) fn complete(&self) -> Result<()> {
        complete(self.context(), || self.finish())
    }
}

/// Repeats a wait until the work that it waits for is known to be complete.
fn complete(context: &Context, wait: impl Fn() -> Result<()>) -> Result<()> {
    wait().or_else(|error| {
        let again = || complete_after(error, context, wait);
        waiting::during(&"a wait beside another thread's capture", Target::context(context), again)
    })
}

/// As [`complete`], after the first wait failed.
fn complete_after(mut error: Error, context: &Context, wait: impl Fn() -> Result<()>) -> Result<()> {
    let mut failed = Attempts::default();
    let mut pause = Duration::from_micros(10);
    loop {
        if context.liveness() != Liveness::Alive {
            // The end of a context ends its work.
            return Err(error);
        }
        match failed.add(error) {
            Verdict::Over(error) => return Err(error),
            Verdict::Again => {}
            Verdict::Unknown(error) => give_up(&error),
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
        error = match wait() {
            Ok(()) => return failed.first.map_or(Ok(()), Err),
            Err(error) => error,
        };
    }
}

/// What a wait that failed says of the work.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// No work goes on in the context.
    Over(Error),
    /// The wait is to be repeated.
    Again,
    /// Nobody can say.
    Unknown(Error),
}

/// The waits that failed.
#[derive(Debug, Default)]
struct Attempts {
    /// The first failure that is not due to a capture.
    first: Option<Error>,
    failed: u32,
    broken: u32,
}

impl Attempts {
    fn add(&mut self, error: Error) -> Verdict {
        if is_for_a_capture(&error) {
            // Another thread's capture, which ends.
            return Verdict::Again;
        }
        self.failed += 1;
        self.broken = if error.driver_code().is_some_and(breaks_the_context) { self.broken + 1 } else { 0 };
        let first = self.first.get_or_insert(error).clone();
        if self.broken > 1 {
            // The context is beyond repair: its work was ended.
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
    // Not eprintln!, which panics, and so returns to the caller, where nobody reads stderr any more.
    let _ = writeln!(
        std::io::stderr(),
        "cuda-mem: the driver cannot say whether a copy to or from this process's memory is complete ({error}, {ATTEMPTS} \
         times). The copy may still write to memory that the program uses for something else, so the process ends here."
    );
    std::process::abort();
}

/// Whether a code says that a context has failed for good. Such codes are given again by every later call.
fn breaks_the_context(code: CUresult) -> bool {
    matches!(
        code,
        CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_UNKNOWN
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DriverError;

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

    #[test]
    fn a_capture_says_nothing_of_the_work() {
        let mut failed = Attempts::default();
        for _ in 0..1000 {
            assert_eq!(failed.add(error(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)), Verdict::Again);
            assert_eq!(failed.add(error(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)), Verdict::Again);
        }
        assert_eq!(failed.first, None);
    }

    #[test]
    fn a_context_is_broken_when_two_waits_in_a_row_say_so() {
        let broken = error(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        let mut failed = Attempts::default();
        assert_eq!(failed.add(broken.clone()), Verdict::Again);
        assert_eq!(failed.add(error(CUresult::CUDA_ERROR_OUT_OF_MEMORY)), Verdict::Again);
        assert_eq!(failed.add(broken.clone()), Verdict::Again);
        assert_eq!(failed.add(broken.clone()), Verdict::Over(broken));
    }

    #[test]
    fn other_errors_are_given_up_in_the_end_with_the_first_of_them() {
        let mut failed = Attempts::default();
        let first = error(CUresult::CUDA_ERROR_INVALID_VALUE);
        assert_eq!(failed.add(first.clone()), Verdict::Again);
        for _ in 2..ATTEMPTS {
            assert_eq!(failed.add(error(CUresult::CUDA_ERROR_OUT_OF_MEMORY)), Verdict::Again);
        }
        assert_eq!(failed.add(error(CUresult::CUDA_ERROR_OUT_OF_MEMORY)), Verdict::Unknown(first));
    }
}
