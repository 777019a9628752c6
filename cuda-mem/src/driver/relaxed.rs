//! Driver calls that must work while streams capture.

use crate::error::call;
use crate::{Driver, Result};
use core::fmt;
use core::marker::PhantomData;
use cuda_sys::CUstreamCaptureMode;

/// While this lives, captures refuse no driver calls of this thread, and these calls invalidate no captures. The value
/// stays on its thread.
///
/// For calls that are no part of the captured work, such as a library's own allocations.
///
/// ```
/// use cuda_mem::graph::{CaptureMode, RelaxedCalls};
/// # use cuda_mem::{Driver, MappedMemory, Stream};
/// let driver = Driver::software()?; // softgpu; a GPU: Driver::load()
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
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuThreadExchangeStreamCaptureMode")]
    pub fn begin(driver: &'driver Driver) -> Result<Self> {
        let before = exchange(driver, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
        Ok(Self { driver, before, on_this_thread: PhantomData })
    }
}

/// Makes a call that no capture may forbid, such as a wait that keeps memory from being freed under a copy. The call is
/// no captured work, so a capture by this thread neither refuses it nor is invalidated. Always relaxed: any thread, of any
/// library, may begin a capture just before the call.
pub(crate) fn beside_captures<R>(driver: &Driver, call: impl FnOnce() -> Result<R>) -> Result<R> {
    // If the driver refuses the mode, the call itself tells what is wrong.
    let _relaxed = RelaxedCalls::begin(driver);
    call()
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
