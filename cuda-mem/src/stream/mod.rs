//! Streams: queues whose work runs in order. Events and graphs, and the order between the work of two streams.

pub(crate) mod completion;
pub(crate) mod event;
pub mod graph;
pub(crate) mod host_copies;
mod host_function;
mod kept;
pub(crate) mod marks;
mod named;
pub(crate) mod order;
mod owner;

use crate::locks::Mutex;
pub(crate) use kept::{Used, WorkUnknown};
pub(crate) use named::NamedStream;
use owner::{StreamOwner, StreamOwnership};

use crate::driver::context::ForeignOwner;
use crate::driver::relaxed::beside_captures;
use crate::driver::stream_core::StreamCore;
use crate::driver::stream_creation::done;
use crate::driver::stream_reserve::{Spare, StreamClass};
use crate::error::capture_errors::is_for_a_capture;
use crate::error::{CaptureRefusal, call};
use crate::lifetime::capture_numbers::Membership;
use crate::lifetime::captures::captures_ever_began;
use crate::lifetime::submission::{Gate, Submission};
use crate::lifetime::waiting::{self, Target, What};
use crate::{Bound, Context, Error, Event, Result};
use core::fmt;
use core::sync::atomic::Ordering;
use core::time::Duration;
use cuda_sys::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUstream, CUstream_flags};
use std::sync::{Arc, OnceLock};

/// A queue of device work that runs in order. Cheap to clone.
///
/// ```
/// use std::sync::mpsc::channel;
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// let stream = cuda_mem::Stream::new(&context)?;
/// let (sender, receiver) = channel();
/// stream.launch_host_function(move || sender.send("in order").unwrap_or_default())?;
/// stream.synchronize()?;
/// assert_eq!(receiver.recv().ok(), Some("in order"));
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone)]
pub struct Stream {
    inner: Arc<StreamOwner>,
}

/// While it lives, this thread may pass the stream to driver calls ([`Stream::ready`]).
pub(crate) struct Ready<'stream> {
    _current: Bound<'stream>,
    _submission: Submission<'stream>,
}

/// A submission to a stream that does its work: no capture of the stream begins while it lives. Only this proves that
/// work initialises memory, that an event marks a point in time, and that an ordering is in force.
#[must_use = "captures are kept from beginning only while this lives"]
pub(crate) struct Running<'stream> {
    stream: &'stream Stream,
    _submission: Submission<'stream>,
}

impl<'stream> Running<'stream> {
    /// The caller has checked that the stream does its work.
    pub fn new(stream: &'stream Stream, submission: Submission<'stream>) -> Self {
        Self { stream, _submission: submission }
    }

    pub fn stream(&self) -> &'stream Stream {
        self.stream
    }
}

/// Options of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamOptions {
    /// Work of the stream waits for the legacy default stream, which also waits for this stream.
    pub blocking: bool,
    /// Smaller is more urgent; 0 is the default. [`Stream::priority_range`] returns the limits.
    pub priority: i32,
}

impl Target {
    pub fn stream(stream: &Stream) -> Self {
        Self { what: What::Stream, stream: stream.raw().addr(), ..Self::context(stream.context()) }
    }
}

impl Stream {
    /// A stream of default priority that does not wait for the legacy default stream.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    #[doc(alias = "cuStreamCreate")]
    pub fn new(context: &Context) -> Result<Self> {
        Self::with_options(context, StreamOptions::default())
    }

    /// A stream with options.
    ///
    /// While queued work of the context waits for the CPU, the stream comes from the context's reserve
    /// ([`Context::reserve_streams`]): a creation by the driver could wait for that work.
    ///
    /// # Errors
    ///
    /// The driver refuses. The reserve is empty, and queued work waits for the CPU for more than 10 seconds
    /// ([`Error::InvalidArgument`]). A priority outside of the range is not an error: the driver clamps it.
    #[doc(alias = "cuStreamCreateWithPriority")]
    pub fn with_options(context: &Context, options: StreamOptions) -> Result<Self> {
        let flags =
            if options.blocking { CUstream_flags::CU_STREAM_DEFAULT } else { CUstream_flags::CU_STREAM_NON_BLOCKING };
        let class = StreamClass { flags, priority: options.priority };
        let Spare { raw, has_plain_frees, .. } = context.take_stream(class)?;
        let core = context.state().streams.fresh(raw);
        core.has_plain_frees.store(has_plain_frees, Ordering::Relaxed);
        Ok(Self::from_inner(context, raw, StreamOwnership::Owned(class), core, false))
    }

    /// The legacy default stream of a context. It waits for all blocking streams, and they wait for it.
    #[doc(alias = "CU_STREAM_LEGACY")]
    pub fn legacy_default(context: &Context) -> Self {
        Self::borrowed(context, CU_STREAM_LEGACY, None, false)
    }

    /// The calling thread's default stream in a context. On another thread, the value means that thread's stream.
    ///
    /// Every library may capture this stream and launch the graph, by safe calls. So while it captures, calls of this
    /// crate on it are refused ([`CaptureRefusal::OthersLaunch`]).
    #[doc(alias = "CU_STREAM_PER_THREAD")]
    pub fn per_thread_default(context: &Context) -> Self {
        Self::borrowed(context, CU_STREAM_PER_THREAD, None, true)
    }

    /// Uses a stream of another library without owning it.
    ///
    /// # Safety
    ///
    /// `raw` is a stream of `context` and stays alive while this value and its clones live; those that a
    /// [`Pool`](crate::pool::Pool) keeps do not count. While a thread uses this value or a clone, no other thread begins or
    /// ends a capture of the stream except by them.
    ///
    /// A capture of another library records calls of this crate on the stream, and on streams that join it. Whoever
    /// launches its graph upholds what [`ExecutableGraph::launch`](crate::graph::ExecutableGraph::launch) requires.
    pub unsafe fn borrow_raw(context: &Context, raw: CUstream) -> Self {
        Self::borrowed(context, raw, None, false)
    }

    /// Uses a stream of another library without owning it, and holds `owner` meanwhile.
    ///
    /// # Safety
    ///
    /// `raw` is a stream of `context` and stays alive while `owner` does. While a thread uses this value or a clone, no
    /// other thread begins or ends a capture of the stream except by them. Of graphs that another library captures, as
    /// [`borrow_raw`](Self::borrow_raw).
    pub unsafe fn borrow_with_owner(context: &Context, raw: CUstream, owner: ForeignOwner) -> Self {
        Self::borrowed(context, raw, Some(owner), false)
    }

    /// Uses a stream of another library without owning it, where `owner` gives safe code captures of the stream, and
    /// launches of their graphs. Such captures record no calls of this crate.
    ///
    /// # Safety
    ///
    /// As [`borrow_with_owner`](Self::borrow_with_owner), except for graphs.
    #[cfg(feature = "cudarc")]
    pub(crate) unsafe fn borrow_of_safe_owner(context: &Context, raw: CUstream, owner: ForeignOwner) -> Self {
        // The legacy default stream cannot be captured.
        Self::borrowed(context, raw, Some(owner), raw.addr() > CU_STREAM_LEGACY.addr())
    }

    fn borrowed(context: &Context, raw: CUstream, owner: Option<ForeignOwner>, records_nothing: bool) -> Self {
        let core = Self::borrowed_core(context, raw);
        Self::from_inner(context, raw, StreamOwnership::Borrowed(owner), core, records_nothing)
    }

    fn from_inner(
        context: &Context,
        raw: CUstream,
        ownership: StreamOwnership,
        core: Arc<StreamCore>,
        records_nothing: bool,
    ) -> Self {
        let (context, blocking, spare) = (context.clone(), OnceLock::new(), Mutex::default());
        Self { inner: Arc::new(StreamOwner { context, raw, ownership, core, records_nothing, blocking, spare }) }
    }

    /// The lowest and the highest priority of a context's streams. The highest priority is the smallest number.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    #[doc(alias = "cuCtxGetStreamPriorityRange")]
    pub fn priority_range(context: &Context) -> Result<(i32, i32)> {
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both are writable and the context is current.
        unsafe { call!(cuda.cuCtxGetStreamPriorityRange(&mut least, &mut greatest)) }?;
        Ok((least, greatest))
    }

    /// Waits until all work queued so far is done.
    ///
    /// # Errors
    ///
    /// Earlier work failed. A flag or counter ended while the stream waited for it
    /// ([`SignalError::Abandoned`](crate::signal::SignalError::Abandoned)): all work is done, and the error is returned
    /// once.
    #[doc(alias = "cuStreamSynchronize")]
    pub fn synchronize(&self) -> Result<()> {
        if waiting::is_interruptible() {
            self.wait_unless_interrupted(&"Stream::synchronize")?;
        } else {
            self.wait_for_work()?;
        }
        self.check_released()
    }

    /// Waits until all work queued so far is done, or the caller ends the wait. By an event, because other threads may
    /// queue more work all the time.
    pub(crate) fn wait_unless_interrupted(&self, call: &'static &'static str) -> Result<()> {
        self.wait_by_event(call, |event| event.wait_in(call, Target::stream(self)))
    }

    /// Waits until all work queued so far is done, for frees: ignores work that ran although its wait was not
    /// satisfied.
    pub(crate) fn wait_for_work(&self) -> Result<()> {
        self.wait_in(&"Stream::synchronize")
    }

    /// Waits until all work queued so far is done. Reports of long waits name `call`.
    pub(crate) fn wait_in(&self, call: &'static &'static str) -> Result<()> {
        let (cuda, _current) = (self.context().driver().raw(), self.context().bind()?);
        if captures_ever_began() {
            return waiting::during(call, Target::stream(self), || self.wait_by_event(call, Event::wait));
        }
        #[expect(clippy::disallowed_methods, reason = "watched, by this crate's name")]
        // SAFETY: the stream lives.
        let wait = || unsafe { call!(cuda.cuStreamSynchronize(self.inner.raw)) };
        waiting::during(call, Target::stream(self), wait)
    }

    /// cuStreamSynchronize checks whether the stream captures, then waits. No capture may end during the check, but
    /// captures may begin during the wait. So this makes two calls: it records an event, then waits for it.
    fn wait_by_event(&self, call: &'static &'static str, wait: impl FnOnce(&Event) -> Result<()>) -> Result<()> {
        let spare = || self.inner.spare.lock();
        let event = spare().take().map_or_else(|| Event::new(self.context()), Ok);
        let marked = event.and_then(|event| event.mark(&self.running(call)?).map(|()| event));
        match marked {
            Ok(event) => {
                wait(&event)?;
                let former = spare().replace(event);
                drop(former);
                Ok(())
            }
            Err(error) if is_for_a_capture(&error) => Err(error),
            // A free of memory must not fail because no event can be made.
            Err(_) => {
                let is_done = || Ok(self.is_done()?.then_some(()));
                waiting::look(call, Target::stream(self), Duration::MAX, is_done).map(drop)
            }
        }
    }

    /// Waits at most `limit` until all work queued so far is done. The work continues after that time.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// use std::time::Duration;
    /// let stream = cuda_mem::Stream::new(&context)?;
    /// stream.synchronize_for(Duration::from_secs(1))?;
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The time limit passed: [`Error::WaitTimedOut`]. Earlier work failed.
    #[doc(alias = "cuStreamQuery")]
    pub fn synchronize_for(&self, limit: Duration) -> Result<()> {
        waiting::poll(&"Stream::synchronize_for", Target::stream(self), limit, || self.is_done())?;
        self.check_released()
    }

    /// Waits until all work queued so far is done, before memory that the work uses is freed. Allowed while this thread
    /// captures another stream. After an error the work may still run, unless the context is broken.
    pub(crate) fn wait_beside_captures(&self) -> Result<()> {
        beside_captures(self.context().driver(), || self.wait_for_work())
    }

    /// Notes that the stream goes on although its wait was not satisfied. Its next wait or access returns the first
    /// such error.
    pub(crate) fn abandon(&self, error: Error) {
        self.inner.core.abandoned.note(error);
    }

    /// After a wait for the stream: an error, once, if work of the stream ran although its wait was not satisfied.
    #[inline]
    pub(crate) fn check_released(&self) -> Result<()> {
        self.inner.core.abandoned.check()
    }

    /// Whether all work queued so far is done.
    ///
    /// # Errors
    ///
    /// Earlier work failed.
    #[doc(alias = "cuStreamQuery")]
    pub fn is_done(&self) -> Result<bool> {
        let (cuda, _ready) = self.ready()?;
        // SAFETY: the stream lives.
        done(unsafe { call!(cuda.cuStreamQuery(self.inner.raw)) })
    }

    /// Prepares a driver call with this stream: while the second value lives, the stream's context is current, and no
    /// capture of the stream begins or ends.
    ///
    /// # Errors
    ///
    /// The context has ended. Another thread captures the stream. It captures, and must record nothing.
    pub(crate) fn ready(&self) -> Result<(&cuda_sys::Driver, Ready<'_>)> {
        let ready = Ready { _current: self.context().bind()?, _submission: self.submit("a call with a stream")? };
        Ok((self.context().driver().raw(), ready))
    }

    /// Makes work queued from now on wait for an event. If a capture of this thread has recorded the event, the stream
    /// joins that capture.
    ///
    /// # Errors
    ///
    /// The event belongs to a driver that was loaded separately. Another thread captures the stream, or has recorded the
    /// event in its capture; the stream captures and the event was recorded outside of that capture
    /// ([`Error::Capturing`]); the event belongs to a capture, and the stream is one of cudarc or a thread's default
    /// stream, which join none. The driver refuses.
    #[doc(alias = "cuStreamWaitEvent")]
    pub fn wait(&self, event: &Event) -> Result<()> {
        const CALL: &str = "Stream::wait";
        self.context().driver().check_same(CALL, "event", event.context().driver())?;
        let (cuda, _current) = (self.context().driver().raw(), self.context().bind()?);
        // SAFETY: the stream and the event live; the driver keeps what it needs of the event.
        let wait = || unsafe { call!(cuda.cuStreamWaitEvent(self.inner.raw, event.raw(), 0)) };
        match event.gate().membership() {
            Membership::Here(_) | Membership::Foreign if self.records_nothing() => {
                Err(CaptureRefusal::OthersLaunch.of(CALL))
            }
            // No other thread may use the event, so its capture stays as it is.
            Membership::Here(id) => self.join_capture(&CALL, id, wait),
            Membership::Foreign => self.apart_from_submissions(&CALL, |beginning| {
                self.core().is_altered.store(true, Ordering::Relaxed);
                wait()?;
                // Only the driver knows whether that capture goes on.
                beginning.captured_by_others();
                Ok(())
            }),
            Membership::Free | Membership::Elsewhere => {
                let _used = event.enter(CALL)?;
                let submission = self.submit(CALL)?;
                if matches!(submission.membership(), Membership::Here(_)) {
                    return Err(CaptureRefusal::EventFromOutside.of(CALL));
                }
                wait()
            }
        }
    }

    /// Makes later work of this stream wait for all work queued on `other` so far. While a stream captures, this order
    /// is only recorded in its graph.
    ///
    /// # Errors
    ///
    /// The other stream belongs to a driver that was loaded separately. The driver refuses.
    pub fn join(&self, other: &Stream) -> Result<()> {
        let event = Event::new(other.context())?;
        event.record(other)?;
        self.wait(&event)
    }

    /// A number that no other stream of the process ever has. The driver's handles and numbers recur, because streams
    /// are used again after they were dropped.
    pub fn id(&self) -> u64 {
        self.inner.core.id
    }

    /// Prepares a driver call that takes this stream and needs no current context: checks that the stream's context is
    /// alive. For a default stream, which belongs to the current context, makes its context current.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Option<Bound<'_>>> {
        let bound = self.bind_default()?;
        if bound.is_none() {
            self.context().check_alive()?;
        }
        Ok(bound)
    }

    /// Whether the stream has another owner.
    #[inline]
    pub(crate) fn is_borrowed(&self) -> bool {
        !matches!(self.inner.ownership, StreamOwnership::Owned(_))
    }

    /// Whether captures of the stream record no calls of this crate, because safe code of another library could launch
    /// the graph.
    #[inline]
    pub(crate) fn records_nothing(&self) -> bool {
        self.inner.records_nothing
    }

    /// Another library's value that keeps the stream alive.
    #[cfg(feature = "cudarc")]
    pub(crate) fn foreign_owner(&self) -> Option<&ForeignOwner> {
        match &self.inner.ownership {
            StreamOwnership::Borrowed(owner) => owner.as_ref(),
            StreamOwnership::Owned(_) | StreamOwnership::Kept => None,
        }
    }

    /// Whether the stream has another owner, who can capture it. The legacy default stream cannot be captured.
    #[inline]
    pub(crate) fn may_be_captured_by_others(&self) -> bool {
        self.is_borrowed() && self.inner.raw.addr() > CU_STREAM_LEGACY.addr()
            || self.gate().membership() == Membership::Foreign
    }

    /// For a default stream, makes its context current, which determines the default stream that is meant.
    #[inline]
    pub(crate) fn bind_default(&self) -> Result<Option<Bound<'_>>> {
        // Null, and the driver's two constants for default streams.
        let is_default = self.inner.raw.addr() <= CU_STREAM_PER_THREAD.addr();
        is_default.then(|| self.context().bind()).transpose()
    }

    /// The context that the stream belongs to.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The driver's handle. It lives as long as this value and its clones.
    pub fn raw(&self) -> CUstream {
        self.inner.raw
    }

    /// Keeps captures of this stream apart from submissions to it.
    #[inline]
    pub(crate) fn gate(&self) -> &Gate {
        &self.inner.core.gate
    }

    /// What all values for this stream share.
    pub(crate) fn core(&self) -> &Arc<StreamCore> {
        &self.inner.core
    }

    /// Whether the stream waits for the legacy default stream, and that stream for this one.
    ///
    /// # Errors
    ///
    /// Another library captures the stream. The driver refuses.
    pub(crate) fn is_blocking(&self) -> Result<bool> {
        if let Some(known) = self.inner.blocking.get() {
            return Ok(*known);
        }
        // The driver's answer would invalidate the capture.
        if self.may_be_captured_by_others() && self.is_capturing()? {
            return Err(CaptureRefusal::RecordsOnly.of("Stream::is_blocking"));
        }
        let (cuda, _current) = (self.context().driver().raw(), self.enter()?);
        let mut flags = 0;
        // SAFETY: `flags` is writable and the stream lives.
        unsafe { call!(cuda.cuStreamGetFlags(self.inner.raw, &mut flags)) }?;
        Ok(*self.inner.blocking.get_or_init(|| flags & CUstream_flags::CU_STREAM_NON_BLOCKING.0 == 0))
    }
}

impl Stream {
    /// Whether both are one value of the stream.
    #[inline]
    pub(crate) fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl PartialEq for Stream {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner) || Arc::ptr_eq(&self.inner.core, &other.inner.core)
    }
}

impl Eq for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("raw", &self.inner.raw).finish_non_exhaustive()
    }
}
