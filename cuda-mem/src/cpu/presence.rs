//! Which place each thread is inside of, so that another thread can keep it out and wait until it has left.
//!
//! A thread enters its own place with plain stores. Another thread that wants the place first closes it, makes a heavy
//! fence, and waits until the owner has left:
//!
//! ```text
//! owner                                  another thread
//! word = place                           closed = true
//! light fence                            heavy fence
//! if closed { word = 0; go elsewhere }   wait until word != place
//! use the place                          use the place
//! word = 0                               closed = false
//! ```
//!
//! One of the two sees the other's store, so both are never inside. The words are never freed: an owner that leaves
//! touches nothing of the place any more.

use super::sync::{AtomicUsize, Ordering, light_fence, yield_now};
use core::num::NonZeroUsize;

/// How many threads have a word.
pub const SLOTS: usize = 16;

/// The words of the threads.
#[derive(Debug)]
pub struct Presence {
    words: [Word; SLOTS],
}

/// The place that one thread is inside of, or 0. Only this thread writes it. Alone in its cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub struct Word(pub AtomicUsize);

/// A stay in a place. Its end leaves the place.
#[derive(Debug)]
pub struct Inside<'words> {
    word: &'words Word,
    slot: usize,
}

impl Presence {
    /// `words` must be 0.
    pub const fn new(words: [Word; SLOTS]) -> Self {
        Self { words }
    }

    /// Notes that the calling thread is inside `place`, and makes the light fence. `None` if the thread is inside a
    /// place already, or has no word.
    ///
    /// # Safety
    ///
    /// No other thread uses the slot.
    #[inline]
    pub unsafe fn enter(&self, slot: usize, place: NonZeroUsize) -> Option<Inside<'_>> {
        let word = self.words.get(slot)?;
        if word.0.load(Ordering::Relaxed) != 0 {
            return None;
        }
        word.0.store(place.get(), Ordering::Relaxed);
        light_fence();
        Some(Inside { word, slot })
    }

    /// Waits until the slot's thread is not inside `place`, after a heavy fence. What it did there happened before the
    /// return.
    pub fn wait_until_left(&self, slot: usize, place: NonZeroUsize) {
        let Some(word) = self.words.get(slot) else { return };
        // Threads inside make no calls that block.
        while word.0.load(Ordering::Acquire) == place.get() {
            yield_now();
        }
    }
}

impl Inside<'_> {
    /// The slot of the thread.
    #[inline]
    pub fn slot(&self) -> usize {
        self.slot
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.word.0.store(0, Ordering::Release);
    }
}
