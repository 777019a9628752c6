//! Calls that run one at a time.
//!
//! Real drivers have been seen to crash in concurrent calls that destroy streams, events, graphs and contexts. With a
//! plain lock, each drop would wait for the thread inside such a call, which may itself wait in the driver. So a thread
//! that finds another thread destroying queues its object for that thread, and continues. A thread that cannot go on
//! without its call waits, watched.

use super::end_queue::EndQueue;
use super::sync::{AtomicBool, Ordering, fence, until};
use crate::Result;
use crate::locks::{Held, Kind};

/// An object whose end must not run beside other ends.
pub(crate) trait EndsAlone {
    /// Ends the object. Called once.
    fn end(&self) -> Result<()>;
    /// Reports the end, outside of the running: the program's code may run.
    fn report(self, ended: Result<()>);
}

/// The objects that wait for their end. Only the thread whose turn it is ends some.
#[derive(Debug)]
pub(crate) struct SerialEnds<E> {
    turn: AtomicBool,
    waiting: EndQueue<E>,
}

/// The turn of this thread, while it lives.
struct Turn<'ends> {
    of: &'ends AtomicBool,
    _held: Held,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.of.store(false, Ordering::Release);
    }
}

impl<E> Default for SerialEnds<E> {
    fn default() -> Self {
        Self { turn: AtomicBool::new(false), waiting: EndQueue::new() }
    }
}

impl<E: EndsAlone> SerialEnds<E> {
    /// Ends an object, or queues it for the thread that is ending others now.
    pub fn end(&self, object: E) {
        self.waiting.push(object);
        self.work();
    }

    /// Makes a call while no thread ends anything. It may wait for the thread that does.
    pub fn alone<R>(&self, call: impl FnOnce() -> R) -> R {
        let result = self.alone_before(call);
        self.work();
        result
    }

    /// Makes a call while no thread ends anything, where the program's code must not run. The caller calls
    /// [`work`](Self::work) afterwards, because other threads may have queued objects during the call.
    pub fn alone_before<R>(&self, call: impl FnOnce() -> R) -> R {
        let mut turn = self.try_turn();
        if turn.is_none() {
            until(&"another thread's end of driver objects", || {
                turn = self.try_turn();
                turn.is_some()
            });
        }
        call()
    }

    fn try_turn(&self) -> Option<Turn<'_>> {
        let taken = self.turn.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| Turn { of: &self.turn, _held: Held::new(Kind::Gate) })
    }

    /// Ends the queued objects, unless another thread does, and reports that. Each thread checks the queue again after
    /// its own ends, so no object stays behind.
    pub fn work(&self) {
        loop {
            // Of two threads, one has queued an object and the other has ended its turn. After the two fences, at
            // least one of them sees what the other did, so one of them ends the object.
            fence(Ordering::SeqCst);
            if self.waiting.is_empty() {
                return;
            }
            let Some(turn) = self.try_turn() else { return };
            let ended = self.waiting.take_all().into_iter().map(|object| (object.end(), object));
            let ended: Vec<_> = ended.collect();
            drop(turn);
            ended.into_iter().for_each(|(result, object)| object.report(result));
        }
    }
}
