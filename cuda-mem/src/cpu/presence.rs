//! Which places each thread is inside of, so that another thread can keep it out and know when it has left.
//!
//! A thread enters a place with plain stores. Another thread that wants the place first closes it, makes a heavy
//! fence, and looks whether a thread is inside:
//!
//! ```text
//! user                                   another thread
//! word = place                           closed = true
//! light fence                            heavy fence
//! if closed { word = 0; go elsewhere }   if or while word == place { go elsewhere or wait }
//! use the place                          use the place
//! word = 0                               closed = false
//! ```
//!
//! One of the two sees the other's store, so both are never inside. The words are never freed: a user that leaves
//! touches nothing of the place any more.

use super::sync::{AtomicUsize, Ordering, light_fence, yield_now};
use core::num::NonZeroUsize;

/// The words of the threads with the first numbers: in how many places each may be at once.
#[derive(Debug)]
pub struct Presence<const THREADS: usize, const PLACES: usize> {
    words: [Words<PLACES>; THREADS],
}

/// The places that one thread is inside of, or 0. Only this thread writes them. Alone in their cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub struct Words<const PLACES: usize>(pub [AtomicUsize; PLACES]);

/// A stay in a place. Its end leaves the place.
#[derive(Debug)]
pub struct Inside<'words> {
    word: &'words AtomicUsize,
    slot: usize,
}

impl<const THREADS: usize, const PLACES: usize> Presence<THREADS, PLACES> {
    /// `words` must be 0.
    pub const fn new(words: [Words<PLACES>; THREADS]) -> Self {
        Self { words }
    }

    /// Notes that the calling thread is inside `place`, and makes the light fence. `None` if the thread is inside as
    /// many places as it may be, or has no words.
    ///
    /// # Safety
    ///
    /// No other thread uses the slot.
    #[inline]
    pub unsafe fn enter(&self, slot: usize, place: NonZeroUsize) -> Option<Inside<'_>> {
        let word = self.words.get(slot)?.0.iter().find(|word| word.load(Ordering::Relaxed) == 0)?;
        // Another thread that sees this place also sees what the thread did in the word's last place.
        word.store(place.get(), Ordering::Release);
        light_fence();
        Some(Inside { word, slot })
    }

    /// Waits until the slot's thread is not inside `place`, after a heavy fence. What it did there happened before the
    /// return.
    pub fn wait_until_left(&self, slot: usize, place: NonZeroUsize) {
        for word in self.words.get(slot).iter().flat_map(|words| &words.0) {
            // Threads inside make no calls that block.
            while word.load(Ordering::Acquire) == place.get() {
                yield_now();
            }
        }
    }

    /// Whether no thread is inside `place`, after a heavy fence. If so, what they did there happened before the return.
    pub fn is_left(&self, place: NonZeroUsize) -> bool {
        self.words.iter().flat_map(|words| &words.0).all(|word| word.load(Ordering::Acquire) != place.get())
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
        self.word.store(0, Ordering::Release);
    }
}
