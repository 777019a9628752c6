//! How many thread caches a pool has.

use crate::cpu::thread_slots::SLOTS;

/// The number of thread caches with an owner, and of those that other threads share, a power of two: at least twice the
/// machine's threads, up to [`SLOTS`].
pub(super) fn cache_count() -> usize {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    (2 * threads).next_power_of_two().clamp(4, SLOTS)
}
