//! Runs random calls of the C library in eight threads on one software GPU, for a sanitizer to watch. The argument is
//! the number of seconds; the default is 10.

#[path = "../ffi-tests/testkit/src/c_calls/mod.rs"]
mod c_calls;
#[path = "../ffi-tests/testkit/src/random_bytes.rs"]
mod random_bytes;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const THREADS: u64 = 8;

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10);
    let end = Instant::now() + Duration::from_secs(seconds);
    c_calls::load();
    let calls = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let calls = &calls;
            scope.spawn(move || {
                let mut random = random_bytes::RandomBytes(thread);
                while Instant::now() < end {
                    let tally = c_calls::run(&random.by_ref().take(20_000).collect::<Vec<u8>>());
                    calls.fetch_add(tally.succeeded + tally.refused, Ordering::Relaxed);
                }
            });
        }
    });
    c_calls::assert_nothing_left();
    println!("{} calls of {THREADS} threads in {seconds} s", calls.into_inner());
}
