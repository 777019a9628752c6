//! Work of which each call of the linked-in software GPU fails in turn.

use crate::{Setup, pop_all};
use cuda_mem::cuda_sys::CUresult;
use softgpu::Fault;
use std::collections::BTreeMap;

/// An error of a call, and whether the call does its work all the same.
pub type Failure = (CUresult, bool);

/// The calls of one function that failed.
#[derive(Debug)]
pub struct FailedCalls {
    /// The function.
    pub function: &'static str,
    /// How many of its calls failed in turn, each with every failure.
    pub calls: u64,
    /// How many runs gave an error by that.
    pub errors: u64,
}

/// Runs the work once for each call that it makes, with that call failing in each of these ways. `most` calls of a function fail
/// at most: further ones come from the same places of the code. `before` runs before each, with the number of the call.
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
        for &(code, after) in failures {
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
