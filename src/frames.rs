//! Frames
//!
//! A ring of frames is for data that arrives continuously. The program takes a frame, queues the consumer's work on it,
//! fills it on the CPU while that work waits, and publishes it. Then the work runs. A buffer and a flag cannot do this:
//! a write to the buffer would wait for the queued work, which waits for the flag.
//!
//!     cudamem_frame_ring_next(ring, &options, &frame);
//!     cudamem_buffer_copy_from_frame(device_buffer, 0, frame, 0, size);
//!     cudamem_frame_get_host_pointer(frame, &bytes);
//!     received = recv(socket, bytes, size, 0);
//!     cudamem_frame_publish(frame, NULL);
//!
//! Publish frames in the order in which their work was queued on a stream: work on the first frame blocks the rest.

use crate::call::{
    self, Options, Out, Outcome, bytes, destroy, drop_object, fill, handle_type, invalid, object, out, run,
};
use crate::handles::{
    cudamem_buffer, cudamem_frame, cudamem_frame_ring, cudamem_resource, cudamem_signals, cudamem_stream,
};
use crate::ring::waiting;
use crate::signal::cudamem_wait_options;
use crate::status::cudamem_status;
use core::ffi::c_void;
use core::mem::size_of;
use cuda_mem::Stream;
use cuda_mem::frames::{Frame, FrameRing};
use cuda_mem_dynamic::{RwLock, range, with};

/// The object behind a frame's handle; None once the frame was published.
#[derive(Debug)]
pub struct OpenFrame(RwLock<Option<Frame>>);

handle_type!(cudamem_frame_ring: FrameRing);
handle_type!(cudamem_frame: OpenFrame);

fn published() -> call::Failure {
    invalid("frame", "published by another thread", "it must be open")
}

impl OpenFrame {
    fn new(frame: Frame) -> Self {
        Self(RwLock::new(Some(frame)))
    }

    fn with<R>(&self, work: impl FnOnce(&Frame) -> cuda_mem::Result<R>) -> Outcome<R> {
        let frame = self.0.read();
        Ok(work(frame.as_ref().ok_or_else(published)?)?)
    }

    fn with_mut<R>(&self, work: impl FnOnce(&mut Frame) -> cuda_mem::Result<R>) -> Outcome<R> {
        let mut frame = self.0.write();
        Ok(work(frame.as_mut().ok_or_else(published)?)?)
    }

    pub(crate) fn record_use(&self, stream: &Stream) -> Outcome {
        self.with(|frame| frame.record_use(stream))
    }

    fn publish(&self) -> Outcome<u64> {
        // Other threads find it published already.
        let frame = self.0.write().take().ok_or_else(published)?;
        frame.publish().map_err(|refused| {
            *self.0.write() = Some(refused.value);
            refused.error.into()
        })
    }
}

/// Makes a ring of frames of frame_size bytes each. The resource must be addressable by both CPU and device: pinned,
/// mapped or managed memory, or a pool of it. Initially all bytes are zero. When a frame is taken again, it holds the
/// bytes of its last use.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if frames or frame_size is 0, or if CPU or device cannot address the memory.
/// CUDAMEM_ERROR_UNSUPPORTED if streams of the device cannot wait for words. CUDAMEM_ERROR_OUT_OF_MEMORY.
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

/// Takes the oldest frame. If options is NULL, the call does not wait: frame becomes the null handle if device work
/// still reads the oldest frame. Otherwise the call waits for that work as the options say.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT, at once, if all frames are open: publish or destroy one.
/// CUDAMEM_ERROR_TIMED_OUT if device work still reads the frame. CUDAMEM_ERROR_DRIVER if that work failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_frame_ring_next(
    ring: cudamem_frame_ring,
    options: *const cudamem_wait_options,
    frame: Out<'_, cudamem_frame>,
) -> cudamem_status {
    run("cudamem_frame_ring_next", || {
        let frame = out("frame", frame)?;
        // SAFETY: the header requires NULL or `size` bytes.
        let policy = unsafe { waiting(options) }?;
        let ring = object("ring", ring)?;
        let taken = match policy {
            Some(policy) => Some(ring.next_with(&policy)?),
            None => ring.try_next()?,
        };
        frame.write(match taken {
            Some(taken) => call::new_handle(OpenFrame::new(taken))?,
            None => cudamem_frame { id: 0 },
        });
        Ok(())
    })
}

/// Statistics of a ring of frames.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_frame_ring_statistics {
    /// sizeof(cudamem_frame_ring_statistics), set by the program.
    pub size: usize,
    /// The number of frames taken.
    pub taken: u64,
    /// The number of frames published.
    pub published: u64,
    /// The number of frames destroyed without being published.
    pub abandoned: u64,
    /// The number of frames that are open now.
    pub open: u64,
    /// The number of frames that are out of use, because a graph may read them.
    pub captured: u64,
    /// How often the program asked for a frame while device work still read the oldest one.
    pub overruns: u64,
}

// SAFETY: only numbers of 8 bytes.
unsafe impl Options for cudamem_frame_ring_statistics {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Gets the statistics of a ring of frames. Set statistics->size first.
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
            captured: figures.captured as u64,
            overruns: figures.overruns,
        };
        // SAFETY: the header requires NULL or `size` writable bytes.
        unsafe { fill("statistics", statistics, answer) }
    })
}

/// Destroys a ring of frames, and abandons its open frames as cudamem_frame_destroy does: the program must not write
/// them any more. The memory is freed when the work that reads it is done, and this call may wait for that. The null
/// handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_frame_ring_destroy(ring: cudamem_frame_ring) -> cudamem_status {
    run("cudamem_frame_ring_destroy", || destroy("ring", ring, drop_object))
}

/// What a frame is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_frame_info {
    /// sizeof(cudamem_frame_info), set by the program.
    pub size: usize,
    /// The frame's number: 1 for the first frame taken from its ring.
    pub number: u64,
    /// The frame's address for kernels (a CUdeviceptr). Kernels may only read there, and only after
    /// cudamem_frame_wait_on on their stream. Record them with cudamem_record_use.
    pub device_pointer: u64,
    /// The size of the frame in bytes.
    pub length: usize,
}

// SAFETY: only numbers of 8 bytes.
unsafe impl Options for cudamem_frame_info {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Describes a frame. Set info->size first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_frame_get_info(frame: cudamem_frame, info: *mut cudamem_frame_info) -> cudamem_status {
    run("cudamem_frame_get_info", || {
        let answer = object("frame", frame)?.with(|frame| {
            Ok(cudamem_frame_info {
                size: size_of::<cudamem_frame_info>(),
                number: frame.number(),
                device_pointer: frame.device_pointer(),
                length: frame.size(),
            })
        })?;
        // SAFETY: the header requires NULL or `size` writable bytes.
        unsafe { fill("info", info, answer) }
    })
}

/// Gets the CPU's address of the frame. The program may write there until it publishes or destroys the frame, or
/// destroys the ring. The whole frame then counts as written: publishing flushes everything that was not flushed after
/// this call.
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

/// Stores size bytes in the frame, at offset. The CPU stores them in the way that suits the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_frame_store(
    frame: cudamem_frame,
    offset: usize,
    source: *const c_void,
    size: usize,
) -> cudamem_status {
    run("cudamem_frame_store", || {
        // SAFETY: the header requires `size` valid bytes.
        let source = unsafe { bytes("source", source, size) }?;
        object("frame", frame)?.with_mut(|frame| frame.store(offset, source))
    })
}

/// Flushes CPU writes to a range, so that publishing has less to flush. Other threads see the writes then, too.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_frame_flush(frame: cudamem_frame, offset: usize, size: usize) -> cudamem_status {
    run("cudamem_frame_flush", || {
        let frame = object("frame", frame)?;
        let range = range("Frame::flush", offset, size, frame.with(|frame| Ok(frame.size()))?)?;
        frame.with_mut(|frame| frame.flush(range))
    })
}

/// Makes later work of stream wait until the frame is published. Record kernels that read the frame afterwards with
/// cudamem_record_use.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the stream belongs to another context, captures a graph, or is a
/// per-thread default stream. CUDAMEM_ERROR_CLOSED if the ring was destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_frame_wait_on(frame: cudamem_frame, stream: cudamem_stream) -> cudamem_status {
    run("cudamem_frame_wait_on", || {
        let (frame, stream) = (object("frame", frame)?, object("stream", stream)?);
        frame.with(|frame| frame.wait_on(&stream))
    })
}

/// Copies size bytes of an open frame, from frame_offset on, to the buffer, at offset, in order of the buffer's home
/// stream. The stream waits until the frame is published, and then copies. Later work on the stream waits too.
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
        let range = range("Buffer::copy_from_frame", frame_offset, size, frame.with(|frame| Ok(frame.size()))?)?;
        frame.with(|frame| with!(&mut *memory.write(), buffer => buffer.copy_from_frame(offset, frame, range)))
    })
}

/// Publishes the frame: flushes the remaining writes, and releases the work that waits for the frame. The handle ends.
/// number, which may be NULL, receives the frame's number.
///
/// Errors: CUDAMEM_ERROR_VKGDR if the flush failed, CUDAMEM_ERROR_CLOSED if the ring was destroyed. The frame then
/// stays open.
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

/// Abandons a frame that was not published. Streams that wait for it go on. Each such stream's next wait fails with
/// CUDAMEM_ERROR_CLOSED, because its work has read unfinished bytes. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_frame_destroy(frame: cudamem_frame) -> cudamem_status {
    run("cudamem_frame_destroy", || destroy("frame", frame, drop_object))
}
