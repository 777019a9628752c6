//! Who adds regions and gives them back: one thread at a time, without a lock that others need to allocate.
//!
//! The source's calls may run hooks that use the same pool, on the same thread. So a thread that has the turn gets it
//! again.

use crate::waiting::{self, Target};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

#[derive(Debug, Default)]
pub(super) struct Resizing {
    holder: Mutex<Option<Holder>>,
    over: Condvar,
}

#[derive(Debug)]
struct Holder {
    thread: ThreadId,
    turns: usize,
}

/// It is this thread's turn until this ends.
#[derive(Debug)]
pub(super) struct Turn<'pool> {
    resizing: &'pool Resizing,
}

impl Resizing {
    /// Waits until no other thread has the turn.
    pub fn enter(&self) -> Turn<'_> {
        let thread = thread::current().id();
        let others = |holder: &mut Option<Holder>| holder.as_ref().is_some_and(|holder| holder.thread != thread);
        let mut holder = self.holder();
        if others(&mut holder) {
            let turn = || self.over.wait_while(holder, others).unwrap_or_else(PoisonError::into_inner);
            holder = waiting::during(&"another thread's growth or trim of the pool", Target::default(), turn);
        }
        holder.get_or_insert(Holder { thread, turns: 0 }).turns += 1;
        Turn { resizing: self }
    }

    fn holder(&self) -> MutexGuard<'_, Option<Holder>> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
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
        let (resizing, inside) = (Resizing::default(), AtomicUsize::new(0));
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
