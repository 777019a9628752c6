//! `cuda-mem bench pool`: the cost of an allocation and a free, on this project's pools and on others.

mod program;
mod report;
mod workloads;

use super::machine::{Machine, check_drops, render};
use super::{finish, open};
use crate::cli::BenchPoolOptions;
use crate::replay;
use crate::subject::{Subject, with_subject};
use cuda_mem::Context;
use cuda_mem::pool::PoolOptions;
use cuda_mem::trace::Plan;
use report::{Report, Row};
use std::error::Error;
use std::fs::File;
use std::process::ExitCode;
use workloads::{Case, Effort};

/// Runs the command. Exit status 0: measured; 1: something failed.
pub(crate) fn run(options: &BenchPoolOptions) -> ExitCode {
    finish("bench pool", &options.run, try_run(options).map(|report| (report, true)))
}

fn try_run(options: &BenchPoolOptions) -> Result<String, Box<dyn Error>> {
    // Read the trace before loading any library, so that a wrong file fails at once.
    let trace = match &options.trace {
        Some(path) => replay::read(path)?,
        None => program::trace(options.run.brief),
    };
    if let Some(path) = &options.save_trace {
        let written = File::create(path).and_then(|file| trace.write(file));
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    let plan = Plan::new(&trace);
    let context = &open(&options.run)?;
    // Programs usually make the context current on the working thread, so do that here.
    let _bound = context.bind()?;
    let effort = if options.run.brief { Effort::BRIEF } else { Effort::FULL };
    let subjects = if options.pool.is_empty() { &Subject::ALL[..] } else { &options.pool };
    let mut rows = Vec::new();
    for case in workloads::cases(&effort) {
        for subject in subjects {
            // Plain memory has no holes.
            if !(*subject == Subject::Plain && matches!(case, Case::Holes(_))) {
                rows.push(measure(*subject, &case, context, &effort, &plan)?);
            }
        }
    }
    check_drops(context)?;
    let report = Report { ok: true, machine: Machine::of(context)?, rows };
    Ok(render(&options.run, &report, report::text)?)
}

/// Measures one row. If memory runs out, the row says so, and the other rows are still measured.
fn measure(subject: Subject, case: &Case, context: &Context, effort: &Effort, plan: &Plan) -> cuda_mem::Result<Row> {
    let mut settings = PoolOptions::default();
    if !matches!(case, Case::Replay) {
        // Like the peers' pools: growth is not measured.
        settings.initial = effort.initial;
    }
    let run = || -> cuda_mem::Result<_> {
        with_subject!(subject, context, &settings, |target| workloads::run(case, target, effort, plan))
    };
    match run() {
        Ok(figures) => Ok(Row::new(subject, case, figures)),
        Err(error) if error.is_out_of_memory() => Ok(Row::failed(subject, case, error.to_string())),
        Err(error) => Err(error),
    }
}
