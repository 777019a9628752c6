//! Waits
//!
//! Functions that wait for work may wait for ever: the work waits for a flag that nobody raises, or for a function of the host that
//! does not return. So every wait is watched, and one that takes longer than 10 seconds is reported, in a line on the standard
//! error stream: what waits, on which thread, for which stream, for how long, and for which flags, counters and rings the stream
//! waits. The wait goes on. A program that cannot wait calls cudamem_stream_synchronize_for or cudamem_event_synchronize_for.

use crate::call::{run, time_limit};
use crate::callbacks::Callback;
use crate::message::c_text;
use crate::status::cudamem_status;
use core::ffi::{c_char, c_void};
use cuda_mem::waiting;
use std::sync::Arc;

/// Is told of a wait that takes long: in words, which are valid during the call, how long it has taken so far in seconds, and what
/// was set along with the function. It is called on a thread of the library's, again after twice the time, and must neither wait
/// for work nor unwind.
pub type cudamem_slow_wait_callback = Option<extern "C" fn(message: *const c_char, seconds: f64, user: *mut c_void)>;

/// Sets the function that is told of waits that take long, in place of the line on the standard error stream; NULL brings that
/// back. A call that has begun goes on.
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

/// Sets how many seconds a wait takes before it is reported: 10 at first, a thousandth at least; INFINITY (of math.h) ends the
/// reports.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_set_slow_wait_limit(seconds: f64) -> cudamem_status {
    run("cudamem_set_slow_wait_limit", || {
        waiting::set_limit(time_limit("seconds", seconds)?);
        Ok(())
    })
}
