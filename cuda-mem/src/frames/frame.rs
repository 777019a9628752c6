//! The CPU's side of a frame.

use super::FrameError;
use super::ring::{Shared, Slot};
use super::turns::End;
use super::written::Written;
use crate::buffer::Refused;
use crate::range::{resolve, span};
use crate::signal::Comparison;
use crate::{Error, Result, Stream, host_copy};
use core::fmt;
use core::ops::{Range, RangeBounds};
use core::slice;
use cuda_sys::{CU_STREAM_PER_THREAD, CUdeviceptr};
use std::sync::{Arc, PoisonError};

/// A frame that is the CPU's, until it is [published](Self::publish). It belongs to whoever has the value, on any thread.
///
/// Device work that reads the frame is queued while the frame is open, and runs when it is published:
/// [`Buffer::copy_from_frame`](crate::Buffer::copy_from_frame), or a kernel of the program's own.
///
/// ```
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// # let stream = cuda_mem::Stream::new(&context)?;
/// # use cuda_mem::{frames::FrameRing, memory::PinnedMemory, signal::Signals};
/// # let ring = FrameRing::new(&PinnedMemory::new(&context), &Signals::new(&context)?, 2, 3000)?;
/// let mut frame = ring.next()?;
///
/// frame.wait_on(&stream)?; // what the stream is given from here on runs when the frame is published
/// let _kernels_read = frame.device_pointer(); // launch them on the stream
/// frame.record_use(&stream)?; // the frame's memory is taken again when they are done
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
    shared: Arc<Shared>,
    /// None once the frame has ended.
    slot: Option<Slot>,
    number: u64,
    /// The value of the word for which the device's work waits.
    turn: u32,
    written: Written,
}

impl Frame {
    pub(super) fn new(shared: Arc<Shared>, slot: Slot, number: u64, turn: u32) -> Self {
        Self { shared, slot: Some(slot), number, turn, written: Written::default() }
    }

    fn slot(&self) -> &Slot {
        match &self.slot {
            Some(slot) => slot,
            None => unreachable!("a frame that has ended was consumed"),
        }
    }

    /// How many frames were taken from the ring before this one, and this one: 1 for the first.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The size in bytes.
    pub fn size(&self) -> usize {
        self.shared.frame_size
    }

    /// Writes (and reads) a range of the frame. Memory of the device is slow to read; it is best written from front to back.
    ///
    /// The bytes are lent for the call alone: what was written is then seen by every thread that the frame is moved to.
    ///
    /// # Errors
    ///
    /// The range does not lie within the frame; the ring was dropped.
    pub fn write<R>(&mut self, range: impl RangeBounds<usize>, fill: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        const CALL: &str = "Frame::write";
        let range = resolve(CALL, range, self.size())?;
        self.written.add(range.clone());
        let slot = self.slot();
        let _writing = Writing { _door: slot.door.write(CALL)? };
        // SAFETY: the range lies within the slot's memory, whose bytes have a value since the ring was made. This frame alone
        // reaches it on the CPU, and is borrowed exclusively. No device work reads it now: work on former frames of the slot
        // is done, and work on this one waits for a word that is not stored while `_writing` lives.
        Ok(fill(unsafe { slice::from_raw_parts_mut(self.start().wrapping_add(range.start), range.len()) }))
    }

    /// Copies bytes to the frame from `offset` on, in the way that suits the memory.
    ///
    /// # Errors
    ///
    /// They do not fit at `offset`; the ring was dropped.
    pub fn copy_from_slice(&mut self, offset: usize, source: &[u8]) -> Result<()> {
        const CALL: &str = "Frame::copy_from_slice";
        let range = span(CALL, offset, source.len(), self.size())?;
        let slot = self.slot();
        if slot.memory.resource().is_none_or(|resource| !resource.is_on_device()) {
            // The CPU's caches hold it.
            return self.write(range, |bytes| bytes.copy_from_slice(source));
        }
        {
            let _writing = Writing { _door: slot.door.write(CALL)? };
            let start = self.start().wrapping_add(range.start);
            // SAFETY: as in `write`; the source is another's.
            unsafe { host_copy::store(source.as_ptr(), start, source.len()) };
        }
        self.written.add(range);
        Ok(())
    }

    /// Posts what was written to a range, so that less is left when the frame is published: memory that is not coherent is
    /// flushed in whole atoms, and stores to the device's memory are sent on their way.
    ///
    /// # Errors
    ///
    /// The range does not lie within the frame; the flush failed.
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

    /// Gives the frame to the device: flushes what is left, and lets the work run that waits for it. Gives the frame's number.
    ///
    /// # Errors
    ///
    /// The flush failed; the ring was dropped. The frame is given back, and still open.
    pub fn publish(mut self) -> Result<u64, Box<Refused<Self>>> {
        if let Err(error) = self.post_left().and_then(|()| self.slot().door.publish("Frame::publish")) {
            return Err(Refused::new(self, error));
        }
        let number = self.number;
        self.end(End::Published);
        Ok(number)
    }

    fn end(&mut self, end: End) {
        if let Some(slot) = self.slot.take() {
            self.shared.take_back(slot, end);
        }
    }

    /// Lets work given to `stream` from now on wait until the frame is published. Tell the frame of such work afterwards:
    /// [`record_use`](Self::record_use).
    ///
    /// # Errors
    ///
    /// The stream is another context's, captures a graph, or is a per-thread default stream: [`Error::InvalidArgument`]. The
    /// ring was dropped; the driver refuses.
    #[doc(alias = "cuStreamWaitValue32")]
    pub fn wait_on(&self, stream: &Stream) -> Result<()> {
        const CALL: &str = "Frame::wait_on";
        check_stream(CALL, stream)?;
        let door = &self.slot().door;
        door.enter(CALL, stream)?;
        door.word.wait_on(stream, Comparison::AtLeast, self.turn).inspect_err(|_| door.leave(stream))
    }

    /// Tells the frame of work given to `stream` so far that reads it: kernels that were launched after
    /// [`wait_on`](Self::wait_on) with [`device_pointer`](Self::device_pointer). The frame's memory is taken again when that
    /// work is done.
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

    /// Remembers what the stream was given so far.
    pub(super) fn note_read(&self, call: &'static str, stream: &Stream) -> Result<()> {
        let mut reads = self.slot().reads.lock().unwrap_or_else(PoisonError::into_inner);
        reads.note(stream);
        if reads.captured() {
            return Err(FrameError::Captured { call, frame: self.number }.into());
        }
        Ok(())
    }

    /// The address for kernels, which only read there, and only after [`wait_on`](Self::wait_on) on their stream. It is valid
    /// until the frame is published, and for work that [`record_use`](Self::record_use) told of.
    pub fn device_pointer(&self) -> CUdeviceptr {
        self.slot().memory.device_pointer()
    }

    /// The CPU's address, for other libraries and devices that fill the frame. Accesses through it are the caller's care, and end
    /// before the frame is published or the ring dropped. All of the frame then counts as written: what is not
    /// [flushed](Self::flush) after this call is flushed when the frame is published.
    pub fn host_pointer(&mut self) -> *mut u8 {
        self.written.add(0..self.size());
        self.start()
    }

    /// Whether the frame lies in memory of the host, in place of a device's.
    pub(super) fn is_in_host_memory(&self) -> bool {
        self.slot().memory.device_ordinal().is_none()
    }

    fn start(&self) -> *mut u8 {
        self.slot().memory.host_pointer()
    }
}

/// The CPU writes until this is dropped. What it wrote is then on its way: another thread that gets the frame sees it, also in
/// write-combining memory, which keeps no order of its own.
struct Writing<'frame> {
    _door: super::ring::Writing<'frame>,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        host_copy::store_fence();
    }
}

/// A per-thread default stream is another one on another thread.
fn check_stream(call: &'static str, stream: &Stream) -> Result<()> {
    if stream.raw() != CU_STREAM_PER_THREAD {
        return Ok(());
    }
    Err(Error::InvalidArgument {
        call,
        argument: "stream",
        value: "the per-thread default stream".into(),
        rule: "a frame's consumers are known on every thread; make a stream with Stream::new",
    })
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("number", &self.number).field("size", &self.size()).finish_non_exhaustive()
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if self.slot.is_none() {
            return;
        }
        // What reads the frame now is told that it was abandoned; still it reads bytes that were written, not older ones.
        if let Err(error) = self.post_left()
            && !error.is_teardown()
        {
            self.shared.context().drop_errors().push("flushing a frame that was dropped", error);
        }
        self.slot().door.abandon();
        self.end(End::Abandoned);
    }
}
