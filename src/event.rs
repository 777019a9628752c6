//! Events
//!
//! An event marks a point in a stream that the CPU and other streams can wait for.

use crate::call::{self, Out, destroy, drop_object, handle_type, invalid, object, out, run};
use crate::handles::cudamem_context;
use crate::handles::cudamem_event;
use crate::handles::cudamem_stream;
use crate::status::cudamem_status;
use cuda_mem::Event;

handle_type!(cudamem_event: Event);

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

/// Records the event at the stream's current end. The stream must belong to the event's context.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_event_record(event: cudamem_event, stream: cudamem_stream) -> cudamem_status {
    run("cudamem_event_record", || Ok(object("event", event)?.record(&*object("stream", stream)?)?))
}

/// Waits for the work before the event. An event that was never recorded counts as done.
///
/// Errors: CUDAMEM_ERROR_DRIVER if work failed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_event_synchronize(event: cudamem_event) -> cudamem_status {
    run("cudamem_event_synchronize", || Ok(object("event", event)?.synchronize()?))
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
