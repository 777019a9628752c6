//! Pools of one size and rings over any driver: order, growth, refusals, and their ends. One test runs at a time,
//! because the ledger applies to the whole process.

mod fixed;
mod ring;

use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::{DeviceMemory, PinnedMemory, ResourceHandle, VirtualMemory, VirtualOptions, kind};
use cuda_mem::pool::{FixedSizeOptions, FixedSizePool, RingOptions, RingPool, WhenFull};
use cuda_mem::{Buffer, Error, Stream};
use ffi_tests::suite::Outcome;
use ffi_tests::{alone, delay};
use softgpu::Fault;

fn fixed(change: impl FnOnce(&mut FixedSizeOptions)) -> FixedSizeOptions {
    let mut settings = FixedSizeOptions::default();
    change(&mut settings);
    settings
}

fn refusing() -> RingOptions {
    let mut settings = RingOptions::default();
    settings.when_full = WhenFull::Refuse;
    settings
}

/// The kind of a source that is only known at run time.
type Any = kind::Any;

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
        let make =
            |size, change: fn(&mut FixedSizeOptions)| FixedSizePool::new(&device, size, &fixed(change)).map(drop);
        assert_eq!(argument(make(0, |_| {})), "block_size");
        assert_eq!(argument(make(usize::MAX, |_| {})), "block_size");
        assert_eq!(argument(make(16, |settings| settings.blocks_per_slab = 0)), "blocks_per_slab");
        assert_eq!(argument(make(16, |settings| settings.blocks_per_slab = 4097)), "blocks_per_slab");
        assert_eq!(argument(make(16, |settings| settings.maximum = 1000)), "maximum");
        assert_eq!(argument(make(usize::MAX / 2, |_| {})), "maximum");
        for capacity in [0, usize::MAX, isize::MAX as usize + 1] {
            assert_eq!(argument(RingPool::new(&device, capacity, &RingOptions::default()).map(drop)), "capacity");
        }
        let pool = FixedSizePool::new(&device, 1000, &FixedSizeOptions::default())?;
        let ring = RingPool::new(&device, 4096, &RingOptions::default())?;
        assert_eq!((pool.block_size(), pool.alignment(), ring.capacity()), (1008, 16, 4096));
        let error = pool.share().allocate(1009, 1, &stream).expect_err("blocks are smaller");
        assert!(
            error.is_out_of_memory() && error.to_string().contains("blocks of this pool have 1008 bytes"),
            "{error}"
        );
        assert_eq!(argument(pool.share().allocate(1, 1, &per_thread).map(drop)), "stream");
        for resource in [pool.share(), ring.share()] {
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
        }
        Ok(())
    })
}

#[test]
fn what_ends_first_makes_no_difference() -> Outcome {
    alone(|setup| {
        for order in 0..3 {
            let stream = Stream::new(&setup.context)?;
            let pool = FixedSizePool::new(&DeviceMemory::new(&setup.context), 64, &FixedSizeOptions::default())?;
            let ring = RingPool::new(&PinnedMemory::new(&setup.context), 4096, &RingOptions::default())?;
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
        let pool = FixedSizePool::new(&DeviceMemory::new(&context), 64, &FixedSizeOptions::default())?;
        let ring = RingPool::new(&PinnedMemory::new(&context), 4096, &RingOptions::default())?;
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
        // Virtual memory is unmapped at once, so a late use of it would be detected.
        let source = VirtualMemory::new(&setup.context, &VirtualOptions::default())?;
        let pool = FixedSizePool::new(&source, 4096, &FixedSizeOptions::default())?;
        let block = Buffer::filled(&pool, 4096, 1u8, &stream)?;
        let ring = RingPool::new(&source, 4096, &RingOptions::default())?;
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
