//! `cuda-mem bench copy` and `cuda-mem bench latency`: the time of copies by size and method, and how close the
//! engine's choice is to the best method.

mod latency;
mod measure;
mod plot;
mod report;

use super::{finish, machine, open};
use crate::cli::{BenchCopyOptions, BenchLatencyOptions};
use cuda_mem::Context;
use cuda_mem::copy::{CopyEngine, Route};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
pub(crate) use measure::SMALLEST;
use serde::Serialize;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// The measured machine, and the threads that copy.
#[derive(Clone, Debug, Serialize)]
struct Machine {
    ok: bool,
    #[serde(flatten)]
    device: machine::Machine,
    threads: usize,
}

impl Machine {
    fn of(context: &Context, engine: &CopyEngine) -> cuda_mem::Result<Self> {
        Ok(Self { ok: true, device: machine::Machine::of(context)?, threads: 1 + engine.helper_threads() })
    }

    fn headline(&self) -> String {
        format!("{}, {} threads at most", self.device.headline(), self.threads)
    }

    /// The caution that a report on the software GPU needs.
    fn caution(&self) -> &'static str {
        if self.device.software {
            "\nNo GPU was used: these figures are of this machine's memory, not of a GPU.\n"
        } else {
            ""
        }
    }
}

/// Runs `bench copy`. Exit status 0: measured; 1: something failed.
pub(crate) fn run(options: &BenchCopyOptions) -> ExitCode {
    finish("bench copy", &options.run, try_run(options).map(|report| (report, true)))
}

/// Runs `bench latency`. Exit status 0: measured; 1: something failed.
pub(crate) fn run_latency(options: &BenchLatencyOptions) -> ExitCode {
    finish("bench latency", &options.run, try_run_latency(options).map(|report| (report, true)))
}

fn engine(context: &Context, threads: Option<usize>) -> cuda_mem::Result<CopyEngine> {
    match threads {
        None => CopyEngine::new(context),
        // The caller's thread counts as one of them.
        Some(threads) => CopyEngine::builder(context).helper_threads(threads.max(1) - 1).build(),
    }
}

fn try_run(options: &BenchCopyOptions) -> Result<String, Box<dyn Error>> {
    // Open the file before minutes of measuring, so that an unwritable path fails at once.
    let cannot = |path: &Path, error| format!("cannot write {}: {error}", path.display());
    let picture = match &options.svg {
        Some(path) => Some((path, File::create(path).map_err(|error| cannot(path, error))?)),
        None => None,
    };
    let context = &open(&options.run)?;
    let _bound = context.bind()?;
    let engine = engine(context, options.threads)?;
    let largest = options.largest.map_or(if options.run.brief { 1 << 20 } else { 1 << 30 }, |size| size.get());
    let sizes: Vec<usize> = measure::sizes(largest, options.run.brief);
    let mut bench = measure::Bench::new(context, &engine, largest, options.run.brief)?;
    let routes: Vec<Route> = Route::ALL.into_iter().filter(|route| bench.has(*route)).collect();
    let progress = progress((routes.len() * sizes.len()) as u64);
    let mut rows = Vec::new();
    for route in &routes {
        let mut given_up = Vec::new();
        for size in &sizes {
            progress.set_message(format!("{route}, {}", crate::bytes::size(*size as u64)));
            rows.push(bench.row(*route, *size, &mut given_up)?);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    machine::check_drops(context)?;
    let report = report::Report::new(Machine::of(context, &engine)?, rows);
    if let Some((path, mut file)) = picture {
        file.write_all(plot::picture(&report).as_bytes()).map_err(|error| cannot(path, error))?;
    }
    Ok(machine::render(&options.run, &report, report::text)?)
}

fn try_run_latency(options: &BenchLatencyOptions) -> Result<String, Box<dyn Error>> {
    let context = open(&options.run)?;
    let _bound = context.bind()?;
    let engine = engine(&context, None)?;
    let rows = latency::measure(&context, &engine, options.run.brief)?;
    let machine = Machine::of(&context, &engine)?;
    match options.run.json {
        true => Ok(serde_json::to_string_pretty(&latency::Report { machine, rows })? + "\n"),
        false => Ok(latency::text(&machine, &rows)),
    }
}

/// A progress bar on standard error, if that is a terminal.
fn progress(length: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar
}
