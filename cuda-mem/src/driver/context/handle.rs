//! Handles of a context's objects, and their end.

use crate::driver::relaxed::RelaxedCalls;
use crate::error::call;
use crate::lifetime::EndsAlone;
use crate::locks::later;
use crate::{Context, Driver, Result};
use cuda_sys::{CUevent, CUgraph, CUgraphExec, CUstream};

/// A driver handle to destroy, no longer in use.
#[derive(Debug)]
pub(crate) enum Handle {
    Stream(CUstream),
    Event(CUevent),
    Graph(CUgraph),
    Executable(CUgraphExec),
}

// SAFETY: driver handles are tokens that any thread may pass to the driver.
unsafe impl Send for Handle {}

impl Handle {
    fn doing(&self) -> &'static str {
        match self {
            Self::Stream(_) => "destroying a stream",
            Self::Event(_) => "destroying an event",
            Self::Graph(_) => "destroying a graph",
            Self::Executable(_) => "destroying an executable graph",
        }
    }

    /// # Safety
    ///
    /// The handle is of the current context, not destroyed yet, and no longer in use.
    unsafe fn destroy(&self, cuda: &cuda_sys::Driver) -> Result<()> {
        // SAFETY: this function's contract. The driver itself keeps what running work needs.
        unsafe {
            match *self {
                Self::Stream(raw) => call!(cuda.cuStreamDestroy_v2(raw)),
                Self::Event(raw) => call!(cuda.cuEventDestroy_v2(raw)),
                Self::Graph(raw) => call!(cuda.cuGraphDestroy(raw)),
                Self::Executable(raw) => call!(cuda.cuGraphExecDestroy(raw)),
            }
        }
    }
}

impl Handle {
    /// Destroys the handle now, in the current context, while no thread destroys anything else. Its error is the
    /// driver's drop error.
    ///
    /// # Safety
    ///
    /// As [`destroy`](Self::destroy).
    pub unsafe fn destroy_now(&self, driver: &Driver, doing: &'static str) {
        // SAFETY: this function's contract.
        let destroyed = driver.ends().alone_before(|| unsafe { self.destroy(driver.raw()) });
        if let Err(error) = destroyed
            && !error.is_teardown()
        {
            driver.drop_errors().push(doing, error);
        }
        // Other threads may have queued objects during the call, whose ends run the program's code.
        let driver = driver.clone();
        later::run(move || driver.ends().work());
    }
}

/// A handle to destroy. It keeps its context alive until the call has returned.
#[derive(Debug)]
pub(crate) struct EndingHandle(Context, Handle);

impl EndsAlone for EndingHandle {
    fn end(&self) -> Result<()> {
        // No part of this thread's captures: they would refuse some of these calls, and end.
        let _relaxed = RelaxedCalls::begin(self.0.driver());
        // SAFETY: the callers of `Context::destroy` guarantee it.
        self.0.while_alive(|cuda| unsafe { self.1.destroy(cuda) })
    }

    fn report(self, ended: Result<()>) {
        if let Err(error) = ended {
            self.0.drop_errors().push(self.1.doing(), error);
        }
    }
}

impl Context {
    /// Destroys a handle, now or soon.
    ///
    /// # Safety
    ///
    /// The handle is of this context, not destroyed yet, and no longer in use.
    pub(crate) unsafe fn destroy(&self, handle: Handle) {
        self.driver().ends().end(EndingHandle(self.clone(), handle));
    }
}
