//! Memory by address that streams use beside the one that allocates and frees it, as with PyTorch's `record_stream`.

use cuda_mem::cuda_sys::{CUgraph, CUresult, CUstream, CUstream_flags, CUstreamCaptureMode};
use cuda_mem::memory::PinnedMemory;
use cuda_mem::pool::{AddressPools, Addresses, PoolOptions};
use cuda_mem::{Error, Stream};
use softgpu::{Fault, When};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::thread;
use std::time::{Duration, Instant};
use testkit::suite::Outcome;
use testkit::{LIMIT, Setup, alone, alone_with_late_ends, alone_with_misuse, on_softgpu, same, test_name};

const SIZE: usize = 4 << 20;

/// Pools of at most so many blocks.
fn pools_of(setup: &Setup, blocks: usize) -> Result<AddressPools, Error> {
    let mut options = PoolOptions::default();
    (options.initial, options.maximum) = (blocks * SIZE, blocks * SIZE);
    AddressPools::new(&setup.driver, &options)
}

fn check(code: Result<CUresult, impl Into<Error>>) -> Result<(), Error> {
    assert_eq!(code.map_err(Into::into)?, CUresult::CUDA_SUCCESS);
    Ok(())
}

/// A stream that the library knows nothing of, on a device.
fn foreign_on(setup: &Setup, device: i32) -> Result<CUstream, Error> {
    let context = setup.driver.device(device)?.primary_context()?;
    let (mut raw, _current) = (null_mut(), context.bind()?);
    // SAFETY: `raw` is writable, and the context is current.
    check(unsafe { setup.driver.raw().cuStreamCreate(&mut raw, CUstream_flags::CU_STREAM_NON_BLOCKING.0) })?;
    Ok(raw)
}

fn foreign(setup: &Setup) -> Result<CUstream, Error> {
    foreign_on(setup, 0)
}

fn destroy(setup: &Setup, raw: CUstream) -> Result<(), Error> {
    // SAFETY: the test does not use the stream any more.
    check(unsafe { setup.driver.raw().cuStreamDestroy_v2(raw) })
}

fn is_running(setup: &Setup, stream: CUstream) -> Result<bool, Error> {
    let _current = setup.context.bind()?;
    // SAFETY: the stream lives.
    Ok(unsafe { setup.driver.raw().cuStreamQuery(stream) }? == CUresult::CUDA_ERROR_NOT_READY)
}

unsafe extern "C" fn nap(_: *mut c_void) {
    thread::sleep(Duration::from_millis(20));
}

/// Copies the block late, in stream order: the slow kernel that reads it.
fn read_late(setup: &Setup, (to, from): (u64, u64), stream: CUstream) -> Result<(), Error> {
    let (cuda, _current) = (setup.driver.raw(), setup.context.bind()?);
    // SAFETY: the function takes any argument, and the test owns both blocks.
    unsafe {
        check(cuda.cuLaunchHostFunc(stream, Some(nap), null_mut()))?;
        check(cuda.cuMemcpyDtoDAsync_v2(to, from, SIZE, stream))
    }
}

fn fill(setup: &Setup, address: u64, value: u8, stream: CUstream) -> Result<(), Error> {
    let _current = setup.context.bind()?;
    // SAFETY: the test owns that many bytes there.
    check(unsafe { setup.driver.raw().cuMemsetD8Async(address, value, SIZE, stream) })
}

fn read(setup: &Setup, address: u64) -> Result<Vec<u8>, Error> {
    setup.context.synchronize()?;
    let (mut bytes, _current) = (vec![0u8; SIZE], setup.context.bind()?);
    // SAFETY: both have that many bytes.
    check(unsafe { setup.driver.raw().cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, SIZE) })?;
    Ok(bytes)
}

fn malloc(pools: &AddressPools, stream: CUstream) -> Result<u64, Error> {
    // SAFETY: the tests' streams live during the call.
    unsafe { pools.malloc(SIZE, 0, stream) }
}

fn free(pools: &AddressPools, address: u64, stream: CUstream) -> Result<(), Error> {
    // SAFETY: as above; later work that uses the memory is on streams with a recorded use, or the test is wrong on purpose.
    unsafe { pools.free(address, SIZE, 0, stream) }
}

fn record_use(pools: &AddressPools, address: u64, stream: CUstream) -> Result<(), Error> {
    // SAFETY: as above.
    unsafe { pools.record_use(address, stream) }
}

/// A tensor of `home` that `second` reads late. It is freed, and its memory goes to the next tensor of `home`, which is
/// filled. What the second stream has read then is returned.
fn reuse(setup: &Setup, pools: &AddressPools, second: CUstream, how: How) -> Result<Vec<u8>, Error> {
    let home = foreign(setup)?;
    let (copy, tensor) = (malloc(pools, home)?, malloc(pools, home)?);
    fill(setup, tensor, 1, home)?;
    setup.context.synchronize()?;
    if how.records {
        record_use(pools, tensor, second)?;
    }
    // The work follows the call, as in PyTorch.
    read_late(setup, (copy, tensor), second)?;
    if how.ends {
        destroy(setup, second)?;
    }
    free(pools, tensor, home)?;
    if how.names {
        record_use(pools, copy, second)?;
    }
    let next = malloc(pools, home)?;
    assert_eq!(next, tensor, "the pool has no other memory");
    if how.names {
        assert!(is_running(setup, second)?, "a call waited for the second stream");
    }
    fill(setup, next, 2, home)?;
    let seen = read(setup, copy)?;
    free(pools, next, home)?;
    free(pools, copy, home)?;
    destroy(setup, home)?;
    Ok(seen)
}

#[derive(Clone, Copy, Debug)]
struct How {
    /// The use is recorded.
    records: bool,
    /// The second stream ends before the free.
    ends: bool,
    /// A call names the second stream after the free.
    names: bool,
}

const RECORDED: How = How { records: true, ends: false, names: false };

#[test]
fn memory_waits_for_a_second_stream_until_its_free() -> Outcome {
    alone(|setup| {
        let ways = [RECORDED, How { names: true, ..RECORDED }, How { ends: true, ..RECORDED }];
        for how in ways.repeat(5) {
            let pools = pools_of(setup, 2)?;
            let second = foreign(setup)?;
            same(&format!("{how:?}"), &reuse(setup, &pools, second, how)?, &[1; SIZE])?;
            if !how.ends {
                destroy(setup, second)?;
            }
        }
        // The default stream, and a stream of which the program has a value.
        let kept = Stream::new(&setup.context)?;
        for second in [null_mut(), kept.raw()] {
            same("the copy", &reuse(setup, &pools_of(setup, 2)?, second, RECORDED)?, &[1; SIZE])?;
        }
        Ok(())
    })
}

#[test]
fn memory_is_reused_under_a_second_stream_that_nobody_told_of() -> Outcome {
    let setup = Setup::from_environment()?;
    let reports = setup.is_software();
    drop(setup);
    let misused = move |misuse: &[softgpu::MisuseReport]| {
        assert!(!reports || misuse.iter().all(|report| report.misuse == softgpu::Misuse::NoOrder), "{misuse:?}");
    };
    let test = |setup: &Setup| -> Outcome {
        let second = foreign(setup)?;
        let seen = reuse(setup, &pools_of(setup, 2)?, second, How { records: false, ..RECORDED })?;
        assert!(seen.contains(&2), "the test shows nothing");
        destroy(setup, second)?;
        Ok(())
    };
    alone_with_misuse(test, misused)
}

#[test]
fn a_second_stream_that_goes_on_keeps_few_blocks() -> Outcome {
    alone(|setup| {
        let pools = AddressPools::new(&setup.driver, &PoolOptions::default())?;
        let (home, second) = (foreign(setup)?, foreign(setup)?);
        let copy = malloc(&pools, home)?;
        // A prefetcher: each batch is recorded once, and its memory is allocated before the former batch is freed.
        let mut batch = malloc(&pools, home)?;
        for _ in 0..50 {
            record_use(&pools, batch, second)?;
            read_late(setup, (copy, batch), second)?;
            let next = malloc(&pools, home)?;
            free(&pools, batch, home)?;
            batch = next;
        }
        assert!(is_running(setup, second)?, "a call waited for the second stream");
        let reserved = pools.pool(0)?.statistics().reserved.peak;
        setup.context.synchronize()?;
        free(&pools, batch, home)?;
        free(&pools, copy, home)?;
        assert!(reserved <= 8 * SIZE as u64, "{reserved} bytes for four blocks");
        [home, second].into_iter().try_for_each(|raw| destroy(setup, raw))?;
        Ok(())
    })
}

#[test]
fn many_threads_record_uses_of_one_block() -> Outcome {
    alone(|setup| {
        let pools = pools_of(setup, 2)?;
        for _ in 0..20 {
            let home = foreign(setup)?;
            let streams = [foreign(setup)?, foreign(setup)?, foreign(setup)?, foreign(setup)?].map(|raw| raw.addr());
            let (copy, tensor) = (malloc(&pools, home)?, malloc(&pools, home)?);
            fill(setup, tensor, 1, home)?;
            setup.context.synchronize()?;
            thread::scope(|scope| {
                for raw in streams {
                    let pools = &pools;
                    let stream = std::ptr::without_provenance_mut;
                    scope
                        .spawn(move || (0..3).try_for_each(|_| record_use(pools, tensor, stream(raw))).expect("noted"));
                }
            });
            let last = std::ptr::without_provenance_mut(streams[3]);
            read_late(setup, (copy, tensor), last)?;
            free(&pools, tensor, home)?;
            let next = malloc(&pools, home)?;
            fill(setup, next, 2, home)?;
            same("the copy", &read(setup, copy)?, &[1; SIZE])?;
            free(&pools, next, home)?;
            free(&pools, copy, home)?;
            for raw in streams {
                destroy(setup, std::ptr::without_provenance_mut(raw))?;
            }
            destroy(setup, home)?;
        }
        Ok(())
    })
}

#[test]
fn a_use_in_a_graph_lasts_until_the_graph_has_ended() -> Outcome {
    alone_with_late_ends(|setup| {
        let cuda = setup.driver.raw();
        let pools = pools_of(setup, 2)?;
        let (home, second) = (foreign(setup)?, foreign(setup)?);
        let (copy, tensor) = (malloc(&pools, home)?, malloc(&pools, home)?);
        let mut graph: CUgraph = null_mut();
        // SAFETY: the stream lives, and the place is writable.
        unsafe {
            let _current = setup.context.bind()?;
            check(cuda.cuStreamBeginCapture_v2(second, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED))?;
            record_use(&pools, tensor, second)?;
            check(cuda.cuMemcpyDtoDAsync_v2(copy, tensor, SIZE, second))?;
            check(cuda.cuStreamEndCapture(second, &mut graph))?;
        }
        free(&pools, tensor, home)?;
        record_use(&pools, copy, second)?;
        assert!(matches!(malloc(&pools, home), Err(Error::OutOfMemory { .. })), "a launch may still read the memory");
        // SAFETY: the test owns the graph.
        check(unsafe { cuda.cuGraphDestroy(graph) })?;
        // The driver tells of the end on a thread of its own.
        let end = Instant::now() + LIMIT;
        let again = loop {
            match malloc(&pools, home) {
                Err(Error::OutOfMemory { .. }) if Instant::now() < end => thread::sleep(Duration::from_millis(1)),
                found => break found?,
            }
        };
        assert_eq!(again, tensor);
        free(&pools, tensor, home)?;
        free(&pools, copy, home)?;
        [home, second].into_iter().try_for_each(|raw| destroy(setup, raw))?;
        Ok(())
    })
}

#[test]
fn a_wrong_use_is_refused_and_does_no_harm() -> Outcome {
    alone(|setup| {
        let pools = pools_of(setup, 2)?;
        let stream = foreign(setup)?;
        let address = malloc(&pools, stream)?;
        for wrong in [0, address + 256, address + 1, 1 << 60] {
            let refused = record_use(&pools, wrong, stream);
            assert!(matches!(refused, Err(Error::InvalidArgument { argument: "address", .. })), "{refused:?}");
        }
        // The stream that frees the block anyway.
        record_use(&pools, address, stream)?;
        // SAFETY: the frees are refused.
        unsafe {
            assert!(pools.free(address, SIZE + 1, 0, stream).is_err_and(|error| error.to_string().contains("size")));
        }
        free(&pools, address, stream)?;
        assert!(record_use(&pools, address, stream).is_err(), "it was freed");
        assert!(free(&pools, address, stream).is_err(), "it was freed");
        assert_eq!(malloc(&pools, stream)?, address, "the stream gets its own memory back");
        free(&pools, address, stream)?;
        let pinned = Addresses::new(&PinnedMemory::new(&setup.context))?;
        // SAFETY: the stream lives, and nothing uses the memory.
        unsafe {
            let other = pinned.malloc(100, 1, cuda_mem::memory::Accessibility::BOTH, stream)?;
            assert!(pinned.record_use(other, stream).is_err(), "it is no pool");
            pinned.free(other, 100, stream)?;
        }
        destroy(setup, stream)?;
        Ok(())
    })
}

#[test]
fn a_use_by_a_stream_of_another_device_is_waited_for() {
    on_softgpu(&test_name!("part_other_device"), "none", "2");
}

#[test]
#[ignore = "a part, on two devices"]
fn part_other_device() -> Outcome {
    alone(|setup| {
        let pools = pools_of(setup, 2)?;
        // SAFETY: NULL is the default stream, and nothing uses the memory.
        unsafe {
            let there = pools.malloc(SIZE, 1, null_mut())?;
            pools.free(there, SIZE, 1, null_mut())?;
        }
        let (home, far) = (foreign(setup)?, foreign_on(setup, 1)?);
        let (rest, tensor) = (malloc(&pools, home)?, malloc(&pools, home)?);
        record_use(&pools, tensor, far)?;
        let context = setup.driver.device(1)?.primary_context()?;
        {
            let _current = context.bind()?;
            // SAFETY: the function takes any argument.
            check(unsafe { setup.driver.raw().cuLaunchHostFunc(far, Some(nap), null_mut()) })?;
        }
        free(&pools, tensor, home)?;
        record_use(&pools, rest, far)?;
        assert_eq!(malloc(&pools, home)?, tensor);
        assert!(is_running(setup, home)?, "its next work does not wait for the other device");
        context.synchronize()?;
        free(&pools, tensor, home)?;
        free(&pools, rest, home)?;
        [home, far].into_iter().try_for_each(|raw| destroy(setup, raw))?;
        Ok(())
    })
}

#[test]
fn a_block_whose_use_cannot_be_noted_is_held_back() {
    on_softgpu(&test_name!("part_held_back"), "none", "2");
}

// The memory stays until the process ends.
#[test]
#[ignore = "a part, in a process of its own"]
fn part_held_back() -> Outcome {
    let setup = Setup::from_environment()?;
    let elsewhere = setup.driver.device(0)?.create_context()?;
    let other = Stream::new(&elsewhere)?;
    let (pools, home) = (pools_of(&setup, 2)?, foreign(&setup)?);
    let tensor = malloc(&pools, home)?;
    let refused = record_use(&pools, tensor, other.raw());
    assert!(matches!(refused, Err(Error::InvalidArgument { argument: "stream", .. })), "{refused:?}");
    free(&pools, tensor, home)?;
    let rest = malloc(&pools, home)?;
    assert_ne!(rest, tensor);
    assert!(matches!(malloc(&pools, home), Err(Error::OutOfMemory { .. })));
    free(&pools, rest, home)?;
    Ok(())
}

#[test]
fn a_use_is_kept_where_the_driver_makes_no_event() -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            return Ok(());
        }
        let (pools, home, second) = (pools_of(setup, 2)?, foreign(setup)?, foreign(setup)?);
        let (copy, tensor) = (malloc(&pools, home)?, malloc(&pools, home)?);
        fill(setup, tensor, 1, home)?;
        setup.context.synchronize()?;
        let every = Fault::call("cuEventCreate", 1, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        softgpu::faults([Fault { when: When::Every(1), ..every }]);
        let noted = record_use(&pools, tensor, second);
        read_late(setup, (copy, tensor), second)?;
        let freed = free(&pools, tensor, home);
        softgpu::faults([]);
        noted?;
        freed?;
        let next = malloc(&pools, home)?;
        fill(setup, next, 2, home)?;
        same("the copy", &read(setup, copy)?, &[1; SIZE])?;
        free(&pools, next, home)?;
        free(&pools, copy, home)?;
        [home, second].into_iter().try_for_each(|raw| destroy(setup, raw))?;
        Ok(())
    })
}
