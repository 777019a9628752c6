//! Streams
//!
//! Work on one stream runs in order.

use crate::call::{self, Options, Out, destroy, drop_object, handle_type, invalid, object, options, out, run};
use crate::callbacks::Callback;
use crate::handles::cudamem_context;
use crate::handles::cudamem_event;
use crate::handles::cudamem_stream;
use crate::status::cudamem_status;
use core::ffi::c_void;
use core::mem::size_of;
use cuda_mem::{Stream, StreamOptions};

handle_type!(cudamem_stream: Stream);

/// A flag of cudamem_stream_options: the stream synchronizes with the legacy default stream, in both directions.
pub const CUDAMEM_STREAM_BLOCKING: u32 = 1;

/// How a stream is made. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_stream_options {
    /// sizeof(cudamem_stream_options).
    pub size: usize,
    /// CUDAMEM_STREAM_... combined by |.
    pub flags: u32,
    /// The priority; smaller is more urgent. A value outside of the device's range is clamped to the range.
    pub priority: i32,
}

// SAFETY: numbers of 8 + 4 + 4 bytes.
unsafe impl Options for cudamem_stream_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Makes a stream. options may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_stream_create(
    context: cudamem_context,
    options: *const cudamem_stream_options,
    stream: Out<'_, cudamem_stream>,
) -> cudamem_status {
    run("cudamem_stream_create", || {
        let stream = out("stream", stream)?;
        // SAFETY: the header requires NULL or `size` bytes.
        let chosen = unsafe { self::options("options", options) }?;
        call::check_flags("options.flags", chosen.flags, CUDAMEM_STREAM_BLOCKING)?;
        let mut settings = StreamOptions::default();
        settings.blocking = chosen.flags & CUDAMEM_STREAM_BLOCKING != 0;
        settings.priority = chosen.priority;
        let made = Stream::with_options(&*object("context", context)?, settings)?;
        stream.write(call::new_handle(made)?);
        Ok(())
    })
}

/// Uses the program's own stream: raw is a CUstream or cudaStream_t of the context, or NULL for its legacy default
/// stream. The stream must live while the handle lives, and while memory and rings of staging use it. A pool uses it only
/// while the handle lives. The library does not destroy it. If the program captures the stream, its graph records the calls
/// of this library on it: what they use must live at each launch. No other thread may begin or end a capture of the stream
/// during such a call. The per-thread default stream (cudaStreamPerThread) is refused, because it names another stream on
/// each thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_stream_borrow(
    context: cudamem_context,
    raw: *mut c_void,
    stream: Out<'_, cudamem_stream>,
) -> cudamem_status {
    run("cudamem_stream_borrow", || {
        const LEGACY: usize = 1;
        const PER_THREAD: usize = 2;
        let stream = out("stream", stream)?;
        let context = object("context", context)?;
        let borrowed = match raw.addr() {
            0 | LEGACY => Stream::legacy_default(&context),
            PER_THREAD => {
                return Err(invalid(
                    "raw",
                    "the per-thread default stream",
                    "it must be the same stream on every thread",
                ));
            }
            // SAFETY: the header requires a live stream.
            _ => unsafe { Stream::borrow_raw(&context, raw.cast()) },
        };
        stream.write(call::new_handle(borrowed)?);
        Ok(())
    })
}

/// Waits until all work queued on the stream so far is done.
///
/// Errors: CUDAMEM_ERROR_DRIVER if work failed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_stream_synchronize(stream: cudamem_stream) -> cudamem_status {
    run("cudamem_stream_synchronize", || Ok(object("stream", stream)?.synchronize()?))
}

/// Makes later work of the stream wait for an event.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_stream_wait_event(stream: cudamem_stream, event: cudamem_event) -> cudamem_status {
    run("cudamem_stream_wait_event", || Ok(object("stream", stream)?.wait(&*object("event", event)?)?))
}

/// Makes later work of the stream wait for all work queued on other so far.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_stream_join(stream: cudamem_stream, other: cudamem_stream) -> cudamem_status {
    run("cudamem_stream_join", || Ok(object("stream", stream)?.join(&*object("other", other)?)?))
}

/// A host function that a stream runs. user is the program's pointer.
pub type cudamem_host_function = Option<extern "C" fn(user: *mut c_void)>;

/// Queues a host function. A thread of the driver runs it when all earlier work of the stream is done, and later work
/// waits for it. The function must call neither CUDA nor this library, and must not unwind.
///
/// Errors: CUDAMEM_ERROR_DRIVER if the stream captures a graph. The function is then not called.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_stream_launch_host_function(
    stream: cudamem_stream,
    function: cudamem_host_function,
    user: *mut c_void,
) -> cudamem_status {
    run("cudamem_stream_launch_host_function", || {
        let Some(function) = function else {
            return Err(invalid("function", "NULL", "it must be the function to call"));
        };
        let callback = Callback { function, user };
        Ok(object("stream", stream)?.launch_host_function(move || callback.call(|function, user| function(user)))?)
    })
}

/// Destroys the handle. The stream itself ends when its work is done and it is no memory's home stream. The null handle
/// is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_stream_destroy(stream: cudamem_stream) -> cudamem_status {
    run("cudamem_stream_destroy", || destroy("stream", stream, drop_object))
}
