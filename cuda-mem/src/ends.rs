//! Destroying calls, one at a time.
//!
//! On real drivers, calls that destroy streams, events, graphs and contexts have been seen to crash beside each other. A
//! lock around them would let every thread that drops something wait for the one that is in such a call, which may itself
//! wait in the driver. So a thread that finds another one destroying leaves its own to that one, and goes on.

use crate::Context;
use crate::Result;
use crate::error::call;
use cuda_sys::{CUevent, CUgraph, CUgraphExec, CUstream};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// What is to be destroyed, which nobody uses any more.
#[derive(Debug)]
pub(crate) enum Ended {
    Stream(CUstream),
    Event(CUevent),
    Graph(CUgraph),
    Executable(CUgraphExec),
}

/// The driver's things that are to be destroyed, and whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    turn: Mutex<()>,
    queue: Mutex<VecDeque<End>>,
}

/// The context is held until the call is over.
#[derive(Debug)]
struct End(Context, Ended);

// SAFETY: the driver's handles are tokens that every thread may pass to it.
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
    /// It is of the current context, alive, and used by nobody any more.
    unsafe fn destroy(&self, cuda: &cuda_sys::Driver) -> Result<()> {
        // SAFETY: this function's contract. The driver keeps what work under way needs.
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

    /// Destroys something, or leaves that to the thread whose turn it is.
    ///
    /// # Safety
    ///
    /// It is of the context, was not destroyed before, and nobody uses it any more.
    pub unsafe fn end(&self, context: &Context, ended: Ended) {
        self.queue().push_back(End(context.clone(), ended));
        self.work();
    }

    /// Makes a call while nobody destroys anything. It may wait for another thread's turn.
    pub fn alone<R>(&self, call: impl FnOnce() -> R) -> R {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let result = call();
        drop(turn);
        // What others have left meanwhile.
        self.work();
        result
    }

    /// Destroys what is queued, unless it is another thread's turn. Who has had the turn looks again after it, so
    /// nothing that was left to it stays.
    fn work(&self) {
        while !self.queue().is_empty() {
            let turn = match self.turn.try_lock() {
                Ok(turn) => turn,
                Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let Some(End(context, ended)) = self.queue().pop_front() else { continue };
            // SAFETY: `end` was told so.
            let destroyed = context.while_alive(|cuda| unsafe { ended.destroy(cuda) });
            // Before the context, and the report of an error, whose hook may end other values.
            drop(turn);
            if let Err(error) = destroyed {
                context.drop_errors().push(ended.doing(), error);
            }
        }
    }
}
