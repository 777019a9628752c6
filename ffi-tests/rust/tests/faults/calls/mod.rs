//! Every driver call fails in turn. Each failure must give a named error: no panic, no hang, nothing left behind.
//!
//! A run is made once without faults to count its calls, and then once for each call, with that call failing. One test
//! runs at a time, because faults and the ledger apply to the whole process.

mod buffers;
mod exporter;
mod peers;
mod pools;

use buffers::{
    buffers, interchange, large_pinned_memory, mapped_buffers, mapped_memory, sharing, streams, strided_copies,
    virtual_memory,
};
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::PinnedMemory;
use cuda_mem::signal::{Comparison, Signals, WaitPolicy, Waiter};
use cuda_mem::{Buffer, Driver, Error, Event, Stream};
use peers::{host_links, peers};
use pools::sleeping_pools;
use pools::{captured_by_others, frames, guarded_memory, pools, pools_in_place, ring_pools, rings_under_way, signals};
use softgpu::Fault;
use std::error::Error as StdError;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a worker may take to end something, and how long if something may be left for ever.
const LIMIT: Duration = Duration::from_secs(20);
const BRIEF: Duration = Duration::from_millis(50);

type Outcome = Result<(), Box<dyn StdError>>;

/// Calls that cuda-mem's drops make. If one of these fails, the object that it would free may be left, and the failure
/// is reported.
const ENDING: [&str; 16] = [
    "cuCtxSynchronize",
    "cuMemFree",
    "cuMemPoolDestroy",
    "cuStreamDestroy",
    "cuEventDestroy",
    "cuEventSynchronize",
    "cuCtxDestroy",
    "cuCtxPopCurrent",
    "cuCtxPushCurrent",
    "cuCtxGetCurrent",
    "cuCtxGetId",
    "cuDevicePrimaryCtxRelease",
    "cuDestroyExternalMemory",
    "cuMemUnmap",
    "cuMemAddressFree",
    "cuMemRelease",
];

/// Fails each call of a run in turn, with each of three errors. Returns the number of faults that occurred.
fn fail_each(name: &str, run: fn(&Driver) -> Outcome) -> Result<u64, Box<dyn StdError>> {
    fail_each_with(name, run, &[CUresult::CUDA_ERROR_OUT_OF_MEMORY, CUresult::CUDA_ERROR_UNKNOWN, CUresult(31337)])
}

/// Fails each call of a run in turn, with each of these errors. Returns the number of faults that occurred.
fn fail_each_with(name: &str, run: fn(&Driver) -> Outcome, codes: &[CUresult]) -> Result<u64, Box<dyn StdError>> {
    let driver = Driver::software()?;
    // The first run creates what is created once per process.
    run(&driver)?;
    // The number of calls varies, because runs poll until work is done. Use the minimum.
    let mut calls = u64::MAX;
    for _ in 0..3 {
        softgpu::trace(1 << 20);
        run(&driver)?;
        calls = calls.min(softgpu::take_trace().len() as u64);
        softgpu::trace(0);
    }
    assert!(calls > 20, "{name} makes only {calls} calls");
    assert_eq!(driver.take_drop_errors(), Default::default(), "{name} without faults");
    let ledger = softgpu::ledger_within(LIMIT);
    assert!(ledger.is_empty(), "{name} without faults: left behind:\n{ledger}");

    let (mut injected, mut left_by_endings) = (0, 0);
    for &code in codes {
        for number in 1..=calls {
            let mut attempts = 0;
            let (outcome, met, made) = loop {
                softgpu::trace(1 << 20);
                softgpu::faults([Fault::any(number, code)]);
                let outcome = run(&driver);
                let (met, made) = (softgpu::injected(), softgpu::calls());
                softgpu::faults([]);
                attempts += 1;
                if met != 0 || attempts == 20 {
                    break (outcome, met, made);
                }
                softgpu::take_trace();
                outcome?;
            };
            // The counted runs polled more often. In this run the work was done earlier, so it has no call with this
            // number.
            if met == 0 && made < number && made > calls - calls / 10 {
                softgpu::take_trace();
                break;
            }
            assert_eq!(met, 1, "{name}: a run with a fault at call {number} of {calls} made only {made} calls");
            injected += met;
            let trace = softgpu::take_trace();
            softgpu::trace(0);
            let failed = trace.iter().position(|call| call.result == i64::from(code.0 as i32));
            let call = failed.map_or("none", |failed| trace[failed].function);
            let before = &trace[failed.map_or(0, |failed| failed.saturating_sub(5))..failed.unwrap_or(0)];
            let before: Vec<_> = before.iter().map(|call| call.function).collect();
            let what = format!("{name}, call {number} ({call}, after {before:?}) fails with {}", code.0);
            let dropped = driver.take_drop_errors().errors;
            if let Err(error) = &outcome {
                let text = error.to_string();
                assert!(met > 0, "{what}: an error without a fault: {text}");
                assert!(error.downcast_ref::<Error>().is_some(), "{what}: no error of the facade: {text}");
                assert!(text.len() > 20 && !text.contains("panicked"), "{what}: {text}");
            }
            // If the pop failed, the context is still current. Pop it, so that the next run starts as usual.
            while pop(&driver)? {}
            let ends = ENDING.iter().any(|ending| call.starts_with(ending));
            // A worker may still end something. If the failed call frees, something may be left for ever.
            let ledger = softgpu::ledger_within(if ends { BRIEF } else { LIMIT });
            if !ledger.is_empty() {
                assert!(ends, "{what}: left behind after {outcome:?}, {dropped:?}:\n{ledger}");
                assert!(outcome.is_err() || !dropped.is_empty(), "{what}: left behind unseen:\n{ledger}");
                left_by_endings += 1;
                softgpu::reset();
                // SAFETY: 0 is the one value that cuInit takes.
                assert_eq!(unsafe { driver.raw().cuInit(0) }, Ok(CUresult::CUDA_SUCCESS));
            }
        }
    }
    println!("{name}: {calls} calls, {injected} faults; {left_by_endings} in calls that free, and reported");
    Ok(injected)
}

/// Pops a context from this thread's stack, if there is one. Returns whether there was one.
fn pop(driver: &Driver) -> Result<bool, Box<dyn StdError>> {
    let mut context = std::ptr::null_mut();
    // SAFETY: the result is writable.
    Ok(unsafe { driver.raw().cuCtxPopCurrent_v2(&mut context) }? == CUresult::CUDA_SUCCESS)
}

#[test]
fn interchange_survives_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("interchange", interchange).map(drop)
}

#[test]
fn mapped_memory_survives_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("mapped memory", mapped_memory).map(drop)
}

#[test]
fn buffers_survive_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("buffers", buffers).map(drop)
}

#[test]
fn cpu_fills_host_memory_if_the_driver_fill_fails() -> Outcome {
    let _alone = alone();
    let context = Driver::software()?.device(0)?.primary_context()?;
    let stream = Stream::new(&context)?;
    let mut buffer = Buffer::from_slice(&PinnedMemory::new(&context), &[[1u16, 2]; 10], &stream)?;
    softgpu::faults([Fault::call("cuMemsetD32Async", 1, CUresult::CUDA_ERROR_INVALID_VALUE)]);
    buffer.fill(3..5, [7, 8])?;
    assert_eq!((softgpu::injected(), buffer.to_vec()?[2..6].to_vec()), (1, vec![[1, 2], [7, 8], [7, 8], [1, 2]]));
    softgpu::faults([]);
    Ok(())
}

#[test]
fn strided_copies_survive_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("strided copies", strided_copies).map(drop)
}

#[test]
fn access_between_devices_survives_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    // With one error, because these runs are long.
    fail_each_with("peers", peers, &[CUresult::CUDA_ERROR_UNKNOWN]).map(drop)
}

#[test]
fn copies_over_host_links_survive_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each_with("host links", host_links, &[CUresult::CUDA_ERROR_UNKNOWN]).map(drop)
}

#[test]
fn streams_survive_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("streams", streams).map(drop)
}

#[test]
fn virtual_memory_survives_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("virtual memory", virtual_memory).map(drop)
}

#[test]
fn mapped_buffers_survive_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("mapped buffers", mapped_buffers).map(drop)
}

#[test]
fn pools_survive_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("pools", pools).map(drop)
}

#[test]
fn pools_that_others_capture_survive_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("pools that others capture", captured_by_others).map(drop)
}

#[test]
fn sharing_survives_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("sharing", sharing).map(drop)
}

#[test]
fn large_pinned_memory_survives_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("large pinned memory", large_pinned_memory).map(drop)
}

#[test]
fn frames_survive_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("frames", frames).map(drop)
}

#[test]
fn pools_that_grow_in_place_survive_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("pools that grow in place", pools_in_place).map(drop)
}

#[test]
fn pools_that_sleep_survive_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("pools that sleep", sleeping_pools).map(drop)
}

#[test]
fn ring_pools_survive_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("rings", ring_pools).map(drop)
}

#[test]
fn a_wait_that_fails_hands_no_memory_out_and_loses_none() -> Outcome {
    let _alone = alone();
    let driver = Driver::software()?;
    rings_under_way(&driver)?;
    let (mut injected, mut failed) = (0, 0);
    for call in ["cuEventQuery", "cuEventSynchronize", "cuEventRecord", "cuEventCreate", "cuStreamWaitEvent"] {
        for number in 1..=16 {
            softgpu::faults([Fault::call(call, number, CUresult::CUDA_ERROR_UNKNOWN)]);
            let outcome = rings_under_way(&driver);
            injected += softgpu::injected();
            softgpu::faults([]);
            if let Err(error) = outcome {
                // Wrong contents would be an error of another type.
                assert!(error.downcast_ref::<Error>().is_some(), "{call} {number}: {error}");
                failed += 1;
            }
            driver.take_drop_errors();
            assert!(softgpu::ledger().is_empty(), "{call} {number}: left behind:\n{}", softgpu::ledger());
        }
    }
    assert!(injected > 20 && failed > 10, "{injected} faults, {failed} errors");
    Ok(())
}

#[test]
fn guarded_memory_survives_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("guarded memory", guarded_memory).map(drop)
}

#[test]
fn signals_survive_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("signals", signals).map(drop)
}

#[test]
fn a_wait_for_a_signal_ends_when_the_device_has_failed() -> Outcome {
    let _alone = alone();
    let context = Driver::software()?.device(0)?.primary_context()?;
    let signals = Signals::new(&context)?;
    let (flag, mut ring) = (signals.flag::<u32>(Waiter::Cpu)?, signals.ring_from_device::<u32>(8)?);
    let mut full = signals.ring_to_device::<u32>(1)?;
    assert!(full.push(1)?);
    // After a failed kernel, every later call fails.
    let code = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
    let waits: [&mut dyn FnMut() -> Option<Error>; 3] = [
        &mut || flag.wait(Comparison::Equal, 1, &WaitPolicy::default()).err(),
        &mut || ring.receive(&mut [0], &WaitPolicy::default()).err(),
        &mut || full.send(&[2], &WaitPolicy::default()).err(),
    ];
    for wait in waits {
        softgpu::faults([Fault::call("cuStreamQuery", 2, code)]);
        let error = wait().ok_or("nothing ended the wait")?;
        softgpu::faults([]);
        assert_eq!(error.driver_code(), Some(code), "{error}");
    }
    Ok(())
}

#[test]
fn a_hook_of_drop_errors_may_end_other_values() -> Outcome {
    let _alone = alone();
    let context = Driver::software()?.device(0)?.create_context()?;
    // A reserve would keep the stream.
    context.reserve_streams(0)?;
    let (stream, event) = (Stream::new(&context)?, Event::new(&context)?);
    let event = Mutex::new(Some(event));
    context.set_drop_error_hook(Some(std::sync::Arc::new(move |_| {
        drop(event.lock().unwrap_or_else(PoisonError::into_inner).take());
    })));
    // The stream is destroyed, but the call reports a failure.
    let mut fault = Fault::call("cuStreamDestroy_v2", 1, CUresult::CUDA_ERROR_UNKNOWN);
    fault.after = true;
    softgpu::faults([fault]);
    drop(stream);
    softgpu::faults([]);
    assert_eq!(context.take_drop_errors().errors.len(), 1);
    context.set_drop_error_hook(None);
    drop(context);
    assert!(softgpu::ledger().is_empty(), "{}", softgpu::ledger());
    Ok(())
}
