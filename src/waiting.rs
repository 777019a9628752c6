//! Waits
//!
//! A function that waits for work may wait for ever: the work waits for a flag that nobody raises, or for a function of the host
//! that does not return. The library therefore watches every wait. It reports one that takes longer than 10 seconds in a line on
//! the standard error stream: what waits, on which thread, for which stream, for how long, and which flags, counters and rings the
//! stream waits for. The wait goes on. To give up after a time, call cudamem_stream_synchronize_for or
//! cudamem_event_synchronize_for.

use crate::call::{run, time_limit};
use crate::callbacks::Callback;
use crate::message::c_text;
use crate::status::cudamem_status;
use core::ffi::{c_char, c_void};
use cuda_mem::waiting;
use std::sync::Arc;

/// Is called for a wait that takes long, with a message that is valid during the call, with the seconds that the wait has taken so
/// far, and with what was set along with the function. A thread of the library calls it, and again after twice the time. It must
/// neither wait for work nor unwind.
pub type cudamem_slow_wait_callback = Option<extern "C" fn(message: *const c_char, seconds: f64, user: *mut c_void)>;

/// Sets the function that is called for waits that take long, instead of the line on the standard error stream. NULL brings the
/// line back. A call that has begun goes on.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_set_slow_wait_callback(
    callback: cudamem_slow_wait_callback,
    user: *mut c_void,
) -> cudamem_status {
    run("cudamem_set_slow_wait_callback", || {
        waiting::set_hook(callback.map(|function| {
            let callback = Callback { function, user };
            let hook: waiting::SlowWaitHook = Arc::new(move |wait| {
                let words = c_text(wait.to_string());
                callback.call(|function, user| function(words.as_ptr(), wait.waited.as_secs_f64(), user));
            });
            hook
        }));
        Ok(())
    })
}

/// Sets how many seconds a wait takes before it is reported. It is 10 at first, and 0.001 at least; INFINITY (of math.h) ends the
/// reports.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_set_slow_wait_limit(seconds: f64) -> cudamem_status {
    run("cudamem_set_slow_wait_limit", || {
        waiting::set_limit(time_limit("seconds", seconds)?);
        Ok(())
    })
}
