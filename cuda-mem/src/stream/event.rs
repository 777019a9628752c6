//! Events: points in streams.

use crate::driver::context::Handle;
use crate::driver::context::PATIENCE;
use crate::driver::relaxed::{RelaxedCalls, beside_captures};
use crate::driver::stream_creation::done;
use crate::error::{CaptureRefusal, call, check_not_forked};
use crate::lifetime::capture_numbers::Membership;
use crate::lifetime::submission::Submitted;
use crate::lifetime::submission::{Beginning, Gate, Submission};
use crate::lifetime::waiting::{self, Target};
use crate::lifetime::{drop_after_captures, drop_after_host_function, inside_host_function};
use crate::stream::Running;
use crate::{Context, Error, Feature, Result, Stream};
use core::fmt;
use core::ptr;
use core::time::Duration;
use cuda_sys::{CUevent, CUevent_flags};

/// A point in a stream that others can wait for.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// use cuda_mem::Stream;
/// let (producer, consumer) = (Stream::new(&context)?, Stream::new(&context)?);
/// let event = producer.record()?;
/// consumer.wait(&event)?;
/// event.synchronize()?;
/// assert!(event.is_done()?);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct Event {
    context: Context,
    raw: CUevent,
    is_borrowed: bool,
    /// The capture of the last record. Keeps other threads from the event until that capture has ended.
    gate: Gate,
}

/// Options of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventOptions {
    /// Whether the event measures times.
    pub timing: bool,
    /// Whether a thread that waits for the event sleeps, instead of asking the device all the time.
    pub blocking_sync: bool,
    /// Whether other processes may import the event (feature `sharing`).
    pub shareable: bool,
}

// SAFETY: a CUevent is a token that every thread may pass to the driver.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event without time stamps: the cheapest kind.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuEventCreate")]
    pub fn new(context: &Context) -> Result<Self> {
        Self::with_flags(context, CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// An event with time stamps.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    pub fn with_timing(context: &Context) -> Result<Self> {
        Self::with_flags(context, CUevent_flags::CU_EVENT_DEFAULT)
    }

    /// An event with options.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new). A shareable event cannot measure times; the device cannot share events
    /// ([`Error::Unsupported`]).
    #[doc(alias("CU_EVENT_BLOCKING_SYNC", "CU_EVENT_INTERPROCESS"))]
    pub fn with_options(context: &Context, options: EventOptions) -> Result<Self> {
        let mut flags = match options.timing {
            true => CUevent_flags::CU_EVENT_DEFAULT,
            false => CUevent_flags::CU_EVENT_DISABLE_TIMING,
        };
        if options.blocking_sync {
            flags |= CUevent_flags::CU_EVENT_BLOCKING_SYNC;
        }
        if options.shareable {
            if options.timing {
                let rule = "the driver shares only events without times";
                return Err(Error::invalid("Event::with_options", "options.timing", "true", rule));
            }
            context.device().require(Feature::Ipc)?;
            flags |= CUevent_flags::CU_EVENT_INTERPROCESS;
        }
        Self::with_flags(context, flags)
    }

    pub(crate) fn with_flags(context: &Context, flags: CUevent_flags) -> Result<Self> {
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is writable and the context is current.
        unsafe { call!(cuda.cuEventCreate(&mut raw, flags.0)) }?;
        // SAFETY: the driver made it for us.
        Ok(unsafe { Self::from_raw(context, raw) })
    }

    /// Takes an event over.
    ///
    /// # Safety
    ///
    /// The event is the context's, and nobody else destroys it.
    pub(crate) unsafe fn from_raw(context: &Context, raw: CUevent) -> Self {
        Self { context: context.clone(), raw, is_borrowed: false, gate: Gate::default() }
    }

    /// Uses an event of another library without owning it: a stream can wait for work of that library.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// use cuda_mem::{Event, Stream};
    /// let (theirs, ours) = (Stream::new(&context)?.record()?, Stream::new(&context)?);
    /// // SAFETY: `theirs` is an event of this context, and outlives the value.
    /// let event = unsafe { Event::borrow_raw(&context, theirs.raw()) };
    /// ours.wait(&event)?;
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// `raw` is an event of `context` and stays alive while this value lives. While a thread uses this value, no other
    /// thread records the event in a capture.
    pub unsafe fn borrow_raw(context: &Context, raw: CUevent) -> Self {
        Self { context: context.clone(), raw, is_borrowed: true, gate: Gate::default() }
    }

    /// Sets the event to the current end of the stream. If the stream captures, the event becomes part of the capture:
    /// other threads cannot use it until the capture has ended. So this first waits until they have ended their waits for
    /// it.
    ///
    /// # Errors
    ///
    /// The stream belongs to another context, or to a driver that was loaded separately. Another thread captures the
    /// stream, or has recorded the event in its capture ([`Error::Capturing`]). The stream
    /// captures, and another thread waits for the event for more than 10 seconds ([`Error::InvalidArgument`]).
    #[doc(alias = "cuEventRecord")]
    pub fn record(&self, stream: &Stream) -> Result<()> {
        const CALL: &str = "Event::record";
        self.context.driver().check_same(CALL, "stream", stream.context().driver())?;
        let submission = stream.submit(CALL)?;
        match (submission.membership(), stream.submitted(&submission)?) {
            (_, Submitted::WillRun) => {
                let _used = self.enter(CALL)?;
                self.record_raw(stream)?;
                self.gate.leave_capture();
                Ok(())
            }
            (Membership::Here(id), Submitted::RecordedOnly) => {
                let closed = self.close(&CALL)?;
                // Set before the call, so that no thread sees a captured event without it.
                closed.captured(id);
                self.record_raw(stream)
            }
            (_, Submitted::RecordedOnly) => {
                let closed = self.close(&CALL)?;
                closed.captured_by_others();
                self.record_raw(stream)
            }
        }
    }

    fn record_raw(&self, stream: &Stream) -> Result<()> {
        // The stream's context, not the event's: it determines which default stream is meant.
        let (cuda, _current) = (self.context.driver().raw(), stream.context().bind()?);
        // SAFETY: both live.
        unsafe { call!(cuda.cuEventRecord(self.raw, stream.raw())) }
    }

    /// Sets the event to the current end of a stream that does its work, and does not record it.
    ///
    /// Only for events of this crate, which no capture records. After an error the event may mark nothing, even if it
    /// marked something before.
    pub(crate) fn mark(&self, running: &Running<'_>) -> Result<()> {
        self.record_raw(running.stream())
    }

    /// Keeps the event out of captures while the result lives.
    ///
    /// # Errors
    ///
    /// Another thread's capture has recorded the event.
    pub(crate) fn enter(&self, call: &'static str) -> Result<Submission<'_>> {
        check_not_forked(call)?;
        // A capture that begins to record the event would refuse it too, so there is nothing to wait for.
        self.gate.try_submit().map_err(|_| CaptureRefusal::OtherThreadsEvent.of(call))
    }

    /// Keeps other threads from the event while the result lives. Waits for their calls, but not for ever: one of them may
    /// wait for work that this thread lets go.
    ///
    /// # Errors
    ///
    /// Another thread's capture has recorded the event, or another thread still waits for it.
    fn close(&self, call: &'static &'static str) -> Result<Beginning<'_>> {
        match waiting::look(call, Target::THREAD, PATIENCE, || Ok(self.gate.try_close()))? {
            Some(closed) if closed.is_refused() => Err(CaptureRefusal::OtherThreadsEvent.of(call)),
            Some(closed) => Ok(closed),
            None => {
                let rule = "an event of a capture is the capturing thread's alone: record another event";
                Err(Error::invalid(call, "the event", "in use by another thread for more than 10 seconds", rule))
            }
        }
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Whether the work before the event is done. An event that was never recorded counts as done.
    ///
    /// # Errors
    ///
    /// Earlier work failed. Another thread's capture has recorded the event
    /// ([`Error::Capturing`]).
    #[doc(alias = "cuEventQuery")]
    pub fn is_done(&self) -> Result<bool> {
        let _used = self.enter("Event::is_done")?;
        let (cuda, _current) = (self.context.driver().raw(), self.context.bind()?);
        // SAFETY: the event lives.
        done(unsafe { call!(cuda.cuEventQuery(self.raw)) })
    }

    /// Whether the work before a [marked](Self::mark) event is over. Allowed while this thread captures a stream.
    pub(crate) fn is_over(&self) -> Result<bool> {
        let _relaxed = RelaxedCalls::begin(self.context.driver())?;
        self.is_done()
    }

    /// Waits for the work before the event.
    ///
    /// # Errors
    ///
    /// Earlier work failed. Another thread's capture has recorded the event
    /// ([`Error::Capturing`]).
    #[doc(alias = "cuEventSynchronize")]
    pub fn synchronize(&self) -> Result<()> {
        self.wait_in(&"Event::synchronize", Target::event(&self.context))
    }

    /// Waits for the work before the event, unless the wait is interrupted. Reports name `call` and `target`.
    pub(crate) fn wait_in(&self, call: &'static &'static str, target: Target) -> Result<()> {
        waiting::or_interrupted(call, target, || self.wait(), || self.is_done())
    }

    /// Waits for the work before the event, within a wait that is already watched.
    pub(crate) fn wait(&self) -> Result<()> {
        let _used = self.enter("Event::synchronize")?;
        let (cuda, _current) = (self.context.driver().raw(), self.context.bind()?);
        #[expect(clippy::disallowed_methods, reason = "the callers are watched")]
        // SAFETY: the event lives.
        unsafe {
            call!(cuda.cuEventSynchronize(self.raw))
        }
    }

    /// Waits at most `limit` for the work before the event. The work continues after that time.
    ///
    /// # Errors
    ///
    /// The time limit passed: [`Error::WaitTimedOut`]. Earlier work failed.
    #[doc(alias = "cuEventQuery")]
    pub fn synchronize_for(&self, limit: Duration) -> Result<()> {
        waiting::poll(&"Event::synchronize_for", Target::event(&self.context), limit, || self.is_done())
    }

    /// Waits for the work before the event, before memory that this work uses is freed. Allowed while this thread
    /// captures a stream. An event recorded in a capture cannot be waited for.
    pub(crate) fn wait_beside_captures(&self) -> Result<()> {
        let target = Target::event(&self.context);
        let wait = || waiting::during(&"Event::synchronize", target, || self.wait());
        beside_captures(self.context.driver(), wait)
    }

    /// The time from this event to a later event.
    ///
    /// # Errors
    ///
    /// An event has no time stamps, was not recorded, or is not done; or the drivers were loaded separately.
    #[doc(alias = "cuEventElapsedTime")]
    pub fn elapsed(&self, later: &Event) -> Result<Duration> {
        const CALL: &str = "Event::elapsed";
        self.context.driver().check_same(CALL, "later", later.context.driver())?;
        let _used = (self.enter(CALL)?, later.enter(CALL)?);
        let (cuda, _current) = (self.context.driver().raw(), self.context.bind()?);
        let mut milliseconds = 0.0;
        // SAFETY: the result is writable and both events live.
        unsafe { call!(cuda.cuEventElapsedTime(&mut milliseconds, self.raw, later.raw)) }?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1000.0))
    }

    /// The context that the event belongs to.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The driver's handle. It lives as long as this value.
    pub fn raw(&self) -> CUevent {
        self.raw
    }
}

impl Stream {
    /// A new event at the current end of the stream, without time stamps.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let (producer, consumer) = (cuda_mem::Stream::new(&context)?, cuda_mem::Stream::new(&context)?);
    /// consumer.wait(&producer.record()?)?;
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The device has no memory for an event. Another thread captures the stream ([`Error::Capturing`]).
    #[doc(alias = "cuEventRecord")]
    pub fn record(&self) -> Result<Event> {
        let event = Event::new(self.context())?;
        event.record(self)?;
        Ok(event)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("raw", &self.raw).finish_non_exhaustive()
    }
}

impl Event {
    /// The handle, which the caller must destroy before the context ends.
    pub(crate) fn into_raw(self) -> CUevent {
        let event = core::mem::ManuallyDrop::new(self);
        // SAFETY: the field is read once, and the value is not dropped. A gate owns nothing.
        drop(unsafe { core::ptr::read(&event.context) });
        event.raw
    }

    /// Moves all contents out, before the drop.
    #[cold]
    fn take(&mut self) -> Self {
        let gate = core::mem::take(&mut self.gate);
        Self { context: self.context.clone(), raw: self.raw, is_borrowed: self.is_borrowed, gate }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.is_borrowed {
            return;
        }
        if inside_host_function() {
            return drop_after_host_function(self.take());
        }
        // Driver 580.159 crashes if a thread destroys an event of another thread's capture before that capture ends.
        // Another thread may do it: ends run one at a time.
        if self.gate.membership().is_captured() {
            return drop_after_captures(self.take());
        }
        // SAFETY: the event is ours; the driver keeps what waiting work needs.
        unsafe { self.context.destroy(Handle::Event(self.raw)) };
    }
}
