//! Drivers that export functions and refuse them, and drivers that lack them.

use cuda_mem::buffer::{CopyBatch, Piece};
use cuda_mem::copy::CopyEngine;
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::{DeviceMemory, Location, ManagedMemory};
use cuda_mem::{Buffer, Error, Stream};
use softgpu::{Fault, When};
use testkit::suite::Outcome;
use testkit::{Setup, alone, in_its_own_process, in_time, run_alone, test_name};

/// The functions that came after CUDA 11.2 and have an older form, or none.
const NEWER: [&str; 8] = [
    "cuMemcpyBatchAsync",
    "cuMemcpyBatchAsync_v2",
    "cuMemAdvise_v2",
    "cuMemPrefetchAsync_v2",
    "cuMemPrefetchBatchAsync",
    "cuMemDiscardAndPrefetchBatchAsync",
    "cuDeviceGetUuid_v2",
    "cuCtxGetId",
];

/// As drivers before the functions' release answer.
struct Refused;

impl Refused {
    fn new() -> Self {
        let code = CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER;
        softgpu::faults(NEWER.map(|name| Fault { when: When::Every(1), ..Fault::call(name, 1, code) }));
        Self
    }
}

impl Drop for Refused {
    fn drop(&mut self) {
        softgpu::faults([]);
    }
}

#[test]
fn a_function_that_the_driver_refuses_counts_as_missing() -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: only the software GPU makes calls fail: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        in_time(setup, older_forms)
    })
}

fn older_forms(setup: &Setup) -> Outcome {
    let (stream, memory) = (Stream::new(&setup.context)?, DeviceMemory::new(&setup.context));
    let source = Buffer::from_slice(&memory, &[1u8, 2, 3, 4], &stream)?;
    let mut copy = Buffer::<u8, _>::zeroed(&memory, 4, &stream)?;
    let mut managed = Buffer::<u8, _>::zeroed(&ManagedMemory::new(&setup.context)?, 4096, &stream)?;
    let engine = CopyEngine::new(&setup.context)?;
    let device = setup.driver.device(0)?;
    let uuid = device.uuid()?;

    let refused = Refused::new();
    assert_eq!(device.uuid()?, uuid);
    let mut batch = CopyBatch::new(&stream);
    let pieces = [Piece { to: 0, from: 2, length: 2 }, Piece { to: 2, from: 0, length: 2 }];
    batch.copy_pieces(&mut copy, &source, &pieces)?;
    batch.submit()?;
    assert_eq!(copy.to_vec()?, [3, 4, 1, 2]);
    engine.write_scattered(&mut copy, [(0, &[7][..]), (3, &[9])])?;
    assert_eq!(copy.to_vec()?, [7, 4, 1, 9]);
    managed.set_preferred_location(Some(&Location::Host))?;
    assert_eq!(managed.preferred_location()?, Some(Location::Host));
    managed.prefetch(&device)?;
    Buffer::prefetch_batch(&[&managed], &[Location::Host], &stream)?;
    match managed.discard() {
        Err(Error::Unsupported { needs, .. }) => assert!(needs.contains("13.0"), "{needs}"),
        other => return Err(format!("there is no older form: {other:?}").into()),
    }
    stream.synchronize()?;
    drop(refused);
    Ok(())
}

#[test]
fn a_context_that_another_library_resets_is_an_error() {
    for version in ["11080", "13000"] {
        let mut command = in_its_own_process(&test_name!("part_reset"));
        command.env("CUDA_MEM_LIBCUDA", "softgpu").env("SOFTGPU_VERSION", version);
        run_alone(&mut command);
    }
}

#[test]
#[ignore = "a part of the test above, which gives it an environment"]
fn part_reset() -> Outcome {
    let setup = Setup::from_environment()?;
    let (stream, memory) = (Stream::new(&setup.context)?, DeviceMemory::new(&setup.context));
    let mut buffer = Buffer::from_slice(&memory, &[1u8, 2, 3, 4], &stream)?;
    let cuda = setup.driver.raw();
    // SAFETY: it has no requirements; what it ends is not used, or used on purpose.
    let reset = unsafe { cuda.cuDevicePrimaryCtxReset_v2(setup.driver.device(0)?.raw()) }?;
    assert_eq!(reset, CUresult::CUDA_SUCCESS);
    let ended = |outcome: Result<(), Error>| {
        let error = outcome.expect_err("the context has ended");
        assert_eq!(error.driver_code(), Some(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED), "{error}");
    };
    ended(buffer.to_vec().map(drop));
    ended(buffer.copy_from_slice(0, &[1]));
    ended(buffer.fill(.., 1));
    ended(stream.synchronize());
    drop((buffer, stream));
    Ok(())
}
