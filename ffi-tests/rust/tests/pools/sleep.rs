//! Pools that sleep and wake. Runs on any driver with virtual memory; what injects faults needs the software GPU.

use crate::in_place::{CHUNK, options, over_virtual_memory};
use cuda_mem::adaptor::{GuardOptions, Guarded};
use cuda_mem::buffer::CopyBatch;
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::graph::{CaptureMode, GraphOptions};
use cuda_mem::memory::{
    DeviceMemory, PinnedMemory, ResourceHandle, SharedResource, VirtualMemory, VirtualOptions, kind,
};
use cuda_mem::pool::{Contents, Pool, PoolOptions, SleepError, SleepOptions};
use cuda_mem::signal::{Comparison, Signals, Waiter};
use cuda_mem::{Buffer, Error, Stream};
use softgpu::{Fault, When};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::suite::Outcome;
use testkit::timing::Numbers;
use testkit::{Setup, alone, pattern, same};

type Blocks = Vec<(Buffer<u8, kind::Any>, Vec<u8>)>;

fn save() -> SleepOptions {
    SleepOptions::default()
}

fn discard() -> SleepOptions {
    let mut options = SleepOptions::default();
    options.contents = Contents::Discard;
    options
}

fn is_asleep<T>(what: &str, result: Result<T, Error>) {
    let Err(error) = result else { panic!("{what} used memory that sleeps") };
    assert!(matches!(error, Error::Sleep(SleepError::Asleep { .. })), "{what}: {error}");
    assert!(error.to_string().contains("asleep: wake the pool first"), "{what}: {error}");
}

/// Blocks of many sizes, with gaps between them.
fn scattered(pool: &Pool<kind::Any>, stream: &Stream, seed: u64) -> Result<Blocks, Error> {
    let mut numbers = Numbers(seed);
    let mut blocks = Vec::new();
    for number in 0..60 {
        let size = 1 + numbers.below([500, 100_000, 3 * CHUNK][number % 3]);
        let bytes = pattern(size, number as u8);
        blocks.push((Buffer::from_slice(pool, &bytes, stream)?, bytes));
    }
    let mut number = 0;
    blocks.retain(|_| {
        number += 1;
        number % 3 != 1
    });
    Ok(blocks)
}

fn unchanged(blocks: &Blocks) -> Outcome {
    for (number, (buffer, bytes)) in blocks.iter().enumerate() {
        same(&format!("block {number}"), &buffer.to_vec()?, bytes)?;
    }
    Ok(())
}

#[test]
fn a_pool_wakes_with_its_contents_at_its_addresses() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let (stream, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let pool = Pool::new(memory, &PoolOptions::default())?;
        let mut blocks = scattered(&pool, &stream, 1)?;
        let addresses: Vec<u64> = blocks.iter().map(|(buffer, _)| buffer.device_pointer()).collect();
        for round in 0..3 {
            let (reserved, free) = (pool.statistics().reserved.current, setup.context.memory_info()?.free);
            let slept = pool.sleep(&save())?;
            assert!(pool.is_asleep());
            assert_eq!(slept.released as u64, reserved, "round {round}");
            let used: usize = blocks.iter().map(|(_, bytes)| bytes.len()).sum();
            assert!(slept.saved >= used && slept.saved <= slept.released, "{} of {used} bytes", slept.saved);
            assert_eq!(pool.statistics().reserved.current, 0);
            let more = setup.context.memory_info()?.free.saturating_sub(free) as u64;
            assert!(!setup.is_software() || more >= reserved, "{more} of {reserved} bytes came back");
            // Others use the memory meanwhile.
            let others = Pool::new(memory, &PoolOptions::default())?;
            drop(Buffer::filled(&others, slept.released, 0xee_u8, &other)?);
            drop(others);
            pool.wake()?;
            assert!(!pool.is_asleep());
            assert_eq!(pool.statistics().reserved.current, reserved);
            unchanged(&blocks)?;
            let now: Vec<u64> = blocks.iter().map(|(buffer, _)| buffer.device_pointer()).collect();
            assert_eq!(now, addresses);
            // The pool goes on.
            blocks.extend(scattered(&pool, &other, 2 + round)?);
            blocks.truncate(addresses.len());
        }
        Ok(())
    })
}

#[test]
fn a_captured_graph_runs_again_after_its_pool_woke() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let stream = Stream::new(&setup.context)?;
        let pool = Pool::new(memory, &PoolOptions::default())?;
        let source = Buffer::from_slice(&pool, &pattern(1000, 3), &stream)?;
        let mut target = Buffer::<u8, _>::zeroed(&pool, 1000, &stream)?;
        let graph = stream.capture(CaptureMode::ThreadLocal, |_| target.copy_from_buffer(0, &source, ..))?;
        let executable = graph.instantiate(GraphOptions::default())?;
        pool.sleep(&save())?;
        pool.wake()?;
        // SAFETY: the memory of the graph lives, and nothing else uses it.
        unsafe { executable.launch(&stream) }?;
        same("the graph's copy", &target.to_vec()?, &pattern(1000, 3))?;
        Ok(())
    })
}

#[test]
fn what_a_pool_discards_is_not_saved() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let stream = Stream::new(&setup.context)?;
        let pool = Pool::new(memory, &PoolOptions::default())?;
        let mut cache = Buffer::filled(&pool, 3 * CHUNK, 7u8, &stream)?;
        let reserved = pool.statistics().reserved.current as usize;
        let slept = pool.sleep(&discard())?;
        assert_eq!((slept.saved, slept.released), (0, reserved));
        pool.wake()?;
        cache.fill(.., 9)?;
        same("the cache, filled again", &cache.to_vec()?, &[9; 3 * CHUNK])?;
        Ok(())
    })
}

#[test]
fn use_of_memory_that_sleeps_is_an_error() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let (stream, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let pool = Pool::new(memory, &PoolOptions::default())?;
        let mut mine = Buffer::from_slice(&pool, &[1u8; 300], &stream)?;
        let mut theirs = Buffer::from_slice(&pool, &[1u8; 300], &other)?;
        let mut awake = Buffer::from_slice(&DeviceMemory::new(&setup.context).share(), &[2u8; 300], &stream)?;
        let freed = Buffer::<u8, _>::zeroed(&pool, 300, &stream)?;
        pool.sleep(&save())?;
        // The free succeeds, and the next allocation must not get its block.
        drop(freed);
        is_asleep("an allocation", Buffer::<u8, _>::uninit(&pool, 300, &stream));
        is_asleep("a large allocation", Buffer::<u8, _>::uninit(&pool, 30 * CHUNK, &stream));
        is_asleep("a reservation", pool.reserve(100 * CHUNK));
        is_asleep("an upload", mine.copy_from_slice(0, &[3; 3]));
        is_asleep("a download", mine.to_vec());
        is_asleep("a fill", mine.fill(.., 3));
        is_asleep("a copy within", mine.copy_within(..10, 20));
        is_asleep("a copy from it", awake.copy_from_buffer(0, &mine, ..));
        is_asleep("a copy from it, of another stream", awake.copy_from_buffer(0, &theirs, ..));
        is_asleep("a copy to it", mine.copy_from_buffer(0, &awake, ..));
        is_asleep("a copy to it, of another stream", theirs.copy_from_buffer(0, &awake, ..));
        is_asleep("a clone", mine.try_clone());
        let mut batch = CopyBatch::new(&stream);
        is_asleep("a batch", batch.copy(&mut awake, 0, &mine, ..));
        drop(batch);
        pool.wake()?;
        let mut batch = CopyBatch::new(&stream);
        batch.copy(&mut awake, 0, &mine, ..)?;
        pool.sleep(&save())?;
        is_asleep("a batch of before", batch.submit());
        // What needs no memory works.
        pool.trim_to(0)?;
        pool.release_unused()?;
        assert_eq!(pool.statistics().reserved.current, 0);
        let _ = pool.snapshot();
        same("memory that does not sleep", &awake.to_vec()?, &[2; 300])?;
        pool.wake()?;
        same("one buffer", &mine.to_vec()?, &[1; 300])?;
        same("the other buffer", &theirs.to_vec()?, &[1; 300])?;
        mine.copy_from_slice(0, &[3; 3])?;
        Ok(())
    })
}

#[test]
fn a_pool_sleeps_once_and_wakes_once() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let stream = Stream::new(&setup.context)?;
        let pool = Pool::new(memory, &PoolOptions::default())?;
        let buffer = Buffer::from_slice(&pool, &[1u8; 300], &stream)?;
        assert!(matches!(pool.wake(), Err(Error::Sleep(SleepError::Awake { .. }))));
        pool.sleep(&save())?;
        let again = pool.sleep(&discard());
        assert!(matches!(again, Err(Error::Sleep(SleepError::AlreadyAsleep { .. }))), "{again:?}");
        pool.wake()?;
        assert!(matches!(pool.wake(), Err(Error::Sleep(SleepError::Awake { .. }))));
        same("the buffer", &buffer.to_vec()?, &[1; 300])?;
        Ok(())
    })
}

#[test]
fn each_pool_sleeps_for_itself() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let stream = Stream::new(&setup.context)?;
        // The first has no memory, so no address of it is listed.
        let empty = Pool::new(memory, &options(|options| options.initial = 0))?;
        let (one, two) = (Pool::new(memory, &PoolOptions::default())?, Pool::new(memory, &PoolOptions::default())?);
        let (first, second) = (Buffer::filled(&one, 9, 1u8, &stream)?, Buffer::filled(&two, 9, 2u8, &stream)?);
        empty.sleep(&save())?;
        one.sleep(&save())?;
        same("a buffer of a pool that is awake", &second.to_vec()?, &[2; 9])?;
        two.sleep(&discard())?;
        empty.wake()?;
        is_asleep("the first", first.to_vec());
        is_asleep("the second", second.to_vec());
        one.wake()?;
        same("the first", &first.to_vec()?, &[1; 9])?;
        is_asleep("the second, still", second.to_vec());
        two.wake()?;
        drop(second.to_vec()?);
        drop(Buffer::filled(&empty, 9, 3u8, &stream)?);
        Ok(())
    })
}

#[test]
fn a_guarded_block_of_a_pool_that_sleeps_is_freed() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let stream = Stream::new(&setup.context)?;
        let pool = Pool::new(memory, &PoolOptions::default())?;
        let guarded = Guarded::new(&pool, &GuardOptions::default())?;
        let (one, two) = (Buffer::filled(&guarded, 100, 1u8, &stream)?, Buffer::filled(&guarded, 100, 2u8, &stream)?);
        pool.sleep(&save())?;
        drop(one);
        assert_eq!(guarded.check()?.len(), 0);
        is_asleep("an allocation", Buffer::<u8, _>::uninit(&guarded, 100, &stream));
        pool.wake()?;
        assert_eq!(guarded.check()?.len(), 0);
        same("the other block", &two.to_vec()?, &[2; 100])?;
        drop(two);
        guarded.release_quarantine();
        assert_eq!(pool.statistics().blocks.current, 0);
        Ok(())
    })
}

#[test]
fn a_pool_whose_wake_failed_may_end() -> Outcome {
    over_virtual_memory(|setup, memory| {
        if !setup.is_software() {
            println!("skipped: failures of calls are for the software GPU: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        let stream = Stream::new(&setup.context)?;
        let pool = Pool::new(memory, &options(|options| options.initial = 0))?;
        let blocks = in_two_runs(&pool, &stream)?;
        pool.sleep(&save())?;
        // The copy fails, and one run stays mapped.
        let code = CUresult::CUDA_ERROR_UNKNOWN;
        softgpu::faults([Fault::call("cuMemcpyAsync", 1, code), Fault::call("cuMemUnmap", 1, code)]);
        let refused = pool.wake();
        softgpu::faults([]);
        assert!(refused.is_err() && pool.is_asleep(), "{refused:?}");
        assert_eq!(setup.context.take_drop_errors().errors.len(), 1);
        drop((blocks, pool));
        Ok(())
    })
}

#[test]
fn a_pool_stays_awake_while_a_stream_waits_for_the_cpu() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let stream = Stream::new(&setup.context)?;
        let pool = Pool::new(memory, &PoolOptions::default())?;
        let mut buffer = Buffer::from_slice(&pool, &[1u8; 300], &stream)?;
        let signals = Signals::new(&setup.context)?;
        let flag = signals.flag::<u32>(Waiter::Device)?;
        flag.wait_on(&stream, Comparison::Equal, 1)?;
        buffer.fill(.., 2)?;
        let mut options = save();
        options.patience = Duration::from_millis(20);
        match pool.sleep(&options) {
            Err(Error::Sleep(SleepError::Busy { waits, .. })) => assert!(waits.contains("flag"), "{waits}"),
            other => panic!("{other:?}"),
        }
        assert!(!pool.is_asleep());
        drop(Buffer::<u8, _>::uninit(&pool, 300, &stream)?);
        flag.store(1);
        options.patience = Duration::MAX;
        pool.sleep(&options)?;
        pool.wake()?;
        same("the buffer", &buffer.to_vec()?, &[2; 300])?;
        Ok(())
    })
}

#[test]
fn a_pool_does_not_fall_asleep_in_a_capture() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let (stream, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let pool = Pool::new(memory, &PoolOptions::default())?;
        let buffer = Buffer::from_slice(&pool, &[1u8; 300], &other)?;
        let mut options = save();
        options.patience = Duration::from_millis(20);
        let mut tried = None;
        let _graph = stream.capture(CaptureMode::ThreadLocal, |_| {
            tried = Some(pool.sleep(&options));
            Ok(())
        })?;
        assert!(matches!(tried, Some(Err(Error::Capturing { .. }))), "{tried:?}");
        same("the buffer", &buffer.to_vec()?, &[1; 300])?;
        pool.sleep(&options)?;
        pool.wake()?;
        Ok(())
    })
}

#[test]
fn pools_that_cannot_sleep_say_why() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let on_host = VirtualMemory::host_numa(&setup.context, 0, &VirtualOptions::default());
        let regions = options(|options| options.in_place = false);
        let mut pools = vec![
            Pool::new(memory, &regions)?,
            Pool::new(&PinnedMemory::new(&setup.context).share(), &PoolOptions::default())?,
        ];
        if let Ok(memory) = on_host {
            pools.push(Pool::new(&memory.share(), &PoolOptions::default())?);
        }
        for pool in pools {
            for refused in [pool.sleep(&save()).map(drop), pool.wake()] {
                let text = refused.expect_err("it cannot sleep").to_string();
                assert!(text.contains("a pool that grows in place"), "{text}");
            }
            assert!(!pool.is_asleep());
        }
        Ok(())
    })
}

#[test]
fn without_host_memory_the_pool_stays_awake() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let stream = Stream::new(&setup.context)?;
        let pool = Pool::new(memory, &PoolOptions::default())?;
        let blocks = scattered(&pool, &stream, 5)?;
        let small = options(|options| options.maximum = 1 << 20);
        let sources: [(SharedResource, &str); 2] = [
            (Pool::new(&PinnedMemory::new(&setup.context), &small)?.share(), "maximum"),
            (DeviceMemory::new(&setup.context).share(), "page-locked host memory"),
        ];
        for (host, text) in sources {
            let mut options = save();
            options.host = Some(host);
            let refused = pool.sleep(&options).expect_err("the host has no room").to_string();
            assert!(refused.contains(text), "{refused}");
            assert!(!pool.is_asleep());
            unchanged(&blocks)?;
        }
        let host = Pool::new(&PinnedMemory::new(&setup.context), &PoolOptions::default())?;
        let mut options = save();
        options.host = Some(host.share());
        pool.sleep(&options)?;
        assert!(host.statistics().blocks.current > 0);
        pool.wake()?;
        assert_eq!(host.statistics().blocks.current, 0);
        unchanged(&blocks)
    })
}

#[test]
fn a_wake_without_device_memory_may_be_repeated() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let stream = Stream::new(&setup.context)?;
        let pool = Pool::new(memory, &PoolOptions::default())?;
        let blocks = scattered(&pool, &stream, 6)?;
        pool.sleep(&save())?;
        if setup.is_software() {
            for create in 1..4 {
                // Each try again fails too.
                let fault = Fault::call("cuMemCreate", 1, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
                softgpu::faults([Fault { when: When::Every(create), ..fault }]);
                let refused = pool.wake();
                softgpu::faults([]);
                assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
                assert!(pool.is_asleep());
                is_asleep("a download", blocks[0].0.to_vec());
            }
        }
        pool.wake()?;
        unchanged(&blocks)
    })
}

/// Blocks in two runs of chunks: what lay between them was given back.
fn in_two_runs(pool: &Pool<kind::Any>, stream: &Stream) -> Result<Blocks, Error> {
    let block = |size: usize, seed: u8| {
        let bytes = pattern(size, seed);
        Ok::<_, Error>((Buffer::from_slice(pool, &bytes, stream)?, bytes))
    };
    let (first, gap, last) = (block(CHUNK, 1)?, block(40 * CHUNK, 2)?, block(CHUNK, 3)?);
    drop(gap);
    pool.release_unused()?;
    assert_eq!(pool.snapshot().regions.len(), 2, "{:?}", pool.snapshot().regions);
    Ok(vec![first, last])
}

#[test]
fn a_failed_unmap_leaves_the_contents() -> Outcome {
    over_virtual_memory(|setup, memory| {
        if !setup.is_software() {
            println!("skipped: failures of calls are for the software GPU: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        let code = CUresult::CUDA_ERROR_UNKNOWN;
        let stream = Stream::new(&setup.context)?;
        let pool = Pool::new(memory, &options(|options| options.initial = 0))?;
        let blocks = in_two_runs(&pool, &stream)?;
        // The second run stays mapped, so the first is mapped again.
        for options in [save(), discard()] {
            softgpu::faults([Fault::call("cuMemUnmap", 2, code)]);
            let refused = pool.sleep(&options);
            softgpu::faults([]);
            assert!(refused.is_err() && !pool.is_asleep(), "{refused:?}");
            unchanged(&blocks)?;
        }
        // That fails too, so the pool sleeps, and wakes with what it has saved.
        softgpu::faults([Fault::call("cuMemUnmap", 2, code), Fault::call("cuMemMap", 1, code)]);
        let slept = pool.sleep(&save());
        softgpu::faults([]);
        assert!(slept.is_ok() && pool.is_asleep(), "{slept:?}");
        assert_eq!(setup.context.take_drop_errors().errors.len(), 2);
        pool.wake()?;
        unchanged(&blocks)
    })
}

#[test]
fn work_that_meets_memory_asleep_has_an_illegal_address() -> Outcome {
    let test = |setup: &Setup| -> Outcome {
        if !setup.is_software() {
            println!("skipped: work at an illegal address ends a GPU's context: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        let context = setup.context.device().create_context()?;
        let stream = Stream::new(&context)?;
        let pool = Pool::new(&DeviceMemory::new(&context), &PoolOptions::default())?;
        let mut target = Buffer::<u8, _>::zeroed(&pool, 1000, &stream)?;
        let graph = stream.capture(CaptureMode::ThreadLocal, |_| target.fill(.., 7))?;
        let executable = graph.instantiate(GraphOptions::default())?;
        pool.sleep(&discard())?;
        // SAFETY: only the software GPU runs it, which looks at the addresses.
        let outcome = unsafe { executable.launch(&stream) }.and_then(|()| stream.synchronize());
        let code = outcome.expect_err("the memory is away").driver_code();
        assert_eq!(code, Some(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
        drop((graph, executable, target, pool, stream));
        drop(context.take_drop_errors());
        Ok(())
    };
    testkit::alone_with_misuse(test, |misuse| {
        assert!(misuse.iter().all(|report| report.misuse == softgpu::Misuse::UseAfterFree), "{misuse:?}");
    })
}

#[test]
fn buffers_and_pools_may_end_while_they_sleep() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let stream = Stream::new(&setup.context)?;
        let pool = Pool::new(memory, &PoolOptions::default())?;
        let mut blocks = scattered(&pool, &stream, 7)?;
        pool.sleep(&save())?;
        blocks.truncate(5);
        pool.wake()?;
        unchanged(&blocks)?;
        let new = scattered(&pool, &stream, 8)?;
        pool.sleep(&discard())?;
        drop(pool);
        drop((new, blocks));
        Ok(())
    })
}

#[test]
fn another_devices_access_returns_with_the_memory() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let Ok(device) = setup.context.driver().device(1) else {
            println!("skipped: access of another device: it needs two devices");
            return Ok(());
        };
        let far = device.primary_context()?;
        let stream = Stream::new(&far)?;
        let pool = Pool::new(memory, &PoolOptions::default())?;
        if let Err(error) = pool.allow_access(&device) {
            println!("skipped: access of another device: {error}");
            return Ok(());
        }
        let near = Buffer::from_slice(&pool, &pattern(3000, 1), &Stream::new(&setup.context)?)?;
        let mut copy = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&far), 3000, &stream)?.into_any();
        for round in 0..2 {
            copy.fill(.., round)?;
            copy.copy_from_buffer(0, &near, ..)?;
            // The copy of the other device runs when the pool falls asleep.
            pool.sleep(&save())?;
            same("a copy by the other device", &copy.to_vec()?, &pattern(3000, 1))?;
            pool.wake()?;
        }
        Ok(())
    })
}

#[test]
fn threads_use_a_pool_that_falls_asleep_and_wakes() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let pool = Pool::new(memory, &PoolOptions::default())?;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let users: Vec<_> = (0..3)
                .map(|number| {
                    let (pool, context, is_over) = (&pool, &setup.context, &is_over);
                    threads.spawn(move || -> Result<(), Error> {
                        let stream = Stream::new(context)?;
                        while !is_over.load(Ordering::Relaxed) {
                            // Blocks only: no work may run while the pool falls asleep.
                            match Buffer::<u8, _>::uninit(pool, 1 + 1000 * number, &stream) {
                                Ok(_) | Err(Error::Sleep(SleepError::Asleep { .. })) => {}
                                Err(error) => return Err(error),
                            }
                        }
                        Ok(())
                    })
                })
                .collect();
            let slept = (0..40).try_for_each(|_| {
                pool.sleep(&save())?;
                std::thread::yield_now();
                pool.wake()?;
                std::thread::sleep(Duration::from_micros(300));
                Ok::<_, Error>(())
            });
            is_over.store(true, Ordering::Relaxed);
            users.into_iter().try_for_each(|user| user.join().expect("no panic"))?;
            Ok(slept?)
        })
    })
}

#[test]
fn a_thousand_cycles_lose_nothing() -> Outcome {
    alone(|setup: &Setup| {
        let stream = Stream::new(&setup.context)?;
        let pool = Pool::new(&DeviceMemory::new(&setup.context), &PoolOptions::default())?;
        let host = Pool::new(&PinnedMemory::new(&setup.context), &PoolOptions::default())?;
        let mut options = save();
        options.host = Some(host.share());
        let mut buffer = Buffer::<u32, _>::zeroed(&pool, 1000, &stream)?;
        let cycles = if setup.is_software() { 1000 } else { 50 };
        for cycle in 0..cycles {
            buffer.fill(..500, cycle)?;
            pool.sleep(&options)?;
            pool.wake()?;
            let seen = buffer.to_vec()?;
            assert!(
                seen[..500].iter().all(|seen| *seen == cycle) && seen[500..].iter().all(|seen| *seen == 0),
                "{cycle}"
            );
        }
        Ok(())
    })
}
