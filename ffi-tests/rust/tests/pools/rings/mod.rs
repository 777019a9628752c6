//! Rings over any driver: order, refusals, and their ends. One test runs at a time, because the ledger applies to the
//! whole process.

mod ring;

use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::{DeviceMemory, PinnedMemory, ResourceHandle, VirtualMemory, VirtualOptions};
use cuda_mem::pool::{RingOptions, RingPool, WhenFull};
use cuda_mem::{Buffer, Error, Stream};
use softgpu::Fault;
use std::time::{Duration, Instant};
use testkit::suite::Outcome;
use testkit::{alone, delay};

fn refusing() -> RingOptions {
    let mut settings = RingOptions::default();
    settings.when_full = WhenFull::Refuse;
    settings
}

#[test]
fn what_is_wrong_is_refused_by_name() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let per_thread = Stream::per_thread_default(&setup.context);
        let device = DeviceMemory::new(&setup.context);
        let argument = |result: Result<(), Error>| match result {
            Err(Error::InvalidArgument { argument, .. }) => argument,
            Err(Error::Capturing { .. }) => "stream",
            other => panic!("{other:?}"),
        };
        for capacity in [0, usize::MAX, isize::MAX as usize + 1] {
            assert_eq!(argument(RingPool::new(&device, capacity, &RingOptions::default()).map(drop)), "capacity");
        }
        let ring = RingPool::new(&device, 4096, &RingOptions::default())?;
        assert_eq!(ring.capacity(), 4096);
        let resource = ring.share();
        assert!(matches!(resource.allocate(100, 4096, &stream), Err(Error::Alignment { .. })));
        assert!(resource.allocate(usize::MAX, 1, &stream).expect_err("there is no such size").is_out_of_memory());
        let block = resource.allocate(100, 1, &stream)?;
        let other = block.part(1, block.size() - 1);
        // SAFETY: the block is freed once. The other calls are refused.
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
        Ok(())
    })
}

#[test]
fn what_ends_first_makes_no_difference() -> Outcome {
    alone(|setup| {
        for order in 0..3 {
            let stream = Stream::new(&setup.context)?;
            let ring = RingPool::new(&PinnedMemory::new(&setup.context), 4096, &RingOptions::default())?;
            let block = Buffer::filled(&ring, 100, 1u8, &stream)?;
            delay(&stream)?;
            match order {
                0 => drop((block, ring, stream)),
                1 => drop((stream, ring, block)),
                _ => drop((ring, stream, block)),
            }
        }
        Ok(())
    })
}

#[test]
fn a_context_that_others_end_ends_the_ring_quietly() -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: destroying contexts under values is for the software GPU: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        let context = setup.context.device().create_context()?;
        let stream = Stream::new(&context)?;
        let ring = RingPool::new(&PinnedMemory::new(&context), 4096, &RingOptions::default())?;
        let block = Buffer::filled(&ring, 4096, 1u8, &stream)?;
        // SAFETY: the handle is a live context's.
        let code = unsafe { setup.driver.raw().cuCtxDestroy_v2(context.raw()) }?;
        assert_eq!(code, cuda_mem::cuda_sys::CUresult::CUDA_SUCCESS);
        drop(block);
        assert_eq!(ring.statistics().blocks, 0, "the books are right");
        drop((ring, stream, context));
        assert_eq!(setup.driver.take_drop_errors(), Default::default());
        Ok(())
    })
}

#[test]
fn ring_drop_waits_for_the_stream_if_event_recording_fails() -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: a failing event: it needs the software GPU's faults");
            return Ok(());
        }
        let failing = ["cuEventRecord", "cuEventCreate"].map(|call| Fault::call(call, 1, CUresult::CUDA_ERROR_UNKNOWN));
        let stream = Stream::new(&setup.context)?;
        // Virtual memory is unmapped at once, so a late use of it would be detected.
        let source = VirtualMemory::new(&setup.context, &VirtualOptions::default())?;
        let ring = RingPool::new(&source, 4096, &RingOptions::default())?;
        let staged = Buffer::filled(&ring, 4096, 1u8, &stream)?;
        delay(&stream)?;
        softgpu::faults(failing);
        drop((staged, ring));
        let met = softgpu::injected();
        softgpu::faults([]);
        assert!(met > 0 && stream.is_done()?, "{met} faults; the ring ended before the work on its memory");
        assert_eq!(setup.context.take_drop_errors().errors.len(), 1);
        Ok(())
    })
}

fn waiting(limit: Duration) -> RingOptions {
    let mut settings = RingOptions::default();
    settings.when_full = WhenFull::WaitAtMost(limit);
    settings
}

#[test]
fn a_ring_waits_for_a_block_that_another_thread_holds() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let pinned = PinnedMemory::new(&setup.context);
        let ring = RingPool::new(&pinned, 4096, &waiting(Duration::from_secs(60)))?;
        let held = Buffer::<u8, _>::zeroed(&ring, 4096, &stream)?;
        let (began, freed) = (Instant::now(), Duration::from_millis(50));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(freed);
                drop(held);
            });
            Buffer::<u8, _>::zeroed(&ring, 4096, &stream).map(drop)
        })?;
        assert!(began.elapsed() >= freed, "the ring gave the block twice");
        assert_eq!(ring.statistics().full, 0, "a wait is no refusal");

        let limit = Duration::from_millis(30);
        let ring = RingPool::new(&pinned, 4096, &waiting(limit))?;
        let held = Buffer::<u8, _>::zeroed(&ring, 4096, &stream)?;
        let began = Instant::now();
        let refused = Buffer::<u8, _>::zeroed(&ring, 64, &stream).expect_err("nobody frees the block");
        assert!(refused.is_out_of_memory() && refused.to_string().contains("was not freed"), "{refused}");
        assert!(began.elapsed() >= limit);
        let began = Instant::now();
        assert!(Buffer::<u8, _>::zeroed(&ring, 4097, &stream).is_err(), "it can never fit");
        assert!(began.elapsed() < limit, "a wait for what never comes");
        assert_eq!(ring.statistics().full, 2);
        drop(held);
        Ok(())
    })
}

#[test]
fn threads_share_a_ring_that_is_smaller_than_their_pieces() -> Outcome {
    alone(|setup| {
        let ring = RingPool::new(&PinnedMemory::new(&setup.context), 8192, &waiting(Duration::from_secs(60)))?;
        std::thread::scope(|scope| {
            let upload = |thread: u32| -> Result<(), Error> {
                let stream = Stream::new(&setup.context)?;
                let mut buffer = Buffer::zeroed(&DeviceMemory::new(&setup.context), 1000, &stream)?;
                for round in 0..100 {
                    let piece = [thread * 1000 + round; 1000];
                    ring.upload(&mut buffer, 0, &piece)?;
                    assert_eq!(buffer.to_vec()?, piece);
                }
                Ok(())
            };
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || upload(thread))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })?;
        Ok(())
    })
}
