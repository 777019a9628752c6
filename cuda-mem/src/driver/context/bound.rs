//! Which context is current on a thread.

use crate::error::call;
use crate::{Driver, Result};
use core::fmt;
use core::marker::PhantomData;
use core::ptr;
use cuda_sys::CUcontext;

/// Keeps a context current on this thread. The guard stays on its thread.
#[must_use = "the context is current only while the guard lives"]
pub struct Bound<'context> {
    driver: &'context Driver,
    pushed: bool,
    /// Each thread has its own current context.
    on_this_thread: PhantomData<*const ()>,
}

impl<'context> Bound<'context> {
    /// The guard for a context that is already current; `None` if it is not.
    pub(super) fn keep_current(driver: &'context Driver, raw: CUcontext) -> Result<Option<Self>> {
        let (cuda, mut current) = (driver.raw(), ptr::null_mut());
        // SAFETY: `current` is writable.
        unsafe { call!(cuda.cuCtxGetCurrent(&mut current)) }?;
        Ok((current == raw).then_some(Self { driver, pushed: false, on_this_thread: PhantomData }))
    }

    /// Pushes the context, which must be alive.
    pub(super) fn push(driver: &'context Driver, raw: CUcontext) -> Result<Self> {
        let cuda = driver.raw();
        // SAFETY: the caller has checked that the context is alive.
        unsafe { call!(cuda.cuCtxPushCurrent_v2(raw)) }?;
        Ok(Self { driver, pushed: true, on_this_thread: PhantomData })
    }
}

impl fmt::Debug for Bound<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("pushed", &self.pushed).finish()
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        if !self.pushed {
            return;
        }
        let (cuda, mut popped) = (self.driver.raw(), ptr::null_mut());
        // SAFETY: `popped` is writable; the context that this guard pushed is on top.
        if let Err(error) = unsafe { call!(cuda.cuCtxPopCurrent_v2(&mut popped)) }
            && !error.is_teardown()
        {
            self.driver.drop_errors().push("restoring the previous current context", error);
        }
    }
}
