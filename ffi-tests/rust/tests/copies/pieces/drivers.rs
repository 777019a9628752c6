//! Drivers that refuse the kernel, and moments at which it cannot be loaded: the driver copies then.

use super::{BatchWay, Buffer, Context, DeviceMemory, Error, Outcome, Setup, Stream, alone, calls, expected, pattern};
use super::{same, spread, submit};
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::graph::CaptureMode;
use cuda_mem::memory::{VirtualMemory, VirtualOptions};
use cuda_mem::pool::{Pool, PoolOptions, SleepError, SleepOptions};
use softgpu::Fault;
use testkit::{hold, in_its_own_process, run_alone, test_name};

/// Copies pieces within the device, by whatever does. Whether that was the kernel.
fn copied(context: &Context, stream: &Stream) -> Result<bool, Box<dyn std::error::Error>> {
    let (device, size) = (DeviceMemory::new(context), 200 * 13 + 2);
    let source = Buffer::from_slice(&device, &pattern(size, 3), stream)?;
    let mut to = Buffer::<u8, _>::zeroed(&device, size, stream)?;
    let (launches, by_driver) = calls(|| submit(&mut to, &source, &spread(200, 10), BatchWay::Kernel, stream))?;
    same("the pieces", &to.to_vec()?, &expected(size, &pattern(size, 3), &spread(200, 10)))?;
    assert!((launches > 0) != (by_driver > 0), "{launches} launches, {by_driver} calls of the driver");
    Ok(launches > 0)
}

fn on_software(test: impl FnOnce(&Setup) -> Outcome) -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: only the software GPU counts calls and makes them fail: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        test(setup)
    })
}

#[test]
fn a_driver_that_refuses_the_kernel_copies_itself() {
    for version in ["11020", "12000"] {
        let mut command = in_its_own_process(&test_name!("part_refused"));
        run_alone(command.env("CUDA_MEM_LIBCUDA", "softgpu").env("SOFTGPU_VERSION", version));
    }
}

#[test]
#[ignore = "a part of the test above, which gives it an environment"]
fn part_refused() -> Outcome {
    on_software(|setup| {
        let stream = Stream::new(&setup.context)?;
        assert!(!copied(&setup.context, &stream)?);
        // The refusal is remembered.
        softgpu::count_calls(true);
        let by_kernel = copied(&setup.context, &stream)?;
        setup.context.load_kernels()?;
        assert!(!by_kernel && !copied(&setup.context, &stream)?);
        Ok(())
    })
}

#[test]
fn a_refusal_is_remembered_and_a_failure_is_not() -> Outcome {
    on_software(|setup| {
        let none = CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
        for (code, again) in [(none, false), (CUresult::CUDA_ERROR_OUT_OF_MEMORY, true)] {
            let context = setup.context.device().create_context()?;
            let stream = Stream::new(&context)?;
            softgpu::faults([Fault::call("cuModuleLoadData", 1, code)]);
            let by_kernel = copied(&context, &stream);
            softgpu::faults([]);
            assert!(!by_kernel?, "{code:?}");
            assert_eq!(copied(&context, &stream)?, again, "{code:?}");
        }
        Ok(())
    })
}

#[test]
fn no_kernel_is_loaded_during_a_capture() -> Outcome {
    on_software(|setup| {
        let context = setup.context.device().create_context()?;
        let (stream, other) = (Stream::new(&context)?, Stream::new(&context)?);
        for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
            let device = DeviceMemory::new(&context);
            let source = Buffer::from_slice(&device, &pattern(1000, 1), &stream)?;
            let mut to = Buffer::<u8, _>::zeroed(&device, 1000, &stream)?;
            stream.synchronize()?;
            let made = calls(|| {
                let record = |stream: &Stream| submit(&mut to, &source, &spread(20, 10), BatchWay::Kernel, stream);
                stream.capture(mode, record).map(drop)
            })?;
            assert!(made.0 == 0 && made.1 > 0, "{made:?}");
        }
        assert!(copied(&context, &other)?, "after the captures");
        Ok(())
    })
}

#[test]
fn a_batch_behind_work_that_waits_for_the_cpu_is_queued() -> Outcome {
    on_software(|setup| {
        let context = setup.context.device().create_context()?;
        let (stream, other) = (Stream::new(&context)?, Stream::new(&context)?);
        let device = DeviceMemory::new(&context);
        let source = Buffer::from_slice(&device, &pattern(1000, 1), &stream)?;
        let mut to = Buffer::<u8, _>::zeroed(&device, 1000, &stream)?;
        let held = hold(&other)?;
        submit(&mut to, &source, &spread(20, 10), BatchWay::Kernel, &stream)?;
        same("the pieces", &to.to_vec()?, &expected(1000, &pattern(1000, 1), &spread(20, 10)))?;
        drop(held);
        other.synchronize()?;
        Ok(())
    })
}

#[test]
fn pieces_of_memory_that_sleeps_are_refused() -> Outcome {
    on_software(|setup| {
        setup.context.load_kernels()?;
        let stream = Stream::new(&setup.context)?;
        let pool =
            Pool::new(&VirtualMemory::new(&setup.context, &VirtualOptions::default())?, &PoolOptions::default())?;
        let source = Buffer::from_slice(&pool, &pattern(1000, 1), &stream)?;
        let mut to = Buffer::<u8, _>::zeroed(&pool, 1000, &stream)?;
        let mut batch = super::CopyBatch::new(&stream);
        batch.copy_pieces(&mut to, &source, &spread(20, 10))?;
        pool.sleep(&SleepOptions::default())?;
        let (mut refused, mut batch) = (None, Some(batch));
        let made = calls(|| {
            refused = batch.take().map(|batch| batch.submit());
            Ok(())
        })?;
        assert!(matches!(refused, Some(Err(Error::Sleep(SleepError::Asleep { .. })))), "{refused:?}");
        assert_eq!(made, (0, 0));
        pool.wake()?;
        submit(&mut to, &source, &spread(20, 10), BatchWay::Kernel, &stream)?;
        Ok(same("the pieces", &to.to_vec()?, &expected(1000, &pattern(1000, 1), &spread(20, 10)))?)
    })
}
