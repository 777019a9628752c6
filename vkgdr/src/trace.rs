//! Prints timings of slow steps to standard error if `VKGDR_TRACE=1`.

use std::sync::OnceLock;
use std::time::Instant;

fn enabled() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| cuda_sys::load::environment("VKGDR_TRACE").is_some_and(|value| value == "1"))
}

/// Runs `work`. If tracing is on, prints how long it took.
pub(crate) fn step<T>(name: &str, work: impl FnOnce() -> T) -> T {
    if !enabled() {
        return work();
    }
    let start = Instant::now();
    let result = work();
    eprintln!("vkgdr: {name}: {:.1} us", start.elapsed().as_secs_f64() * 1e6);
    result
}
