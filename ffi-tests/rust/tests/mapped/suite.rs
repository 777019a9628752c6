//! Runs the suite over mapped memory: one test for each coherence wish, size and case.

use crate::judged;
use cuda_mem::mapped::MappedMemory;
use libtest_mimic::{Failed, Trial};
use testkit::Setup;
use testkit::suite::{self, CASES, SIZES, WISHES, shared_cases};

/// The tests of the suite.
pub fn trials(setup: &Setup) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, wish) in WISHES {
        let resource = match MappedMemory::with_coherence(&setup.context, wish) {
            Ok(resource) => resource,
            Err(error) if name == "required" && may_lack_coherence() => {
                println!("skipped: {name}: {error}");
                continue;
            }
            Err(error) => {
                trials.push(Trial::test(format!("suite::{name}::opens"), move || Err(Failed::from(error))));
                continue;
            }
        };
        for size in SIZES {
            for (case, run) in shared_cases::<MappedMemory>() {
                let (setup, resource) = (setup.clone(), resource.clone());
                let test = move || judged(&setup, run(&resource, size));
                trials.push(Trial::test(format!("suite::{name}::{case}::{size}"), test));
            }
            for (case, run) in CASES {
                let (setup, resource) = (setup.clone(), resource.clone());
                let test = move || judged(&setup, run(&setup, &resource, size));
                trials.push(Trial::test(format!("suite::{name}::{case}::{size}"), test));
            }
        }
        let setup = setup.clone();
        let test = move || judged(&setup, suite::impossible_sizes_are_refused(&resource));
        trials.push(Trial::test(format!("suite::{name}::impossible_sizes_are_refused"), test));
    }
    let clone = setup.clone();
    let test = move || judged(&clone, suite::memory_outlives_its_resource(&clone));
    trials.push(Trial::test("suite::memory_outlives_its_resource", test));
    trials
}

/// The software GPU can be configured to be non-coherent. It then correctly refuses memory that must be coherent.
fn may_lack_coherence() -> bool {
    std::env::var("SOFTGPU_COHERENT").as_deref() == Ok("0")
}
