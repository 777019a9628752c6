//! Driver calls that must work while streams capture.

use crate::error::call;
use crate::waiting;
use crate::{Driver, Result};
use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use cuda_sys::{CUresult, CUstreamCaptureMode};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of captures under way in this process, plus [`ONE_WAIT`] times the number of waits that would end captures.
static CAPTURES: AtomicUsize = AtomicUsize::new(0);
const ONE_WAIT: usize = 1 << (usize::BITS / 2);
/// Pause between two checks whether such waits have ended.
const PAUSE: Duration = Duration::from_micros(20);
/// Whether a capture ever began.
static EVER: AtomicBool = AtomicBool::new(false);

/// Whether a capture that this crate began is under way. If not, callers need not ask the driver whether a stream
/// captures.
#[inline]
pub(crate) fn captures_under_way() -> bool {
    !CAPTURES.load(Ordering::Relaxed).is_multiple_of(ONE_WAIT)
}

/// A wait for all work of a context, which ends all captures of its streams. No capture begins while this lives.
pub(crate) struct WaitWithoutCaptures(());

impl WaitWithoutCaptures {
    /// None while a capture is under way.
    pub fn begin() -> Option<Self> {
        let one_more = |count: usize| count.is_multiple_of(ONE_WAIT).then_some(count + ONE_WAIT);
        CAPTURES.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more).is_ok().then(|| Self(()))
    }
}

impl Drop for WaitWithoutCaptures {
    fn drop(&mut self) {
        CAPTURES.fetch_sub(ONE_WAIT, Ordering::Release);
    }
}

/// Whether this crate ever began a capture, so that another may begin at any moment.
#[inline]
pub(crate) fn captures_ever_began() -> bool {
    EVER.load(Ordering::Relaxed)
}

/// One capture under way.
pub(crate) struct UnderWay;

impl UnderWay {
    /// Counts a capture. First waits while another thread waits for all work of a context.
    pub fn begin() -> Self {
        EVER.store(true, Ordering::Relaxed);
        let one_more = |count: usize| (count < ONE_WAIT).then_some(count + 1);
        while CAPTURES.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more).is_err() {
            waiting::nap(PAUSE);
        }
        Self
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if CAPTURES.fetch_sub(1, Ordering::Release) == 1 {
            // Without the lock: these drops free memory and may call hooks.
            let ready = core::mem::take(&mut *postponed());
            drop(ready);
        }
    }
}

/// Values that could not be dropped during a capture.
static POSTPONED: Mutex<Vec<Box<dyn Send>>> = Mutex::new(Vec::new());

fn postponed() -> MutexGuard<'static, Vec<Box<dyn Send>>> {
    POSTPONED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a value whose drop fails during captures, until no capture of this process is under way.
///
/// # Errors
///
/// Returns the value if no capture of this crate is under way: nothing would drop it later.
pub(crate) fn postpone(value: Box<dyn Send>) -> Result<(), Box<dyn Send>> {
    let mut postponed = postponed();
    if captures_under_way() {
        postponed.push(value);
        Ok(())
    } else {
        // The last capture may have just emptied the list.
        Err(value)
    }
}

/// While this lives, captures refuse no driver calls of this thread, and these calls invalidate no captures. The value
/// stays on its thread.
///
/// For calls that are no part of the captured work, such as a library's own allocations.
///
/// ```
/// use cuda_mem::graph::{CaptureMode, RelaxedCalls};
/// # use cuda_mem::{Driver, MappedResource, Stream};
/// # let driver = Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// let stream = Stream::new(&context)?;
/// let graph = stream.capture(CaptureMode::Global, |_| {
///     let _relaxed = RelaxedCalls::begin(&driver)?;
///     context.memory_info().map(drop)
/// })?;
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[must_use = "calls are relaxed only while the guard lives"]
pub struct RelaxedCalls<'driver> {
    driver: &'driver Driver,
    before: CUstreamCaptureMode,
    /// The driver keeps the mode for each thread.
    on_this_thread: PhantomData<*const ()>,
}

impl<'driver> RelaxedCalls<'driver> {
    /// Sets the capture mode of this thread to relaxed.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    #[doc(alias = "cuThreadExchangeStreamCaptureMode")]
    pub fn begin(driver: &'driver Driver) -> Result<Self> {
        let before = exchange(driver, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
        Ok(Self { driver, before, on_this_thread: PhantomData })
    }
}

/// Relaxes the calls of this thread if a capture of this crate is under way. Otherwise makes no driver call.
#[inline]
pub(crate) fn relaxed(driver: &Driver) -> Result<Option<RelaxedCalls<'_>>> {
    captures_under_way().then(|| RelaxedCalls::begin(driver)).transpose()
}

/// Makes a call that no capture may forbid, such as a wait that keeps memory from being freed under a copy. The call is
/// no captured work, so a capture by this thread neither refuses it nor is invalidated.
pub(crate) fn beside_captures<R>(driver: &Driver, call: impl Fn() -> Result<R>) -> Result<R> {
    let _relaxed = relaxed(driver);
    call().or_else(|error| match error.driver_code() {
        // Another library's capture. Only this refusal makes it known here.
        Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) => {
            let _relaxed = RelaxedCalls::begin(driver);
            call()
        }
        _ => Err(error),
    })
}

/// Sets this thread's capture mode. Returns the previous one.
fn exchange(driver: &Driver, mut mode: CUstreamCaptureMode) -> Result<CUstreamCaptureMode> {
    let cuda = driver.raw();
    // SAFETY: `mode` is writable, and holds a valid mode.
    unsafe { call!(cuda.cuThreadExchangeStreamCaptureMode(&mut mode)) }?;
    Ok(mode)
}

impl fmt::Debug for RelaxedCalls<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelaxedCalls").field("before", &self.before).finish_non_exhaustive()
    }
}

impl Drop for RelaxedCalls<'_> {
    fn drop(&mut self) {
        if let Err(error) = exchange(self.driver, self.before)
            && !error.is_teardown()
        {
            self.driver.drop_errors().push("restoring the capture mode", error);
        }
    }
}
