//! `cuda-mem bench peers`: copies between devices, and with the host over several links, beside the driver's
//! own calls.

mod cases;
mod raw;
mod report;

use super::machine::render;
use super::{finish, open};
use crate::cli::BenchPeersOptions;
use cases::{Effort, Machine};
use cuda_mem::Topology;
use report::Report;
use std::error::Error;
use std::process::ExitCode;

/// Runs the command. Exit status 0: measured; 1: something failed, or there are no two devices.
pub(crate) fn run(options: &BenchPeersOptions) -> ExitCode {
    finish("bench peers", &options.run, try_run(options))
}

/// The report, and whether everything was measured.
fn try_run(options: &BenchPeersOptions) -> Result<(String, bool), Box<dyn Error>> {
    let context = open(&options.run)?;
    let driver = context.driver();
    let count = driver.device_count()?;
    if count < 2 {
        return Err(format!("copies between devices need two devices, and this driver shows {count}").into());
    }
    let effort = if options.run.brief { Effort::BRIEF } else { Effort::full(options.size) };
    let machine = Machine::new(driver)?;
    let rows = machine.measure_all(effort);
    let failed = rows.iter().any(|row| row.failed.is_some());
    let drops = machine.sides.iter().flat_map(|side| side.context.take_drop_errors().errors);
    if let Some(error) = drops.into_iter().next() {
        return Err(error.into());
    }
    let report = Report {
        ok: !failed,
        machine: super::machine::Machine::of(&context)?,
        topology: Topology::of(driver)?.to_string(),
        bytes: effort.size,
        rows,
    };
    Ok((render(&options.run, &report, report::text)?, report.ok))
}
