//! `cuda-mem replay`: replays a trace on a pool and measures it.

use crate::cli::ReplayOptions;
use crate::output;
use crate::provider;
use crate::subject::{Subject, with_subject};
use cuda_mem::Context;
use cuda_mem::pool::PoolOptions;
use cuda_mem::trace::{Plan, ReplayReport, Trace, replay};
use serde::Serialize;
use std::error::Error;
use std::fmt::Write;
use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    software: bool,
    device_name: String,
    trace: Facts,
    replays: Vec<Replayed>,
}

/// Facts about the trace.
#[derive(Debug, Serialize)]
struct Facts {
    events: usize,
    lost: u64,
    operations: usize,
    blocks: usize,
    unknown_frees: u64,
    missing_frees: u64,
    left_out: u64,
}

#[derive(Debug, Serialize)]
struct Replayed {
    pool: &'static str,
    fragmentation: Option<f64>,
    #[serde(flatten)]
    report: ReplayReport,
}

/// Runs the command. Exit status 0: replayed; 1: something failed.
pub(crate) fn run(options: &ReplayOptions) -> ExitCode {
    match try_run(options) {
        Ok(text) => output::finish("replay", &text, true),
        Err(error) => output::failed("replay", options.json, &*error),
    }
}

/// Reads a trace file. The error names the file.
pub(crate) fn read(path: &Path) -> Result<Trace, String> {
    let file = File::open(path).map_err(|error| format!("cannot open {}: {error}", path.display()))?;
    Trace::read(file).map_err(|error| format!("{}: {error}", path.display()))
}

fn try_run(options: &ReplayOptions) -> Result<String, Box<dyn Error>> {
    // Read the trace before loading any library, so that a wrong file fails at once.
    let trace = read(&options.trace)?;
    let plan = Plan::new(&trace);
    if plan.operations.is_empty() {
        return Err(
            format!("{}: the trace contains no allocation that could be replayed", options.trace.display()).into()
        );
    }
    let context = provider::open_context(options.provider, options.device)?;
    let mut replays = Vec::new();
    for subject in &options.pool {
        let report = replay_on(*subject, &context, &plan)?;
        replays.push(Replayed { pool: subject.name(), fragmentation: report.fragmentation(), report });
    }
    if let Some(error) = context.take_drop_errors().errors.into_iter().next() {
        return Err(error.into());
    }
    let report = Report {
        ok: true,
        software: context.driver().is_software(),
        device_name: context.device().name()?,
        trace: Facts {
            events: trace.events.len(),
            lost: trace.lost,
            operations: plan.operations.len(),
            blocks: plan.blocks,
            unknown_frees: plan.unknown_frees,
            missing_frees: plan.missing_frees,
            left_out: plan.left_out,
        },
        replays,
    };
    match options.json {
        true => Ok(serde_json::to_string_pretty(&report)? + "\n"),
        false => Ok(text(&report)),
    }
}

fn replay_on(subject: Subject, context: &Context, plan: &Plan) -> cuda_mem::Result<ReplayReport> {
    with_subject!(subject, context, &PoolOptions::default(), |target| replay(plan, target))
}

fn text(report: &Report) -> String {
    let Facts { events, lost, operations, blocks, unknown_frees, missing_frees, left_out } = &report.trace;
    let mut text = format!("{events} events, {operations} operations on {blocks} blocks; on {}\n", report.device_name);
    for (count, what) in [
        (lost, "older events are missing from the trace"),
        (unknown_frees, "frees of blocks that were allocated before the trace: left out"),
        (missing_frees, "frees missing from the trace: done when the address is allocated again"),
        (left_out, "allocations that were empty or failed: left out"),
    ] {
        if *count > 0 {
            let _ = writeln!(text, "note: {count} {what}");
        }
    }
    for replayed in &report.replays {
        let _ = write!(text, "\n{}\n", replayed.pool);
        for line in replayed.report.to_string().lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    if report.software {
        text.push_str("\nNo GPU was used: the driver's figures are the software GPU's, not a real driver's.\n");
    }
    text
}
