//! Runs work while each of its calls of the linked-in software GPU fails in turn.

use crate::{Setup, pop_all};
use cuda_mem::cuda_sys::CUresult;
use softgpu::Fault;
use std::collections::BTreeMap;

/// How a call fails.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// The code that it answers.
    pub code: CUresult,
    /// Whether it does its work all the same.
    pub after: bool,
}

/// The faults at the calls of one function.
#[derive(Debug)]
pub struct FailedCalls {
    /// The function.
    pub function: &'static str,
    /// How many of its calls failed, each in every way.
    pub calls: u64,
    /// How many runs returned an error.
    pub errors: u64,
}

/// Runs the work once for each call that it makes and each way in which that call fails. Only the first `most` calls of a
/// function fail, because further ones come from the same places of the code. Before each run, `before` gets the call's number.
///
/// # Errors
///
/// The work fails without a fault.
///
/// # Panics
///
/// A run that met no fault fails.
pub fn at_each_call<S>(
    setup: &Setup,
    failures: &[Failure],
    most: u64,
    subject: &mut S,
    mut before: impl FnMut(&mut S, u64) -> cuda_mem::Result<()>,
    mut run: impl FnMut(&mut S) -> cuda_mem::Result<()>,
) -> Result<Vec<FailedCalls>, Box<dyn std::error::Error>> {
    run(subject)?;
    before(subject, 0)?;
    softgpu::trace(100_000);
    run(subject)?;
    let mut counts = BTreeMap::new();
    for call in softgpu::take_trace() {
        *counts.entry(call.function).or_insert(0_u64) += 1;
    }
    let mut failed = Vec::new();
    for (function, count) in counts {
        let (calls, mut errors) = (count.min(most), 0);
        for &Failure { code, after } in failures {
            // What was made by a call that failed is lost to any program, and what such a call freed is freed again.
            if after && ["Alloc", "Create", "Free", "Destroy"].iter().any(|verb| function.contains(verb)) {
                continue;
            }
            for number in 1..=calls {
                before(subject, number)?;
                softgpu::faults([Fault { after, ..Fault::call(function, number, code) }]);
                let outcome = run(subject);
                let injected = softgpu::injected();
                softgpu::faults([]);
                errors += u64::from(outcome.is_err());
                assert!(outcome.is_ok() || injected == 1, "{function}, call {number}: {outcome:?}");
                pop_all(&setup.driver)?;
            }
        }
        failed.push(FailedCalls { function, calls, errors });
    }
    run(subject)?;
    Ok(failed)
}
