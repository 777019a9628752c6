//! Every method for every memory that it serves, refusals, and the meaning of completion.

use super::{engine, helped};
use cuda_mem::buffer::Access;
use cuda_mem::copy::{CopyEngine, CopyMethod, CopyOptions, DeviceSide, Direction, HostSide, Route};
use cuda_mem::mapped::CoherencePolicy;
use cuda_mem::memory::{DeviceMemory, Kind, ManagedMemory, PinnedMemory, RegisterOptions, RegisteredMemory};
use cuda_mem::{Buffer, Error, Feature, HostBuffer, MappedMemory, Stream};
use testkit::suite::Outcome;
use testkit::{alone, delay, pattern, same};

const SIZES: [usize; 9] = [1, 4, 63, 4096, 65_539, 262_144, (1 << 20) + 5, 3 << 20, (5 << 20) + 1];
const ROOM: usize = 6 << 20;
/// More threads than a small machine has, so that the methods with several threads are tested.
const THREADS: usize = 5;

/// Writes and reads every size by every method, at unaligned offsets.
fn all_methods<K: Kind, A: Access>(
    engine: &CopyEngine,
    memory: &mut Buffer<u8, K, A>,
    device: DeviceSide,
    host: &mut [u8],
) -> Outcome {
    let untouched = vec![0; host.len()];
    for size in SIZES {
        for (direction, offset) in [(Direction::ToDevice, 3), (Direction::FromDevice, 4096 - 1)] {
            for kind in [HostSide::Pageable, HostSide::Pinned] {
                for method in CopyMethod::all(Route { direction, host: kind, device }, 6) {
                    let mut options = CopyOptions::default();
                    (options.method, options.host) = (Some(method), Some(kind));
                    let what = format!("{direction:?}, {kind:?}, {method}, {size} bytes");
                    let expected = pattern(size, size as u8 ^ method.threads() as u8);
                    let side = &mut host[7..7 + size];
                    match direction {
                        Direction::ToDevice => {
                            side.copy_from_slice(&expected);
                            engine
                                .write_with(memory, offset, side, &options)
                                .map_err(|error| format!("{what}: {error}"))?;
                            side.fill(0);
                            engine.read(memory, offset, side)?;
                        }
                        Direction::FromDevice => {
                            engine.write(memory, offset, &expected)?;
                            side.fill(0);
                            engine
                                .read_with(memory, offset, side, &options)
                                .map_err(|error| format!("{what}: {error}"))?;
                        }
                    }
                    same(&what, side, &expected)?;
                    side.fill(0);
                    same(&format!("{what}: outside"), host, &untouched)?;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn every_method_copies_every_size_to_and_from_mapped_memory() -> Outcome {
    alone(|setup| {
        let (engine, stream) = (helped(&setup.context, THREADS)?, Stream::new(&setup.context)?);
        let resource = MappedMemory::new(&setup.context)?;
        let mut memory = testkit::mapped(&resource, ROOM)?;
        all_methods(&engine, &mut memory, DeviceSide::Mapped, &mut vec![0; ROOM])?;
        all_methods(&engine, &mut memory.into_shared(), DeviceSide::Mapped, &mut vec![0; ROOM])?;
        let mut buffer = Buffer::<u8, _>::zeroed(&resource, ROOM, &stream)?;
        all_methods(&engine, &mut buffer, DeviceSide::Mapped, &mut vec![0; ROOM])
    })
}

#[test]
fn every_method_copies_all_sizes_to_and_from_non_coherent_memory() -> Outcome {
    alone(|setup| {
        let (engine, stream) = (helped(&setup.context, THREADS)?, Stream::new(&setup.context)?);
        let resource = MappedMemory::with_coherence(&setup.context, CoherencePolicy::ForcedNonCoherent)?;
        let mut memory = testkit::mapped(&resource, ROOM)?;
        all_methods(&engine, &mut memory, DeviceSide::Mapped, &mut vec![0; ROOM])?;
        let mut buffer = Buffer::<u8, _>::zeroed(&resource, ROOM, &stream)?;
        all_methods(&engine, &mut buffer, DeviceSide::Mapped, &mut vec![0; ROOM])
    })
}

#[test]
fn driver_copies_preserve_adjacent_cpu_and_device_writes() -> Outcome {
    alone(|setup| {
        let engine = engine(&setup.context)?;
        let resource = MappedMemory::with_coherence(&setup.context, CoherencePolicy::ForcedNonCoherent)?;
        let mut memory = testkit::mapped(&resource, 4096)?;
        let stream = Stream::new(&setup.context)?;
        let mut options = CopyOptions::default();
        options.method = Some(CopyMethod::Driver);
        testkit::fill_on(&mut memory, .., 1, &stream)?;
        let mut guard = memory.write(..10)?;
        guard.fill(2);
        softgpu::CpuBorrow::end_all(guard.as_ptr().addr(), guard.len());
        std::mem::forget(guard); // not flushed
        engine.write_with(&mut memory, 20, &[3u8; 10], &options)?;
        let mut seen = [0u8; 40];
        engine.read_with(&memory, 0, &mut seen, &options)?;
        let expected: Vec<u8> = [(2, 10), (1, 10), (3, 10), (1, 10)].iter().flat_map(|(b, n)| vec![*b; *n]).collect();
        same("the device", &seen, &expected)?;
        memory.load(0, &mut seen)?;
        same("the CPU", &seen, &expected)?;
        Ok(())
    })
}

#[test]
fn every_method_copies_all_sizes_for_plain_pinned_managed_memory() -> Outcome {
    alone(|setup| {
        let (context, engine) = (&setup.context, helped(&setup.context, THREADS)?);
        let stream = Stream::new(context)?;
        let mut plain = Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), ROOM, &stream)?;
        all_methods(&engine, &mut plain, DeviceSide::Plain, &mut vec![0; ROOM])?;
        // Use page-locked memory on the host's side too.
        let mut pinned = HostBuffer::<u8>::zeroed(&PinnedMemory::new(context), ROOM)?;
        let mut options = CopyOptions::default();
        let expected = pattern(ROOM, 9);
        pinned.copy_from_slice(&expected);
        engine.write(&mut plain, 0, &pinned)?;
        pinned.fill(0);
        engine.read(&plain, 0, &mut pinned)?;
        same("by page-locked memory", &pinned, &expected)?;
        // If the device's side is host memory that the driver knows, the CPU copies it. If it is managed memory, the
        // driver copies it.
        let mut host = Buffer::<u8, _>::zeroed(&PinnedMemory::new(context), ROOM, &stream)?;
        engine.write(&mut host, 1, &expected[1..])?;
        same("page-locked", &host.to_vec()?[1..], &expected[1..])?;
        if context.device().supports(Feature::Managed)? != cuda_mem::Support::No {
            let mut managed = Buffer::<u8, _>::zeroed(&ManagedMemory::new(context)?, 1 << 16, &stream)?;
            engine.write(&mut managed, 1, &expected[..1000])?;
            let mut seen = vec![0; 1000];
            engine.read(&managed, 1, &mut seen)?;
            same("managed", &seen, &expected[..1000])?;
        } else {
            println!("skipped: managed memory: this device has none");
        }
        options.method = Some(CopyMethod::Staged { threads: 1 });
        let elements = Buffer::<u32, _>::from_slice(&DeviceMemory::new(context), &[1, 2, 3, 4], &stream)?;
        let mut seen = [0u32; 2];
        engine.read_with(&elements, 2, &mut seen, &options)?;
        assert_eq!(seen, [3, 4]);
        Ok(())
    })
}

#[test]
fn memory_that_is_registered_is_found_to_be_so() -> Outcome {
    alone(|setup| {
        let (context, engine) = (&setup.context, engine(&setup.context)?);
        let stream = Stream::new(context)?;
        let registered = RegisteredMemory::new(context, pattern(1 << 20, 2), RegisterOptions::default())?;
        let mut source = registered.buffer(&stream)?;
        let mut buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), 1 << 20, &stream)?;
        engine.write(&mut buffer, 0, &source.read(..)?)?;
        same("from registered memory", &buffer.to_vec()?, &pattern(1 << 20, 2))?;
        source.close()?;
        let owner = registered.into_owner()?;
        engine.write(&mut buffer, 0, &owner[1..])?;
        same("and no longer", &buffer.to_vec()?[..1000], &pattern(1 << 20, 2)[1..1001])?;
        Ok(())
    })
}

#[test]
fn what_cannot_be_is_refused_by_name_and_copies_nothing() -> Outcome {
    alone(|setup| {
        let (context, engine) = (&setup.context, engine(&setup.context)?);
        let stream = Stream::new(context)?;
        let mut mapped = testkit::mapped(&MappedMemory::new(context)?, 100)?;
        let mut plain = Buffer::<u32, _>::zeroed(&DeviceMemory::new(context), 10, &stream)?;
        let text = |error: Error| error.to_string();
        assert_eq!(
            text(engine.write(&mut mapped, 97, &[1u8; 4]).unwrap_err()),
            "CopyEngine::write: bytes 97 to 97+4 lie outside of memory of 100 bytes"
        );
        assert!(matches!(
            engine.read(&plain, 9, &mut [0; 2]),
            Err(Error::OutOfRange { offset: 36, length: 8, size: 40, .. })
        ));
        assert!(engine.write(&mut mapped, usize::MAX, &[0u8; 16]).is_err());
        let mut options = CopyOptions::default();
        options.method = Some(CopyMethod::Cpu { threads: 1 });
        let refused = text(engine.write_with(&mut plain, 0, &[1], &options).unwrap_err());
        assert!(refused.contains("method is CPU, 1 thread, for a copy from pageable to device"), "{refused}");
        options.method = Some(CopyMethod::Mixed { storing: 0, staging: 1 });
        assert!(engine.write_with(&mut mapped, 0, &[1u8], &options).is_err());
        // Host memory has only one way, like managed memory.
        let mut host = Buffer::<u8, _>::zeroed(&PinnedMemory::new(context), 10, &stream)?;
        let refused = text(engine.write_with(&mut host, 0, &[1], &options).unwrap_err());
        assert!(refused.contains("but only CopyMethod::Cpu, with 1 or more threads, copies host memory"), "{refused}");
        let mut one = CopyOptions::default();
        one.method = Some(CopyMethod::Cpu { threads: 3 });
        engine.write_with(&mut host, 0, &[1], &one)?;
        assert_eq!(host.to_vec()?[..2], [1, 0]);
        if context.device().supports(Feature::Managed)? != cuda_mem::Support::No {
            let mut managed = Buffer::<u8, _>::zeroed(&ManagedMemory::new(context)?, 10, &stream)?;
            let refused = text(engine.write_with(&mut managed, 0, &[1], &one).unwrap_err());
            assert!(refused.contains("but only CopyMethod::Driver copies managed memory"), "{refused}");
        }
        // An empty copy is not an error, wherever it lies.
        engine.write(&mut mapped, 100, &[])?;
        engine.read(&plain, 10, &mut [])?;
        engine.write_with(&mut plain, 0, &[], &options)?;
        if setup.driver.device_count()? > 1 {
            let other = setup.driver.device(1)?.primary_context()?;
            let there = Stream::new(&other)?;
            let mut far = Buffer::<u32, _>::zeroed(&DeviceMemory::new(&other), 10, &there)?;
            let refused = text(engine.write(&mut far, 0, &[1]).unwrap_err());
            assert!(
                refused.contains("the memory is of device 1, but a copy engine serves memory of its own"),
                "{refused}"
            );
            let refused = text(engine.write_on(&there, &mut plain, 0, &[1]).unwrap_err());
            assert!(refused.contains("stream is of another context, of device 1"), "{refused}");
        } else {
            println!("skipped: memory of another device: there is only one device");
        }
        assert_eq!(plain.to_vec()?, [0; 10]);
        Ok(())
    })
}

#[test]
fn complete_writes_are_there_whatever_their_size() -> Outcome {
    alone(|setup| {
        let engine = engine(&setup.context)?;
        let mut memory = testkit::mapped(&MappedMemory::new(&setup.context)?, 3 << 20)?;
        let mut seen = [0u8; 4];
        engine.write_complete(&mut memory, 0, &[2u8; 4])?;
        engine.write_complete(&mut memory, 2, &[4u8])?;
        engine.write_complete(&mut memory, 4, &[])?;
        memory.copy_to_slice(0, &mut seen)?;
        assert_eq!(seen, [2, 2, 4, 2]);
        let large = pattern(3 << 20, 1);
        engine.write_complete(&mut memory, 0, &large)?;
        let mut all = vec![0u8; 3 << 20];
        memory.copy_to_slice(0, &mut all)?;
        same("a large write", &all, &large)?;
        Ok(())
    })
}

#[test]
fn the_cpu_waits_for_device_work_that_the_memory_knows_of() -> Outcome {
    alone(|setup| {
        let (engine, stream) = (engine(&setup.context)?, Stream::new(&setup.context)?);
        let resource = MappedMemory::new(&setup.context)?;
        let mut memory = testkit::mapped(&resource, 1 << 20)?;
        let mut buffer = Buffer::<u8, _>::zeroed(&resource, 1 << 20, &stream)?;
        for method in [
            CopyMethod::Cpu { threads: 1 },
            CopyMethod::Driver,
            CopyMethod::Staged { threads: 2 },
            CopyMethod::Mixed { storing: 1, staging: 1 },
        ] {
            let mut options = CopyOptions::default();
            options.method = Some(method);
            delay(&stream)?;
            testkit::fill_on(&mut memory, .., 7, &stream)?;
            engine.write_with(&mut memory, 0, &[8u8; 1 << 19], &options)?;
            buffer.fill(.., 7)?;
            engine.write_with(&mut buffer, 0, &[8u8; 1 << 19], &options)?;
            let mut seen = vec![0u8; 1 << 20];
            for round in 0..2 {
                match round {
                    0 => memory.copy_to_slice(0, &mut seen)?,
                    _ => buffer.copy_to_slice(0, &mut seen)?,
                }
                assert!(seen[..1 << 19].iter().all(|byte| *byte == 8), "{method}: the fill came after the copy");
                assert!(seen[1 << 19..].iter().all(|byte| *byte == 7), "{method}");
            }
        }
        Ok(())
    })
}
