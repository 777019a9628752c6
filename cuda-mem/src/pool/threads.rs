//! Which front a thread works with.

use core::sync::atomic::{AtomicUsize, Ordering};

/// How many fronts a pool has at most.
const MOST_FRONTS: usize = 16;

/// How many fronts a pool has, a power of two: twice as many as the machine runs threads, so that two threads seldom share
/// one.
pub(super) fn front_count() -> usize {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    (2 * threads).next_power_of_two().clamp(4, MOST_FRONTS)
}

/// A number of the calling thread. Threads are numbered as they come.
#[inline]
pub(super) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}
