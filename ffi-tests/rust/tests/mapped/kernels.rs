//! Kernels and CPU use the same memory at the same time, on a GPU and on the software GPU, which knows these kernels by
//! name.

use crate::judged;
use cuda_mem::Stream;
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::mapped::MappedMemory;
use libtest_mimic::Trial;
use std::time::{Duration, Instant};
use testkit::kernel::Kernels;
use testkit::suite::Outcome;
use testkit::{Setup, pattern, same};

type Test = fn(&Setup) -> Outcome;

/// The tests, which need kernels.
pub fn trials(setup: &Setup) -> Vec<Trial> {
    let tests: [(&str, Test); 4] = [
        ("a_kernel_doubles_bytes_in_place_and_the_cpu_sees_it", doubles),
        ("a_cpu_flag_store_releases_a_waiting_kernel_whose_answer_comes_back", flags),
        ("data_stored_before_a_flag_is_there_when_the_kernel_sees_the_flag", data_before_flag),
        ("calls_in_a_context_that_others_destroyed_are_errors_and_drops_quiet", destroyed_context),
    ];
    tests
        .map(|(name, run)| {
            let setup = setup.clone();
            Trial::test(format!("kernels::{name}"), move || judged(&setup, run(&setup)))
        })
        .into()
}

fn doubles(setup: &Setup) -> Outcome {
    let (kernels, stream) = (Kernels::new(&setup.context)?, Stream::new(&setup.context)?);
    let resource = MappedMemory::new(&setup.context)?;
    for size in [1, 63, 4097, 1 << 20] {
        let mut memory = testkit::mapped(&resource, size)?;
        let bytes = pattern(size, 1);
        memory.store(0, &bytes)?;
        // SAFETY: the memory is told about the work and waits for it.
        unsafe { kernels.double_bytes(memory.device_pointer(), size as u64, &stream) }?;
        memory.record_use(&stream)?;
        let doubled: Vec<u8> = bytes.iter().map(|byte| byte.wrapping_mul(2)).collect();
        let mut seen = vec![0; size];
        memory.load(0, &mut seen)?;
        same("the CPU", &seen, &doubled)?;
    }
    Ok(())
}

fn flags(setup: &Setup) -> Outcome {
    let (kernels, stream) = (Kernels::new(&setup.context)?, Stream::new(&setup.context)?);
    let memory = testkit::mapped(&MappedMemory::new(&setup.context)?, 4096)?.into_shared();
    let (question, answer) = (memory.cell::<u32>(0)?, memory.cell::<u32>(1024)?);
    question.store(0)?;
    answer.store(0)?;
    let rounds = 1000;
    // SAFETY: the words live until the stream is waited for below.
    unsafe { kernels.answer(question.device_pointer(), answer.device_pointer(), rounds, &stream) }?;
    for number in 1..=rounds {
        question.store(number)?;
        let start = Instant::now();
        while answer.load()? != number {
            if start.elapsed() > Duration::from_secs(5) {
                return Err(format!("no answer to {number}; the last is {}", answer.load()?).into());
            }
        }
    }
    Ok(stream.synchronize()?)
}

/// The kernel repeatedly doubles what the CPU stored before its launch, in one block: posted data must be visible to
/// it.
fn data_before_flag(setup: &Setup) -> Outcome {
    let (kernels, stream) = (Kernels::new(&setup.context)?, Stream::new(&setup.context)?);
    let mut memory = testkit::mapped(&MappedMemory::new(&setup.context)?, 4096)?;
    for round in 0..500u32 {
        let bytes = pattern(4096, round as u8);
        memory.store(0, &bytes)?;
        // SAFETY: the stream is waited for before the memory is used again.
        unsafe { kernels.double_bytes(memory.device_pointer(), 4096, &stream) }?;
        stream.synchronize()?;
        let mut seen = vec![0; 4096];
        memory.copy_to_slice(0, &mut seen)?;
        let doubled: Vec<u8> = bytes.iter().map(|byte| byte.wrapping_mul(2)).collect();
        same(&format!("round {round}"), &seen, &doubled)?;
    }
    Ok(())
}

fn destroyed_context(setup: &Setup) -> Outcome {
    let context = setup.context.device().create_context()?;
    let (stream, resource) = (Stream::new(&context)?, MappedMemory::new(&context)?);
    let memory = testkit::mapped(&resource, 4096)?;
    // SAFETY: the handle is a live context's.
    if unsafe { setup.driver.raw().cuCtxDestroy_v2(context.raw()) }? != CUresult::CUDA_SUCCESS {
        return Err("cuCtxDestroy failed".into());
    }
    match Stream::new(&context) {
        Err(error) => println!("a call in a destroyed context: {error}"),
        Ok(_) => return Err("a stream was made in a destroyed context".into()),
    }
    drop((memory, resource, stream));
    println!("drop errors: {:?}", context.take_drop_errors());
    drop(context);
    println!("drop errors of the context: {:?}", setup.driver.take_drop_errors());
    // The driver still works.
    let mut memory = testkit::mapped(&MappedMemory::new(&setup.context)?, 4096)?;
    memory.store(0, &[1u8; 4096])?;
    Ok(())
}
