//! Copies out of frames, in stream order.

use super::Frame;
use crate::buffer::Access;
use crate::error::call;
use crate::error::range::resolve;
use crate::memory::resource::Kind;
use crate::{Buffer, Error, Result};
use bytemuck::AnyBitPattern;
use core::ops::RangeBounds;

impl<T: AnyBitPattern, K: Kind, A: Access> Buffer<T, K, A> {
    /// Copies a byte range of an open frame to the elements from `offset` on, in the order of this buffer's home
    /// stream. That stream waits until the frame is published, so all its later work waits too.
    ///
    /// # Errors
    ///
    /// The range lies outside of the frame, is no whole number of elements, or does not fit at `offset`. The home
    /// stream is of another context than the ring, or captures a graph. Both frame and buffer lie in host memory. The
    /// ring was dropped.
    #[doc(alias("cuMemcpyHtoD", "cuMemcpyHtoDAsync"))]
    pub fn copy_from_frame(&mut self, offset: usize, frame: &Frame, range: impl RangeBounds<usize>) -> Result<()> {
        const CALL: &str = "Buffer::copy_from_frame";
        let from = resolve(CALL, range, frame.size())?;
        if !from.len().is_multiple_of(size_of::<T>()) {
            let (what, value) = ("the range's length", from.len());
            return Err(Error::Misaligned { call: CALL, what, value, multiple: size_of::<T>() });
        }
        let to = self.span(CALL, offset, from.len() / size_of::<T>())?;
        self.check_writable(CALL)?;
        if to.is_empty() {
            return Ok(());
        }
        if self.device_ordinal().is_none() && frame.is_in_host_memory() {
            return Err(Error::invalid(
                CALL,
                "the buffer",
                "in host memory, as the frame is",
                "a copy from host to host memory would block in the driver until the frame is published: copy to \
                       device memory, or by the CPU",
            ));
        }
        // Before the stream waits for the frame, because this may wait for the stream.
        self.prepare()?;
        // No capture may begin between the wait and the copy.
        let _submission = self.stream().running(CALL)?;
        frame.wait_on(self.stream())?;
        let (to, source) = (self.address(to.start), frame.device_pointer() + from.start as u64);
        let copied = self.in_order(|home| {
            let (cuda, _current) = (home.context().driver().raw(), home.context().bind()?);
            // SAFETY: both ranges lie within their memory. The buffer is freed after the copy, in stream order. The
            // frame's memory is neither written nor freed before the event that `note_read` records.
            unsafe { call!(cuda.cuMemcpyAsync(to, source, from.len(), home.raw())) }
        });
        // Even after an error: the work that was begun reads the frame.
        copied.and(frame.note_read(CALL, self.stream()))
    }
}
