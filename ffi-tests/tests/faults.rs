//! Every driver call fails in turn: each time a named error, no panic, no hang, nothing left behind.
//!
//! A run is made once without faults to count its calls; then it is made again for each call, with that call failing.
//! One test at a time: faults and the ledger are one for the process.

use cuda_mem::cuda_sys::CUresult;
use cuda_mem::ipc::PoolExport;
use cuda_mem::mapped::{CoherenceWish, MappedResource};
use cuda_mem::memory::{DeviceMemory, DevicePool, PoolOptions};
use cuda_mem::{Buffer, Driver, Error, Event, Stream, StreamOptions};
use ffi_tests::{pattern, same};
use softgpu::Fault;
use std::error::Error as StdError;
use std::sync::{Mutex, MutexGuard, PoisonError};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

type Outcome = Result<(), Box<dyn StdError>>;

/// All that the facade does with mapped memory, in one run.
fn mapped_memory(driver: &Driver) -> Outcome {
    let device = driver.device(0)?;
    device.name()?;
    device.uuid()?;
    device.pci_bus_id()?;
    device.total_memory()?;
    for context in [device.primary_context()?, device.create_context()?] {
        for wish in [CoherenceWish::Preferred, CoherenceWish::ForcedNonCoherent] {
            let resource = MappedResource::with_coherence(&context, wish)?;
            let mut memory = resource.allocate(4097)?;
            let stream = Stream::new(&context)?;
            memory.copy_from_slice(0, &pattern(4097, 1))?;
            memory.store_from_slice(100, &[1u8; 7])?;
            memory.flush(..)?;
            memory.invalidate(50..60)?;
            let mut seen = vec![0u8; 4097];
            memory.device_read(0, &mut seen)?;
            memory.device_fill(64..128, 9, &stream)?;
            same("the fill", &memory.read(64..128)?, &[9; 64])?;
            memory.write(200..300)?.fill(3);
            memory.write(300..400)?.finish()?;
            memory.device_write(0, &pattern(4097, 2))?;
            memory.copy_to_slice(0, &mut seen)?;
            same("the copy", &seen, &pattern(4097, 2))?;
            memory.device_fill(.., 4, &stream)?;
            let (left, right) = memory.split_at(2048)?;
            drop(left);
            let shared = right.into_shared();
            shared.cell::<u32>(0)?.store(7)?;
            if shared.cell::<u32>(0)?.load()? != 7 {
                return Err("the word".into());
            }
            let twin = resource.import(shared.export()?)?;
            let mut word = [0u32];
            twin.copy_to_slice(0, &mut word)?;
            if word != [7] {
                return Err("the twin's word".into());
            }
        }
    }
    Ok(())
}

/// Streams, events, host functions.
fn streams(driver: &Driver) -> Outcome {
    let context = driver.device(1)?.primary_context()?;
    context.memory_info()?;
    let (least, greatest) = Stream::priority_range(&context)?;
    let mut options = StreamOptions::default();
    options.priority = greatest.min(least);
    let (first, second) = (Stream::with_options(&context, options)?, Stream::new(&context)?);
    let (start, end) = (Event::with_timing(&context)?, Event::with_timing(&context)?);
    start.record(&first)?;
    let (sender, receiver) = std::sync::mpsc::channel();
    first.launch_host_function(move || sender.send(1).unwrap_or_default())?;
    end.record(&first)?;
    second.wait(&end)?;
    second.join(&first)?;
    second.id()?;
    second.synchronize()?;
    if receiver.recv()? != 1 || !second.is_done()? || !end.has_passed()? {
        return Err("the order".into());
    }
    end.synchronize()?;
    start.elapsed(&end)?;
    Stream::legacy_default(&context).synchronize()?;
    context.synchronize()?;
    Ok(())
}

/// Exports and imports, with descriptors that seem to be another process's, and with what they are.
fn sharing(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.primary_context()?;
    let (stream, other_stream) = (Stream::new(&context)?, Stream::new(&context)?);
    let mut options = PoolOptions::default();
    options.shareable = true;
    let pool = DevicePool::new(&context, &options)?;
    let memory = Buffer::from_slice(&pool, &pattern(1000, 1), &stream)?.into_shared();
    for foreign in [false, true] {
        let (file, mut of_pool) = pool.export()?.into_parts();
        let mut of_memory = memory.slice(10..900)?.export()?;
        for descriptor in [&mut of_pool, &mut of_memory] {
            descriptor.process.nonce ^= u64::from(foreign);
        }
        let pool = DevicePool::import(&context, PoolExport::from_parts(file, of_pool))?;
        if pool.is_imported() != foreign {
            return Err("the pool".into());
        }
        let one = pool.import_buffer::<u8>(&of_memory, &stream)?;
        let two = pool.import_buffer::<u8>(&of_memory, &other_stream)?;
        same("one import", &one.to_vec()?, &pattern(1000, 1)[10..900])?;
        drop(one);
        same("another", &two.to_vec()?, &pattern(1000, 1)[10..900])?;
    }
    let plain = DeviceMemory::new(&context);
    let memory = Buffer::from_slice(&plain, &pattern(100, 2), &stream)?.into_shared();
    same("plain memory", &plain.import_buffer::<u8>(&memory.export()?, &stream)?.to_vec()?, &pattern(100, 2))?;
    let event = Event::exportable(&context)?;
    event.record(&stream)?;
    event.export()?;
    Ok(())
}

/// What a drop of the facade calls: where one of these fails, what it would have freed may be left, and is reported.
const ENDING: [&str; 12] = [
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
];

/// Fails each call of a run in turn, with each of these codes; gives how many faults were met.
fn fail_each(name: &str, run: fn(&Driver) -> Outcome) -> Result<u64, Box<dyn StdError>> {
    let driver = Driver::software()?;
    // The first run warms what is made once for the process.
    run(&driver)?;
    softgpu::trace(1 << 20);
    run(&driver)?;
    let calls = softgpu::take_trace().len() as u64;
    softgpu::trace(0);
    assert!(calls > 20, "{name} makes only {calls} calls");
    assert_eq!(driver.take_drop_errors(), Default::default(), "{name} without faults");
    assert!(softgpu::ledger().is_empty(), "{name} without faults: left behind:\n{}", softgpu::ledger());

    let (mut injected, mut left_by_endings) = (0, 0);
    for code in [CUresult::CUDA_ERROR_OUT_OF_MEMORY, CUresult::CUDA_ERROR_UNKNOWN, CUresult(31337)] {
        for number in 1..=calls {
            softgpu::trace(1 << 20);
            softgpu::faults([Fault::any(number, code)]);
            let outcome = run(&driver);
            let (met, made) = (softgpu::injected(), softgpu::calls());
            softgpu::faults([]);
            assert_eq!(met, 1, "{name}: a run with a fault at call {number} of {calls} made only {made} calls");
            injected += met;
            let failed = softgpu::take_trace().into_iter().find(|call| call.result == i64::from(code.0 as i32));
            softgpu::trace(0);
            let call = failed.map_or("none", |call| call.function);
            let what = format!("{name}, call {number} ({call}) fails with {}", code.0);
            let dropped = driver.take_drop_errors().errors;
            if let Err(error) = &outcome {
                let text = error.to_string();
                assert!(met > 0, "{what}: an error without a fault: {text}");
                assert!(error.downcast_ref::<Error>().is_some(), "{what}: no error of the facade: {text}");
                assert!(text.len() > 20 && !text.contains("panicked"), "{what}: {text}");
            }
            // Where the pop failed, the context stays current; that must not make the next run another one.
            while pop(&driver)? {}
            let ledger = softgpu::ledger();
            if !ledger.is_empty() {
                let ends = ENDING.iter().any(|ending| call.starts_with(ending));
                assert!(ends, "{what}: left behind:\n{ledger}");
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

/// Takes a context off this thread's stack, if one is left there.
fn pop(driver: &Driver) -> Result<bool, Box<dyn StdError>> {
    let mut context = std::ptr::null_mut();
    // SAFETY: the result is writable.
    Ok(unsafe { driver.raw().cuCtxPopCurrent_v2(&mut context) }? == CUresult::CUDA_SUCCESS)
}

#[test]
fn mapped_memory_survives_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("mapped memory", mapped_memory).map(drop)
}

#[test]
fn streams_survive_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("streams", streams).map(drop)
}

#[test]
fn sharing_survives_a_fault_at_every_call() -> Outcome {
    let _alone = alone();
    fail_each("sharing", sharing).map(drop)
}

#[test]
fn a_hook_of_drop_errors_may_end_other_values() -> Outcome {
    let _alone = alone();
    let context = Driver::software()?.device(0)?.create_context()?;
    let (stream, event) = (Stream::new(&context)?, Event::new(&context)?);
    let event = Mutex::new(Some(event));
    context.set_drop_error_hook(Some(std::sync::Arc::new(move |_| {
        drop(event.lock().unwrap_or_else(PoisonError::into_inner).take());
    })));
    // The stream is destroyed, and the call says that it was not.
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
