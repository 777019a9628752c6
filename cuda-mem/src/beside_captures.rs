//! Calls beside captures.

use crate::error::call;
use crate::{Driver, Result};
use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use cuda_sys::{CUresult, CUstreamCaptureMode};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// How many captures of this process go on, and, in units of [`ONE_WAIT`], how many waits that would end them.
static CAPTURES: AtomicUsize = AtomicUsize::new(0);
const ONE_WAIT: usize = 1 << (usize::BITS / 2);
/// Between two looks whether such waits are over.
const PAUSE: Duration = Duration::from_micros(20);
/// Whether there ever was one.
static EVER: AtomicBool = AtomicBool::new(false);

/// Whether a capture goes on that was begun here, so that a stream may be capturing: the driver need not be asked where
/// none does.
#[inline]
pub(crate) fn captures_under_way() -> bool {
    !CAPTURES.load(Ordering::Relaxed).is_multiple_of(ONE_WAIT)
}

/// A wait for all work of a context, which ends all captures of its streams: none begins while this lives.
pub(crate) struct WaitWithoutCaptures(());

impl WaitWithoutCaptures {
    /// None while a capture goes on.
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

/// Whether a capture ever began here, so that another may begin at any moment.
#[inline]
pub(crate) fn captures_ever_began() -> bool {
    EVER.load(Ordering::Relaxed)
}

/// One capture, counted while it goes on.
pub(crate) struct UnderWay;

impl UnderWay {
    /// Waits while another thread waits for all work of a context.
    pub fn begin() -> Self {
        EVER.store(true, Ordering::Relaxed);
        let one_more = |count: usize| (count < ONE_WAIT).then_some(count + 1);
        while CAPTURES.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more).is_err() {
            thread::sleep(PAUSE);
        }
        Self
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if CAPTURES.fetch_sub(1, Ordering::Release) == 1 {
            // Outside of the lock: these drops free memory and may call hooks.
            let ready = core::mem::take(&mut *postponed());
            drop(ready);
        }
    }
}

/// Values whose end a capture did not allow.
static POSTPONED: Mutex<Vec<Box<dyn Send>>> = Mutex::new(Vec::new());

fn postponed() -> MutexGuard<'static, Vec<Box<dyn Send>>> {
    POSTPONED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a value whose end fails during captures, and drops it when no capture of this process goes on.
///
/// # Errors
///
/// No capture goes on that was begun here: there is nothing to wait for. The value is given back.
pub(crate) fn postpone(value: Box<dyn Send>) -> Result<(), Box<dyn Send>> {
    let mut postponed = postponed();
    if captures_under_way() {
        postponed.push(value);
        Ok(())
    } else {
        // The last capture may have emptied the list a moment ago.
        Err(value)
    }
}

/// While this lives, captures neither refuse calls of this thread nor are lost by them. It stays on its thread.
///
/// For calls that do not belong to captured work, such as allocations that a library makes for itself.
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
    /// The mode belongs to a thread.
    on_this_thread: PhantomData<*const ()>,
}

impl<'driver> RelaxedCalls<'driver> {
    /// Relaxes the calls of this thread.
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

/// Relaxes the calls of this thread where a capture goes on that was begun here: else there is nothing to ask the driver for.
#[inline]
pub(crate) fn relaxed(driver: &Driver) -> Result<Option<RelaxedCalls<'_>>> {
    captures_under_way().then(|| RelaxedCalls::begin(driver)).transpose()
}

/// Makes a call that no capture may forbid, such as a wait without which memory would be let go under a copy. It belongs to
/// no captured work, so it neither is refused where this thread captures another stream, nor loses that capture.
pub(crate) fn beside_captures<R>(driver: &Driver, call: impl Fn() -> Result<R>) -> Result<R> {
    let _relaxed = relaxed(driver);
    call().or_else(|error| match error.driver_code() {
        // Another library's capture, which is not known here before it refuses.
        Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) => {
            let _relaxed = RelaxedCalls::begin(driver);
            call()
        }
        _ => Err(error),
    })
}

/// Sets this thread's mode; gives the one before.
fn exchange(driver: &Driver, mut mode: CUstreamCaptureMode) -> Result<CUstreamCaptureMode> {
    let cuda = driver.raw();
    // SAFETY: `mode` is writable, and holds a mode.
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
            self.driver.drop_errors().push("setting the capture mode back", error);
        }
    }
}
