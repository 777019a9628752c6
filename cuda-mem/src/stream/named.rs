//! Streams that a caller names by their handles, for one call only.

use super::Stream;
use super::kept::{is_default, number_outside_of_captures};
use crate::error::call;
use crate::lifetime::captures::captures_under_way;
use crate::{Context, Result};
use core::ptr;
use cuda_sys::{CU_STREAM_PER_THREAD, CUstream, CUstreamCaptureStatus};

/// A handle of a context, and which stream it names now.
pub(crate) struct NamedStream<'context> {
    context: &'context Context,
    raw: CUstream,
    /// The driver's number; `None` for the legacy default stream.
    number: Option<u64>,
}

impl<'context> NamedStream<'context> {
    /// The stream, if it does its work now. `None` if it captures, and wherever only a value of the stream can tell: for
    /// per-thread default streams, while this crate captures, and for drivers before CUDA 12.0, which give no numbers.
    ///
    /// # Safety
    ///
    /// `raw` is a live stream, and no other thread begins or ends a capture of it during the call.
    #[inline]
    pub unsafe fn of_work(context: &'context Context, raw: CUstream) -> Option<Self> {
        if captures_under_way() || raw == CU_STREAM_PER_THREAD || context.check_alive().is_err() {
            return None;
        }
        if is_default(raw) {
            return Some(Self { context, raw, number: None });
        }
        let (cuda, mut status) = (context.driver().raw(), CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE);
        // SAFETY: this function's contract, and `status` is writable.
        unsafe { call!(cuda.cuStreamIsCapturing(raw, &mut status)) }.ok()?;
        if status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
            return None;
        }
        number_outside_of_captures(context, raw).map(|number| Self { context, raw, number: Some(number) })
    }

    /// Whether a value is of this stream.
    #[inline]
    pub fn is(&self, stream: &Stream) -> bool {
        stream.has_handle(self.context, self.raw)
            && (self.number.is_none() || stream.inner.core.driver_number() == self.number)
    }
}

impl Stream {
    /// A value for the rest of a call, of which [`NamedStream::is`] knows whether a later handle names the same stream.
    /// `None` if the stream is of another context. A default stream belongs to every context.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    ///
    /// # Safety
    ///
    /// As for [`borrow_raw`](Self::borrow_raw).
    pub(crate) unsafe fn borrow_named(context: &Context, raw: CUstream) -> Result<Option<Self>> {
        if is_default(raw) {
            return Ok(Some(Self::borrowed(context, raw, None, false)));
        }
        context.check_alive()?;
        let (cuda, mut owner) = (context.driver().raw(), ptr::null_mut());
        // SAFETY: this function's contract, and `owner` is writable.
        unsafe { call!(cuda.cuStreamGetCtx(raw, &mut owner)) }?;
        if owner != context.raw() {
            return Ok(None);
        }
        let stream = Self::borrowed(context, raw, None, false);
        stream.inner.core.learn_number(context, raw);
        Ok(Some(stream))
    }

    /// Whether a handle of a context is this stream's. Default streams of all contexts have the same handles, and a
    /// stream may get the handle of one of another context that has ended.
    #[inline]
    pub(crate) fn has_handle(&self, context: &Context, raw: CUstream) -> bool {
        self.inner.raw == raw && self.inner.context == *context
    }
}
