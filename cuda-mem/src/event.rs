//! Events: points in streams.

use crate::beside_captures::{beside_captures, captures_under_way, postpone};
use crate::ends::Ended;
use crate::error::call;
use crate::later::{drop_later, inside_host_function};
use crate::stream::done;
use crate::waiting::{self, Target};
use crate::{Context, Result, Stream};
use core::fmt;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use cuda_sys::{CUevent, CUevent_flags};

/// A point in a stream that others can wait for.
///
/// ```
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// use cuda_mem::{Event, Stream};
/// let (producer, consumer) = (Stream::new(&context)?, Stream::new(&context)?);
/// let event = Event::new(&context)?;
/// event.record(&producer)?;
/// consumer.wait(&event)?;
/// event.synchronize()?;
/// assert!(event.is_done()?);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct Event {
    context: Context,
    raw: CUevent,
    /// Whether the last record became part of a capture.
    captured: AtomicBool,
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
    /// The driver refuses.
    #[doc(alias = "cuEventCreate")]
    pub fn new(context: &Context) -> Result<Self> {
        Self::with_flags(context, CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// An event with time stamps.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    pub fn with_timing(context: &Context) -> Result<Self> {
        Self::with_flags(context, CUevent_flags::CU_EVENT_DEFAULT)
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
        Self { context: context.clone(), raw, captured: AtomicBool::new(false) }
    }

    /// Sets the event to the current end of the stream.
    ///
    /// # Errors
    ///
    /// The stream belongs to another context, or to a driver that was loaded separately.
    #[doc(alias = "cuEventRecord")]
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.context.driver().check_same("Event::record", "stream", stream.context().driver())?;
        // The stream's context, not the event's: it determines which default stream is meant.
        let (cuda, _current) = (self.context.driver().raw(), stream.context().bind()?);
        let _submission = stream.submit("Event::record")?;
        // Set before the call, so that no thread sees a captured event without it.
        self.captured.store(stream.gate().is_captured_here(), Ordering::Relaxed);
        // SAFETY: both live.
        unsafe { call!(cuda.cuEventRecord(self.raw, stream.raw())) }
    }

    /// Whether the work before the event is done. An event that was never recorded counts as done.
    ///
    /// # Errors
    ///
    /// Earlier work failed.
    #[doc(alias = "cuEventQuery")]
    pub fn is_done(&self) -> Result<bool> {
        let (cuda, _current) = (self.context.driver().raw(), self.context.bind()?);
        // SAFETY: the event lives.
        done(unsafe { call!(cuda.cuEventQuery(self.raw)) })
    }

    /// Waits for the work before the event.
    ///
    /// # Errors
    ///
    /// Earlier work failed.
    #[doc(alias = "cuEventSynchronize")]
    pub fn synchronize(&self) -> Result<()> {
        waiting::during(&"Event::synchronize", Target::event(&self.context), || self.wait())
    }

    /// As [`synchronize`](Self::synchronize), within a wait that is already watched.
    pub(crate) fn wait(&self) -> Result<()> {
        let (cuda, _current) = (self.context.driver().raw(), self.context.bind()?);
        // SAFETY: the event lives.
        unsafe { call!(cuda.cuEventSynchronize(self.raw)) }
    }

    /// Waits at most `limit` for the work before the event. The work continues after that time.
    ///
    /// # Errors
    ///
    /// The time limit passed: [`Error::WaitTimedOut`](crate::Error::WaitTimedOut). Earlier work failed.
    #[doc(alias = "cuEventQuery")]
    pub fn synchronize_for(&self, limit: Duration) -> Result<()> {
        waiting::poll(&"Event::synchronize_for", Target::event(&self.context), limit, || self.is_done())
    }

    /// As [`synchronize`](Self::synchronize), before memory that the work uses is freed. Allowed while this thread
    /// captures a stream. An event recorded in a capture cannot be waited for.
    pub(crate) fn finish(&self) -> Result<()> {
        beside_captures(self.context.driver(), || self.synchronize())
    }

    /// The time from this event to a later event.
    ///
    /// # Errors
    ///
    /// An event has no time stamps, was not recorded, or is not done; or the drivers were loaded separately.
    #[doc(alias = "cuEventElapsedTime")]
    pub fn elapsed(&self, later: &Event) -> Result<Duration> {
        self.context.driver().check_same("Event::elapsed", "later", later.context.driver())?;
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

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("raw", &self.raw).finish_non_exhaustive()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let owned = || {
            let captured = AtomicBool::new(self.captured.load(Ordering::Relaxed));
            Self { context: self.context.clone(), raw: self.raw, captured }
        };
        if inside_host_function() {
            return drop_later(owned());
        }
        // Driver 580.159 crashes if a thread destroys an event of another thread's capture before that capture ends.
        // `Ends` may hand the event to any thread.
        if self.captured.load(Ordering::Relaxed) && captures_under_way() {
            // If all captures have ended, `postpone` returns the event, and its drop destroys it.
            return drop(postpone(Box::new(owned())));
        }
        // SAFETY: the event is ours; the driver keeps what waiting work needs.
        unsafe { self.context.driver().ends().end(&self.context, Ended::Event(self.raw)) };
    }
}
