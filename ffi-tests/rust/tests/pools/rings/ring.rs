//! Rings.

use super::refusing;
use cuda_mem::adaptor::Fallback;
use cuda_mem::memory::{DeviceMemory, PinnedMemory};
use cuda_mem::pool::{RingOptions, RingPool};
use cuda_mem::{Buffer, Error, HostBuffer, MappedMemory, Stream};
use testkit::sources::{failures_of_four_threads, over_every_source};
use testkit::suite::Outcome;
use testkit::{Setup, alone, delay, pattern, same};

fn ring_work(setup: &Setup, source: &cuda_mem::memory::SharedResource) -> Outcome {
    let streams = [Stream::new(&setup.context)?, Stream::new(&setup.context)?];
    let ring = RingPool::new(source, 10_000, &RingOptions::default())?;
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
        // The copy reads the staged bytes after this drop.
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
    alone(|setup| over_every_source(setup, [], ring_work))
}

#[test]
fn uploads_go_on_while_the_slice_is_used_again() -> Outcome {
    alone(|setup| {
        let streams = [Stream::new(&setup.context)?, Stream::new(&setup.context)?];
        let device = DeviceMemory::new(&setup.context);
        let staging = RingPool::new(&PinnedMemory::new(&setup.context), 64 << 10, &RingOptions::default())?;
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
        // More data than the ring holds, in pieces.
        let long: Vec<u32> = (0..40_000).collect();
        delay(&streams[0])?;
        staging.upload(&mut buffers[0], 0, &long)?;
        assert_eq!(buffers[0].to_vec()?, long);
        for (number, buffer) in (1..30u32).zip(&buffers[1..]) {
            let seen = buffer.to_vec()?;
            assert!(seen[..100].iter().chain(&seen[5100..]).all(|value| *value == 0));
            assert!(seen[100..5100].iter().all(|value| *value == number + 1), "upload {number}");
        }
        if MappedMemory::new(&setup.context).is_ok() {
            let staging = RingPool::new(&MappedMemory::new(&setup.context)?, 4096, &RingOptions::default())?;
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
        let staging = RingPool::new(&PinnedMemory::new(&setup.context), 4096, &RingOptions::default())?;
        let mut target = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), 8192, &stream)?;
        for round in 0..10u8 {
            delay(&stream)?;
            for half in 0..2 {
                let mut samples = HostBuffer::<u8>::zeroed(&staging, 2048)?;
                samples.fill(2 * round + half);
                // The copy owns the slice and frees it when it ends.
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
        // Freeing a newer block does not help.
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

        let ring = RingPool::new(&pinned, 1024, &RingOptions::default())?;
        delay(&stream)?;
        let whole = Buffer::<u8, _>::uninit(&ring, 1024, &stream)?;
        let error = Buffer::<u8, _>::uninit(&ring, 1, &stream).expect_err("what is in use is not waited for");
        assert!(error.to_string().contains("was not freed: free it first"), "{error}");
        drop(whole);
        drop(Buffer::<u8, _>::uninit(&ring, 1024, &stream)?);
        assert!(stream.is_done()?, "it was waited for");
        assert_eq!(ring.statistics().full, 1);
        // The ring refuses blocks that are larger than itself.
        let error = Buffer::<u8, _>::uninit(&ring, 1025, &stream).expect_err("the ring is smaller");
        assert!(error.to_string().contains("the ring has only 1024 bytes"), "{error}");
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
        let staging = RingPool::new(&PinnedMemory::new(&setup.context), 8192, &RingOptions::default())?;
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
        // 80 KiB passed through a ring of 8 KiB, which records one event for each eighth.
        assert_eq!(staging.statistics().events_recorded - events, 80);
        Ok(())
    })
}

#[test]
fn many_threads_upload_through_one_ring() -> Outcome {
    alone(|setup| {
        let staging = RingPool::new(&PinnedMemory::new(&setup.context), 64 << 10, &RingOptions::default())?;
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
        let failed = failures_of_four_threads(one);
        assert_eq!(failed, Vec::<String>::new());
        assert_eq!(staging.statistics().blocks, 0);
        Ok(())
    })
}
