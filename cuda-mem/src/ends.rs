//! Destroys driver objects one at a time.
//!
//! Real drivers have been seen to crash in concurrent calls that destroy streams, events, graphs and contexts. With a
//! plain lock, each drop would wait for the thread inside such a call, which may itself wait in the driver. So a thread
//! that finds another thread destroying queues its handle for that thread, and continues.

use crate::beside_captures::relaxed;
use crate::error::call;
use crate::{Context, Result};
use cuda_sys::{CUevent, CUgraph, CUgraphExec, CUstream};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A driver handle to destroy, no longer in use.
#[derive(Debug)]
pub(crate) enum Ended {
    Stream(CUstream),
    Event(CUevent),
    Graph(CUgraph),
    Executable(CUgraphExec),
}

/// The handles to destroy. Only the thread that holds `turn` destroys.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    turn: Mutex<()>,
    queue: Mutex<VecDeque<End>>,
}

/// A queued handle. It keeps its context alive until the call has returned.
#[derive(Debug)]
struct End(Context, Ended);

// SAFETY: driver handles are tokens that any thread may pass to the driver.
unsafe impl Send for Ended {}

impl Ended {
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

impl Ends {
    fn queue(&self) -> MutexGuard<'_, VecDeque<End>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Destroys a handle, or queues it for the thread that is destroying now.
    ///
    /// # Safety
    ///
    /// The handle is of `context`, not destroyed yet, and no longer in use.
    pub unsafe fn end(&self, context: &Context, ended: Ended) {
        self.queue().push_back(End(context.clone(), ended));
        self.work();
    }

    /// Makes a call while no thread destroys anything. It may wait for the thread that is destroying.
    pub fn alone<R>(&self, call: impl FnOnce() -> R) -> R {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let result = call();
        drop(turn);
        // Other threads may have queued handles during the call.
        self.work();
        result
    }

    /// Destroys the queued handles, unless another thread does. Each thread checks the queue again after it has
    /// released `turn`, so no handle stays behind.
    fn work(&self) {
        while !self.queue().is_empty() {
            let turn = match self.turn.try_lock() {
                Ok(turn) => turn,
                Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let Some(End(context, ended)) = self.queue().pop_front() else { continue };
            // No part of this thread's captures: they would refuse some of these calls, and end.
            let relaxed = relaxed(context.driver());
            // SAFETY: the callers of `end` guarantee it.
            let destroyed = context.while_alive(|cuda| unsafe { ended.destroy(cuda) });
            drop(relaxed);
            // Before the context is dropped and an error is reported: the hook may drop other values.
            drop(turn);
            if let Err(error) = destroyed {
                context.drop_errors().push(ended.doing(), error);
            }
        }
    }
}
