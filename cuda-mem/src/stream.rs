//! Streams: work done in order.

use crate::beside_captures::{beside_captures, captures_ever_began, captures_under_way};
use crate::callback::call_back;
use crate::capture_errors::{capturing, is_for_a_capture};
use crate::context::ForeignOwner;
use crate::cpu_released::Pending;
use crate::drop_errors::DropErrors;
use crate::ends::Ended;
use crate::error::call;
use crate::later::{Inside, drop_later, inside_host_function};
use crate::submission::{Gate, Submission, is_submitting};
use crate::waiting::{self, Target};
use crate::{Bound, Context, Error, Event, Result};
use core::ffi::c_void;
use core::fmt;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use cuda_sys::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUresult, CUstream, CUstream_flags};
use std::sync::{Arc, Mutex, PoisonError};

/// A stream. Cheap to clone.
///
/// ```
/// use std::sync::mpsc::channel;
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// let stream = cuda_mem::Stream::new(&context)?;
/// let (sender, receiver) = channel();
/// stream.launch_host_function(move || sender.send("in order").unwrap_or_default())?;
/// stream.synchronize()?;
/// assert_eq!(receiver.recv().ok(), Some("in order"));
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone)]
pub struct Stream {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    raw: CUstream,
    ownership: Ownership,
    abandoned: Abandoned,
    gate: Gate,
    /// For the next wait beside captures.
    spare: Mutex<Option<Event>>,
}

/// Why work of the stream ran without what it was to wait for, until somebody is told.
#[derive(Default)]
struct Abandoned {
    any: AtomicBool,
    error: Mutex<Option<Error>>,
}

enum Ownership {
    Owned,
    /// The driver's own default streams, and those of other libraries.
    Borrowed(#[expect(dead_code, reason = "held for its drop")] Option<ForeignOwner>),
}

// SAFETY: a CUstream is a token that every thread may pass to the driver.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// While it lives, calls of the driver with a stream may be made on this thread ([`Stream::ready`]).
pub(crate) struct Ready<'stream> {
    _current: Bound<'stream>,
    _submission: Submission<'stream>,
}

/// How a stream is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamOptions {
    /// Work of the stream also waits for, and holds back, the legacy default stream.
    pub blocking: bool,
    /// Smaller is more urgent; 0 is the default. [`Stream::priority_range`] tells the limits.
    pub priority: i32,
}

impl Stream {
    /// A stream that does not wait for the legacy default stream, of default priority.
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
    /// # Errors
    ///
    /// The driver refuses. A priority outside of the range is not an error: it is brought into the range.
    #[doc(alias = "cuStreamCreateWithPriority")]
    pub fn with_options(context: &Context, options: StreamOptions) -> Result<Self> {
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let flags =
            if options.blocking { CUstream_flags::CU_STREAM_DEFAULT } else { CUstream_flags::CU_STREAM_NON_BLOCKING };
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is writable and the context is current.
        unsafe { call!(cuda.cuStreamCreateWithPriority(&mut raw, flags.0, options.priority)) }?;
        Ok(Self::from_inner(context, raw, Ownership::Owned))
    }

    /// The legacy default stream of a context: it waits for, and is waited for by, all blocking streams.
    #[doc(alias = "CU_STREAM_LEGACY")]
    pub fn legacy_default(context: &Context) -> Self {
        Self::from_inner(context, CU_STREAM_LEGACY, Ownership::Borrowed(None))
    }

    /// The calling thread's own default stream in a context. On another thread the value names that thread's stream.
    #[doc(alias = "CU_STREAM_PER_THREAD")]
    pub fn per_thread_default(context: &Context) -> Self {
        Self::from_inner(context, CU_STREAM_PER_THREAD, Ownership::Borrowed(None))
    }

    /// Uses a stream of another library without owning it.
    ///
    /// # Safety
    ///
    /// `raw` is a stream of `context`, and stays alive while this value and its clones live. No thread begins a capture of it,
    /// other than by this value and its clones, while another thread uses them.
    pub unsafe fn borrow_raw(context: &Context, raw: CUstream) -> Self {
        Self::from_inner(context, raw, Ownership::Borrowed(None))
    }

    /// Uses a stream of another library, and holds `owner` for as long.
    ///
    /// # Safety
    ///
    /// `raw` is a stream of `context`, and stays alive while `owner` does. No thread begins a capture of it, other than by this
    /// value and its clones, while another thread uses them.
    pub unsafe fn borrow_with_owner(context: &Context, raw: CUstream, owner: ForeignOwner) -> Self {
        Self::from_inner(context, raw, Ownership::Borrowed(Some(owner)))
    }

    fn from_inner(context: &Context, raw: CUstream, ownership: Ownership) -> Self {
        Self {
            inner: Arc::new(Inner {
                context: context.clone(),
                raw,
                ownership,
                abandoned: Abandoned::default(),
                gate: Gate::default(),
                spare: Mutex::default(),
            }),
        }
    }

    /// The lowest and the highest priority of a context's streams; the highest is the smaller number.
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

    /// Waits until all work given to the stream so far is done.
    ///
    /// # Errors
    ///
    /// Work failed. A flag or counter ended while the stream waited for it
    /// ([`SignalError::Abandoned`](crate::signal::SignalError::Abandoned)): all work is done, and the error is not given again.
    #[doc(alias = "cuStreamSynchronize")]
    pub fn synchronize(&self) -> Result<()> {
        self.drain()?;
        self.check_released()
    }

    /// Waits until all work given to the stream so far is done, whatever it ran without: for ends of memory.
    pub(crate) fn drain(&self) -> Result<()> {
        const CALL: &str = "Stream::synchronize";
        let (cuda, _current) = (self.context().driver().raw(), self.context().bind()?);
        if captures_ever_began() {
            return waiting::during(&CALL, Target::stream(self), || self.drain_beside_captures(&CALL));
        }
        // SAFETY: the stream lives.
        let wait = || unsafe { call!(cuda.cuStreamSynchronize(self.inner.raw)) };
        waiting::during(&CALL, Target::stream(self), wait)
    }

    /// cuStreamSynchronize looks whether the stream captures, and then waits. The look must not meet the end of a capture, and
    /// the wait must not keep captures from beginning: so they are two calls.
    fn drain_beside_captures(&self, call: &'static &'static str) -> Result<()> {
        let spare = || self.inner.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let event = spare().take().map_or_else(|| Event::new(self.context()), Ok);
        let marked = event.and_then(|event| {
            let _submission = self.submit(call)?;
            if self.gate().is_captured() {
                return Err(capturing(call));
            }
            event.record(self).map(|()| event)
        });
        match marked {
            Ok(event) => event.wait().map(|()| *spare() = Some(event)),
            Err(error) if is_for_a_capture(&error) => Err(error),
            // An end of memory must not fail for want of an event.
            Err(_) => waiting::poll(call, Target::stream(self), Duration::MAX, || self.is_done()),
        }
    }

    /// Waits until all work given to the stream so far is done, for a time at most. The work goes on after that time.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// use std::time::Duration;
    /// let stream = cuda_mem::Stream::new(&context)?;
    /// stream.synchronize_for(Duration::from_secs(1))?;
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Time is up: [`Error::WaitTimedOut`]. Work failed.
    #[doc(alias = "cuStreamQuery")]
    pub fn synchronize_for(&self, limit: Duration) -> Result<()> {
        waiting::poll(&"Stream::synchronize_for", Target::stream(self), limit, || self.is_done())?;
        self.check_released()
    }

    /// As [`drain`](Self::drain), before memory that the work uses is let go: also while this thread captures another stream.
    /// After an error the work may go on, unless the context is broken.
    pub(crate) fn finish(&self) -> Result<()> {
        beside_captures(self.context().driver(), || self.drain())
    }

    /// The stream goes on without what it waited for. Its next wait or access is told why; the first reason counts.
    pub(crate) fn abandon(&self, error: Error) {
        let abandoned = &self.inner.abandoned;
        abandoned.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        abandoned.any.store(true, Ordering::Release);
    }

    /// An error, once, if work of the stream ran without what it was to wait for. Asked after a wait for the stream.
    #[inline]
    pub(crate) fn check_released(&self) -> Result<()> {
        if self.inner.abandoned.any.load(Ordering::Acquire) { self.inner.abandoned.tell() } else { Ok(()) }
    }

    /// Whether all work given to the stream so far is done.
    ///
    /// # Errors
    ///
    /// Work failed.
    #[doc(alias = "cuStreamQuery")]
    pub fn is_done(&self) -> Result<bool> {
        let (cuda, _ready) = self.ready()?;
        // SAFETY: the stream lives.
        done(unsafe { call!(cuda.cuStreamQuery(self.inner.raw)) })
    }

    /// What a call of the driver with this stream needs: the stream's context is current, and captures of the stream neither
    /// begin nor end, while the second value lives.
    ///
    /// # Errors
    ///
    /// The context has ended.
    pub(crate) fn ready(&self) -> Result<(&cuda_sys::Driver, Ready<'_>)> {
        let ready = Ready { _current: self.context().bind()?, _submission: self.submit("a call with a stream")? };
        Ok((self.context().driver().raw(), ready))
    }

    /// Lets work given to the stream from now on wait for an event.
    ///
    /// # Errors
    ///
    /// The driver refuses; the event is of a driver that was loaded apart.
    #[doc(alias = "cuStreamWaitEvent")]
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.context().driver().check_same("Stream::wait", "event", event.context().driver())?;
        let (cuda, _current) = (self.context().driver().raw(), self.context().bind()?);
        // SAFETY: the stream and the event live; the driver keeps what it needs of the event.
        let wait = || unsafe { call!(cuda.cuStreamWaitEvent(self.inner.raw, event.raw(), 0)) };
        // A stream that waits for an event of a capture takes part in it from then on. In a submission, events mark work.
        if captures_under_way() && !is_submitting() {
            self.apart_from_submissions(&"Stream::wait", |beginning| {
                wait()?;
                self.note_capture(beginning)
            })
        } else {
            let _submission = self.submit("Stream::wait")?;
            wait()
        }
    }

    /// Lets work given to this stream from now on wait for all work given to `other` so far. While a stream captures, the
    /// ordering is recorded in its graph, and orders nothing now.
    ///
    /// # Errors
    ///
    /// The driver refuses; the other stream is of a driver that was loaded apart.
    pub fn join(&self, other: &Stream) -> Result<()> {
        let event = Event::new(other.context())?;
        event.record(other)?;
        self.wait(&event)
    }

    /// Runs a function on the host when all earlier work of the stream is done; later work waits for it. A panic in it is
    /// kept as a drop error of the context, [`Error::Panicked`], with its text.
    ///
    /// The function must not call the driver. What of this crate has to is refused there:
    /// [`Error::InsideHostFunction`]. Buffers, streams, events, contexts, graphs and pools
    /// that are dropped in it end soon after it has returned, on a thread of this crate's.
    ///
    /// Until the function has returned, frees that wait for the whole device are put off, and no kernel is loaded: the
    /// function may wait for a thread that waits in the driver. So the first function of a context loads this crate's
    /// kernels ([`Context::load_kernels`]).
    ///
    /// # Errors
    ///
    /// The driver refuses, or the stream captures: the function runs once, captured work at each launch. The function is
    /// dropped without being run.
    #[doc(alias = "cuLaunchHostFunc")]
    pub fn launch_host_function(&self, function: impl FnOnce() + Send + 'static) -> Result<()> {
        let (cuda, _current) = (self.context().driver().raw(), self.context().bind()?);
        let _submission = self.submission("Stream::launch_host_function")?;
        let drop_errors = self.context().drop_errors().clone();
        let pending = self.context().begin_cpu_released();
        let function: Box<dyn FnOnce() + Send> = Box::new(function);
        let data = Box::into_raw(Box::new(HostFunction { function, drop_errors, pending }));
        // SAFETY: `run_host_function` takes what `data` is; the driver calls it once if, and only if, it accepts.
        let result = unsafe { call!(cuda.cuLaunchHostFunc(self.inner.raw, Some(run_host_function), data.cast())) };
        if result.is_err() {
            // SAFETY: refused, so nobody else has the box.
            drop(unsafe { Box::from_raw(data) });
        }
        result
    }

    /// A number that no other stream of the process ever has.
    ///
    /// # Errors
    ///
    /// The driver refuses, or is older than CUDA 12.0.
    #[doc(alias = "cuStreamGetId")]
    pub fn id(&self) -> Result<u64> {
        let (cuda, _current) = (self.context().driver().raw(), self.context().bind()?);
        let mut id = 0;
        // SAFETY: `id` is writable and the stream lives.
        unsafe { call!(cuda.cuStreamGetId(self.inner.raw, &mut id)) }?;
        Ok(id)
    }

    /// Makes ready for a call that needs no current context but names this stream. The context of a stream of its own only
    /// has to be alive; a default stream is the current context's, so that its context is made current.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Option<Bound<'_>>> {
        let bound = self.bind_default()?;
        if bound.is_none() {
            self.context().check_alive()?;
        }
        Ok(bound)
    }

    /// For a default stream, makes its context current: only that says whose default stream it is.
    #[inline]
    pub(crate) fn bind_default(&self) -> Result<Option<Bound<'_>>> {
        // Null and the driver's two names for default streams.
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
    pub(crate) fn gate(&self) -> &Gate {
        &self.inner.gate
    }
}

impl Abandoned {
    #[cold]
    fn tell(&self) -> Result<()> {
        self.any.store(false, Ordering::Relaxed);
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }
}

/// Success, or not yet.
pub(crate) fn done(result: Result<()>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.driver_code() == Some(CUresult::CUDA_ERROR_NOT_READY) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Holds no context: its end would be a driver call, which a host function must not make.
struct HostFunction {
    function: Box<dyn FnOnce() + Send>,
    drop_errors: Arc<DropErrors>,
    /// Until the function has returned.
    pending: Pending,
}

unsafe extern "C" fn run_host_function(data: *mut c_void) {
    // SAFETY: `launch_host_function` made the box for this one call.
    let HostFunction { function, drop_errors, pending } = *unsafe { Box::from_raw(data.cast::<HostFunction>()) };
    let _inside = Inside::enter();
    if let Err(panicked) = call_back(function) {
        drop_errors.push("running a host function", panicked.of("a host function"));
    }
    drop(pending);
}

impl PartialEq for Stream {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
            || self.inner.raw == other.inner.raw && self.inner.context == other.inner.context
    }
}

impl Eq for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("raw", &self.inner.raw).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.abandoned.tell() {
            self.context.drop_errors().push("destroying a stream that nobody waited for", error);
        }
        if matches!(self.ownership, Ownership::Borrowed(_)) {
            return;
        }
        if inside_host_function() {
            let (context, raw) = (self.context.clone(), self.raw);
            return drop_later(Self {
                context,
                raw,
                ownership: Ownership::Owned,
                abandoned: Abandoned::default(),
                gate: Gate::default(),
                spare: Mutex::default(),
            });
        }
        // SAFETY: ours, and used by nobody any more; the driver finishes its work.
        unsafe { self.context.driver().ends().end(&self.context, Ended::Stream(self.raw)) };
    }
}
