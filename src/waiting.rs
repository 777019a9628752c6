//! Waits
//!
//! A wait for work may never end: the work may wait for a flag that nothing sets, or for a host function that does not
//! return. So the library watches every wait. If a wait takes longer than 10 seconds, the library prints a line to the
//! standard error stream: what waits, on which thread, for what, for how long, and which flags, counters, rings and
//! frames a stream waits for. The wait continues. To give up after a time, call cudamem_synchronize_for.

use crate::call::{run, time_limit};
use crate::callbacks::Callback;
use crate::message::c_text;
use crate::status::cudamem_status;
use core::ffi::{c_char, c_void};
use cuda_mem::waiting;
use std::sync::Arc;

/// The library calls this function for a long wait, on a thread of its own, and again after twice the time. message is
/// valid during the call. seconds is how long the wait has taken so far. user is the program's pointer. The function
/// must neither wait for work nor unwind.
pub type cudamem_slow_wait_callback = Option<extern "C" fn(message: *const c_char, seconds: f64, user: *mut c_void)>;

/// Sets the function that the library calls for long waits, instead of printing a line to the standard error stream.
/// NULL restores the line. A call that has begun continues.
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

/// Sets how many seconds a wait may take before it is reported: 10 initially, and at least 0.001. INFINITY (from
/// math.h) disables the reports.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_set_slow_wait_limit(seconds: f64) -> cudamem_status {
    run("cudamem_set_slow_wait_limit", || {
        waiting::set_limit(time_limit("seconds", seconds)?);
        Ok(())
    })
}
