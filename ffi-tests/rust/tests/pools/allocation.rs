//! The pool over any driver: order, growth, trimming, its reports, and its end. One test runs at a time, because the
//! ledger applies to the whole process.

use cuda_mem::adaptor::Fallback;
use cuda_mem::memory::{DeviceMemory, DevicePool, DriverPoolOptions, ResourceHandle, SharedResource, kind};
use cuda_mem::pool::{OutOfMemoryInfo, Pool, PoolOptions, Reuse};
use cuda_mem::{Buffer, Error, MappedMemory, Stream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use testkit::sources::over_every_source;
use testkit::suite::Outcome;
use testkit::timing::Numbers;
use testkit::{Setup, alone, delay, pattern, same};

fn settings(change: impl FnOnce(&mut PoolOptions)) -> PoolOptions {
    let mut settings = PoolOptions::default();
    change(&mut settings);
    settings
}

fn device_pool(setup: &Setup, change: impl FnOnce(&mut PoolOptions)) -> Result<Pool<kind::Device>, Error> {
    Pool::new(&DeviceMemory::new(&setup.context), &settings(change))
}

/// Checks a pool over any source: contents, reuse, and release of memory.
fn work(setup: &Setup, upstream: &SharedResource) -> Outcome {
    let (stream, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
    let pool = Pool::new(upstream, &PoolOptions::default())?;
    let mut buffers = Vec::new();
    for (number, size) in [1, 255, 256, 257, 4096, 100_000, 1 << 20, 5 << 20].into_iter().enumerate() {
        let home = if number % 2 == 0 { &stream } else { &other };
        buffers.push(Buffer::from_slice(&pool, &pattern(size, number as u8), home)?);
    }
    for (number, buffer) in buffers.iter().enumerate() {
        same("a buffer", &buffer.to_vec()?, &pattern(buffer.len(), number as u8))?;
        assert!(buffer.device_pointer().is_multiple_of(64));
    }
    let statistics = pool.statistics();
    assert_eq!(statistics.requested.current, buffers.iter().map(|buffer| buffer.size() as u64).sum::<u64>());
    assert_eq!(statistics.blocks.current, buffers.len() as u64);
    assert!(statistics.allocated.current >= statistics.requested.current);
    assert!(statistics.reserved.current >= statistics.active.current);
    let address = buffers[4].device_pointer();
    buffers.remove(4).close().map_err(Error::from)?;
    buffers.push(Buffer::filled(&pool, 4096, 9u8, &stream)?);
    assert_eq!(buffers.last().map(Buffer::device_pointer), Some(address), "the stream has its own block back");
    drop(buffers);
    pool.release_unused()?;
    let statistics = pool.statistics();
    assert_eq!((statistics.reserved.current, statistics.regions.current, statistics.in_caches), (0, 0, 0));
    assert_eq!(statistics.pending, []);
    assert_eq!(statistics.requested.total, statistics.requested.freed);
    // The pool starts again.
    same("after that", &Buffer::filled(&pool, 100, 3u8, &stream)?.to_vec()?, &[3; 100])?;
    Ok(())
}

#[test]
fn a_pool_serves_over_every_source() -> Outcome {
    alone(|setup| over_every_source(setup, [], work))
}

#[test]
fn blocks_of_mapped_memory_never_share_an_atom() -> Outcome {
    alone(|setup| {
        let mapped = match MappedMemory::new(&setup.context) {
            Ok(mapped) => mapped,
            Err(error) => {
                println!("skipped: mapped memory: {error}");
                return Ok(());
            }
        };
        let stream = Stream::new(&setup.context)?;
        let pool = Pool::new(&mapped, &PoolOptions::default())?;
        let mut buffers = Vec::new();
        for number in 0..20u8 {
            let mut buffer = Buffer::filled(&pool, 100 + usize::from(number), number, &stream)?;
            buffer.write(10..20)?.fill(number + 100);
            buffers.push(buffer);
        }
        for (number, buffer) in (0..20u8).zip(&mut buffers) {
            let mut expected = vec![number; buffer.len()];
            expected[10..20].fill(number + 100);
            same("the device's view", &buffer.to_vec()?, &expected)?;
            buffer.fill(0..5, 7)?;
            expected[..5].fill(7);
            same("the CPU's view", &buffer.read(..)?, &expected)?;
        }
        Ok(())
    })
}

#[test]
fn a_pair_on_one_stream_makes_no_call() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let pool = device_pool(setup, |_| {})?;
        drop(Buffer::<u8, _>::uninit(&pool, 4096, &stream)?);
        let before = pool.statistics();
        if setup.is_software() {
            softgpu::count_calls(true);
        }
        for _ in 0..100 {
            drop(Buffer::<u8, _>::uninit(&pool, 4096, &stream)?);
        }
        let calls = softgpu::calls();
        softgpu::count_calls(false);
        assert_eq!(calls, 0);
        let after = pool.statistics();
        assert_eq!((after.events_recorded, after.waits, after.blocks.total), (0, 0, before.blocks.total + 100));
        Ok(())
    })
}

#[test]
fn another_stream_gets_memory_when_its_work_has_passed() -> Outcome {
    alone(|setup| {
        let (one, two) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        for reuse in [Reuse::SameStreamOnly, Reuse::WhenPassed, Reuse::Wait] {
            let pool = device_pool(setup, |settings| {
                settings.reuse = reuse;
                settings.initial = 2 << 20;
                settings.cache_capacity = 0;
            })?;
            // The fill covers the whole pool and is delayed.
            delay(&one)?;
            let buffer = Buffer::filled(&pool, 2 << 20, 1u8, &one)?;
            let address = buffer.device_pointer();
            drop(buffer);
            let mut taken = Buffer::<u8, _>::uninit(&pool, 2 << 20, &two)?.init_from_slice(&vec![2; 2 << 20])?;
            let waits = pool.statistics().waits;
            assert_eq!(taken.device_pointer() == address, reuse == Reuse::Wait, "{reuse:?}");
            assert_eq!(waits, u64::from(reuse == Reuse::Wait), "{reuse:?}");
            taken.fill(0..1, 5)?;
            one.synchronize()?;
            same("the later work", &taken.to_vec()?[..2], &[5, 2])?;
            drop(taken);
            // Now all work is done, and the memory is requested again.
            two.synchronize()?;
            let events = pool.statistics().events_recorded;
            let again = Buffer::<u8, _>::uninit(&pool, 2 << 20, &one)?;
            assert_eq!(pool.statistics().waits, waits);
            assert_eq!(pool.statistics().events_recorded > 0, reuse != Reuse::SameStreamOnly, "{events}");
            drop(again);
        }
        Ok(())
    })
}

#[test]
fn the_second_taker_waits_as_the_first_one_did() -> Outcome {
    alone(|setup| {
        let streams = [Stream::new(&setup.context)?, Stream::new(&setup.context)?, Stream::new(&setup.context)?];
        let pool = device_pool(setup, |settings| {
            settings.initial = 1 << 20;
            settings.maximum = 1 << 20;
        })?;
        for _ in 0..5 {
            delay(&streams[0])?;
            drop(Buffer::filled(&pool, 1 << 20, 1u8, &streams[0])?);
            // The first stream freed both halves. The second stream's wait does not order the third stream's work.
            let one = Buffer::filled(&pool, 1 << 19, 2u8, &streams[1])?;
            let two = Buffer::filled(&pool, 1 << 19, 3u8, &streams[2])?;
            same("the second", &one.to_vec()?, &[2; 1 << 19])?;
            same("the third", &two.to_vec()?, &[3; 1 << 19])?;
        }
        Ok(())
    })
}

#[test]
fn where_memory_runs_short_all_is_tried_in_turn() -> Outcome {
    alone(|setup| {
        let (one, two) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let held = Arc::new(Mutex::new(Vec::new()));
        let (asked, source) = (Arc::new(AtomicUsize::new(0)), DeviceMemory::new(&setup.context));
        let hook = {
            let (held, asked) = (held.clone(), asked.clone());
            move |info: &OutOfMemoryInfo| {
                assert_eq!(info.attempt as usize, asked.fetch_add(1, Ordering::Relaxed));
                assert_eq!((info.requested, info.reserved), (4 << 20, 4 << 20));
                held.lock().unwrap_or_else(PoisonError::into_inner).pop().is_some()
            }
        };
        let pool = Pool::new(
            &source,
            &settings(|settings| {
                settings.initial = 2 << 20;
                settings.maximum = 4 << 20;
                settings.on_out_of_memory = Some(Arc::new(hook));
            }),
        )?;
        // Two regions in small blocks of two streams, most of them in thread caches. They must be joined to one block
        // again.
        let small: Vec<_> = (0..64)
            .map(|number| Buffer::filled(&pool, 60_000, 1u8, if number % 2 == 0 { &one } else { &two }))
            .collect::<Result<_, _>>()?;
        assert_eq!(pool.statistics().regions.current, 2);
        drop(small);
        let large = Buffer::filled(&pool, 2 << 20, 2u8, &one)?;
        same("joined", &large.to_vec()?, &[2; 2 << 20])?;
        drop(large);
        // A larger region replaces both regions.
        let larger = Buffer::filled(&pool, 4 << 20, 3u8, &two)?;
        assert_eq!((pool.statistics().regions.current, asked.load(Ordering::Relaxed)), (1, 0));
        // The hook frees a block.
        held.lock().unwrap_or_else(PoisonError::into_inner).push(larger);
        let again = Buffer::filled(&pool, 4 << 20, 4u8, &one)?;
        assert_eq!((asked.swap(0, Ordering::Relaxed), pool.statistics().retries), (1, 1));
        // No memory is left.
        let error = Buffer::<u8, _>::uninit(&pool, 4 << 20, &two).expect_err("the pool is full");
        assert!(matches!(&error, Error::OutOfMemory { requested, .. } if *requested == 4 << 20), "{error}");
        let text = error.to_string();
        assert!(text.contains("4194304 bytes reserved, 0 of them free, the largest free range 0"), "{text}");
        assert_eq!(pool.statistics().out_of_memory, 1);
        drop(again);

        // The fallback allocates what does not fit into the pool.
        let pool = Pool::new(&source, &settings(|settings| settings.maximum = 2 << 20))?;
        let second = DevicePool::new(&setup.context, &DriverPoolOptions::default())?;
        let memory = Fallback::new(&pool, &second)?;
        let own = Buffer::filled(&memory, 2 << 20, 1u8, &one)?;
        let other = Buffer::filled(&memory, 100, 2u8, &one)?;
        same("the fallback's", &other.to_vec()?, &[2; 100])?;
        assert_eq!((pool.statistics().reserved.current, pool.statistics().blocks.current), (2 << 20, 1));
        drop((other, own));
        drop(Buffer::filled(&memory, 100, 2u8, &two)?);
        Ok(())
    })
}

#[test]
fn regions_are_reserved_and_given_back() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let pool = device_pool(setup, |settings| settings.maximum = 64 << 20)?;
        pool.reserve(10 << 20)?;
        pool.reserve(1)?;
        assert_eq!(pool.statistics().reserved.current, 10 << 20);
        assert!(matches!(pool.reserve(65 << 20), Err(Error::InvalidArgument { argument: "bytes", .. })));
        delay(&stream)?;
        let (used, late) = (Buffer::filled(&pool, 100, 1u8, &stream)?, Buffer::filled(&pool, 8 << 20, 1u8, &stream)?);
        drop(late);
        pool.trim_to(0)?;
        if setup.is_software() {
            assert_eq!(pool.statistics().reserved.current, 10 << 20, "its work is not done yet");
        }
        stream.synchronize()?;
        pool.trim_to(3 << 20)?;
        assert_eq!(pool.statistics().reserved.current, 10 << 20, "less than 3 MiB would stay");
        pool.trim_to(2 << 20)?;
        assert_eq!((pool.statistics().reserved.current, pool.statistics().reserved.peak), (2 << 20, 10 << 20));
        pool.reset_peaks();
        assert_eq!(pool.statistics().reserved.peak, 2 << 20);
        same("what stayed", &used.to_vec()?, &[1; 100])?;
        Ok(())
    })
}

#[test]
fn the_peak_of_what_blocks_use_is_exact_whatever_threads_do() -> Outcome {
    const SIZE: usize = 4096;
    const THREADS: usize = 4;
    alone(|setup| {
        for cache_capacity in [0, 1 << 20] {
            let pool = device_pool(setup, |settings| settings.cache_capacity = cache_capacity)?;
            let (barrier, most) = (std::sync::Barrier::new(THREADS), [3, 20, 7, 1]);
            let work = || -> Result<(), Error> {
                let stream = Stream::new(&setup.context)?;
                for count in most {
                    let held: Result<Vec<_>, _> =
                        (0..count).map(|_| Buffer::<u8, _>::uninit(&pool, SIZE, &stream)).collect();
                    // All threads hold their blocks at once, and then free them in any order.
                    barrier.wait();
                    let outcome = held.map(drop);
                    barrier.wait();
                    outcome?;
                }
                Ok(())
            };
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
                threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
            })?;
            let statistics = pool.statistics();
            let blocks = THREADS as u64 * most.iter().sum::<u64>();
            assert_eq!((statistics.blocks.total, statistics.blocks.current), (blocks, 0));
            let together = (THREADS * SIZE) as u64 * most.iter().max().unwrap_or(&0);
            match cache_capacity {
                0 => assert_eq!(statistics.active.peak, together),
                // Thread caches keep blocks that other threads cannot use.
                _ => assert!((together..=blocks * SIZE as u64).contains(&statistics.active.peak)),
            }
            assert_eq!(statistics.active.current, statistics.in_caches);
        }
        Ok(())
    })
}

#[test]
fn what_ends_first_makes_no_difference() -> Outcome {
    alone(|setup| {
        for order in 0..6 {
            let stream = Stream::new(&setup.context)?;
            let pool = device_pool(setup, |_| {})?;
            let buffer = Buffer::filled(&pool, 1000, order, &stream)?;
            delay(&stream)?;
            match order {
                0 => drop((buffer, pool, stream)),
                1 => drop((buffer, stream, pool)),
                2 => drop((pool, buffer, stream)),
                3 => drop((pool, stream, buffer)),
                4 => drop((stream, buffer, pool)),
                _ => drop((stream, pool, buffer)),
            }
        }
        Ok(())
    })
}

#[test]
fn streams_that_end_are_not_taken_for_later_ones() -> Outcome {
    alone(|setup| {
        let pool = device_pool(setup, |settings| settings.maximum = 2 << 20)?;
        for number in 0..100u8 {
            let stream = Stream::new(&setup.context)?;
            delay_some(&stream, number)?;
            let buffer = Buffer::filled(&pool, 1 << 20, number, &stream)?;
            same("a buffer", &buffer.to_vec()?, &[number; 1 << 20])?;
        }
        assert!(pool.statistics().pending.len() <= 40, "{:?}", pool.statistics().pending);
        Ok(())
    })
}

fn delay_some(stream: &Stream, number: u8) -> Result<(), Error> {
    if number.is_multiple_of(20) { delay(stream) } else { Ok(()) }
}

#[test]
fn what_is_wrong_is_refused_by_name() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let pool = device_pool(setup, |_| {})?;
        let resource = pool.share();
        let error = resource.allocate(100, 512, &stream).expect_err("the alignment is too large");
        assert!(matches!(error, Error::Alignment { .. }), "{error}");
        let per_thread = Stream::per_thread_default(&setup.context);
        let error = resource.allocate(usize::MAX, 1, &stream).expect_err("there is no such size");
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        let large = resource.allocate(3 << 20, 1, &stream)?;
        // SAFETY: the block is freed once. The second call is refused.
        unsafe {
            resource.deallocate(large, &per_thread)?;
            let error = resource.deallocate(large, &stream).expect_err("freed before");
            assert!(matches!(error, Error::InvalidArgument { argument: "block", .. }), "{error}");
        }
        let captured = stream.capture(cuda_mem::CaptureMode::Relaxed, |stream| {
            let error = resource.allocate(100, 1, stream).expect_err("the stream captures");
            assert!(matches!(error, Error::Capturing { .. }), "{error}");
            let other = Stream::new(&setup.context)?;
            let block = resource.allocate(100, 1, &other)?;
            // SAFETY: the block is freed once.
            unsafe { resource.deallocate(block, &other) }
        })?;
        drop(captured);
        Ok(())
    })
}

/// Random work on several threads. Each buffer is filled on its stream and checked before it is freed.
fn random_work(setup: &Setup, pool: &Pool<kind::Device>, threads: u64, rounds: usize) -> Outcome {
    let shared: Vec<Stream> = (0..3).map(|_| Stream::new(&setup.context)).collect::<Result<_, _>>()?;
    let handed_over = Mutex::new(Vec::new());
    let one = |thread: u64| -> Result<(), Error> {
        let mut random = Numbers(thread);
        let own = Stream::new(&setup.context)?;
        let mut live: Vec<(Buffer<u8, kind::Device>, u8)> = Vec::new();
        for round in 0..rounds {
            let stream = if random.below(2) == 0 { &own } else { &shared[random.below(3)] };
            let (size, byte) = (1usize << random.below(18), round as u8);
            match Buffer::filled(pool, size + random.below(100), byte, stream) {
                Ok(buffer) => live.push((buffer, byte)),
                // Another thread holds the memory.
                Err(Error::OutOfMemory { .. }) => live.clear(),
                Err(error) => return Err(error),
            }
            if live.len() > 20 {
                let index = random.below(live.len());
                let (mut buffer, byte) = live.swap_remove(index);
                match random.below(4) {
                    0 => {
                        let seen = buffer.to_vec()?;
                        assert!(seen.iter().all(|seen| *seen == byte), "a buffer was written by others");
                    }
                    1 => buffer.set_stream(&shared[random.below(3)])?,
                    2 => {
                        let mut others = handed_over.lock().unwrap_or_else(PoisonError::into_inner);
                        others.push(buffer);
                        let taken = others.swap_remove(0);
                        drop(others);
                        drop(taken);
                    }
                    _ => drop(buffer),
                }
            }
            if random.below(200) == 0 {
                pool.trim_to(1 << 20)?;
            }
        }
        Ok(())
    };
    let results: Vec<Result<(), Error>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=threads).map(|thread| scope.spawn(move || one(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    results.into_iter().collect::<Result<Vec<()>, _>>()?;
    Ok(())
}

#[test]
fn many_threads_and_streams_share_a_pool() -> Outcome {
    alone(|setup| {
        for reuse in [Reuse::SameStreamOnly, Reuse::WhenPassed, Reuse::Wait] {
            for cache_capacity in [0, 64 << 10, 8 << 20] {
                let pool = device_pool(setup, |settings| {
                    settings.reuse = reuse;
                    settings.cache_capacity = cache_capacity;
                    settings.maximum = 8 << 20;
                })?;
                random_work(setup, &pool, 4, 500)?;
                let statistics = pool.statistics();
                assert_eq!((statistics.requested.current, statistics.blocks.current), (0, 0));
                println!(
                    "{reuse:?}, {cache_capacity}: {} waits, {} events",
                    statistics.waits, statistics.events_recorded
                );
                pool.release_unused()?;
                assert_eq!(pool.statistics().reserved.current, 0);
            }
        }
        Ok(())
    })
}

#[test]
fn a_context_that_others_end_ends_the_pool_quietly() -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: destroying contexts under values is for the software GPU: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        let context = setup.context.device().create_context()?;
        let stream = Stream::new(&context)?;
        let pool = Pool::new(&DeviceMemory::new(&context), &PoolOptions::default())?;
        let (one, two) = (Buffer::filled(&pool, 1000, 1u8, &stream)?, Buffer::filled(&pool, 3 << 20, 1u8, &stream)?);
        // SAFETY: the handle is a live context's.
        let code = unsafe { setup.driver.raw().cuCtxDestroy_v2(context.raw()) }?;
        assert_eq!(code, cuda_mem::cuda_sys::CUresult::CUDA_SUCCESS);
        drop((one, two));
        assert_eq!(pool.statistics().requested.current, 0, "the books are right");
        assert!(Buffer::<u8, _>::uninit(&pool, 100 << 20, &stream).is_err());
        drop((pool, stream, context));
        setup.driver.take_drop_errors();
        Ok(())
    })
}

/// The figures in the text of a refusal, from the pool's statistics.
fn told(pool: &Pool<kind::Device>) -> String {
    let now = pool.statistics();
    let free = now.reserved.current - now.active.current + now.in_caches;
    let (reserved, largest) = (now.reserved.current, now.largest_free);
    format!("the pool has {reserved} bytes reserved, {free} of them free, the largest free range {largest};")
}

#[test]
fn figures_of_refusals_are_those_of_the_statistics() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        for in_place in [true, false] {
            let change = |settings: &mut PoolOptions| {
                (settings.in_place, settings.initial, settings.maximum) = (in_place, 2 << 20, 4 << 20);
            };
            let pool = device_pool(setup, change)?;
            let refused = |size: usize| {
                let error = Buffer::<u8, _>::uninit(&pool, size, &stream).expect_err("the maximum").to_string();
                assert!(error.contains(&told(&pool)), "{in_place} {size}: {error}, but {}", told(&pool));
                assert!(
                    error.starts_with("Pool::allocate: no room for ") && error.matches("no room").count() == 1,
                    "{error}"
                );
            };
            refused(1 << 30); // with all of the pool free
            let kept = Buffer::filled(&pool, 60_000, 1u8, &stream)?;
            drop(Buffer::filled(&pool, 60_000, 2u8, &stream)?); // in a thread cache
            refused(1 << 30);
            refused(4 << 20);
            drop(kept);
            let mut options = settings(change);
            (options.initial, options.maximum) = (1 << 46, usize::MAX);
            let error =
                Pool::new(&DeviceMemory::new(&setup.context), &options).expect_err("no device has 64 TiB").to_string();
            assert!(error.starts_with("Pool::new: no room for ") && error.matches("no room").count() == 1, "{error}");
            (options.initial, options.maximum) = (2 << 20, usize::MAX);
            let pool = Pool::new(&DeviceMemory::new(&setup.context), &options)?;
            let error = Buffer::<u8, _>::uninit(&pool, 1 << 46, &stream).expect_err("as above").to_string();
            assert!(error.contains(&told(&pool)) && error.matches("no room").count() == 1, "{error}");
        }
        Ok(())
    })
}
