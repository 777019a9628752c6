//! Memory that programs free by its address, on streams that only the calls name. One test runs at a time, because the
//! ledger applies to the whole process.

use cuda_mem::cuda_sys::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUresult, CUstream, CUstream_flags};
use cuda_mem::memory::{Accessibility, DeviceMemory, ManagedMemory, ResourceHandle, SharedResource};
use cuda_mem::pool::{AddressPools, Addresses, Pool, PoolOptions, Tracked};
use cuda_mem::{Error, MappedMemory, Stream};
use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use testkit::sources::over_every_source;
use testkit::suite::Outcome;
use testkit::{Setup, alone, same};

/// The pool's only region is one block of the largest size that thread caches keep.
const SIZE: usize = 1 << 20;

fn tight(setup: &Setup) -> Result<AddressPools, Error> {
    let mut options = PoolOptions::default();
    (options.initial, options.maximum) = (SIZE, SIZE);
    AddressPools::new(&setup.driver, &options)
}

fn check(code: Result<CUresult, impl Into<Error>>) -> Result<(), Error> {
    assert_eq!(code.map_err(Into::into)?, CUresult::CUDA_SUCCESS);
    Ok(())
}

/// A stream that the library knows nothing of.
fn foreign(setup: &Setup) -> Result<CUstream, Error> {
    let (mut raw, _current) = (null_mut(), setup.context.bind()?);
    // SAFETY: `raw` is writable, and the context is current.
    check(unsafe { setup.driver.raw().cuStreamCreate(&mut raw, CUstream_flags::CU_STREAM_NON_BLOCKING.0) })?;
    Ok(raw)
}

fn destroy(setup: &Setup, raw: CUstream) -> Result<(), Error> {
    // SAFETY: the test does not use the stream any more.
    check(unsafe { setup.driver.raw().cuStreamDestroy_v2(raw) })
}

unsafe extern "C" fn nap(_: *mut c_void) {
    thread::sleep(Duration::from_millis(20));
}

/// Fills `SIZE` bytes in stream order, after a delay.
fn fill_late(setup: &Setup, address: u64, value: u8, stream: CUstream) -> Result<(), Error> {
    let (cuda, _current) = (setup.driver.raw(), setup.context.bind()?);
    // SAFETY: the function takes any argument.
    check(unsafe { cuda.cuLaunchHostFunc(stream, Some(nap), null_mut()) })?;
    fill(setup, address, value, stream)
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

fn malloc(pools: &AddressPools, size: usize, stream: CUstream) -> Result<u64, Error> {
    // SAFETY: the tests' streams live during the call.
    unsafe { pools.malloc(size, 0, stream) }
}

fn free(pools: &AddressPools, address: u64, size: usize, stream: CUstream) -> Result<(), Error> {
    // SAFETY: as above, and the tests queue no later work with the memory.
    unsafe { pools.free(address, size, 0, stream) }
}

#[test]
fn what_is_wrong_in_a_free_is_named_and_frees_nothing() -> Outcome {
    alone(|setup| {
        let pools = AddressPools::new(&setup.driver, &PoolOptions::default())?;
        let stream = Stream::new(&setup.context)?;
        let elsewhere = setup.driver.device(0)?.create_context()?;
        let devices = i32::try_from(setup.driver.device_count()?)?;
        let of_second = if devices > 1 { "address" } else { "device" };
        let other = Stream::new(&elsewhere)?;
        for size in [0, 1, 1000, SIZE, 5 << 20] {
            let address = malloc(&pools, size, stream.raw())?;
            assert!(address.is_multiple_of(256));
            // SAFETY: the streams live, and the frees are refused.
            let wrong = unsafe {
                [
                    (pools.free(address + 256, size, 0, stream.raw()), "address"),
                    (pools.free(address + 1, size, 0, stream.raw()), "address"),
                    (pools.free(0, size, 0, stream.raw()), "address"),
                    (pools.free(address, size + 1, 0, stream.raw()), "size"),
                    (pools.free(address, size, 1, stream.raw()), of_second),
                    (pools.free(address, size, devices, stream.raw()), "device"),
                    (pools.free(address, size, -1, stream.raw()), "device"),
                    (pools.free(address, size, 0, other.raw()), "stream"),
                    (pools.malloc(size, 0, other.raw()).map(drop), "stream"),
                    (pools.malloc(size, devices, stream.raw()).map(drop), "device"),
                ]
            };
            for (refused, what) in wrong {
                match refused {
                    Err(Error::InvalidArgument { argument, .. }) => assert_eq!(argument, what, "{size} bytes"),
                    other => panic!("{what}, {size} bytes: {other:?}"),
                }
            }
            assert_eq!(pools.pool(0)?.statistics().blocks.current, 1);
            free(&pools, address, size, stream.raw())?;
            let again = free(&pools, address, size, stream.raw()).expect_err("freed twice").to_string();
            assert!(again.contains("freed before") && again.contains(&format!("{address:#x}")), "{again}");
            assert_eq!(pools.pool(0)?.statistics().blocks.current, 0);
        }
        Ok(())
    })
}

#[test]
fn memory_is_reused_after_the_stream_that_freed_it() -> Outcome {
    alone(|setup| {
        let pools = tight(setup)?;
        let streams = [foreign(setup)?, foreign(setup)?, null_mut(), CU_STREAM_LEGACY, CU_STREAM_PER_THREAD];
        for home in streams {
            for freeing in streams {
                for next in streams {
                    let address = malloc(&pools, SIZE, home)?;
                    // The second pair is served by the thread cache.
                    free(&pools, address, SIZE, home)?;
                    let address = malloc(&pools, SIZE, home)?;
                    setup.context.synchronize()?;
                    fill_late(setup, address, 1, freeing)?;
                    free(&pools, address, SIZE, freeing)?;
                    let reused = malloc(&pools, SIZE, next)?;
                    assert_eq!(reused, address);
                    fill(setup, reused, 2, next)?;
                    same("the later work", &read(setup, reused)?, &[2; SIZE])?;
                    free(&pools, reused, SIZE, next)?;
                }
            }
        }
        streams[..2].iter().try_for_each(|raw| destroy(setup, *raw))?;
        Ok(())
    })
}

#[test]
fn a_stream_may_be_destroyed_right_after_a_call() -> Outcome {
    alone(|setup| {
        let pools = tight(setup)?;
        for round in 0..50u8 {
            let stream = foreign(setup)?;
            let address = malloc(&pools, SIZE, stream)?;
            // Work of the stream before this one may be running.
            fill(setup, address, 99, stream)?;
            if round % 3 > 0 {
                // A free that a thread cache takes records no event.
                free(&pools, address, SIZE, stream)?;
                assert_eq!(malloc(&pools, SIZE, stream)?, address);
            }
            fill_late(setup, address, round, stream)?;
            if round % 5 == 0 {
                same("the stream's work", &read(setup, address)?, &[round; SIZE])?;
                fill_late(setup, address, round, stream)?;
            }
            free(&pools, address, SIZE, stream)?;
            destroy(setup, stream)?;
        }
        Ok(())
    })
}

#[test]
fn a_stream_gets_its_own_memory_back_without_events() -> Outcome {
    alone(|setup| {
        let pools = tight(setup)?;
        let stream = foreign(setup)?;
        let address = malloc(&pools, SIZE, stream)?;
        free(&pools, address, SIZE, stream)?;
        let before = pools.pool(0)?.statistics();
        fill_late(setup, address, 1, stream)?;
        for _ in 0..100 {
            assert_eq!(malloc(&pools, SIZE, stream)?, address);
            free(&pools, address, SIZE, stream)?;
        }
        // SAFETY: the stream lives.
        let running = unsafe { setup.driver.raw().cuStreamQuery(stream) }?;
        assert_eq!(running, CUresult::CUDA_ERROR_NOT_READY, "a call waited");
        let after = pools.pool(0)?.statistics();
        assert_eq!((after.events_recorded, after.waits), (before.events_recorded, before.waits));
        destroy(setup, stream)?;
        Ok(())
    })
}

#[test]
fn threads_free_what_others_allocate_on_several_devices() -> Outcome {
    alone(|setup| {
        const THREADS: i32 = 6;
        let pools = AddressPools::new(&setup.driver, &PoolOptions::default())?;
        let devices = i32::try_from(setup.driver.device_count()?.min(2))?;
        let (sender, receiver) = channel();
        let mut live = HashMap::new();
        thread::scope(|scope| -> Outcome {
            for number in 0..THREADS {
                let (sender, pools) = (sender.clone(), &pools);
                scope.spawn(move || {
                    let device = number % devices;
                    let context = setup.driver.device(device).expect("there").primary_context().expect("it opens");
                    let stream = Stream::new(&context).expect("it is made");
                    for round in 0..500usize {
                        let size = 1 + (round * 7919) % 300_000;
                        // SAFETY: the stream lives during the call.
                        let address = unsafe { pools.malloc(size, device, stream.raw()) }.expect("there is memory");
                        sender.send((address, size, device)).expect("the receiver lives");
                    }
                });
            }
            drop(sender);
            for (round, (address, size, device)) in receiver.iter().enumerate() {
                assert!(live.insert((address, device), size).is_none(), "{address:#x} was handed out twice");
                if round % 4 != 0 {
                    live.remove(&(address, device));
                    // SAFETY: the null stream lives, and nothing uses the memory.
                    unsafe { pools.free(address, size, device, null_mut()) }?;
                    continue;
                }
                assert!(live.len() <= THREADS as usize * 500);
            }
            Ok(())
        })?;
        let count = || {
            (0..devices).map(|device| Ok(pools.pool(device)?.statistics().blocks.current)).sum::<Result<u64, Error>>()
        };
        assert_eq!(count()?, u64::from(THREADS as u32) * 500 / 4);
        for ((address, device), size) in live {
            // SAFETY: as above.
            unsafe { pools.free(address, size, device, null_mut()) }?;
        }
        assert_eq!(count()?, 0);
        Ok(())
    })
}

#[test]
fn one_of_two_threads_that_free_a_block_succeeds() -> Outcome {
    alone(|setup| {
        let pools = AddressPools::new(&setup.driver, &PoolOptions::default())?;
        for _ in 0..200 {
            let address = malloc(&pools, 5000, null_mut())?;
            let freed = thread::scope(|scope| {
                let threads = [(); 2].map(|()| scope.spawn(|| free(&pools, address, 5000, null_mut()).is_ok()));
                threads.map(|thread| thread.join().expect("no panic"))
            });
            assert!(freed[0] != freed[1], "{freed:?}");
        }
        assert_eq!(pools.pool(0)?.statistics().blocks.current, 0);
        Ok(())
    })
}

#[test]
fn a_pool_that_is_full_says_so_and_goes_on() -> Outcome {
    alone(|setup| {
        let pools = tight(setup)?;
        let address = malloc(&pools, SIZE, null_mut())?;
        let full = malloc(&pools, 1, null_mut()).expect_err("there is no room");
        assert!(full.is_out_of_memory(), "{full}");
        free(&pools, address, SIZE, null_mut())?;
        assert!(malloc(&pools, usize::MAX, null_mut()).is_err_and(|error| error.is_out_of_memory()));
        free(&pools, malloc(&pools, 1, null_mut())?, 1, null_mut())?;
        Ok(())
    })
}

/// Runs a test with the memory of every source by address, directly, in a pool, and in a pool that records its blocks.
fn over_all(setup: &Setup, test: impl Fn(&Setup, &Addresses, &SharedResource) -> Outcome) -> Outcome {
    let mut watched = PoolOptions::default();
    watched.tracking = Tracked::Names;
    over_every_source(setup, [], |setup, source| {
        test(setup, &Addresses::new(source)?, source)?;
        for options in [&PoolOptions::default(), &watched] {
            let pool = Pool::new(source, options)?;
            test(setup, &Addresses::of_pool(&pool)?, source)?;
            assert_eq!(pool.statistics().blocks.current, 0);
            assert!(pool.leak_report().is_none_or(|report| report.blocks.is_empty()));
        }
        Ok(())
    })
}

#[test]
fn memory_of_every_source_has_an_address_and_goes_by_it() -> Outcome {
    alone(|setup| {
        over_all(setup, |setup, memory, source| {
            let stream = foreign(setup)?;
            // The CPU may address memory on a device differently.
            let both = source.accessibility().host && !source.is_on_device();
            let access = if both { Accessibility::BOTH } else { Accessibility::DEVICE };
            for (size, alignment) in [(0, 1), (1, 1), (1000, 256), (3000, 8192)] {
                // SAFETY: the streams live, and no work uses the memory after a free.
                unsafe {
                    let address = memory.malloc(size, alignment, access, stream)?;
                    assert!(address.is_multiple_of(alignment as u64));
                    for (at, size, what) in [(address + 256, size, "address"), (address, size + 1, "size")] {
                        let refused = memory.free(at, size, stream);
                        assert!(matches!(&refused, Err(Error::InvalidArgument { argument, .. }) if *argument == what));
                    }
                    setup.context.synchronize()?;
                    memory.free(address, size, null_mut())?;
                    assert!(memory.free(address, size, stream).is_err(), "freed twice");
                }
            }
            destroy(setup, stream)?;
            Ok(())
        })
    })
}

#[test]
fn an_address_is_for_those_who_can_use_it() -> Outcome {
    alone(|setup| {
        let refused = |memory: &Addresses<_>, alignment, access, what: &str| {
            // SAFETY: the null stream lives.
            match unsafe { memory.malloc(8, alignment, access, null_mut()) } {
                Err(Error::InvalidArgument { argument, .. }) => assert_eq!(argument, what),
                other => panic!("{what}: {other:?}"),
            }
        };
        let device = Addresses::new(&DeviceMemory::new(&setup.context).share())?;
        refused(&device, 1, Accessibility::HOST, "access");
        refused(&device, 1, Accessibility::BOTH, "access");
        refused(&device, 1, Accessibility::NONE, "access");
        refused(&device, 3, Accessibility::DEVICE, "alignment");
        refused(&device, 0, Accessibility::DEVICE, "alignment");
        let managed = Addresses::new(&ManagedMemory::new(&setup.context)?.share())?;
        for access in [Accessibility::HOST, Accessibility::BOTH, Accessibility::DEVICE] {
            // SAFETY: as above, and nothing uses the memory.
            unsafe { managed.free(managed.malloc(8, 1 << 12, access, null_mut())?, 8, null_mut())? };
        }
        // The CPU and the device may address mapped memory differently. Each has its own address then.
        let mapped = Addresses::new(&MappedMemory::new(&setup.context)?.share())?;
        // SAFETY: as above.
        unsafe {
            for access in [Accessibility::HOST, Accessibility::DEVICE] {
                mapped.free(mapped.malloc(8, 1, access, null_mut())?, 8, null_mut())?;
            }
            match mapped.malloc(8, 1, Accessibility::BOTH, null_mut()) {
                Ok(address) => mapped.free(address, 8, null_mut())?,
                Err(error) => assert!(error.to_string().contains("access"), "{error}"),
            }
        }
        Ok(())
    })
}

#[test]
fn threads_free_memory_of_any_source_that_others_allocate() -> Outcome {
    alone(|setup| {
        over_all(setup, |setup, memory, _| {
            let (sender, receiver) = channel();
            thread::scope(|scope| -> Outcome {
                for _ in 0..3 {
                    let sender = sender.clone();
                    scope.spawn(move || {
                        let stream = Stream::new(&setup.context).expect("it is made");
                        for round in 0..30 {
                            let (size, alignment) = (1 + round * 97, 1 << (round % 13));
                            // SAFETY: the stream lives during the call.
                            let address =
                                unsafe { memory.malloc(size, alignment, Accessibility::DEVICE, stream.raw()) };
                            stream.synchronize().expect("no work fails");
                            sender.send((address.expect("there is memory"), size)).expect("the receiver lives");
                        }
                    });
                }
                drop(sender);
                let mut live = HashSet::new();
                for (address, size) in &receiver {
                    assert!(live.insert(address), "{address:#x} was handed out twice");
                    live.remove(&address);
                    // SAFETY: the null stream lives, and nothing uses the memory.
                    unsafe { memory.free(address, size, null_mut()) }?;
                }
                Ok(())
            })
        })
    })
}
