//! Programs from the third audit of the safe interface, by topic.
//!
//! They use the driver that the environment names. Programs that hung run on a thread with a time limit.

mod c_library;
pub(crate) mod channels;
mod contexts;
mod frees;
mod gates;
mod older_drivers;
mod peers_and_pools;
mod permissions;
mod pools;
mod second_streams;
mod streams;
mod teardown_codes;

use cuda_mem::Stream;
use std::error::Error;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use testkit::{check_call, hold};

/// Work that a raw call has queued, so the library does not know that it waits for the CPU. Its drop lets the work end.
struct Unknown(Arc<AtomicBool>);

impl Drop for Unknown {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Queues such work on a stream.
fn hold_unknown(stream: &Stream) -> Result<Unknown, Box<dyn Error>> {
    unsafe extern "C" fn until_open(open: *mut c_void) {
        // SAFETY: the pointer is of the reference that `hold_unknown` has given away for this one call.
        let open = unsafe { Arc::from_raw(open.cast::<AtomicBool>().cast_const()) };
        while !open.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
    }
    let open = Arc::new(AtomicBool::new(false));
    let (cuda, data) = (stream.context().driver().raw(), Arc::into_raw(open.clone()).cast_mut().cast());
    // SAFETY: the stream lives, and the function takes the reference.
    check_call("cuLaunchHostFunc", unsafe { cuda.cuLaunchHostFunc(stream.raw(), Some(until_open), data) })?;
    Ok(Unknown(open))
}
