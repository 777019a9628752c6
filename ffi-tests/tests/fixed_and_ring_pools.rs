//! Pools of one size and rings over any driver: order, growth, what they refuse, and how they end. One test at a time: the
//! ledger is one for the process.

use cuda_mem::adaptor::Fallback;
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::{
    DeviceMemory, DevicePool, ManagedMemory, PinnedMemory, PoolOptions, ResourceHandle, VirtualMemory, VirtualOptions,
    kind,
};
use cuda_mem::pool::{FixedSizePool, FixedSizeSettings, Reuse, RingPool, RingSettings, WhenFull};
use cuda_mem::{Buffer, Error, HostBuffer, MappedResource, Stream};
use ffi_tests::suite::Outcome;
use ffi_tests::{Setup, alone, delay, pattern, same};
use softgpu::Fault;
use std::sync::Mutex;

fn fixed(change: impl FnOnce(&mut FixedSizeSettings)) -> FixedSizeSettings {
    let mut settings = FixedSizeSettings::default();
    change(&mut settings);
    settings
}

fn refusing() -> RingSettings {
    let mut settings = RingSettings::default();
    settings.when_full = WhenFull::Refuse;
    settings
}

/// Runs a test over every source of memory that there is.
fn over_every_source(setup: &Setup, test: impl Fn(&Setup, &cuda_mem::memory::SharedResource) -> Outcome) -> Outcome {
    let context = &setup.context;
    let mut sources = vec![
        ("device memory", Ok(DeviceMemory::new(context).share())),
        ("pinned memory", Ok(PinnedMemory::new(context).share())),
        ("managed memory", ManagedMemory::new(context).map(|memory| memory.share())),
        ("mapped memory", MappedResource::new(context).map(|memory| memory.share())),
        ("a pool of the driver", DevicePool::new(context, &PoolOptions::default()).map(|pool| pool.share())),
    ];
    let options = VirtualOptions::default();
    sources.push(("virtual memory", VirtualMemory::new(context, &options).map(|memory| memory.share())));
    for (name, source) in sources {
        match source {
            Ok(source) => test(setup, &source).map_err(|error| format!("over {name}: {error}"))?,
            Err(error) => println!("skipped: {name}: {error}"),
        }
    }
    Ok(())
}

/// The kind of a source that is known at run time.
type Any = kind::Any;

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
    // The stream has the block back that it freed last.
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
    alone(|setup| over_every_source(setup, fixed_work))
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
        let pool = FixedSizePool::new(&DeviceMemory::new(&setup.context), 256, &FixedSizeSettings::default())?;
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
            // The whole slab, filled late.
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

/// Random work of several threads; each buffer is filled by its stream, and looked at before it is freed.
fn random_work(setup: &Setup, pool: &FixedSizePool<kind::Device>, thread: u64, shared: &[Stream]) -> Outcome {
    let mut state = thread * 0x9e37_79b9 + 12345;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let own = Stream::new(&setup.context)?;
    let mut live: Vec<(Buffer<u8, kind::Device>, u8)> = Vec::new();
    for round in 0..400 {
        let stream = if random(2) == 0 { &own } else { &shared[random(shared.len())] };
        match Buffer::filled(pool, 1 + random(256), round as u8, stream) {
            Ok(buffer) => live.push((buffer, round as u8)),
            // Another thread has the memory.
            Err(Error::OutOfMemory { .. }) => live.clear(),
            Err(error) => return Err(error.into()),
        }
        if live.len() > 20 {
            let (mut buffer, byte) = live.swap_remove(random(20));
            match random(3) {
                0 => same("a buffer", &buffer.to_vec()?, &vec![byte; buffer.len()])?,
                1 => buffer.set_stream(&shared[random(shared.len())])?,
                _ => drop(buffer),
            }
        }
        if random(100) == 0 {
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
            let failed = Mutex::new(Vec::new());
            std::thread::scope(|scope| {
                for thread in 1..=4 {
                    let (pool, shared, failed) = (&pool, &shared, &failed);
                    scope.spawn(move || {
                        if let Err(error) = random_work(setup, pool, thread, shared) {
                            failed.lock().expect("no thread panics").push(error.to_string());
                        }
                    });
                }
            });
            assert_eq!(failed.into_inner()?, Vec::<String>::new());
            assert_eq!(pool.statistics().blocks.current, 0);
            println!("{reuse:?}: {:?}", pool.statistics());
            pool.release_unused()?;
            assert_eq!(pool.statistics().reserved.current, 0);
        }
        Ok(())
    })
}

fn ring_work(setup: &Setup, source: &cuda_mem::memory::SharedResource) -> Outcome {
    let streams = [Stream::new(&setup.context)?, Stream::new(&setup.context)?];
    let ring = RingPool::new(source, 10_000, &RingSettings::default())?;
    let device = DeviceMemory::new(&setup.context);
    let mut results = Vec::new();
    for number in 0..60u8 {
        let stream = &streams[usize::from(number) % 2];
        let size = 1 + usize::from(number) * 37 % 3000;
        let staged = Buffer::from_slice(&ring, &pattern(size, number), stream)?;
        assert!(staged.device_pointer().is_multiple_of(64));
        let mut result = Buffer::<u8, _>::zeroed(&device, size, stream)?;
        if number % 8 == 0 {
            delay(stream)?;
        }
        result.copy_from_buffer(0, &staged, ..)?;
        results.push(result);
        // The copy reads the staged bytes after this.
        drop(staged);
    }
    for (number, result) in (0..60u8).zip(&results) {
        same("what was staged", &result.to_vec()?, &pattern(result.len(), number))?;
    }
    let statistics = ring.statistics();
    assert_eq!((statistics.used.current, statistics.blocks, statistics.full), (0, 0, 0));
    assert!(statistics.used.total > 5 * ring.capacity() as u64, "{statistics:?}");
    ring.synchronize()?;
    assert_eq!((ring.statistics().pending, ring.statistics().free), (0, ring.capacity() as u64));
    Ok(())
}

#[test]
fn a_ring_serves_over_every_source() -> Outcome {
    alone(|setup| over_every_source(setup, ring_work))
}

#[test]
fn uploads_go_on_while_the_slice_is_used_again() -> Outcome {
    alone(|setup| {
        let streams = [Stream::new(&setup.context)?, Stream::new(&setup.context)?];
        let device = DeviceMemory::new(&setup.context);
        let staging = RingPool::new(&PinnedMemory::new(&setup.context), 64 << 10, &RingSettings::default())?;
        let mut slice = vec![0u32; 5000];
        let mut buffers = Vec::new();
        for number in 0..30u32 {
            let stream = &streams[number as usize % 2];
            let mut buffer = Buffer::<u32, _>::zeroed(&device, 40_000, stream)?;
            if number % 7 == 0 {
                delay(stream)?;
            }
            slice.fill(number + 1);
            staging.upload(&mut buffer, 100, &slice)?;
            slice.fill(0xdead);
            buffers.push(buffer);
        }
        // More than the ring has, in pieces.
        let long: Vec<u32> = (0..40_000).collect();
        delay(&streams[0])?;
        staging.upload(&mut buffers[0], 0, &long)?;
        assert_eq!(buffers[0].to_vec()?, long);
        for (number, buffer) in (1..30u32).zip(&buffers[1..]) {
            let seen = buffer.to_vec()?;
            assert!(seen[..100].iter().chain(&seen[5100..]).all(|value| *value == 0));
            assert!(seen[100..5100].iter().all(|value| *value == number + 1), "upload {number}");
        }
        if MappedResource::new(&setup.context).is_ok() {
            let staging = RingPool::new(&MappedResource::new(&setup.context)?, 4096, &RingSettings::default())?;
            staging.upload(&mut buffers[1], 0, &long)?;
            assert_eq!(buffers[1].to_vec()?, long);
        }
        Ok(())
    })
}

#[test]
fn the_memory_of_a_ring_is_idle_when_it_is_handed_out() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let staging = RingPool::new(&PinnedMemory::new(&setup.context), 4096, &RingSettings::default())?;
        let mut target = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), 8192, &stream)?;
        for round in 0..10u8 {
            delay(&stream)?;
            for half in 0..2 {
                let mut samples = HostBuffer::<u8>::zeroed(&staging, 2048)?;
                samples.fill(2 * round + half);
                // The copy owns the slice; its end frees it.
                drop(target.upload(usize::from(half) * 2048, samples).map_err(|refused| refused.error)?);
            }
            delay(&stream)?;
            staging.upload(&mut target, 4096, &[round; 4096])?;
            let seen = target.to_vec()?;
            same("the first half", &seen[..2048], &[2 * round; 2048])?;
            same("the second", &seen[2048..4096], &[2 * round + 1; 2048])?;
            same("the rest", &seen[4096..], &[round; 4096])?;
        }
        Ok(())
    })
}

#[test]
fn a_full_ring_refuses_or_waits_and_names_the_oldest_block() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let pinned = PinnedMemory::new(&setup.context);
        let ring = RingPool::new(&pinned, 1024, &refusing())?;
        let first = Buffer::<u8, _>::uninit(&ring, 500, &stream)?;
        let second = Buffer::<u8, _>::uninit(&ring, 500, &stream)?;
        let address = first.device_pointer();
        let error = Buffer::<u8, _>::uninit(&ring, 300, &stream).expect_err("the ring is full");
        assert!(error.is_out_of_memory() && matches!(error, Error::OutOfMemory { requested: 300, .. }), "{error}");
        let expected = format!("has 0 free; the oldest block in the way, 512 bytes at {address:#x}, was not freed");
        assert!(error.to_string().contains(&expected), "{error}");
        // A newer block that is freed does not help.
        drop(second);
        stream.synchronize()?;
        assert!(Buffer::<u8, _>::uninit(&ring, 300, &stream).is_err());
        delay(&stream)?;
        drop(first);
        if setup.is_software() {
            let error = Buffer::<u8, _>::uninit(&ring, 300, &stream).expect_err("the work is not done");
            assert!(error.to_string().contains("was freed, but its stream's work is not done"), "{error}");
        }
        stream.synchronize()?;
        drop(Buffer::<u8, _>::uninit(&ring, 1024, &stream)?);

        let ring = RingPool::new(&pinned, 1024, &RingSettings::default())?;
        delay(&stream)?;
        let whole = Buffer::<u8, _>::uninit(&ring, 1024, &stream)?;
        let error = Buffer::<u8, _>::uninit(&ring, 1, &stream).expect_err("what is in use is not waited for");
        assert!(error.to_string().contains("was not freed: free it first"), "{error}");
        drop(whole);
        drop(Buffer::<u8, _>::uninit(&ring, 1024, &stream)?);
        assert!(stream.is_done()?, "it was waited for");
        assert_eq!(ring.statistics().full, 1);
        // What is larger than the ring is another's.
        let error = Buffer::<u8, _>::uninit(&ring, 1025, &stream).expect_err("the ring is smaller");
        assert!(error.to_string().contains("the ring has 1024 bytes, and no larger block"), "{error}");
        let both = Fallback::new(&ring, &pinned)?;
        drop(Buffer::<u8, _>::uninit(&both, 1025, &stream)?);
        Ok(())
    })
}

#[test]
fn the_events_of_a_ring_are_used_again() -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: calls are counted on the software GPU: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        let stream = Stream::new(&setup.context)?;
        let staging = RingPool::new(&PinnedMemory::new(&setup.context), 8192, &RingSettings::default())?;
        let mut target = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), 1024, &stream)?;
        let mut rounds = |count: usize| (0..count).try_for_each(|_| staging.upload(&mut target, 0, &[7; 256]));
        rounds(200)?;
        softgpu::trace(1 << 20);
        let events = staging.statistics().events_recorded;
        rounds(320)?;
        let calls: Vec<&str> = softgpu::take_trace().into_iter().map(|call| call.function).collect();
        softgpu::trace(0);
        let count = |name: &str| calls.iter().filter(|call| **call == name).count();
        assert_eq!((count("cuEventCreate"), count("cuMemcpyAsync")), (0, 320));
        // 80 KiB went through, in eighths of 8 KiB.
        assert_eq!(staging.statistics().events_recorded - events, 80);
        Ok(())
    })
}

#[test]
fn many_threads_upload_through_one_ring() -> Outcome {
    alone(|setup| {
        let staging = RingPool::new(&PinnedMemory::new(&setup.context), 64 << 10, &RingSettings::default())?;
        let device = DeviceMemory::new(&setup.context);
        let one = |thread: u8| -> Outcome {
            let stream = Stream::new(&setup.context)?;
            let mut target = Buffer::<u8, _>::zeroed(&device, 3000, &stream)?;
            for round in 0..50u8 {
                let data = pattern(3000, thread * 50 + round);
                // Another thread may hold the oldest block.
                while let Err(error) = staging.upload(&mut target, 0, &data) {
                    assert!(error.is_out_of_memory(), "{error}");
                    std::thread::yield_now();
                }
                if round % 10 == 0 {
                    same("an upload", &target.to_vec()?, &data)?;
                }
            }
            Ok(())
        };
        let failed: Vec<String> = std::thread::scope(|scope| {
            let one = &one;
            let run = move |thread| one(thread).err().map(|error| error.to_string());
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || run(thread))).collect();
            threads.into_iter().filter_map(|thread| thread.join().expect("no thread panics")).collect()
        });
        assert_eq!(failed, Vec::<String>::new());
        assert_eq!(staging.statistics().blocks, 0);
        Ok(())
    })
}

#[test]
fn what_is_wrong_is_refused_by_name() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let per_thread = Stream::per_thread_default(&setup.context);
        let device = DeviceMemory::new(&setup.context);
        let argument = |result: Result<(), Error>| match result {
            Err(Error::InvalidArgument { argument, .. }) => argument,
            other => panic!("{other:?}"),
        };
        let make =
            |size, change: fn(&mut FixedSizeSettings)| FixedSizePool::new(&device, size, &fixed(change)).map(drop);
        assert_eq!(argument(make(0, |_| {})), "block_size");
        assert_eq!(argument(make(usize::MAX, |_| {})), "block_size");
        assert_eq!(argument(make(16, |settings| settings.blocks_per_slab = 0)), "blocks_per_slab");
        assert_eq!(argument(make(16, |settings| settings.blocks_per_slab = 4097)), "blocks_per_slab");
        assert_eq!(argument(make(16, |settings| settings.maximum = 1000)), "maximum");
        assert_eq!(argument(make(usize::MAX / 2, |_| {})), "maximum");
        for capacity in [0, usize::MAX, isize::MAX as usize + 1] {
            assert_eq!(argument(RingPool::new(&device, capacity, &RingSettings::default()).map(drop)), "capacity");
        }
        let pool = FixedSizePool::new(&device, 1000, &FixedSizeSettings::default())?;
        let ring = RingPool::new(&device, 4096, &RingSettings::default())?;
        assert_eq!((pool.block_size(), pool.alignment(), ring.capacity()), (1008, 16, 4096));
        let error = pool.share().allocate(1009, 1, &stream).expect_err("blocks are smaller");
        assert!(
            error.is_out_of_memory() && error.to_string().contains("blocks of this pool have 1008 bytes"),
            "{error}"
        );
        assert_eq!(argument(pool.share().allocate(1, 1, &per_thread).map(drop)), "stream");
        for resource in [pool.share(), ring.share()] {
            assert_eq!(argument(resource.allocate(100, 4096, &stream).map(drop)), "alignment");
            assert!(resource.allocate(usize::MAX, 1, &stream).expect_err("there is no such size").is_out_of_memory());
            let block = resource.allocate(100, 1, &stream)?;
            let mut other = block;
            other.device_pointer += 1;
            // SAFETY: the block is freed once; the other calls are refused.
            unsafe {
                assert_eq!(argument(resource.deallocate(other, &stream)), "block");
                resource.deallocate(block, &per_thread)?;
                assert_eq!(argument(resource.deallocate(block, &stream)), "block");
            }
            let captured = stream.capture(cuda_mem::CaptureMode::Global, |stream| {
                assert_eq!(argument(resource.allocate(100, 1, stream).map(drop)), "stream");
                let other = Stream::new(&setup.context)?;
                for _ in 0..100 {
                    let block = resource.allocate(1000, 1, &other)?;
                    // SAFETY: the block is freed once.
                    unsafe { resource.deallocate(block, &other) }?;
                }
                Ok(())
            })?;
            drop(captured);
        }
        Ok(())
    })
}

#[test]
fn what_ends_first_makes_no_difference() -> Outcome {
    alone(|setup| {
        for order in 0..3 {
            let stream = Stream::new(&setup.context)?;
            let pool = FixedSizePool::new(&DeviceMemory::new(&setup.context), 64, &FixedSizeSettings::default())?;
            let ring = RingPool::new(&PinnedMemory::new(&setup.context), 4096, &RingSettings::default())?;
            let (one, two) = (Buffer::filled(&pool, 64, 1u8, &stream)?, Buffer::filled(&ring, 100, 1u8, &stream)?);
            delay(&stream)?;
            match order {
                0 => drop((one, two, pool, ring, stream)),
                1 => drop((stream, pool, ring, one, two)),
                _ => drop((pool, ring, stream, two, one)),
            }
        }
        Ok(())
    })
}

#[test]
fn a_context_that_others_end_ends_the_pools_quietly() -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: destroying contexts under values is for the software GPU: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        let context = setup.context.device().create_context()?;
        let stream = Stream::new(&context)?;
        let pool = FixedSizePool::new(&DeviceMemory::new(&context), 64, &FixedSizeSettings::default())?;
        let ring = RingPool::new(&PinnedMemory::new(&context), 4096, &RingSettings::default())?;
        let (one, two) = (Buffer::filled(&pool, 64, 1u8, &stream)?, Buffer::filled(&ring, 4096, 1u8, &stream)?);
        // SAFETY: the handle is a live context's.
        let code = unsafe { setup.driver.raw().cuCtxDestroy_v2(context.raw()) }?;
        assert_eq!(code, cuda_mem::cuda_sys::CUresult::CUDA_SUCCESS);
        drop((one, two));
        assert_eq!((pool.statistics().blocks.current, ring.statistics().blocks), (0, 0), "the books are right");
        drop((pool, ring, stream, context));
        assert_eq!(setup.driver.take_drop_errors(), Default::default());
        Ok(())
    })
}

#[test]
fn a_pool_that_cannot_record_an_event_at_its_end_waits_for_the_stream() -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: a failing event: it needs the software GPU's faults");
            return Ok(());
        }
        let failing =
            || ["cuEventRecord", "cuEventCreate"].map(|call| Fault::call(call, 1, CUresult::CUDA_ERROR_UNKNOWN));
        let stream = Stream::new(&setup.context)?;
        // Its memory is unmapped at once: what still uses it would be seen.
        let source = VirtualMemory::new(&setup.context, &VirtualOptions::default())?;
        let pool = FixedSizePool::new(&source, 4096, &FixedSizeSettings::default())?;
        let block = Buffer::filled(&pool, 4096, 1u8, &stream)?;
        let ring = RingPool::new(&source, 4096, &RingSettings::default())?;
        let staged = Buffer::filled(&ring, 4096, 1u8, &stream)?;
        for end in [Box::new(move || drop((block, pool))) as Box<dyn FnOnce()>, Box::new(move || drop((staged, ring)))]
        {
            delay(&stream)?;
            softgpu::faults(failing());
            end();
            let met = softgpu::injected();
            softgpu::faults([]);
            assert!(met > 0 && stream.is_done()?, "{met} faults; the pool ended before the work on its memory");
            assert_eq!(setup.context.take_drop_errors().errors.len(), 1);
        }
        Ok(())
    })
}
