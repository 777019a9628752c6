//! Which values the threads use, for the C library: its calls use some objects often, and programs end them rarely. To
//! begin and to end a use are plain stores; the end of a value looks at the words of all threads.
//!
//! How a user and a thread that ends the value meet: `presence`.

use super::presence::{Presence, Words};
use super::thread_slots::ThreadSlot;
use core::num::NonZeroUsize;
use core::sync::atomic::AtomicUsize;

pub use super::asymmetric_fence::{heavy_fence, light_fence, prepare};
pub use super::presence::Inside;

/// How many threads have words. The end of a value reads a cache line of each.
const THREADS: usize = 64;
/// How many uses of a thread have a word: those of a call, and of calls that its callbacks make.
const USES: usize = 8;

static IN_USE: Presence<THREADS, USES> =
    Presence::new([const { Words([const { AtomicUsize::new(0) }; USES]) }; THREADS]);

/// Begins a use of the value at `place` by the calling thread, and makes the light fence. `None` if the thread has no
/// word left. [`prepare`] has returned before the first call.
#[inline]
pub fn begin(place: NonZeroUsize) -> Option<Inside<'static>> {
    // SAFETY: of the running threads, only this one has the number. A thread that ends has a number without words.
    unsafe { IN_USE.enter(ThreadSlot::current().number(), place) }
}

/// Whether no thread uses the value at `place`. Make a [`heavy_fence`] before.
pub fn all_ended(place: NonZeroUsize) -> bool {
    IN_USE.is_left(place)
}
