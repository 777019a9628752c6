//! Rings over any driver: order, refusals, and their ends. One test runs at a time, because the ledger applies to the
//! whole process.

mod ring;

use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::{DeviceMemory, PinnedMemory, ResourceHandle, VirtualMemory, VirtualOptions};
use cuda_mem::pool::{RingOptions, RingPool, WhenFull};
use cuda_mem::{Buffer, Error, Stream};
use ffi_tests::suite::Outcome;
use ffi_tests::{alone, delay};
use softgpu::Fault;

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
        let mut other = block;
        other.device_pointer += 1;
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
fn a_ring_that_cannot_record_an_event_at_its_end_waits_for_the_stream() -> Outcome {
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
