//! Drivers that lack something, each a software GPU in a process of its own.

use super::managed::{advice, moves};
use super::pools::{attributes_hold, run_threads};
use super::{alone, check, check_drop_orders};
use core::sync::atomic::{AtomicUsize, Ordering};
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::kind::Managed;
use cuda_mem::memory::{DriverPoolOptions, Location, ManagedMemory, ManagedPool, PinnedPool, PoolAccess};
use cuda_mem::{Buffer, Error, HostBuffer, Stream};
use ffi_tests::Setup;
use std::process::Command;
use std::sync::Arc;

/// Runs one of the parts below on a software GPU of its own, that lacks something.
fn on_softgpu(part: &str, environment: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", part, "--nocapture", "--ignored"]).env("CUDA_MEM_LIBCUDA", "softgpu");
    let output = command.envs(environment.iter().copied()).output().expect("the process starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{part} with {environment:?}: {text}");
}

#[test]
fn a_driver_without_host_pools_is_served_by_slabs() {
    for environment in [("SOFTGPU_ATTRIBUTES", "144=0,142=0"), ("SOFTGPU_VERSION", "11010")] {
        on_softgpu("old_drivers::part_slabs", &[environment]);
    }
    on_softgpu("old_drivers::part_slabs", &[("SOFTGPU_ATTRIBUTES", "144=0,142=0"), ("SOFTGPU_SEED", "5")]);
}

#[test]
#[ignore = "a part of the tests above, which give it an environment"]
fn part_slabs() {
    alone(|setup, stream| {
        let pool = PinnedPool::new(&setup.context, &DriverPoolOptions::default())?;
        assert!(!pool.is_driver_pool() && pool.raw().is_null());
        assert_eq!(
            (&pool, pool == PinnedPool::new(&setup.context, &DriverPoolOptions::default())?),
            (&pool.clone(), false)
        );
        check(setup, stream, &pool)?;
        run_threads(setup, &pool);
        assert_eq!(pool.attributes()?.used, 0);
        check_drop_orders(pool, stream)?;
        attributes_hold(&PinnedPool::new(&setup.context, &DriverPoolOptions::default())?, stream)?;

        let mut options = DriverPoolOptions::default();
        options.max_size = Some(8 << 20);
        let pool = PinnedPool::new(&setup.context, &options)?;
        for device in setup.driver.devices()? {
            assert_eq!(pool.access(&device)?, PoolAccess::ReadWrite);
            assert!(matches!(pool.deny_access(&device), Err(Error::Unsupported { .. })));
        }
        assert!(matches!(pool.set_reuse_follow_event_dependencies(true), Err(Error::Unsupported { .. })));
        // The limit holds, and what waits for another stream is waited for before there is no room.
        let second = Stream::new(&setup.context)?;
        for _ in 0..20 {
            Buffer::filled(&pool, 6 << 20, 1u8, stream)?.close()?;
            Buffer::filled(&pool, 5 << 20, 2u8, &second)?.close()?;
        }
        let error = Buffer::<u8, _>::uninit(&pool, 9 << 20, stream).unwrap_err();
        assert!(matches!(&error, Error::OutOfMemory { message, .. } if message.contains("8388608")), "{error}");
        assert!(matches!(PinnedPool::on_numa_node(&setup.context, 0, &options), Err(Error::Unsupported { .. })));
        assert!(matches!(PinnedPool::current(&setup.context), Err(Error::Unsupported { .. })));
        Ok(())
    });
}

#[test]
fn a_block_is_freed_whatever_becomes_of_its_chunk() {
    on_softgpu("old_drivers::part_refused_chunk", &[("SOFTGPU_ATTRIBUTES", "144=0,142=0")]);
}

#[test]
#[ignore = "a part of the test above, which gives it an environment"]
fn part_refused_chunk() {
    alone(refused_chunk);
}

fn refused_chunk(setup: &Setup, stream: &Stream) -> Result<(), Error> {
    let mut options = DriverPoolOptions::default();
    options.release_threshold = 0;
    let pool = PinnedPool::new(&setup.context, &options)?;
    let asked = Arc::new(AtomicUsize::new(0));
    let (inner, count) = (pool.clone(), asked.clone());
    // A hook may use the pool.
    setup.context.set_drop_error_hook(Some(Arc::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        assert!(inner.attributes().is_ok());
    })));
    let buffer = Buffer::filled(&pool, 1 << 20, 1u8, stream)?;
    stream.synchronize()?;
    softgpu::faults([softgpu::Fault::call("cuMemFreeHost", 1, CUresult::CUDA_ERROR_INVALID_VALUE)]);
    let closed = buffer.close();
    softgpu::faults([]);
    setup.context.set_drop_error_hook(None);
    closed?;
    let met = setup.context.take_drop_errors().errors;
    assert_eq!((met.len(), asked.load(Ordering::Relaxed)), (1, 1), "{met:?}");
    assert_eq!(pool.attributes()?.used, 0);
    Ok(())
}

#[test]
fn a_driver_that_does_not_know_of_host_pools_is_tried() {
    on_softgpu("old_drivers::part_unknown", &[("SOFTGPU_ATTRIBUTES", "144=unknown,142=unknown")]);
}

#[test]
#[ignore = "a part of the tests above, which give it an environment"]
fn part_unknown() {
    alone(|setup, _stream| {
        let options = DriverPoolOptions::default();
        assert!(PinnedPool::new(&setup.context, &options)?.is_driver_pool());
        for (code, serves) in [
            (CUresult::CUDA_ERROR_NOT_SUPPORTED, true),
            (CUresult::CUDA_ERROR_INVALID_VALUE, true),
            (CUresult::CUDA_ERROR_OUT_OF_MEMORY, false),
        ] {
            softgpu::faults([softgpu::Fault::call("cuMemPoolCreate", 1, code)]);
            let pool = PinnedPool::new(&setup.context, &options);
            softgpu::faults([]);
            assert_eq!(pool.is_ok_and(|pool| !pool.is_driver_pool()), serves, "{code:?}");
        }
        Ok(())
    });
}

#[test]
fn old_drivers_move_managed_memory_between_devices_and_the_host() {
    on_softgpu("old_drivers::part_old_managed", &[("SOFTGPU_VERSION", "12010")]);
}

#[test]
#[ignore = "a part of the tests below, which give it an environment"]
fn part_old_managed() {
    alone(|setup, stream| {
        advice(setup, stream)?;
        moves(setup, stream)?;
        let buffer = Buffer::<u8, Managed>::zeroed(&ManagedMemory::new(&setup.context)?, 4096, stream)?;
        assert!(matches!(buffer.prefetch(Location::HostNuma(0)), Err(Error::Unsupported { .. })));
        Ok(())
    });
}

#[test]
fn the_cpu_waits_for_all_work_where_it_shares_no_managed_memory() {
    on_softgpu("old_drivers::part_exclusive_managed", &[("SOFTGPU_ATTRIBUTES", "89=0")]);
}

#[test]
#[ignore = "a part of the tests above, which give it an environment"]
fn part_exclusive_managed() {
    alone(|setup, stream| {
        let memory = ManagedMemory::new(&setup.context)?;
        let mut buffer = Buffer::filled(&memory, 10, 1u8, stream)?;
        softgpu::count_calls(true);
        let before = softgpu::calls_of("cuCtxSynchronize");
        assert_eq!(buffer.read(..)?[9], 1);
        assert_eq!(softgpu::calls_of("cuCtxSynchronize"), before + 1);
        assert!(matches!(
            ManagedPool::new(&setup.context, &DriverPoolOptions::default()),
            Err(Error::Unsupported { .. })
        ));
        let error = HostBuffer::<u8>::uninit(&memory, 1).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "the resource", .. }), "{error}");
        Ok(())
    });
}
