//! Functions of the program that run on the host in stream order.

use crate::error::call;
use crate::error::callback::call_back;
use crate::error::drop_errors::DropErrors;
use crate::lifetime::{CpuWait, Inside};
use crate::{Result, Stream};
use core::ffi::c_void;
use std::sync::Arc;

impl Stream {
    /// Runs a function on the host when all earlier work of the stream is done; later work waits for it. If it panics,
    /// the context keeps the text as a drop error, [`Error::Panicked`](crate::Error::Panicked).
    ///
    /// The function must not call the driver; functions of this crate that do return
    /// [`Error::InsideHostFunction`](crate::Error::InsideHostFunction). Buffers, streams, events, contexts, graphs and
    /// pools that it drops are freed soon after it has returned, by a thread of this crate.
    ///
    /// Until it has returned, frees that wait for the whole device are deferred, and no kernel is loaded, because the
    /// function may wait for a thread that waits in the driver. So the first host function of a context loads this
    /// crate's kernels ([`Context::load_kernels`](crate::Context::load_kernels)).
    ///
    /// # Errors
    ///
    /// The driver refuses, or the stream captures: captured work runs at each launch, but the function only once. The
    /// function is dropped without being run.
    #[doc(alias = "cuLaunchHostFunc")]
    pub fn launch_host_function(&self, function: impl FnOnce() + Send + 'static) -> Result<()> {
        let (cuda, _current) = (self.context().driver().raw(), self.context().bind()?);
        let _running = self.running("Stream::launch_host_function")?;
        let drop_errors = self.context().drop_errors().clone();
        let pending = self.context().begin_cpu_wait(self.raw());
        let function: Box<dyn FnOnce() + Send> = Box::new(function);
        let data = Box::into_raw(Box::new(HostFunction { function, drop_errors, pending }));
        // SAFETY: `run_host_function` takes the type of `data`. The driver calls it once if, and only if, it accepts.
        let result = unsafe { call!(cuda.cuLaunchHostFunc(self.inner.raw, Some(run_host_function), data.cast())) };
        if result.is_err() {
            // SAFETY: the driver refused, so we still own the box.
            drop(unsafe { Box::from_raw(data) });
        }
        result
    }
}

/// A queued host function. Holds no context: dropping one calls the driver, which a host function must not do.
struct HostFunction {
    function: Box<dyn FnOnce() + Send>,
    drop_errors: Arc<DropErrors>,
    /// Dropped when the function has returned.
    pending: CpuWait,
}

unsafe extern "C" fn run_host_function(data: *mut c_void) {
    // SAFETY: `launch_host_function` made the box for this one call.
    let HostFunction { function, drop_errors, pending } = *unsafe { Box::from_raw(data.cast::<HostFunction>()) };
    let _inside = Inside::enter();
    if let Err(panicked) = call_back(function) {
        drop_errors.push("running a host function", panicked.of("a host function"));
    }
    drop(pending);
}
