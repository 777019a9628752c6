//! Events
//!
//! An event marks a point in a stream that the CPU and other streams can wait for.

use crate::call::{self, Out, destroy, drop_object, handle_type, invalid, object, out, run};
use crate::handle::Kind;
use crate::handles::cudamem_context;
use crate::handles::cudamem_event;
use crate::handles::cudamem_stream;
use crate::status::cudamem_status;
use core::ffi::c_void;
use cuda_mem::Event;

handle_type!(cudamem_event: Event, Kind::Event);

/// A flag of cudamem_event_create: the event has time stamps.
pub const CUDAMEM_EVENT_TIMING: u32 = 1;

/// A flag of cudamem_event_create: other processes may import the event. It has no time stamps.
pub const CUDAMEM_EVENT_SHAREABLE: u32 = 2;

/// Makes an event. flags is 0, CUDAMEM_EVENT_TIMING or CUDAMEM_EVENT_SHAREABLE.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_event_create(
    context: cudamem_context,
    flags: u32,
    event: Out<'_, cudamem_event>,
) -> cudamem_status {
    run("cudamem_event_create", || {
        let event = out("event", event)?;
        call::check_flags("flags", flags, CUDAMEM_EVENT_TIMING | CUDAMEM_EVENT_SHAREABLE)?;
        let context = object("context", context)?;
        let made = match flags {
            0 => Event::new(&context)?,
            CUDAMEM_EVENT_TIMING => Event::with_timing(&context)?,
            CUDAMEM_EVENT_SHAREABLE => Event::shareable(&context)?,
            _ => {
                return Err(invalid("flags", format!("{flags:#x}"), "a shareable event must have no time stamps"));
            }
        };
        event.write(call::new_handle(made)?);
        Ok(())
    })
}

/// Gets the driver's handle, a CUevent or cudaEvent_t. It is valid while the handle lives.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_event_get_raw(event: cudamem_event, raw: Out<'_, *mut c_void>) -> cudamem_status {
    run("cudamem_event_get_raw", || {
        let raw = out("raw", raw)?;
        raw.write(object("event", event)?.raw().cast());
        Ok(())
    })
}

/// Records the event at the stream's current end. The stream must belong to the event's context.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_event_record(event: cudamem_event, stream: cudamem_stream) -> cudamem_status {
    run("cudamem_event_record", || Ok(object("event", event)?.record(&*object("stream", stream)?)?))
}

/// Checks whether the work before the event is done. An event that was never recorded counts as done.
///
/// Errors: CUDAMEM_ERROR_DRIVER if work failed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_event_is_done(event: cudamem_event, done: Out<'_, bool>) -> cudamem_status {
    run("cudamem_event_is_done", || {
        let done = out("done", done)?;
        done.write(object("event", event)?.is_done()?);
        Ok(())
    })
}

/// Waits for the work before the event.
///
/// Errors: CUDAMEM_ERROR_DRIVER if work failed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_event_synchronize(event: cudamem_event) -> cudamem_status {
    run("cudamem_event_synchronize", || Ok(object("event", event)?.synchronize()?))
}

/// As cudamem_event_synchronize, but waits for at most seconds. 0 only checks; INFINITY (from math.h) means no limit.
///
/// Errors: CUDAMEM_ERROR_TIMED_OUT if the work is not done by then; it continues. CUDAMEM_ERROR_DRIVER if work failed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_event_synchronize_for(event: cudamem_event, seconds: f64) -> cudamem_status {
    run("cudamem_event_synchronize_for", || {
        let limit = call::time_limit("seconds", seconds)?;
        let event = object("event", event)?;
        Ok(limit.map_or_else(|| event.synchronize(), |limit| event.synchronize_for(limit))?)
    })
}

/// Gets the time from an event to a later one, in seconds. Both must have time stamps, must have been recorded, and
/// must be done.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_event_elapsed(
    event: cudamem_event,
    later: cudamem_event,
    seconds: Out<'_, f64>,
) -> cudamem_status {
    run("cudamem_event_elapsed", || {
        let seconds = out("seconds", seconds)?;
        seconds.write(object("event", event)?.elapsed(&*object("later", later)?)?.as_secs_f64());
        Ok(())
    })
}

/// Destroys an event. Work that waits for it still waits. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_event_destroy(event: cudamem_event) -> cudamem_status {
    run("cudamem_event_destroy", || destroy("event", event, drop_object))
}
