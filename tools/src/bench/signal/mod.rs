//! `cuda-mem bench signal`: the latency of signals between CPU and kernels.

mod cases;
mod report;

use super::machine::{Machine, check_drops, render};
use super::{finish, open};
use crate::cli::BenchSignalOptions;
use cases::{Case, Effort, Rig};
use cuda_mem::signal::Signals;
use report::{Report, Row};
use std::error::Error;
use std::process::ExitCode;

/// Runs the command. Exit status 0: measured; 1: something failed.
pub(crate) fn run(options: &BenchSignalOptions) -> ExitCode {
    finish("bench signal", &options.run, try_run(options))
}

/// The report, and whether everything was measured.
fn try_run(options: &BenchSignalOptions) -> Result<(String, bool), Box<dyn Error>> {
    let context = &open(&options.run)?;
    // Programs usually make the context current on the working thread, so do that here.
    let _bound = context.bind()?;
    let effort = if options.run.brief { Effort::BRIEF } else { Effort::FULL };
    let signals = Signals::new(context)?;
    let rig = Rig::new(&signals, effort)?;
    let mut rows = Vec::new();
    for case in Case::all(signals.why_not_mapped().is_none()) {
        // If one case fails, the others may still work.
        rows.push(rig.measure(case).map_or_else(|error| Row::failed(case, &*error), |figures| Row::new(case, figures)));
    }
    let why_not_mapped = signals.why_not_mapped().map(str::to_owned);
    drop((rig, signals));
    check_drops(context)?;
    let report = Report { ok: rows.iter().all(Row::is_measured), machine: Machine::of(context)?, why_not_mapped, rows };
    Ok((render(&options.run, &report, report::text)?, report.ok))
}
