//! The CPU's access to a frame.

use super::FrameError;
use super::ring::{FrameSlot, SharedRing};
use super::turns::FrameEnd;
use super::written::Written;
use crate::buffer::Refused;
use crate::cpu::borrowed::Borrowed;
use crate::error::forked;
use crate::error::range::{resolve, span};
use crate::signal::Comparison;
use crate::{Error, Result, Stream, cpu::host_copy};
use core::fmt;
use core::ops::{Range, RangeBounds};
use core::slice;
use cuda_sys::{CU_STREAM_PER_THREAD, CUdeviceptr};
use std::sync::Arc;

/// A frame that the CPU may fill until it is [published](Self::publish). The owner of this value has the frame, on any
/// thread.
///
/// Device work that reads the frame is queued while the frame is open, and runs when it is published:
/// [`Buffer::copy_from_frame`](crate::Buffer::copy_from_frame), or the program's own kernels.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// # let stream = cuda_mem::Stream::new(&context)?;
/// # use cuda_mem::{frames::FrameRing, memory::PinnedMemory, signal::Signals};
/// # let ring = FrameRing::new(&PinnedMemory::new(&context), &Signals::new(&context)?, 2, 3000)?;
/// let mut frame = ring.next()?;
///
/// frame.wait_on(&stream)?; // later work of the stream runs when the frame is published
/// let _kernels_read = frame.device_pointer(); // launch them on the stream
/// frame.record_use(&stream)?; // the frame's memory is reused when they are done
///
/// for packet in 0..3 {
///     frame.write(packet * 1000..packet * 1000 + 1000, |bytes| bytes.fill(7))?; // e.g. socket.recv(bytes)
///     frame.flush(packet * 1000..packet * 1000 + 1000)?; // on its way while the next one arrives
/// }
/// frame.publish()?;
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[must_use = "a frame that is dropped is abandoned: publish it"]
pub struct Frame {
    shared: Arc<SharedRing>,
    /// None once the frame has ended.
    slot: Option<FrameSlot>,
    number: u64,
    /// The value of the word for which device work waits.
    turn: u32,
    written: Written,
}

impl Frame {
    pub(super) fn new(shared: Arc<SharedRing>, slot: FrameSlot, number: u64, turn: u32) -> Self {
        Self { shared, slot: Some(slot), number, turn, written: Written::default() }
    }

    fn slot(&self) -> &FrameSlot {
        match &self.slot {
            Some(slot) => slot,
            None => unreachable!("a frame that has ended was consumed"),
        }
    }

    /// The frame's number in the ring's sequence of frames, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The size of the frame in bytes.
    pub fn size(&self) -> usize {
        self.shared.frame_size
    }

    /// Writes, and may read, a range of the frame. Device memory is slow to read, and is best written from front to
    /// back.
    ///
    /// `fill` has the bytes only during the call. Every thread that the frame is moved to sees what was written.
    ///
    /// # Errors
    ///
    /// The range lies outside of the frame; the ring was dropped.
    pub fn write<R>(&mut self, range: impl RangeBounds<usize>, fill: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        const CALL: &str = "Frame::write";
        let range = resolve(CALL, range, self.size())?;
        self.written.add(range.clone());
        let slot = self.slot();
        let _writing = FrameWriting { _door: slot.door.write(CALL)? };
        let start = self.start().wrapping_add(range.start);
        let _borrowed = Borrowed::to_write(start, range.len());
        // SAFETY: the range lies within the slot's memory, which the ring has initialized. Only this frame reaches it
        // on the CPU, and it is borrowed exclusively. No device work reads it now: work on the slot's former frames is
        // done, and work on this one waits for a word that is not stored while `_writing` lives.
        Ok(fill(unsafe { slice::from_raw_parts_mut(start, range.len()) }))
    }

    /// Stores bytes in the frame from `offset` on, by the CPU stores that suit the memory.
    ///
    /// # Errors
    ///
    /// The bytes do not fit at `offset`; the ring was dropped.
    pub fn store(&mut self, offset: usize, source: &[u8]) -> Result<()> {
        const CALL: &str = "Frame::store";
        let range = span(CALL, offset, source.len(), self.size())?;
        let slot = self.slot();
        if slot.memory.resource().is_none_or(|resource| !resource.is_on_device()) {
            // The CPU caches this memory.
            return self.write(range, |bytes| bytes.copy_from_slice(source));
        }
        {
            let _writing = FrameWriting { _door: slot.door.write(CALL)? };
            let start = self.start().wrapping_add(range.start);
            let _borrowed = Borrowed::to_write(start, range.len());
            // SAFETY: as in `write`; the source does not overlap the frame.
            unsafe { host_copy::store(source.as_ptr(), start, source.len()) };
        }
        self.written.add(range);
        Ok(())
    }

    /// Posts what was written to a range, so that publishing has less to do. This flushes non-coherent memory in whole
    /// atoms, and fences stores to device memory.
    ///
    /// # Errors
    ///
    /// The range lies outside of the frame; the flush failed.
    pub fn flush(&mut self, range: impl RangeBounds<usize>) -> Result<()> {
        let range = resolve("Frame::flush", range, self.size())?;
        self.post(&range)
    }

    fn post(&mut self, range: &Range<usize>) -> Result<()> {
        self.slot().memory.flush_bytes(self.start().wrapping_add(range.start), range.len())?;
        host_copy::store_fence();
        self.written.flushed(range);
        Ok(())
    }

    fn post_left(&mut self) -> Result<()> {
        let left = self.written.left();
        if left.is_empty() { Ok(()) } else { self.post(&left) }
    }

    /// Gives the frame to the device: flushes the rest, and releases the work that waits for it. Returns the frame's
    /// number.
    ///
    /// # Errors
    ///
    /// The flush failed; the ring was dropped. The frame is returned, and stays open.
    pub fn publish(mut self) -> Result<u64, Box<Refused<Self>>> {
        if let Err(error) = self.post_left().and_then(|()| self.slot().door.publish("Frame::publish")) {
            return Err(Refused::new(self, error));
        }
        let number = self.number;
        self.end(FrameEnd::Published);
        Ok(number)
    }

    fn end(&mut self, end: FrameEnd) {
        if let Some(slot) = self.slot.take() {
            self.shared.take_back(slot, end);
        }
    }

    /// Makes work queued on `stream` from now on wait until the frame is published. Call
    /// [`record_use`](Self::record_use) after queueing work that reads the frame.
    ///
    /// # Errors
    ///
    /// The stream is of another context, captures a graph, or is a per-thread default stream:
    /// [`Error::InvalidArgument`]. The ring was dropped.
    #[doc(alias = "cuStreamWaitValue32")]
    pub fn wait_on(&self, stream: &Stream) -> Result<()> {
        const CALL: &str = "Frame::wait_on";
        check_stream(CALL, stream)?;
        let door = &self.slot().door;
        let is_new = door.enter(CALL, stream)?;
        door.word.wait_on(stream, Comparison::AtLeast, self.turn).inspect_err(|_| {
            if is_new {
                door.leave(stream);
            }
        })
    }

    /// Records that work queued on `stream` so far reads the frame: kernels launched after [`wait_on`](Self::wait_on),
    /// with [`device_pointer`](Self::device_pointer). The frame's memory is reused when that work is done.
    ///
    /// # Errors
    ///
    /// The stream is a per-thread default stream: [`Error::InvalidArgument`]. The stream captures a graph:
    /// [`FrameError::Captured`].
    pub fn record_use(&self, stream: &Stream) -> Result<()> {
        const CALL: &str = "Frame::record_use";
        check_stream(CALL, stream)?;
        self.note_read(CALL, stream)
    }

    /// Records that the work queued on the stream so far reads the frame.
    pub(super) fn note_read(&self, call: &'static str, stream: &Stream) -> Result<()> {
        // Before the lock: the submission may wait, and the end of a mark runs the program's code.
        let running = stream.running("FrameRing");
        let mut reads = self.slot().reads.lock();
        reads.note(stream, running);
        if reads.captured() {
            return Err(FrameError::Captured { call, frame: self.number }.into());
        }
        Ok(())
    }

    /// Device address, for kernels. They may only read there, and only after [`wait_on`](Self::wait_on) on their
    /// stream. Valid until the frame is published, and for work that [`record_use`](Self::record_use) has recorded.
    pub fn device_pointer(&self) -> CUdeviceptr {
        self.slot().memory.device_pointer()
    }

    /// CPU address, for other libraries and devices that fill the frame. The caller must end accesses through it before
    /// the frame is published or the ring dropped. The whole frame then counts as written: publishing it flushes what
    /// was not [flushed](Self::flush) after this call.
    pub fn host_pointer(&mut self) -> *mut u8 {
        self.written.add(0..self.size());
        self.start()
    }

    /// Whether the frame lies in host memory and not in a device's.
    pub(super) fn is_in_host_memory(&self) -> bool {
        self.slot().memory.device_ordinal().is_none()
    }

    fn start(&self) -> *mut u8 {
        self.slot().memory.host_pointer()
    }
}

/// A write by the CPU, until this is dropped. The drop fences the stores: write-combining memory keeps no order by
/// itself, and another thread that gets the frame must see them.
struct FrameWriting<'frame> {
    _door: super::ring::SlotWriting<'frame>,
}

impl Drop for FrameWriting<'_> {
    fn drop(&mut self) {
        host_copy::store_fence();
    }
}

/// A per-thread default stream differs between threads, but a frame may move to another thread.
fn check_stream(call: &'static str, stream: &Stream) -> Result<()> {
    if stream.raw() != CU_STREAM_PER_THREAD {
        return Ok(());
    }
    let rule = "a frame may move to another thread, where that is another stream; make a stream with Stream::new";
    Err(Error::invalid(call, "stream", "the per-thread default stream", rule))
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("number", &self.number).field("size", &self.size()).finish_non_exhaustive()
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if self.slot.is_none() || forked() {
            return;
        }
        // The waiting streams get an error, but their work still reads the bytes that were written, not older ones.
        if let Err(error) = self.post_left()
            && !error.is_teardown()
        {
            self.shared.context().drop_errors().push("flushing a frame that was dropped", error);
        }
        self.slot().door.abandon();
        self.end(FrameEnd::Abandoned);
    }
}
