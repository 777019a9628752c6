//! Drivers that lack features, each simulated by a software GPU in its own process.

use super::managed::{advice, moves};
use super::pools::run_threads;
use super::{alone, check, check_drop_orders};
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::kind::Managed;
use cuda_mem::memory::{DriverPoolOptions, Location, ManagedMemory, ManagedPool, PinnedMemory, PinnedPool};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Buffer, Error, HostBuffer};
use testkit::{in_its_own_process, run_alone, test_name};

/// Runs one of the parts below in its own process, on a software GPU without some feature.
fn on_softgpu(part: &str, environment: &[(&str, &str)]) {
    let mut command = in_its_own_process(part);
    command.env("CUDA_MEM_LIBCUDA", "softgpu");
    run_alone(command.envs(environment.iter().copied()));
}

#[test]
fn driver_without_host_pools_returns_an_error_with_a_substitute() {
    for environment in [("SOFTGPU_ATTRIBUTES", "144=0,142=0"), ("SOFTGPU_VERSION", "11010")] {
        on_softgpu(&test_name!("part_without_host_pools"), &[environment]);
    }
}

#[test]
#[ignore = "a part of the test above, which gives it an environment"]
fn part_without_host_pools() {
    alone(|setup, stream| {
        let options = DriverPoolOptions::default();
        let error = PinnedPool::new(&setup.context, &options).unwrap_err();
        assert!(
            matches!(error, Error::Unsupported { .. }) && error.to_string().contains("Pool over PinnedMemory"),
            "{error}"
        );
        assert!(matches!(PinnedPool::on_numa_node(&setup.context, 0, &options), Err(Error::Unsupported { .. })));
        assert!(matches!(PinnedPool::current(&setup.context), Err(Error::Unsupported { .. })));

        let pool = Pool::new(&PinnedMemory::new(&setup.context), &PoolOptions::default())?;
        check(setup, stream, &pool)?;
        run_threads(setup, &pool);
        assert_eq!(pool.statistics().allocated.current, 0);
        check_drop_orders(pool, stream)
    });
}

#[test]
fn a_driver_that_does_not_know_of_host_pools_is_tried() {
    on_softgpu(&test_name!("part_unknown"), &[("SOFTGPU_ATTRIBUTES", "144=unknown,142=unknown")]);
}

#[test]
#[ignore = "a part of the tests above, which give it an environment"]
fn part_unknown() {
    alone(|setup, _stream| {
        let options = DriverPoolOptions::default();
        drop(PinnedPool::new(&setup.context, &options)?);
        for (code, unsupported) in [
            (CUresult::CUDA_ERROR_NOT_SUPPORTED, true),
            (CUresult::CUDA_ERROR_INVALID_VALUE, true),
            (CUresult::CUDA_ERROR_OUT_OF_MEMORY, false),
        ] {
            softgpu::faults([softgpu::Fault::call("cuMemPoolCreate", 1, code)]);
            let pool = PinnedPool::new(&setup.context, &options);
            softgpu::faults([]);
            assert_eq!(matches!(pool, Err(Error::Unsupported { .. })), unsupported, "{code:?}: {pool:?}");
        }
        Ok(())
    });
}

#[test]
fn old_drivers_move_managed_memory_between_devices_and_the_host() {
    on_softgpu(&test_name!("part_old_managed"), &[("SOFTGPU_VERSION", "12010")]);
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
    on_softgpu(&test_name!("part_exclusive_managed"), &[("SOFTGPU_ATTRIBUTES", "89=0")]);
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
