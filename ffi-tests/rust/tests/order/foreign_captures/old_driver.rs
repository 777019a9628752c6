//! A driver that does not report the end of graphs.

use super::Foreign;
use cuda_mem::memory::DeviceMemory;
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Buffer, Error};
use testkit::suite::Outcome;
use testkit::{alone, in_its_own_process, run_alone, test_name};

#[test]
fn a_driver_without_user_objects_is_named() {
    let mut command = in_its_own_process(&test_name!("part_without_user_objects"));
    command.env("CUDA_MEM_LIBCUDA", "softgpu").env("SOFTGPU_VERSION", "11020");
    run_alone(&mut command);
}

#[test]
#[ignore = "a part of the test above, which gives it an environment"]
fn part_without_user_objects() -> Outcome {
    alone(|setup| {
        let foreign = Foreign::new(setup)?;
        let (stream, pool) =
            (foreign.borrowed(), Pool::new(&DeviceMemory::new(&setup.context), &PoolOptions::default())?);
        foreign.begin()?;
        let error = Buffer::<u8, _>::uninit(&pool, 4096, &stream).expect_err("nobody would report the graph's end");
        assert!(matches!(error, Error::MissingSymbol(_)) && error.to_string().contains("11.3"), "{error}");
        drop(foreign.end()?);
        drop(Buffer::<u8, _>::zeroed(&pool, 4096, &stream)?);
        Ok(())
    })
}
