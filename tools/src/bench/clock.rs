//! Times of single calls, and the time that the clock readings add.

use cuda_mem::trace::Latency;
use std::time::Instant;

/// The time since `start`.
pub(super) fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The time that two clock readings take.
pub(super) fn clock_ns() -> u64 {
    let mut times: Vec<u64> = (0..1001).map(|_| nanoseconds(Instant::now())).collect();
    Latency::of(&mut times).p50_ns
}
