//! Functions of the program that run on the host in stream order.

use crate::error::call;
use crate::error::callback::call_back;
use crate::error::drop_errors::DropErrors;
use crate::lifetime::{CpuWait, Inside};
use crate::locks::later;
use crate::{Result, Stream};
use core::ffi::c_void;
use cuda_sys::{CUresult, CUstream};
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
        self.queue_function("Stream::launch_host_function", Box::new(|_| function()), |cuda, data| {
            // SAFETY: the caller gives the data that the function takes.
            unsafe { call!(cuda.cuLaunchHostFunc(self.inner.raw, Some(run_host_function), data)) }
        })
    }

    /// Runs a function on the host with the outcome of all earlier work of the stream. The driver also runs it after
    /// work has failed, when it no longer runs functions of [`launch_host_function`](Self::launch_host_function).
    pub(crate) fn tell_end(&self, call: &'static str, tell: impl FnOnce(CUresult) + Send + 'static) -> Result<()> {
        self.queue_function(call, Box::new(tell), |cuda, data| {
            // SAFETY: the caller gives the data that the function takes.
            unsafe { call!(cuda.cuStreamAddCallback(self.inner.raw, Some(run_callback), data, 0)) }
        })
    }

    /// Queues a function by a call of the driver, which takes the function's data.
    fn queue_function(
        &self,
        call: &'static str,
        function: Box<dyn FnOnce(CUresult) + Send>,
        queue: impl FnOnce(&cuda_sys::Driver, *mut c_void) -> Result<()>,
    ) -> Result<()> {
        let (cuda, _current) = (self.context().driver().raw(), self.context().bind()?);
        let _running = self.running(call)?;
        let drop_errors = self.context().drop_errors().clone();
        let pending = self.context().begin_cpu_wait(self.raw());
        let data = Box::into_raw(Box::new(HostFunction { function, drop_errors, pending }));
        // The driver calls the function once if, and only if, it accepts.
        let result = queue(cuda, data.cast());
        if result.is_err() {
            // SAFETY: the driver refused, so we still own the box.
            let refused = unsafe { Box::from_raw(data) };
            // Its drop runs the program's code.
            later::run(move || drop(refused));
        }
        result
    }
}

/// A queued host function. Holds no context: dropping one calls the driver, which a host function must not do.
struct HostFunction {
    function: Box<dyn FnOnce(CUresult) + Send>,
    drop_errors: Arc<DropErrors>,
    /// Dropped when the function has returned.
    pending: CpuWait,
}

unsafe extern "C" fn run_host_function(data: *mut c_void) {
    // SAFETY: the caller's contract.
    unsafe { run(data, CUresult::CUDA_SUCCESS) };
}

unsafe extern "C" fn run_callback(_stream: CUstream, outcome: CUresult, data: *mut c_void) {
    // SAFETY: the caller's contract.
    unsafe { run(data, outcome) };
}

/// Runs a queued function.
///
/// # Safety
///
/// `queue_function` made the data, for this one call.
unsafe fn run(data: *mut c_void, outcome: CUresult) {
    // SAFETY: the caller's contract.
    let HostFunction { function, drop_errors, pending } = *unsafe { Box::from_raw(data.cast::<HostFunction>()) };
    let _inside = Inside::enter();
    if let Err(panicked) = call_back(|| function(outcome)) {
        drop_errors.push("running a host function", panicked.of("a host function"));
    }
    drop(pending);
}
