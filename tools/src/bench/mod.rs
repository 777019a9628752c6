//! `cuda-mem bench`: measures what operations cost on this machine.

mod clock;
pub(crate) mod copy;
mod machine;
pub(crate) mod peers;
pub(crate) mod pinned;
pub(crate) mod pool;
pub(crate) mod remote;
pub(crate) mod signal;

use crate::cli::BenchRun;
use crate::output;
use crate::provider::{self, OpenError};
use cuda_mem::Context;
use std::error::Error;
use std::process::ExitCode;

/// Opens the requested device.
fn open(run: &BenchRun) -> Result<Context, OpenError> {
    provider::open_context(run.provider, run.device)
}

/// Prints a report, or why there is none. The report comes with whether everything was measured.
fn finish(command: &str, run: &BenchRun, outcome: Result<(String, bool), Box<dyn Error>>) -> ExitCode {
    match outcome {
        Ok((report, ok)) => output::finish(command, &report, ok),
        Err(error) => output::failed(command, run.json, &*error),
    }
}
