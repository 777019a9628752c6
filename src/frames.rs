//! Frames
//!
//! A ring of frames is for data that arrives all the time. The program takes a frame, queues the consumer's work on it, fills it on
//! the CPU while that work waits, and publishes it: then the work runs. What is not possible with a buffer and a flag: a write
//! to a buffer waits for the work on the buffer, which waits for the flag.
//!
//!     cudamem_frame_ring_next(ring, NULL, &frame);
//!     cudamem_buffer_copy_from_frame(device_buffer, 0, frame, 0, size);
//!     cudamem_frame_get_host_pointer(frame, &bytes);
//!     received = recv(socket, bytes, size, 0);
//!     cudamem_frame_publish(frame, NULL);
//!
//! Frames are published in the order in which work on them was queued on a stream: work on the first holds back the rest.

use crate::call::{
    self, Options, Out, Outcome, bytes, destroy, drop_object, fill, handle_type, invalid, object, out, range, run,
};
use crate::handle::Kind;
use crate::handles::{
    cudamem_buffer, cudamem_frame, cudamem_frame_ring, cudamem_resource, cudamem_signals, cudamem_stream,
};
use crate::memory::with;
use crate::signal::cudamem_wait_options;
use crate::status::cudamem_status;
use core::ffi::c_void;
use core::mem::size_of;
use cuda_mem::frames::{Frame, FrameRing};
use std::sync::{PoisonError, RwLock};

/// A frame; none once it was published.
#[derive(Debug)]
pub struct OpenFrame(RwLock<Option<Frame>>);

handle_type!(cudamem_frame_ring: FrameRing, Kind::FrameRing);
handle_type!(cudamem_frame: OpenFrame, Kind::Frame);

fn published() -> call::Failure {
    invalid("frame", "published by another thread", "a frame is open until it is published")
}

impl OpenFrame {
    fn new(frame: Frame) -> Self {
        Self(RwLock::new(Some(frame)))
    }

    fn with<R>(&self, work: impl FnOnce(&Frame) -> cuda_mem::Result<R>) -> Outcome<R> {
        let frame = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Ok(work(frame.as_ref().ok_or_else(published)?)?)
    }

    fn with_mut<R>(&self, work: impl FnOnce(&mut Frame) -> cuda_mem::Result<R>) -> Outcome<R> {
        let mut frame = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Ok(work(frame.as_mut().ok_or_else(published)?)?)
    }

    fn publish(&self) -> Outcome<u64> {
        let mut place = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let frame = place.take().ok_or_else(published)?;
        frame.publish().map_err(|refused| {
            *place = Some(refused.value);
            refused.error.into()
        })
    }
}

/// Makes a ring of frames of frame_size bytes each, in memory of a resource that both CPU and device address: pinned, mapped or
/// managed memory, or a pool of it. All bytes are zero; a frame that is taken again has the bytes of its former frame.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if frames or frame_size is 0, or if not both address the memory;
/// CUDAMEM_ERROR_UNSUPPORTED if streams of the device cannot wait for words; CUDAMEM_ERROR_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_frame_ring_create(
    resource: cudamem_resource,
    signals: cudamem_signals,
    frames: usize,
    frame_size: usize,
    ring: Out<'_, cudamem_frame_ring>,
) -> cudamem_status {
    run("cudamem_frame_ring_create", || {
        let ring = out("ring", ring)?;
        let (resource, signals) = (object("resource", resource)?, object("signals", signals)?);
        ring.write(call::new_handle(FrameRing::new(&resource.share(), &signals, frames, frame_size)?)?);
        Ok(())
    })
}

/// Takes the oldest frame, and waits until all device work that reads it is done. options may be NULL: no time limit.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT, at once, if all frames are open: publish or destroy one; CUDAMEM_ERROR_TIMED_OUT if
/// device work still reads the frame; CUDAMEM_ERROR_DRIVER if that work failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_frame_ring_next(
    ring: cudamem_frame_ring,
    options: *const cudamem_wait_options,
    frame: Out<'_, cudamem_frame>,
) -> cudamem_status {
    run("cudamem_frame_ring_next", || {
        let frame = out("frame", frame)?;
        // SAFETY: the header's rule for options.
        let policy = unsafe { cudamem_wait_options::policy(options) }?;
        let ring = object("ring", ring)?;
        let taken = if options.is_null() { ring.next()? } else { ring.next_with(&policy)? };
        frame.write(call::new_handle(OpenFrame::new(taken))?);
        Ok(())
    })
}

/// Takes the oldest frame if no device work reads it; else frame becomes the null handle.
///
/// Errors: as cudamem_frame_ring_next, without CUDAMEM_ERROR_TIMED_OUT.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_frame_ring_try_next(
    ring: cudamem_frame_ring,
    frame: Out<'_, cudamem_frame>,
) -> cudamem_status {
    run("cudamem_frame_ring_try_next", || {
        let frame = out("frame", frame)?;
        frame.write(match object("ring", ring)?.try_next()? {
            Some(taken) => call::new_handle(OpenFrame::new(taken))?,
            None => cudamem_frame { id: 0 },
        });
        Ok(())
    })
}

/// What a ring of frames has done so far.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_frame_ring_statistics {
    /// sizeof(cudamem_frame_ring_statistics), set by the program.
    pub size: usize,
    /// How many frames were taken.
    pub taken: u64,
    /// How many frames were published.
    pub published: u64,
    /// How many frames were destroyed without being published.
    pub abandoned: u64,
    /// How many frames are open now.
    pub open: u64,
    /// How many frames are not used any more, because a graph may read them.
    pub lost: u64,
    /// How often a frame was asked for while device work still read the oldest one.
    pub overruns: u64,
}

// SAFETY: numbers of 8 bytes.
unsafe impl Options for cudamem_frame_ring_statistics {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Tells what a ring of frames has done. statistics->size is set by the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_frame_ring_get_statistics(
    ring: cudamem_frame_ring,
    statistics: *mut cudamem_frame_ring_statistics,
) -> cudamem_status {
    run("cudamem_frame_ring_get_statistics", || {
        let figures = object("ring", ring)?.statistics();
        let answer = cudamem_frame_ring_statistics {
            size: size_of::<cudamem_frame_ring_statistics>(),
            taken: figures.taken,
            published: figures.published,
            abandoned: figures.abandoned,
            open: figures.open as u64,
            lost: figures.lost as u64,
            overruns: figures.overruns,
        };
        // SAFETY: the header's rule for results.
        unsafe { fill("statistics", statistics, answer) }
    })
}

/// Destroys a ring of frames. Frames that are open are given up, as cudamem_frame_destroy does it: nobody may write them any
/// more. The memory is freed when the work that reads it is done, for which this may wait. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_frame_ring_destroy(ring: cudamem_frame_ring) -> cudamem_status {
    run("cudamem_frame_ring_destroy", || destroy("ring", ring, drop_object))
}

/// Gives the frame's number: 1 for the first that was taken from its ring.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_frame_get_number(frame: cudamem_frame, number: Out<'_, u64>) -> cudamem_status {
    run("cudamem_frame_get_number", || {
        let number = out("number", number)?;
        number.write(object("frame", frame)?.with(|frame| Ok(frame.number()))?);
        Ok(())
    })
}

/// Gives the CPU's address of the frame. The program may write there until the frame is published or destroyed, or its ring is.
/// All of the frame then counts as written: what is not flushed after this call is flushed when the frame is published.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_frame_get_host_pointer(
    frame: cudamem_frame,
    pointer: Out<'_, *mut c_void>,
) -> cudamem_status {
    run("cudamem_frame_get_host_pointer", || {
        let pointer = out("pointer", pointer)?;
        pointer.write(object("frame", frame)?.with_mut(|frame| Ok(frame.host_pointer().cast()))?);
        Ok(())
    })
}

/// Copies size bytes to the frame from offset on, by the CPU, in the way that suits the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_frame_write(
    frame: cudamem_frame,
    offset: usize,
    source: *const c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_frame_write", || {
        // SAFETY: the header's rule for bytes.
        let source = unsafe { bytes("source", source, size) }?;
        object("frame", frame)?.with_mut(|frame| frame.copy_from_slice(offset, source))
    })
}

/// Posts what the CPU wrote to a range, so that less is left when the frame is published. Other threads see it then, too.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_frame_flush(frame: cudamem_frame, offset: usize, size: usize) -> cudamem_status {
    run("cudamem_frame_flush", || {
        let frame = object("frame", frame)?;
        let range = range(offset, size, frame.with(|frame| Ok(frame.size()))?)?;
        frame.with_mut(|frame| frame.flush(range))
    })
}

/// Lets work given to stream from now on wait until the frame is published. Tell the frame of kernels that read it afterwards:
/// cudamem_frame_record_use.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the stream is another context's, captures a graph, or is a per-thread default stream;
/// CUDAMEM_ERROR_CLOSED if the ring was destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_frame_wait_on(frame: cudamem_frame, stream: cudamem_stream) -> cudamem_status {
    run("cudamem_frame_wait_on", || {
        let (frame, stream) = (object("frame", frame)?, object("stream", stream)?);
        frame.with(|frame| frame.wait_on(&stream))
    })
}

/// Gives the frame's address for kernels (a CUdeviceptr), which only read there, and only after cudamem_frame_wait_on on their
/// stream.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_frame_get_device_pointer(frame: cudamem_frame, pointer: Out<'_, u64>) -> cudamem_status {
    run("cudamem_frame_get_device_pointer", || {
        let pointer = out("pointer", pointer)?;
        pointer.write(object("frame", frame)?.with(|frame| Ok(frame.device_pointer()))?);
        Ok(())
    })
}

/// Tells the frame of work given to stream so far that reads it: kernels that were launched after cudamem_frame_wait_on. The
/// frame is taken again when that work is done.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the stream captures a graph, or is a per-thread default stream.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_frame_record_use(frame: cudamem_frame, stream: cudamem_stream) -> cudamem_status {
    run("cudamem_frame_record_use", || {
        let (frame, stream) = (object("frame", frame)?, object("stream", stream)?);
        frame.with(|frame| frame.record_use(&stream))
    })
}

/// Copies size bytes of an open frame, from frame_offset on, to the buffer from offset on, in order of the buffer's home stream:
/// the stream waits until the frame is published, and then copies. All that it is given from now on waits too.
///
/// Errors: as cudamem_frame_wait_on; CUDAMEM_ERROR_OUT_OF_RANGE.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_buffer_copy_from_frame(
    buffer: cudamem_buffer,
    offset: usize,
    frame: cudamem_frame,
    frame_offset: usize,
    size: usize,
) -> cudamem_status {
    run("cudamem_buffer_copy_from_frame", || {
        let (memory, frame) = (object("buffer", buffer)?, object("frame", frame)?);
        let range = range(frame_offset, size, frame.with(|frame| Ok(frame.size()))?)?;
        frame.with(|frame| with!(&mut *memory.write(), buffer => buffer.copy_from_frame(offset, frame, range)))
    })
}

/// Gives the frame to the device: flushes what is left, and lets the work run that waits for it. The handle ends. number, which
/// may be NULL, gets the frame's number.
///
/// Errors: CUDAMEM_ERROR_VKGDR if the flush failed, CUDAMEM_ERROR_CLOSED if the ring was destroyed; the frame stays open.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_frame_publish(frame: cudamem_frame, number: Out<'_, u64>) -> cudamem_status {
    run("cudamem_frame_publish", || {
        let published = object("frame", frame)?.publish()?;
        if let Some(number) = number {
            number.write(published);
        }
        destroy("frame", frame, drop_object)
    })
}

/// Abandons a frame that was not published: what waits for it goes on, and each such stream's next wait fails with
/// CUDAMEM_ERROR_CLOSED, because its work has read bytes that nobody had finished. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_frame_destroy(frame: cudamem_frame) -> cudamem_status {
    run("cudamem_frame_destroy", || destroy("frame", frame, drop_object))
}
