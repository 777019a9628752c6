//! The turn for adding and returning chunks of a pool in place. Allocations that need no chunk do not take it.
//!
//! No code of the program runs in a turn, and no wait for the pool's work: both may need another thread that waits for its
//! turn. So reports to the program wait until the turn is over. Pools of regions have no turns, because their sources may
//! be the program's: [`wait_for_others`](super::shared::SharedPool::wait_for_others).

use crate::lifetime::waiting::{self, Target};
use crate::locks::{Condvar, Held, Kind, Mutex, MutexGuard};
use std::thread::{self, ThreadId};

#[derive(Debug, Default)]
pub(super) struct ResizingLock {
    holder: Mutex<Option<Holder>>,
    over: Condvar,
}

#[derive(Debug)]
struct Holder {
    thread: ThreadId,
    /// How many guards the thread has.
    turns: usize,
}

/// Has the turn until it is dropped.
#[derive(Debug)]
pub(super) struct ResizingGuard<'pool> {
    resizing: &'pool ResizingLock,
    /// Dropped when the turn is over.
    _held: Held,
}

impl ResizingLock {
    /// Waits until no other thread has the turn.
    pub fn enter(&self) -> ResizingGuard<'_> {
        let thread = thread::current().id();
        let others = |holder: &mut Option<Holder>| holder.as_ref().is_some_and(|holder| holder.thread != thread);
        let growth = &"another thread's growth or trim of the pool";
        let mut holder = waiting::wait_while(growth, Target::THREAD, &self.over, self.holder(), others);
        holder.get_or_insert(Holder { thread, turns: 0 }).turns += 1;
        ResizingGuard { resizing: self, _held: Held::new(Kind::Gate) }
    }

    fn holder(&self) -> MutexGuard<'_, Option<Holder>> {
        self.holder.lock()
    }
}

impl Drop for ResizingGuard<'_> {
    fn drop(&mut self) {
        let mut holder = self.resizing.holder();
        let over = holder.as_mut().is_none_or(|holder| {
            holder.turns -= 1;
            holder.turns == 0
        });
        if over {
            *holder = None;
            self.resizing.over.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn one_thread_has_the_turn_as_often_as_it_likes() {
        let (resizing, inside) = (ResizingLock::default(), AtomicUsize::new(0));
        let rounds = if cfg!(miri) { 5 } else { 1000 };
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let turn = resizing.enter();
                        let again = resizing.enter();
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        drop(turn);
                        assert_eq!(inside.fetch_sub(1, Ordering::Relaxed), 1);
                        drop(again);
                    }
                });
            }
        });
        assert!(resizing.holder().is_none());
    }
}
