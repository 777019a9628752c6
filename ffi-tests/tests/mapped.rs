//! Runs the suite over mapped memory: one test for each coherence wish, size and case.

use cuda_mem::mapped::MappedMemory;
use ffi_tests::suite::{self, CASES, Outcome, SIZES, WISHES, shared_cases};
use ffi_tests::{Setup, softgpu_leaks};
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The software GPU's ledger applies to the whole process, and there is only one GPU.
    arguments.test_threads = Some(1);
    let setup = match Setup::from_environment() {
        Ok(setup) => setup,
        Err(error) => {
            eprintln!("no driver to test: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("{}", setup.describe());

    let mut trials = Vec::new();
    for (name, wish) in WISHES {
        let resource = match MappedMemory::with_coherence(&setup.context, wish) {
            Ok(resource) => resource,
            Err(error) if name == "required" && may_lack_coherence() => {
                println!("skipped: {name}: {error}");
                continue;
            }
            Err(error) => {
                trials.push(Trial::test(format!("{name}::opens"), move || Err(Failed::from(error))));
                continue;
            }
        };
        for size in SIZES {
            for (case, run) in shared_cases::<MappedMemory>() {
                let (setup, resource) = (setup.clone(), resource.clone());
                let test = move || outcome(&setup, run(&resource, size));
                trials.push(Trial::test(format!("{name}::{case}::{size}"), test));
            }
            for (case, run) in CASES {
                let (setup, resource) = (setup.clone(), resource.clone());
                let test = move || outcome(&setup, run(&setup, &resource, size));
                trials.push(Trial::test(format!("{name}::{case}::{size}"), test));
            }
        }
        let setup = setup.clone();
        let test = move || outcome(&setup, suite::impossible_sizes_are_refused(&resource));
        trials.push(Trial::test(format!("{name}::impossible_sizes_are_refused"), test));
    }
    let clone = setup.clone();
    let test = move || outcome(&clone, suite::memory_outlives_its_resource(&clone));
    trials.push(Trial::test("memory_outlives_its_resource", test));

    let conclusion = libtest_mimic::run(&arguments, trials);
    let leaks = softgpu_leaks(setup);
    if let Some(leaks) = &leaks {
        eprintln!("left over after the suite:\n{leaks}");
    }
    if conclusion.has_failed() || leaks.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// A case's outcome. A drop error is a failure too.
fn outcome(setup: &Setup, outcome: Outcome) -> Result<(), Failed> {
    outcome?;
    let report = setup.context.take_drop_errors();
    if report.errors.is_empty() { Ok(()) } else { Err(format!("{:?}", report.errors).into()) }
}

/// The software GPU can be configured to be non-coherent. It then correctly refuses memory that must be coherent.
fn may_lack_coherence() -> bool {
    std::env::var("SOFTGPU_COHERENT").as_deref() == Ok("0")
}
