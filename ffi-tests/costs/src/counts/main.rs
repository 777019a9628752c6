//! Runs one main path of cuda-mem or of the C library, for `scripts/counts`, which counts its instructions.
//!
//! `counts` prints the names of the paths. `counts NAME` runs one of them over the driver that the environment names:
//! 1000 operations, then 2000. Before, between and after them it calls [`counts_mark`], so the difference of the two
//! parts is 1000 operations exactly, without the loop's own beginning and end.
//!
//! `counts --times [NAME...]` measures the paths instead, all by default: the time of an operation in nanoseconds, the
//! median and the least of 101 runs of 1000 operations. It knows some more paths, of 16 threads and of many streams.

mod c_library;
mod rust;

use cuda_mem::{Context, Driver};
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// The operations of the first part.
const OPERATIONS: usize = 1000;

/// Sets a path up, and gives its operation to [`count`].
type Path = fn() -> Result;

const PATHS: &[(&str, Path)] = &[
    ("pool pair", rust::pool_pair),
    ("pair as a Buffer", rust::buffer_pair),
    ("random sizes up to 1 MiB", rust::random_sizes),
    ("pair by address", rust::address_pair),
    ("4-byte store", rust::store),
    ("copy of 64 B in, with its wait", rust::copy_in),
    ("copy of 64 B out, with its wait", rust::copy_out),
    ("part of a view", rust::view_part),
    ("DLPack out and in", rust::dlpack),
    ("C: address of a buffer", c_library::handle),
    ("C: pool pair", c_library::pool_pair),
    ("C: 4-byte store", c_library::store),
    ("C: part of a view", c_library::view_part),
    ("C: DLPack out and in", c_library::dlpack),
];

/// Paths whose instructions say little.
const TIMED: &[(&str, Path)] = &[
    ("Buffers, 16 threads, one stream", rust::buffers_on_one_stream),
    ("Buffers, 16 threads, own streams", rust::buffers_on_own_streams),
    ("Buffers on 48 streams in turn", rust::buffers_on_streams),
];

/// Set by `--times`.
static MEASURES: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        PATHS.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    }
    if names[0] == "--times" {
        MEASURES.store(true, Ordering::Relaxed);
        names.remove(0);
        if names.is_empty() {
            names = PATHS.iter().chain(TIMED).map(|(name, _)| name.to_string()).collect();
        }
        println!("{:<32} {:>10} {:>10}", "an operation, ns", "median", "least");
    }
    names
        .iter()
        .map(|name| run(name))
        .fold(ExitCode::SUCCESS, |all, one| if all == ExitCode::SUCCESS { one } else { all })
}

fn run(name: &str) -> ExitCode {
    let timed = if MEASURES.load(Ordering::Relaxed) { TIMED } else { &[] };
    let Some((_, path)) = PATHS.iter().chain(timed).find(|(path, _)| *path == name) else {
        eprintln!("there is no path {name:?}; without arguments this program prints their names");
        return ExitCode::FAILURE;
    };
    if MEASURES.load(Ordering::Relaxed) {
        print!("{name:<32}");
    }
    match path() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The first device's context, current on this thread for good, as in most programs.
fn current_context() -> Result<(Driver, Context)> {
    let driver = Driver::load()?;
    let context: &Context = Box::leak(Box::new(driver.device(0)?.primary_context()?));
    std::mem::forget(context.bind()?);
    Ok((driver, context.clone()))
}

/// Warms a path up and runs it between marks.
fn count<T>(mut operation: impl FnMut() -> T) {
    // The warm-up takes at least one whole period of each path's random numbers.
    repeat(4 * OPERATIONS, &mut operation);
    if MEASURES.load(Ordering::Relaxed) {
        return measure(operation);
    }
    counts_mark();
    repeat(OPERATIONS, &mut operation);
    counts_mark();
    repeat(2 * OPERATIONS, &mut operation);
    counts_mark();
}

fn measure<T>(mut operation: impl FnMut() -> T) {
    let mut times: Vec<f64> = (0..101)
        .map(|_| {
            let begin = Instant::now();
            repeat(OPERATIONS, &mut operation);
            begin.elapsed().as_secs_f64() * 1e9 / OPERATIONS as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!(" {:>10.1} {:>10.1}", times[times.len() / 2], times[0]);
}

// One copy of the loop, so both parts run the same instructions.
#[inline(never)]
fn repeat<T>(times: usize, operation: &mut impl FnMut() -> T) {
    for _ in 0..times {
        std::hint::black_box(operation());
    }
}

/// callgrind writes its counts when the program calls this function.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn counts_mark() {
    std::hint::black_box(());
}
