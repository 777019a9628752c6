//! Pools of one size.

use super::{Any, fixed};
use core::sync::atomic::{AtomicUsize, Ordering};
use cuda_mem::memory::{DeviceMemory, ResourceHandle, kind};
use cuda_mem::pool::{FixedSizeOptions, FixedSizePool, OutOfMemoryInfo, Pool, PoolOptions, Reuse};
use cuda_mem::{Buffer, Error, MappedResource, Stream};
use ffi_tests::sources::{failures_of_four_threads, over_every_source};
use ffi_tests::suite::Outcome;
use ffi_tests::timing::Numbers;
use ffi_tests::{Setup, alone, delay, pattern, same};
use std::sync::{Arc, Mutex, PoisonError};

fn fixed_work(setup: &Setup, source: &cuda_mem::memory::SharedResource) -> Outcome {
    let (stream, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
    let pool = FixedSizePool::new(source, 200, &fixed(|settings| settings.blocks_per_slab = 16))?;
    assert!(pool.block_size() >= 200 && pool.block_size().is_multiple_of(pool.alignment()));
    let mut buffers: Vec<Buffer<u8, Any>> = Vec::new();
    for number in 0..100u8 {
        let home = if number % 3 == 0 { &other } else { &stream };
        buffers.push(Buffer::from_slice(&pool, &pattern(1 + usize::from(number) * 2, number), home)?);
    }
    let mut addresses: Vec<u64> = buffers.iter().map(Buffer::device_pointer).collect();
    addresses.sort_unstable();
    assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] >= pool.block_size() as u64));
    assert!(addresses.iter().all(|address| address.is_multiple_of(pool.alignment() as u64)));
    for (number, buffer) in (0..100u8).zip(&buffers) {
        same("a buffer", &buffer.to_vec()?, &pattern(1 + usize::from(number) * 2, number))?;
    }
    let statistics = pool.statistics();
    assert_eq!((statistics.blocks.current, statistics.reserved.current), (100, 7 * 16 * pool.block_size() as u64));
    // The stream gets back the block that it freed last.
    let address = buffers[4].device_pointer();
    buffers.remove(4).close().map_err(Error::from)?;
    buffers.push(Buffer::filled(&pool, 200, 9u8, &stream)?);
    assert_eq!(buffers.last().map(Buffer::device_pointer), Some(address));
    drop(buffers);
    assert_eq!((pool.statistics().blocks.current, pool.statistics().pending), (0, 100));
    pool.release_unused()?;
    let statistics = pool.statistics();
    assert_eq!((statistics.reserved.current, statistics.pending, statistics.blocks.total), (0, 0, 101));
    same("after that", &Buffer::filled(&pool, 200, 3u8, &stream)?.to_vec()?, &[3; 200])?;
    Ok(())
}

#[test]
fn a_pool_of_one_size_serves_over_every_source() -> Outcome {
    alone(|setup| over_every_source(setup, [], fixed_work))
}

#[test]
fn blocks_of_one_size_never_share_an_atom_and_are_written_apart() -> Outcome {
    alone(|setup| {
        let mapped = match MappedResource::new(&setup.context) {
            Ok(mapped) => mapped,
            Err(error) => {
                println!("skipped: mapped memory: {error}");
                return Ok(());
            }
        };
        let stream = Stream::new(&setup.context)?;
        let pool = FixedSizePool::new(&mapped, 20, &fixed(|settings| settings.blocks_per_slab = 8))?;
        let mut buffers = Vec::new();
        for number in 0..20u8 {
            let mut buffer = Buffer::filled(&pool, 20, number, &stream)?;
            let block = pool.share().atom(cuda_mem::memory::Block::device(buffer.device_pointer(), 20));
            assert!(pool.block_size().is_multiple_of(block), "{} bytes in atoms of {block}", pool.block_size());
            buffer.write(5..10)?.fill(number + 100);
            buffers.push(buffer);
        }
        for (number, buffer) in (0..20u8).zip(&mut buffers) {
            let mut expected = [number; 20];
            expected[5..10].fill(number + 100);
            same("the device's view", &buffer.to_vec()?, &expected)?;
            buffer.fill(0..3, 7)?;
            expected[..3].fill(7);
            same("the CPU's view", &buffer.read(..)?, &expected)?;
        }
        Ok(())
    })
}

#[test]
fn a_pair_of_one_size_makes_no_call_of_the_driver() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let pool = FixedSizePool::new(&DeviceMemory::new(&setup.context), 256, &FixedSizeOptions::default())?;
        drop(Buffer::<u8, _>::uninit(&pool, 256, &stream)?);
        if setup.is_software() {
            softgpu::count_calls(true);
        }
        for _ in 0..100 {
            drop(Buffer::<u8, _>::uninit(&pool, 256, &stream)?);
        }
        let calls = softgpu::calls();
        softgpu::count_calls(false);
        let statistics = pool.statistics();
        assert_eq!((calls, statistics.events_recorded, statistics.waits, statistics.blocks.total), (0, 0, 0, 101));
        Ok(())
    })
}

#[test]
fn another_stream_gets_a_block_when_its_work_has_passed() -> Outcome {
    alone(|setup| {
        let (one, two) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        for reuse in [Reuse::SameStreamOnly, Reuse::WhenPassed, Reuse::Wait] {
            let settings = fixed(|settings| {
                settings.reuse = reuse;
                settings.blocks_per_slab = 1;
            });
            let pool = FixedSizePool::new(&DeviceMemory::new(&setup.context), 1 << 20, &settings)?;
            // The fill covers the whole slab and is delayed.
            delay(&one)?;
            let buffer = Buffer::filled(&pool, 1 << 20, 1u8, &one)?;
            let address = buffer.device_pointer();
            drop(buffer);
            let mut taken = Buffer::filled(&pool, 1 << 20, 2u8, &two)?;
            assert_eq!(taken.device_pointer() == address, reuse == Reuse::Wait, "{reuse:?}");
            assert_eq!(pool.statistics().waits, u64::from(reuse == Reuse::Wait), "{reuse:?}");
            taken.fill(0..1, 5)?;
            one.synchronize()?;
            same("the later work", &taken.to_vec()?[..2], &[5, 2])?;
            drop(taken);
            two.synchronize()?;
            let (waits, slabs) = (pool.statistics().waits, pool.statistics().reserved.current);
            let again = [Buffer::<u8, _>::uninit(&pool, 1, &one)?];
            assert_eq!((pool.statistics().waits, pool.statistics().reserved.current), (waits, slabs));
            assert_eq!(pool.statistics().events_recorded > 0, reuse != Reuse::SameStreamOnly, "{reuse:?}");
            drop(again);
        }
        Ok(())
    })
}

#[test]
fn a_full_pool_waits_for_what_was_freed_before_it_refuses() -> Outcome {
    alone(|setup| {
        let (one, two) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let settings = fixed(|settings| {
            settings.reuse = Reuse::SameStreamOnly;
            settings.blocks_per_slab = 4;
            settings.maximum = 8 << 10;
        });
        let pool = FixedSizePool::new(&DeviceMemory::new(&setup.context), 1 << 10, &settings)?;
        pool.reserve(5)?;
        assert_eq!(pool.statistics().reserved.current, 8 << 10);
        let refused = pool.reserve(9);
        assert!(matches!(refused, Err(Error::InvalidArgument { argument: "blocks", .. })), "{refused:?}");
        delay(&one)?;
        let buffers = (0..8).map(|_| Buffer::filled(&pool, 1 << 10, 1u8, &one)).collect::<Result<Vec<_>, _>>()?;
        let error = Buffer::<u8, _>::uninit(&pool, 1, &two).expect_err("all blocks are in use");
        let text = error.to_string();
        assert!(text.contains("the pool has 8 blocks of 1024 bytes, 8 of them in use; it may grow to 8192"), "{text}");
        assert_eq!((pool.statistics().out_of_memory, pool.statistics().blocks.current), (1, 8));
        drop(buffers);
        pool.trim_to(0)?;
        if setup.is_software() {
            assert_eq!(pool.statistics().reserved.current, 8 << 10, "the work is not done yet");
        }
        same("after a wait", &Buffer::filled(&pool, 1 << 10, 2u8, &two)?.to_vec()?, &[2; 1 << 10])?;
        two.synchronize()?;
        pool.trim_to(1)?;
        assert_eq!((pool.statistics().reserved.current, pool.statistics().reserved.peak), (4 << 10, 8 << 10));
        Ok(())
    })
}

/// Random work on several threads. Each buffer is filled on its stream and checked before it is freed.
fn random_work(setup: &Setup, pool: &FixedSizePool<kind::Device>, thread: u64, shared: &[Stream]) -> Outcome {
    let mut random = Numbers(thread);
    let own = Stream::new(&setup.context)?;
    let mut live: Vec<(Buffer<u8, kind::Device>, u8)> = Vec::new();
    for round in 0..400 {
        let stream = if random.below(2) == 0 { &own } else { &shared[random.below(shared.len())] };
        match Buffer::filled(pool, 1 + random.below(256), round as u8, stream) {
            Ok(buffer) => live.push((buffer, round as u8)),
            // Another thread holds the memory.
            Err(Error::OutOfMemory { .. }) => live.clear(),
            Err(error) => return Err(error.into()),
        }
        if live.len() > 20 {
            let (mut buffer, byte) = live.swap_remove(random.below(20));
            match random.below(3) {
                0 => same("a buffer", &buffer.to_vec()?, &vec![byte; buffer.len()])?,
                1 => buffer.set_stream(&shared[random.below(shared.len())])?,
                _ => drop(buffer),
            }
        }
        if random.below(100) == 0 {
            pool.trim_to(0)?;
        }
    }
    Ok(())
}

#[test]
fn many_threads_and_streams_share_a_pool_of_one_size() -> Outcome {
    alone(|setup| {
        for reuse in [Reuse::SameStreamOnly, Reuse::WhenPassed, Reuse::Wait] {
            let settings = fixed(|settings| {
                settings.reuse = reuse;
                settings.blocks_per_slab = 16;
                settings.maximum = 64 << 8;
            });
            let pool = FixedSizePool::new(&DeviceMemory::new(&setup.context), 256, &settings)?;
            let shared = (0..3).map(|_| Stream::new(&setup.context)).collect::<Result<Vec<_>, _>>()?;
            let failed = failures_of_four_threads(|thread| random_work(setup, &pool, thread.into(), &shared));
            assert_eq!(failed, Vec::<String>::new());
            assert_eq!(pool.statistics().blocks.current, 0);
            println!("{reuse:?}: {:?}", pool.statistics());
            pool.release_unused()?;
            assert_eq!(pool.statistics().reserved.current, 0);
        }
        Ok(())
    })
}

#[test]
fn hooks_of_the_source_may_use_the_pool() -> Outcome {
    alone(|setup| {
        type HeldBuffers = Arc<Mutex<Vec<Buffer<u8, kind::Device>>>>;
        let (held, pool): (HeldBuffers, Arc<Mutex<Option<FixedSizePool<kind::Device>>>>) = Default::default();
        let (stream, calls) = (Stream::new(&setup.context)?, Arc::new(AtomicUsize::new(0)));
        let hook = {
            let (held, pool, stream, calls) = (held.clone(), pool.clone(), stream.clone(), calls.clone());
            move |_: &OutOfMemoryInfo| {
                calls.fetch_add(1, Ordering::Relaxed);
                let pool = pool.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // Calls everything that takes the pool's lock. The last call makes room.
                if let Some(pool) = pool {
                    pool.statistics();
                    pool.trim_to(0).expect("nothing failed");
                    drop(held.lock().unwrap_or_else(PoisonError::into_inner).pop());
                    drop(Buffer::<u8, _>::uninit(&pool, 100, &stream).expect("a block was freed"));
                }
                false
            }
        };
        let mut settings = PoolOptions::default();
        (settings.initial, settings.maximum) = (2 << 20, 2 << 20);
        settings.on_out_of_memory = Some(Arc::new(hook));
        let source = Pool::new(&DeviceMemory::new(&setup.context), &settings)?;
        let made = FixedSizePool::new(&source, 1 << 20, &fixed(|settings| settings.blocks_per_slab = 1))?;
        *pool.lock().unwrap_or_else(PoisonError::into_inner) = Some(made.clone());
        for number in 0..2 {
            held.lock().unwrap_or_else(PoisonError::into_inner).push(Buffer::filled(&made, 1 << 20, number, &stream)?);
        }
        // There is no room for a slab. The hook frees a block, and the allocation gets it.
        let last = Buffer::filled(&made, 1 << 20, 7u8, &stream)?;
        assert_eq!(last.to_vec()?[..2], [7, 7]);
        assert_eq!((calls.load(Ordering::Relaxed), made.statistics().out_of_memory), (1, 0));
        made.reserve(3).expect_err("there is no room");
        drop(last);
        made.trim_to(0)?;
        held.lock().unwrap_or_else(PoisonError::into_inner).clear();
        pool.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(())
    })
}
