//! Mapped memory, kernels that use it beside the CPU, and captures in each mode. The lists of tests are made at run time.

mod graphs;
mod kernels;
mod suite;

use libtest_mimic::{Arguments, Failed};
use std::process::ExitCode;
use testkit::suite::Outcome;
use testkit::{Setup, softgpu_leaks};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The software GPU's ledger applies to the whole process, there is only one GPU, and a capture in global mode forbids
    // calls on all threads.
    arguments.test_threads = Some(1);
    let setup = match Setup::from_environment() {
        Ok(setup) => setup,
        Err(error) => {
            eprintln!("no driver to test: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("{}", setup.describe());
    let trials =
        [suite::trials(&setup), graphs::trials(&setup), kernels::trials(&setup)].into_iter().flatten().collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    let misuse = softgpu::misuse();
    if !misuse.is_empty() {
        eprintln!("misused: {misuse:?}");
    }
    let leaks = softgpu_leaks(setup);
    if let Some(leaks) = &leaks {
        eprintln!("left behind: {leaks}");
    }
    if conclusion.has_failed() || leaks.is_some() || !misuse.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// What a test returns. An error of a drop is a failure too.
fn judged(setup: &Setup, outcome: Outcome) -> Result<(), Failed> {
    outcome?;
    let report = setup.context.take_drop_errors();
    if report.errors.is_empty() { Ok(()) } else { Err(format!("{:?}", report.errors).into()) }
}
