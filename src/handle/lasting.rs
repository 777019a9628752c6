//! Lasting values: to begin and to end a use takes no locked operation.
//!
//! A use is noted in a word of the thread. Only threads without a free word count their uses in the slot. So a thread
//! that closes the slot, and each thread that leaves it closed, looks at the words of all threads:
//!
//! ```text
//! use                                              destroy
//! word = slot                                      open = false
//! light fence                                      take
//! if slot is not open { word = 0; look; refuse }
//! use the value                                    take, one thread at a time
//! word = 0                                         if taken { return }
//! look                                             heavy fence
//!                                                  if count != 0 or a word == slot { return }
//! look                                             taken = true
//! light fence                                      end the value
//! if slot is closed { take }
//! ```
//!
//! Nobody ends a value in use: either the user saw that the slot was closed, or the thread that takes sees the user's
//! word. Somebody ends it: a thread that saw the slot open when it looked has left before the heavy fence of the thread
//! that closed it; of the threads that take, the last one sees that all others have left.
//!
//! If the system refuses the heavy fence, nobody ends the value. It is leaked.

use super::slot::{LASTING, MADE, NotBegun, OPEN, Slot, TAKEN, USES, is_open};
use super::sync::{Inside, Mutex, Ordering, all_ended, begin, heavy_fence, light_fence};
use core::num::NonZeroUsize;
use core::ptr::NonNull;
use std::sync::PoisonError;

/// A use that has begun: in a word of the thread, or else counted in the slot.
pub type Begun = Option<Inside<'static>>;

impl<T> Slot<T> {
    /// Begins a use of a slot whose value of that generation is lasting, if it has not ended. Otherwise as
    /// [`enter`](Self::enter).
    #[inline]
    pub(super) fn enter_lasting(&self, generation: u32, taking: &Mutex<()>) -> Result<Begun, NotBegun> {
        let Some(inside) = begin(self.place()) else { return self.enter_counted(generation) };
        if is_open(self.state.load(Ordering::Acquire), generation) {
            return Ok(Some(inside));
        }
        drop(inside);
        Err(if self.look(None, taking) { NotBegun::Taken } else { NotBegun::Gone })
    }

    #[cold]
    fn enter_counted(&self, generation: u32) -> Result<Begun, NotBegun> {
        let mut state = self.state.load(Ordering::Relaxed);
        while is_open(state, generation) {
            match self.count(state, 1) {
                Ok(()) => return Ok(None),
                Err(now) => state = now,
            }
        }
        Err(NotBegun::Gone)
    }

    /// Takes the slot if it was closed while the calling thread was inside, and nobody else is. A thread that has used a
    /// generation takes no later one, which ends in the call that destroys it.
    #[inline]
    pub(super) fn look(&self, used: Option<u32>, taking: &Mutex<()>) -> bool {
        light_fence();
        let state = self.state.load(Ordering::Relaxed);
        let generation = (state >> 32) as u32;
        may_be_taken(state) && used.is_none_or(|used| used == generation) && self.take(generation, taking)
    }

    /// Takes a closed slot, unless it is in use or another thread has taken it.
    #[cold]
    pub(super) fn take(&self, generation: u32, taking: &Mutex<()>) -> bool {
        let _taking = taking.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.state.load(Ordering::Relaxed);
        if !may_be_taken(state) || (state >> 32) as u32 != generation {
            return false;
        }
        // Until the lock is released, only the count changes, and it only falls.
        if !heavy_fence() || !all_ended(self.place()) {
            return false;
        }
        // Uses that were counted happen before the end of the value.
        let state = self.state.load(Ordering::Acquire);
        if state & USES != 0 {
            return false;
        }
        self.state.store(state | TAKEN, Ordering::Relaxed);
        true
    }

    fn place(&self) -> NonZeroUsize {
        NonNull::from(self).addr()
    }
}

/// A slot that was closed before its value was lasting is its last user's.
fn may_be_taken(state: u64) -> bool {
    state & (OPEN | MADE | TAKEN | LASTING) == MADE | LASTING
}
