//! `cuda-mem bench signal`: how long CPU and kernels take to hear of each other.

mod cases;
mod report;

use crate::cli::BenchSignalOptions;
use crate::{output, provider};
use cases::{Case, Effort, Rig};
use cuda_mem::signal::Signals;
use report::{Report, Row};
use std::error::Error;
use std::process::ExitCode;

/// Runs the command. 0: measured; 1: something failed.
pub(crate) fn run(options: &BenchSignalOptions) -> ExitCode {
    match try_run(options) {
        Ok(report) => {
            output::print(&report);
            ExitCode::SUCCESS
        }
        Err(error) => output::failed("bench signal", options.json, &*error),
    }
}

fn try_run(options: &BenchSignalOptions) -> Result<String, Box<dyn Error>> {
    let opened = provider::open_context(options.provider, options.device)?;
    if let Some(notice) = &opened.notice {
        output::warn(notice);
    }
    let context = &opened.context;
    // As programs do: the context is current on the thread that works.
    let _bound = context.bind()?;
    let effort = if options.brief { Effort::BRIEF } else { Effort::FULL };
    let signals = Signals::new(context)?;
    let rig = Rig::new(&signals, effort)?;
    let mut rows = Vec::new();
    for case in Case::all(signals.why_not_mapped().is_none()) {
        rows.push(Row::new(case, rig.measure(case)?));
    }
    let why_not_mapped = signals.why_not_mapped().map(str::to_owned);
    drop((rig, signals));
    if let Some(error) = context.take_drop_errors().errors.into_iter().next() {
        return Err(error.into());
    }
    let cuda = context.driver().provider();
    let report = Report {
        ok: true,
        notice: opened.notice,
        software: opened.software,
        device_name: context.device().name()?,
        driver: cuda.library.to_string(),
        cuda: cuda.version.map(|version| version.to_string()),
        why_not_mapped,
        rows,
    };
    match options.json {
        true => Ok(serde_json::to_string_pretty(&report)? + "\n"),
        false => Ok(report::text(&report)),
    }
}
