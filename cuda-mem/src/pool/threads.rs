//! Which front a thread uses.

use core::sync::atomic::{AtomicUsize, Ordering};

const MOST_FRONTS: usize = 16;

/// The number of fronts of a pool, a power of two: at least twice the machine's threads, up to [`MOST_FRONTS`], so that
/// threads seldom share a front.
pub(super) fn front_count() -> usize {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    (2 * threads).next_power_of_two().clamp(4, MOST_FRONTS)
}

/// The number of the calling thread, in the order of the threads' first calls.
#[inline]
pub(super) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}
