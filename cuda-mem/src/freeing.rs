//! Frees that wait for the whole context, and allocations that need what such frees have put off.

use crate::beside_captures::relaxed;
use crate::capture_errors::is_for_a_capture;
use crate::context::PATIENCE;
use crate::{Context, Result, Stream};
use cuda_sys::CUresult;
use std::time::Instant;

impl Context {
    /// Frees memory by a call that waits for all work of this context, after the work queued on `home` so far, if
    /// given. While queued work waits for the CPU, puts the free off; its error is then a drop error.
    ///
    /// `free` runs with the context current, again if a capture forbade it, and never if the context ends first. Its
    /// captured values are dropped afterwards, possibly on another thread.
    pub(crate) fn free_by_waiting(
        &self,
        doing: &'static str,
        home: Option<&Stream>,
        mut free: impl FnMut(&cuda_sys::Driver) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let elsewhere = home.filter(|home| home.context() != self);
        if let Some(home) = home
            && home.is_capturing()?
        {
            // Waiting for a stream that captures would end the capture.
            elsewhere.map_or(Ok(()), |home| home.check_not_capturing(doing))?;
            self.put_off(doing, free);
            return Ok(());
        }
        // Deferred frees wait for the work of this context only.
        elsewhere.map_or(Ok(()), Stream::drain)?;
        let Some(wait) = self.try_quiet() else {
            self.put_off(doing, free);
            return Ok(());
        };
        // In relaxed mode, a capture of another stream forbids neither the wait nor the free.
        let relaxed = relaxed(self.driver())?;
        let worked = home.map_or(Ok(()), Stream::drain);
        let freed = worked.and_then(|()| self.bind()).and_then(|_current| free(self.driver().raw()));
        drop((relaxed, wait));
        if freed.as_ref().is_err_and(is_for_a_capture) {
            // Another library's capture, which this crate did not see.
            self.put_off(doing, free);
            return Ok(());
        }
        self.free_deferred();
        freed
    }

    /// Puts off a free, as [`free_by_waiting`](Self::free_by_waiting) does.
    pub(crate) fn put_off(
        &self,
        doing: &'static str,
        free: impl FnMut(&cuda_sys::Driver) -> Result<()> + Send + 'static,
    ) {
        self.state().put_off(doing, self.drop_errors(), free);
    }

    /// Calls `allocate`, for `size` bytes of device memory if given. If memory has run out, does the deferred frees, or
    /// waits for queued ones of device memory, and calls it again.
    pub(crate) fn with_room<T>(&self, size: Option<usize>, allocate: impl Fn() -> Result<T>) -> Result<T> {
        let mut begin = None;
        loop {
            let result = allocate();
            let Err(error) = &result else { return result };
            if error.driver_code() != Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY) {
                return result;
            }
            let waited = begin.get_or_insert_with(Instant::now).elapsed();
            let limit = PATIENCE.saturating_sub(waited);
            if !self.free_deferred() && !size.is_some_and(|size| self.await_free(size, limit)) {
                return result;
            }
        }
    }
}
