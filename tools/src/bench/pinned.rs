//! `cuda-mem bench pinned`: how long page-locking takes, and how long it stops other threads.

use super::machine::{Machine, check_drops, render};
use super::{finish, open};
use crate::cli::BenchPinnedOptions;
use cuda_mem::cuda_sys::{CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CUresult};
use cuda_mem::memory::{PinnedMemory, PinnedOptions};
use cuda_mem::{Context, Event, HostBuffer, Stream};
use serde::Serialize;
use std::error::Error;
use std::fmt::Write;
use std::io::{IsTerminal, stderr};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The size of a brief run, in bytes: the smallest that is large.
const BRIEF: usize = 256 << 20;
/// The size of one of several buffers.
const PART: usize = 1 << 30;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    #[serde(flatten)]
    machine: Machine,
    bytes: usize,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    way: &'static str,
    allocate_s: f64,
    free_s: f64,
    /// The longest time that another thread needed to mark an event, which takes a microsecond at rest.
    longest_call_ms: f64,
}

/// Runs the command. Exit status 0: measured; 1: something failed.
pub(crate) fn run(options: &BenchPinnedOptions) -> ExitCode {
    finish("bench pinned", &options.run, try_run(options))
}

fn try_run(options: &BenchPinnedOptions) -> Outcome<(String, bool)> {
    let context = &open(&options.run)?;
    let _bound = context.bind()?;
    let bytes = options.size.map_or(if options.run.brief { BRIEF } else { 16 << 30 }, NonZeroUsize::get);
    let bar = stderr().is_terminal();
    let hear = move |done: usize, total: usize| {
        if bar {
            eprint!("\r{}", drawn(done, total));
        }
        ControlFlow::Continue(())
    };
    let source = &PinnedMemory::on_progress(context, PinnedOptions::default(), hear);
    let allocate = |size| HostBuffer::<u8>::uninit(source, size).map_err(Box::<dyn Error>::from);
    let rows = vec![
        measured(context, "PinnedMemory, one buffer", || allocate(bytes))?,
        measured(context, "PinnedMemory, buffers of 1 GiB", || {
            (0..bytes).step_by(PART).map(|start| allocate(PART.min(bytes - start))).collect::<Outcome<Vec<_>>>()
        })?,
        measured(context, "cuMemHostAlloc", || DriverMemory::new(context, bytes))?,
    ];
    if bar {
        eprint!("\r{:60}\r", "");
    }
    check_drops(context)?;
    let report = Report { ok: true, machine: Machine::of(context)?, bytes, rows };
    Ok((render(&options.run, &report, text)?, true))
}

/// Measures an allocation and its free, while another thread calls the driver all the time.
fn measured<T>(context: &Context, way: &'static str, allocate: impl FnOnce() -> Outcome<T>) -> Outcome<Row> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let other = scope.spawn(|| longest_call(context, &done));
        let start = Instant::now();
        let memory = allocate();
        let allocated = start.elapsed();
        let freed = memory.map(|memory| {
            drop(memory);
            start.elapsed() - allocated
        });
        // Also after an error: the scope waits for the other thread.
        done.store(true, Ordering::Relaxed);
        let longest = other.join().map_err(|_| "the other thread panicked")??;
        let (allocate_s, free_s) = (allocated.as_secs_f64(), freed?.as_secs_f64());
        Ok(Row { way, allocate_s, free_s, longest_call_ms: longest.as_secs_f64() * 1e3 })
    })
}

/// The longest time of a mark of an event, until `done`.
fn longest_call(context: &Context, done: &AtomicBool) -> cuda_mem::Result<Duration> {
    let (stream, event) = (Stream::new(context)?, Event::new(context)?);
    let mut longest = Duration::ZERO;
    while !done.load(Ordering::Relaxed) {
        let start = Instant::now();
        event.record(&stream)?;
        longest = longest.max(start.elapsed());
        thread::sleep(Duration::from_micros(50));
    }
    stream.synchronize()?;
    Ok(longest)
}

/// Memory of cuMemHostAlloc.
struct DriverMemory<'context> {
    context: &'context Context,
    start: *mut core::ffi::c_void,
}

impl<'context> DriverMemory<'context> {
    fn new(context: &'context Context, bytes: usize) -> Outcome<Self> {
        let mut start = core::ptr::null_mut();
        let flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: `start` is writable, and the context is current on this thread.
        match unsafe { context.driver().raw().cuMemHostAlloc(&mut start, bytes, flags) }? {
            CUresult::CUDA_SUCCESS => Ok(Self { context, start }),
            code => Err(format!("cuMemHostAlloc of {bytes} bytes: {code:?}").into()),
        }
    }
}

impl Drop for DriverMemory<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, and unused.
        let _ = unsafe { self.context.driver().raw().cuMemFreeHost(self.start) };
    }
}

/// A bar of 40 signs.
fn drawn(done: usize, total: usize) -> String {
    let signs = (done as u128 * 40 / total.max(1) as u128) as usize;
    format!("[{:40}] {} of {} MiB", "#".repeat(signs.min(40)), done >> 20, total >> 20)
}

fn text(report: &Report) -> String {
    let mut text = format!("{}\nPage-locking {} MiB:\n", report.machine.headline(), report.bytes >> 20);
    let _ = writeln!(text, "{:34}{:>14}{:>10}{:>32}", "", "allocate, s", "free, s", "longest call of another, ms");
    for row in &report.rows {
        let Row { way, allocate_s, free_s, longest_call_ms } = row;
        let _ = writeln!(text, "{way:34}{allocate_s:>14.3}{free_s:>10.3}{longest_call_ms:>32.1}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_grows_to_its_end() {
        assert_eq!(drawn(0, 4 << 20), format!("[{}] 0 of 4 MiB", " ".repeat(40)));
        assert_eq!(drawn(1 << 20, 4 << 20), format!("[{}{}] 1 of 4 MiB", "#".repeat(10), " ".repeat(30)));
        assert_eq!(drawn(4 << 20, 4 << 20), format!("[{}] 4 of 4 MiB", "#".repeat(40)));
    }
}
