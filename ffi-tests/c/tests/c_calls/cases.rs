//! Runs cuda-mem's tables of cases through the C library, and, unless another test does, through cuda-mem itself. Both
//! must behave alike. Runs over any driver.

use std::sync::{Mutex, PoisonError};
use testkit::c_objects::Context;
use testkit::interface::MappedMemory;
use testkit::interface::{CLibrary, Interface, Native};
use testkit::memory_cases::{Case, copy_cases, pool_cases, resource_cases};
use testkit::suite::{Outcome, impossible_sizes_are_refused, shared_cases};
use testkit::{Setup, softgpu_leaks};

/// The sizes of every case of mapped memory, in bytes.
const SIZES: [usize; 7] = [1, 63, 64, 65, 4096, 4097, 1 << 18];

/// Runs a test that must leave nothing behind and misuse nothing. Leftovers can be detected only while no other test
/// runs.
fn alone(test: impl FnOnce() -> Outcome) -> Outcome {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let setup = Setup::from_environment()?;
    println!("{}", setup.describe());
    let misuse = softgpu::misuse().len();
    test()?;
    assert_eq!(setup.driver.take_drop_errors().errors, []);
    assert_eq!(softgpu::misuse()[misuse..], []);
    assert_eq!(softgpu_leaks(setup), None);
    Ok(())
}

fn over_every_source<I: Interface>(cases: &[(&str, Case<I>)]) -> Outcome {
    alone(|| {
        let interface = I::open()?;
        let sources = interface.sources()?;
        assert!(!sources.is_empty());
        for (source_name, source) in sources {
            for (name, case) in cases {
                case(&interface, &source).map_err(|error| format!("{name}, {source_name}: {error}"))?;
            }
        }
        Ok(())
    })
}

#[test]
fn mapped_memory_of_the_c_library() -> Outcome {
    alone(|| {
        let context = Context::open()?;
        // Preferred coherence, and memory treated as non-coherent.
        for coherence in [0, 2] {
            let source = MappedMemory(context.mapped_memory(coherence)?, context.stream()?);
            for (name, case) in shared_cases() {
                for size in SIZES {
                    case(&source, size).map_err(|error| format!("{name}, {coherence}, {size}: {error}"))?;
                }
            }
            impossible_sizes_are_refused(&source)?;
        }
        Ok(())
    })
}

#[test]
fn resources_of_the_c_library() -> Outcome {
    over_every_source::<CLibrary>(&resource_cases())
}

#[test]
fn pools_of_the_c_library() -> Outcome {
    over_every_source::<CLibrary>(&pool_cases())
}

#[test]
fn copies_of_the_c_library() -> Outcome {
    over_every_source::<CLibrary>(&copy_cases())
}

#[test]
fn resources_of_cuda_mem() -> Outcome {
    over_every_source::<Native>(&resource_cases())
}

#[test]
fn pools_of_cuda_mem() -> Outcome {
    over_every_source::<Native>(&pool_cases())
}

#[test]
fn copies_of_cuda_mem() -> Outcome {
    over_every_source::<Native>(&copy_cases())
}
