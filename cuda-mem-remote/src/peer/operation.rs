//! A fetch or a write under way.

use super::link::Link;
use crate::{Cause, Error, Result};
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// How much later than the deadline an operation may end, because the threads look at their clocks ten times a second.
const GRACE: Duration = Duration::from_millis(500);

/// A fetch or a write under way. Wait for it, or await it: it ends within [`RemoteOptions::deadline`](crate::RemoteOptions), by
/// success or by an error. Dropping it does not end what it began.
#[must_use = "an operation may fail: wait for it or await it"]
pub struct Operation {
    outcome: Receiver<Result<()>>,
    waker: Arc<Mutex<Option<Waker>>>,
    link: Arc<Link>,
    call: &'static str,
    until: Instant,
}

/// Where the outcome of an operation comes from.
#[derive(Debug)]
pub(crate) struct Answer {
    /// `None` only while the answer ends.
    outcome: Option<Sender<Result<()>>>,
    waker: Arc<Mutex<Option<Waker>>>,
}

impl Operation {
    pub(super) fn new(link: &Arc<Link>, call: &'static str, until: Instant) -> (Answer, Self) {
        let (sender, outcome) = bounded(1);
        let waker = Arc::<Mutex<Option<Waker>>>::default();
        (
            Answer { outcome: Some(sender), waker: waker.clone() },
            Self { outcome, waker, link: link.clone(), call, until },
        )
    }

    /// Waits for the end, at most [`RemoteOptions::deadline`](crate::RemoteOptions).
    ///
    /// # Errors
    ///
    /// [`Error::PeerGone`], [`Error::TimedOut`], [`Error::Ticket`], [`Error::Owner`]: the bytes of the destination may have
    /// changed in part.
    pub fn wait(self) -> Result<()> {
        self.link.remote.check("Operation::wait")?;
        match self.outcome.recv_deadline(self.until + GRACE) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Disconnected) => Err(self.lost()),
            Err(RecvTimeoutError::Timeout) => {
                let why = "the copies to this side's memory of the host wait for its stream";
                Err(Error::TimedOut { call: self.call, after: self.link.remote.options.deadline, why })
            }
        }
    }
}

impl Operation {
    /// The thread that knows the outcome has panicked.
    fn lost(&self) -> Error {
        self.link.peer_gone(Cause::Panicked)
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
        if let Some(sender) = &self.outcome {
            // Whoever asked may have gone.
            let _ = sender.send(outcome);
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // First the end of the channel: who is woken sees it.
        self.outcome = None;
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation").field("call", &self.call).field("peer", &self.link.address).finish_non_exhaustive()
    }
}
