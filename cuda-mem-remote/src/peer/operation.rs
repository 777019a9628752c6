//! A fetch or a write under way.

use crate::{Cause, Error, Result};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// A fetch or a write under way. Wait for it, or await it: it ends within [`RemoteOptions::deadline`](crate::RemoteOptions), by
/// success or by an error. Dropping it does not end what it began.
#[must_use = "an operation may fail: wait for it or await it"]
#[derive(Debug)]
pub struct Operation {
    outcome: Receiver<Result<()>>,
    waker: Arc<Mutex<Option<Waker>>>,
    address: SocketAddr,
}

/// Where the outcome of an operation comes from.
#[derive(Debug)]
pub(crate) struct Answer {
    outcome: Sender<Result<()>>,
    waker: Arc<Mutex<Option<Waker>>>,
}

impl Operation {
    pub(crate) fn new(address: SocketAddr) -> (Answer, Self) {
        let (sender, outcome) = bounded(1);
        let waker = Arc::<Mutex<Option<Waker>>>::default();
        (Answer { outcome: sender, waker: waker.clone() }, Self { outcome, waker, address })
    }

    /// Waits for the end, at most [`RemoteOptions::deadline`](crate::RemoteOptions).
    ///
    /// # Errors
    ///
    /// [`Error::PeerGone`], [`Error::TimedOut`], [`Error::Ticket`], [`Error::Owner`]: the bytes of the destination may have
    /// changed in part.
    pub fn wait(self) -> Result<()> {
        self.outcome.recv().unwrap_or_else(|_| Err(self.lost()))
    }
}

impl Operation {
    /// The thread that knows the outcome has panicked.
    fn lost(&self) -> Error {
        Error::PeerGone { address: self.address, cause: Cause::Panicked }
    }
}

impl Future for Operation {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        // First the waker: an outcome after the question wakes the task.
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(task.waker().clone());
        match self.outcome.try_recv() {
            Ok(outcome) => Poll::Ready(outcome),
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Disconnected) => Poll::Ready(Err(self.lost())),
        }
    }
}

impl Answer {
    pub fn give(self, outcome: Result<()>) {
        // Whoever asked may have gone.
        let _ = self.outcome.send(outcome);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
