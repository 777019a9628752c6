//! Virtual memory: sizes, growth, sharing between devices and with the CPU, and how it ends. Runs on any driver. One test
//! at a time: free memory and the software GPU's ledger are one for the process.

use cuda_mem::cuda_sys::{CUmemAllocationHandleType, CUresult};
use cuda_mem::memory::{
    DeviceMemory, DevicePool, Granularity, GrowableBuffer, Growth, PhysicalLocation, PhysicalMemory, PhysicalOptions,
    PoolOptions, VirtualMemory, VirtualOptions, kind,
};
use cuda_mem::{Buffer, Driver, Error, Feature, Stream, Support};
use ffi_tests::{Setup, pattern, same, softgpu_leaks};
use std::error::Error as StdError;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

type Outcome = Result<(), Box<dyn StdError>>;

/// Runs a test alone; then nothing may be left behind, no drop may have met an error, and nothing may have been misused.
fn alone(test: impl FnOnce(&Setup) -> Outcome) -> Outcome {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let setup = Setup::from_environment()?;
    let misuse = softgpu::misuse().len();
    test(&setup)?;
    assert_eq!(setup.context.take_drop_errors().errors, []);
    assert_eq!(softgpu::misuse()[misuse..], []);
    assert_eq!(softgpu_leaks(setup), None);
    Ok(())
}

fn memory(setup: &Setup) -> Result<VirtualMemory, Error> {
    VirtualMemory::new(&setup.context, &VirtualOptions::default())
}

/// Holds the stream back for a while.
fn delay(stream: &Stream) -> Result<(), Error> {
    stream.launch_host_function(|| std::thread::sleep(Duration::from_millis(30)))
}

fn invalid(error: &Error, wanted: &str) -> bool {
    matches!(error, Error::InvalidArgument { argument, .. } if *argument == wanted)
}

#[test]
fn sizes_are_rounded_up_to_the_granularity() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        for granularity in [Granularity::Recommended, Granularity::Minimum] {
            let mut options = VirtualOptions::default();
            options.granularity = granularity;
            let memory = VirtualMemory::new(&setup.context, &options)?;
            let unit = memory.granularity();
            assert!(unit.is_power_of_two() && unit >= 4096, "{unit}");
            for size in [1, unit - 1, unit, unit + 1, 3 * unit] {
                let bytes = pattern(size, 7);
                let buffer = Buffer::from_slice(&memory, &bytes, &stream)?;
                let chunks = memory.physical_memory(&buffer);
                assert_eq!(chunks.iter().map(PhysicalMemory::size).sum::<usize>(), size.next_multiple_of(unit));
                assert_eq!((buffer.size(), buffer.device_pointer() as usize % unit), (size, 0));
                same("the buffer", &buffer.to_vec()?, &bytes)?;
                buffer.close()?;
            }
        }
        Ok(())
    })
}

#[test]
fn no_bytes_need_no_memory() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, memory(setup)?);
        let empty = Buffer::<u32, _>::zeroed(&memory, 0, &stream)?;
        assert_eq!((empty.device_pointer(), memory.physical_memory(&empty).len()), (0, 0));
        empty.close()?;
        let error = PhysicalMemory::new(&setup.context, 0, &PhysicalOptions::default()).unwrap_err();
        assert!(invalid(&error, "size"), "{error}");

        let mut growable = GrowableBuffer::<u32>::with_capacity(&memory, 0, &stream)?;
        assert_eq!((growable.len(), growable.physical_size()), (0, 0));
        assert!(growable.to_vec()?.is_empty());
        growable.fill(.., 1)?;
        assert_eq!(growable.grow_to(0)?, Growth::InPlace);
        assert_eq!(growable.grow_to(3)?, Growth::InPlace);
        assert_eq!(growable.to_vec()?, [0, 0, 0]);
        growable.shrink_to(0)?;
        assert_eq!((growable.len(), growable.physical_size()), (0, 0));
        growable.into_buffer().close()?;
        drop(GrowableBuffer::<u8>::with_capacity(&memory, 100, &stream)?);
        Ok(())
    })
}

#[test]
fn addresses_are_aligned_as_asked() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let mut options = VirtualOptions::default();
        options.alignment = 1 << 30;
        let memory = VirtualMemory::new(&setup.context, &options)?;
        let buffers = [1, 2, 3].map(|length| Buffer::<u8, _>::zeroed(&memory, length, &stream));
        for buffer in buffers {
            assert_eq!(buffer?.device_pointer() % (1 << 30), 0);
        }
        let growable = GrowableBuffer::<u8>::with_capacity(&memory, 1, &stream)?;
        assert_eq!(growable.device_pointer() % (1 << 30), 0);

        options.alignment = 3;
        let error = VirtualMemory::new(&setup.context, &options).unwrap_err();
        assert!(invalid(&error, "alignment"), "{error}");

        // A wish for an address is granted where it is free, and is only a wish.
        options.alignment = 0;
        options.address_hint = growable.device_pointer();
        drop(growable);
        let memory = VirtualMemory::new(&setup.context, &options)?;
        let (first, second) = (Buffer::filled(&memory, 10, 1u8, &stream)?, Buffer::filled(&memory, 10, 2u8, &stream)?);
        if setup.is_software() {
            assert_eq!(first.device_pointer(), options.address_hint);
        }
        assert_eq!((first.to_vec()?, second.to_vec()?), (vec![1; 10], vec![2; 10]));
        options.address_hint += 4096;
        let error = VirtualMemory::new(&setup.context, &options).unwrap_err();
        assert!(matches!(error, Error::Misaligned { what: "address_hint", .. }), "{error}");
        Ok(())
    })
}

#[test]
fn growth_in_place_keeps_address_and_values() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, memory(setup)?);
        let unit = memory.granularity();
        let mut buffer = GrowableBuffer::<u8>::with_capacity(&memory, 8 * unit, &stream)?;
        let address = buffer.device_pointer();
        assert_eq!(buffer.capacity(), 8 * unit);
        let mut model = Vec::new();
        for (step, size) in [100, unit, unit + 1, 3 * unit - 5, 8 * unit].into_iter().enumerate() {
            assert_eq!(buffer.grow_to(size)?, Growth::InPlace);
            let start = model.len();
            model.resize(size, 0);
            same("the new elements are zeros", &buffer.to_vec()?, &model)?;
            let bytes = pattern(size - start, step as u8);
            buffer.copy_from_slice(start, &bytes)?;
            model[start..].copy_from_slice(&bytes);
            assert_eq!((buffer.device_pointer(), buffer.len()), (address, size));
            assert_eq!(buffer.physical_size(), size.next_multiple_of(unit));
        }
        // One range, whatever it is made of: work goes across the borders of chunks.
        assert_eq!(memory.physical_memory(&buffer).len(), 4);
        buffer.fill(unit - 3..3 * unit + 3, 0xa5)?;
        model[unit - 3..3 * unit + 3].fill(0xa5);
        buffer.copy_within(0..2 * unit, 5 * unit)?;
        model.copy_within(0..2 * unit, 5 * unit);
        same("across the borders", &buffer.to_vec()?, &model)?;
        // Asking for less than there is changes nothing.
        assert_eq!(buffer.grow_to(5)?, Growth::InPlace);
        assert_eq!(buffer.len(), 8 * unit);
        Ok(())
    })
}

#[test]
fn growth_beyond_the_capacity_moves_the_same_memory() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, memory(setup)?);
        let unit = memory.granularity();
        let mut buffer = GrowableBuffer::<u8>::with_capacity(&memory, 2 * unit, &stream)?;
        assert_eq!(buffer.grow_to(unit)?, Growth::InPlace);
        assert_eq!(buffer.grow_to(2 * unit)?, Growth::InPlace);
        let mut model = pattern(2 * unit, 1);
        buffer.copy_from_slice(0, &model)?;
        let (address, before) = (buffer.device_pointer(), memory.physical_memory(&buffer));

        delay(&stream)?;
        buffer.fill(..10, 0xee)?;
        model[..10].fill(0xee);
        assert_eq!(buffer.grow_to(2 * unit + 1)?, Growth::Moved);
        model.push(0);
        assert_ne!(buffer.device_pointer(), address);
        assert_eq!(buffer.capacity(), 4 * unit, "twice the addresses, so that few growths move");
        // Not a copy: the same physical memory, and one chunk more.
        assert_eq!(memory.physical_memory(&buffer)[..2], before);
        assert_eq!(memory.physical_memory(&buffer).len(), 3);
        same("after the move", &buffer.to_vec()?, &model)?;
        // The old addresses are nobody's.
        let stale = PhysicalOfAddress(setup, address).is_mapped()?;
        assert!(!stale, "the old addresses are still mapped");

        assert_eq!(buffer.grow_to(9 * unit)?, Growth::Moved);
        model.resize(9 * unit, 0);
        same("after another move", &buffer.to_vec()?, &model)?;
        let plain = buffer.into_buffer();
        same("as a plain buffer", &plain.to_vec()?, &model)?;
        plain.close()?;
        Ok(())
    })
}

/// What is mapped at an address.
struct PhysicalOfAddress<'setup>(&'setup Setup, u64);

impl PhysicalOfAddress<'_> {
    fn is_mapped(&self) -> Result<bool, Box<dyn StdError>> {
        let (cuda, mut handle) = (self.0.driver.raw(), 0);
        let address = std::ptr::with_exposed_provenance_mut(self.1 as usize);
        // SAFETY: `handle` is writable; the driver looks the address up.
        if unsafe { cuda.cuMemRetainAllocationHandle(&mut handle, address) }? != CUresult::CUDA_SUCCESS {
            return Ok(false);
        }
        // SAFETY: the handle was just given to us.
        assert_eq!(unsafe { cuda.cuMemRelease(handle) }?, CUresult::CUDA_SUCCESS);
        Ok(true)
    }
}

#[test]
fn shrinking_gives_memory_back_and_growing_again_finds_zeros() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, memory(setup)?);
        let unit = memory.granularity();
        let mut buffer = GrowableBuffer::<u64>::with_capacity(&memory, unit, &stream)?;
        let address = buffer.device_pointer();
        assert_eq!(buffer.grow_to(unit / 8)?, Growth::InPlace);
        let small = setup.context.memory_info()?.free;
        for length in [2 * unit / 8, unit] {
            assert_eq!(buffer.grow_to(length)?, Growth::InPlace);
        }
        assert!(setup.context.memory_info()?.free <= small - 7 * unit);
        buffer.fill(.., u64::MAX)?;
        // Within the last chunk nothing can go back.
        buffer.shrink_to(unit - 10)?;
        assert_eq!((buffer.len(), buffer.physical_size()), (unit - 10, 8 * unit));
        buffer.shrink_to(unit / 8 - 10)?;
        assert_eq!((buffer.len(), buffer.physical_size()), (unit / 8 - 10, unit));
        assert_eq!(setup.context.memory_info()?.free, small);
        buffer.shrink_to(unit)?; // more than there are
        assert_eq!(buffer.len(), unit / 8 - 10);

        assert_eq!(buffer.grow_to(unit / 4)?, Growth::InPlace);
        assert_eq!(buffer.device_pointer(), address);
        let mut model = vec![u64::MAX; unit / 8 - 10];
        model.resize(unit / 4, 0);
        assert!(buffer.to_vec()? == model, "values that were cut off came back");
        let before = setup.context.memory_info()?.free;
        buffer.shrink_to(0)?;
        assert_eq!((buffer.capacity(), buffer.physical_size()), (unit, 0));
        assert_eq!(setup.context.memory_info()?.free, before + 2 * unit);
        Ok(())
    })
}

#[test]
fn closed_memory_goes_back_to_the_system() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, memory(setup)?);
        let size = if setup.is_software() { memory.granularity() } else { 64 << 20 };
        drop(Buffer::<u8, _>::zeroed(&memory, size, &stream)?); // what the driver keeps for itself
        let before = setup.context.memory_info()?.free;
        for round in 0..64 {
            let buffer = Buffer::<u8, _>::zeroed(&memory, size, &stream)?;
            if round % 2 == 0 { buffer.close()? } else { drop(buffer) }
        }
        assert_eq!(setup.context.memory_info()?.free, before, "one after the other");
        let all: Result<Vec<_>, _> = (0..64).map(|_| Buffer::<u8, _>::zeroed(&memory, size, &stream)).collect();
        assert!(setup.context.memory_info()?.free <= before - 64 * size);
        drop(all?);
        assert_eq!(setup.context.memory_info()?.free, before, "all at once");
        Ok(())
    })
}

#[test]
fn one_chunk_at_two_addresses_is_one_memory() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, memory(setup)?);
        let unit = memory.granularity();
        let mut first = Buffer::from_slice(&memory, &pattern(unit, 3), &stream)?;
        let mut chunks = memory.physical_memory(&first);
        chunks.push(PhysicalMemory::new(&setup.context, 1, memory.physical_options())?);
        // SAFETY: the buffers are used in order of one stream.
        let mut alias = unsafe { memory.map(&chunks, &stream) }?;
        assert_eq!(alias.len(), 2 * unit);
        first.fill(5..9, 0xcc)?;
        alias.fill(unit - 2.., 0xdd)?;
        let mut model = pattern(unit, 3);
        model[5..9].fill(0xcc);
        model[unit - 2..].fill(0xdd);
        same("the first address", &first.to_vec()?, &model)?;
        model.resize(2 * unit, 0xdd);
        // The bytes live as long as a mapping.
        first.close()?;
        drop(chunks);
        same("the second address", &alias.to_vec()?, &model)?;

        // SAFETY: nothing is mapped.
        let error = unsafe { memory.map(&[], &stream) }.unwrap_err();
        assert!(invalid(&error, "chunks"), "{error}");
        if setup.context.device().supports(Feature::HostVirtualMemory)? == Support::Yes {
            let mut options = PhysicalOptions::default();
            options.location = PhysicalLocation::Host;
            let elsewhere = PhysicalMemory::new(&setup.context, 1, &options)?;
            // SAFETY: nothing is mapped.
            let error = unsafe { memory.map(&[elsewhere], &stream) }.unwrap_err();
            assert!(invalid(&error, "chunks"), "{error}");
        }
        Ok(())
    })
}

#[test]
fn shareable_memory_can_be_exported_and_other_memory_cannot() -> Outcome {
    alone(|setup| {
        let mut options = PhysicalOptions::default();
        for shareable in [true, false] {
            options.shareable = shareable;
            let chunk = PhysicalMemory::new(&setup.context, 1, &options)?;
            assert_eq!(chunk.options().shareable, shareable);
            let mut fd = -1;
            let kind = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
            let cuda = setup.driver.raw();
            // SAFETY: `fd` is writable, and the handle lives.
            let code = unsafe { cuda.cuMemExportToShareableHandle((&raw mut fd).cast(), chunk.raw(), kind, 0) }?;
            assert_eq!(code == CUresult::CUDA_SUCCESS, shareable, "{code:?}");
            if shareable {
                // SAFETY: the driver made it for us.
                drop(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
        let mut options = VirtualOptions::default();
        options.shareable = true;
        let error = VirtualMemory::host(&setup.context, &options).unwrap_err();
        assert!(invalid(&error, "shareable"), "{error}");
        Ok(())
    })
}

#[test]
fn peers_that_are_named_may_use_the_memory() -> Outcome {
    alone(|setup| {
        let devices = setup.driver.devices()?;
        let (home, Some(peer)) = (setup.context.device(), devices.get(1)) else {
            println!("skipped: access of peers: there is one device; run this where there are two");
            return Ok(());
        };
        let (stream, other) = (Stream::new(&setup.context)?, peer.primary_context()?);
        let mut options = VirtualOptions::default();
        options.peers = vec![peer.clone(), home.clone()];
        if !peer.can_access_peer(home)? {
            let error = VirtualMemory::new(&setup.context, &options).unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            return Ok(());
        }
        let open = VirtualMemory::new(&setup.context, &options)?;
        for (memory, allowed) in [(open, true), (memory(setup)?, false)] {
            let mut growable = GrowableBuffer::<u8>::with_capacity(&memory, 100, &stream)?;
            let _ = growable.grow_to(100)?;
            growable.synchronize()?;
            for moved in [false, true] {
                if moved {
                    assert_eq!(growable.grow_to(growable.capacity() + 1)?, Growth::Moved);
                    growable.synchronize()?;
                }
                let (cuda, _current) = (setup.driver.raw(), other.bind()?);
                // SAFETY: the range lies within the buffer.
                let code = unsafe { cuda.cuMemsetD8_v2(growable.device_pointer(), 9, 100) }?;
                let expected = if allowed { CUresult::CUDA_SUCCESS } else { CUresult::CUDA_ERROR_INVALID_VALUE };
                assert_eq!(code, expected, "moved: {moved}");
                other.synchronize()?;
                assert_eq!(growable.to_vec()?[..100], [if allowed { 9 } else { 0 }; 100]);
                // Copies between devices need no access.
                let pool = DevicePool::new(&other, &PoolOptions::default())?;
                let mut there = Buffer::<u8, _>::zeroed(&pool, 100, &Stream::new(&other)?)?;
                there.copy_from_buffer(0, &growable, ..100)?;
                assert_eq!(there.to_vec()?, growable.to_vec()?[..100]);
            }
        }
        Ok(())
    })
}

#[test]
fn the_cpu_uses_memory_of_the_host() -> Outcome {
    alone(|setup| {
        let (stream, device) = (Stream::new(&setup.context)?, setup.context.device());
        let options = VirtualOptions::default();
        let mut memories: Vec<VirtualMemory<kind::Pinned>> = Vec::new();
        for (feature, name) in [(Feature::HostVirtualMemory, "host"), (Feature::HostNumaVirtualMemory, "NUMA node 0")] {
            let made = match feature {
                Feature::HostVirtualMemory => VirtualMemory::host(&setup.context, &options),
                _ => VirtualMemory::host_numa(&setup.context, 0, &options),
            };
            if device.supports(feature)? == Support::No {
                let error = made.unwrap_err();
                assert!(matches!(error, Error::Unsupported { .. }), "{error}");
                println!("skipped: virtual memory of the {name}: {error}");
                continue;
            }
            memories.push(made?);
        }
        for memory in memories {
            let mut buffer = GrowableBuffer::<u16, _>::with_capacity(&memory, 1000, &stream)?;
            let _ = buffer.grow_to(1000)?;
            assert_eq!(buffer.host_pointer() as u64, buffer.device_pointer());
            assert_eq!(buffer.device_ordinal(), None);
            buffer.write(10..20)?.fill(7);
            delay(&stream)?;
            buffer.fill(15..30, 0x1234)?;
            assert_eq!(buffer.read(9..31)?[..], {
                let mut model = [0; 22];
                model[1..6].fill(7);
                model[6..21].fill(0x1234);
                model
            });
            assert_eq!(buffer.grow_to(buffer.capacity() + 1)?, Growth::Moved);
            assert_eq!(buffer.read(14..16)?[..], [7, 0x1234]);
            let last = buffer.len() - 2;
            assert_eq!(buffer.read(last..)?[..], [0, 0]);
            // To and from a device.
            let mut there = Buffer::zeroed(&DeviceMemory::new(&setup.context), 5, &stream)?;
            there.copy_from_buffer(0, &buffer, 13..18)?;
            assert_eq!(there.to_vec()?, [7, 7, 0x1234, 0x1234, 0x1234]);
        }
        if device.supports(Feature::HostNumaVirtualMemory)? == Support::Yes {
            let nowhere = VirtualMemory::host_numa(&setup.context, 999, &options)?;
            let error = Buffer::<u8, _>::zeroed(&nowhere, 1, &stream).unwrap_err();
            assert_eq!(error.driver_code(), Some(CUresult::CUDA_ERROR_INVALID_VALUE), "{error}");
        }
        Ok(())
    })
}

#[test]
fn what_ends_or_moves_memory_waits_for_its_work() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, memory(setup)?);
        let unit = memory.granularity();
        let busy = |buffer: &mut GrowableBuffer<u8>| {
            delay(&stream)?;
            buffer.fill(.., 1)?;
            assert!(!stream.is_done()?);
            Ok::<_, Error>(())
        };
        let make = || {
            let mut buffer = GrowableBuffer::<u8>::with_capacity(&memory, 2 * unit, &stream)?;
            let _ = buffer.grow_to(unit)?;
            let _ = buffer.grow_to(2 * unit)?;
            Ok::<_, Error>(buffer)
        };
        let mut dropped = make()?;
        busy(&mut dropped)?;
        drop(dropped);
        assert!(stream.is_done()?);

        let mut closed = make()?;
        busy(&mut closed)?;
        closed.into_buffer().close()?;
        assert!(stream.is_done()?);

        let mut shrunk = make()?;
        busy(&mut shrunk)?;
        shrunk.shrink_to(unit)?;
        assert!(stream.is_done()?);
        busy(&mut shrunk)?;
        let _ = shrunk.grow_to(3 * unit)?;
        assert_eq!(shrunk.to_vec()?[unit - 1..=unit], [1, 0]);

        // Work of another stream, that the buffer was told of.
        let (other, told) = (Stream::new(&setup.context)?, make()?);
        delay(&other)?;
        {
            let (cuda, _current) = (setup.driver.raw(), setup.context.bind()?);
            // SAFETY: the range lies within the buffer, which is told of the work.
            let code = unsafe { cuda.cuMemsetD8Async(told.device_pointer(), 2, 2 * unit, other.raw()) }?;
            assert_eq!(code, CUresult::CUDA_SUCCESS);
        }
        told.record_use(&other)?;
        drop(told);
        assert!(other.is_done()?);
        Ok(())
    })
}

#[test]
fn only_memory_of_its_resource_grows() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, memory(setup)?);
        let make = |length, value: u8| {
            let mut buffer = GrowableBuffer::<u8>::with_capacity(&memory, 1, &stream)?;
            let _ = buffer.grow_to(length)?;
            buffer.fill(.., value)?;
            Ok::<_, Error>(buffer)
        };
        let (mut one, mut two) = (make(10, 1)?, make(20, 2)?);
        // Each buffer has its memory with it, wherever it is put.
        std::mem::swap(&mut *one, &mut *two);
        let _ = one.grow_to(one.capacity() + 1)?;
        assert_eq!((one.to_vec()?[..21].to_vec(), two.to_vec()?), ([vec![2; 20], vec![0]].concat(), vec![1; 10]));
        let pool = DevicePool::new(&setup.context, &PoolOptions::default())?;
        for foreign in [
            Buffer::filled(&pool, 5, 3, &stream)?,
            Buffer::filled(&memory, 9, 3, &stream)?.split_at(5)?.0,
            Buffer::filled(&VirtualMemory::new(&setup.context, &VirtualOptions::default())?, 5, 3, &stream)?,
        ] {
            let own = std::mem::replace(&mut *two, foreign);
            let error = two.grow_to(100).unwrap_err();
            assert!(invalid(&error, "the buffer"), "{error}");
            let error = two.shrink_to(1).unwrap_err();
            assert!(invalid(&error, "the buffer"), "{error}");
            assert_eq!(two.to_vec()?, [3; 5]);
            *two = own;
        }
        assert_eq!(two.grow_to(11)?, Growth::InPlace);
        // A copy has memory of its own.
        let copy = two.try_clone()?;
        two.fill(.., 9)?;
        assert_eq!(copy.to_vec()?, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
        Ok(())
    })
}

#[test]
fn impossible_sizes_are_refused_and_change_nothing() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, memory(setup)?);
        let mut buffer = GrowableBuffer::<u64>::with_capacity(&memory, 10, &stream)?;
        let _ = buffer.grow_to(4)?;
        buffer.copy_from_slice(0, &[1, 2, 3, 4])?;
        let address = buffer.device_pointer();
        for length in [usize::MAX, usize::MAX / 8 + 1, isize::MAX as usize / 8 + 1] {
            let error = buffer.grow_to(length).unwrap_err();
            assert!(invalid(&error, "length"), "{error}");
            let error = GrowableBuffer::<u64>::with_capacity(&memory, length, &stream).unwrap_err();
            assert!(invalid(&error, "capacity"), "{error}");
        }
        for error in [
            buffer.grow_to(1 << 43).unwrap_err(),
            Buffer::<u8, _>::zeroed(&memory, 1 << 46, &stream).unwrap_err(),
            PhysicalMemory::new(&setup.context, 1 << 46, &PhysicalOptions::default()).unwrap_err(),
        ] {
            assert!(matches!(error, Error::OutOfMemory { requested, .. } if requested > 1 << 45), "{error:?}");
        }
        assert_eq!((buffer.len(), buffer.device_pointer()), (4, address));
        assert_eq!(buffer.to_vec()?, [1, 2, 3, 4]);
        Ok(())
    })
}

#[test]
fn what_the_device_cannot_do_is_named_beforehand() -> Outcome {
    alone(|setup| {
        let mut options = VirtualOptions::default();
        options.gpu_direct_rdma = true;
        let made = VirtualMemory::new(&setup.context, &options);
        if setup.context.device().supports(Feature::GpuDirectRdma)? == Support::Yes {
            let (memory, stream) = (made?, Stream::new(&setup.context)?);
            assert!(memory.physical_options().gpu_direct_rdma);
            assert_eq!(Buffer::filled(&memory, 3, 1u8, &stream)?.to_vec()?, [1, 1, 1]);
        } else {
            let error = made.unwrap_err();
            assert!(matches!(error, Error::Unsupported { feature, .. } if feature.contains("RDMA")), "{error}");
        }
        Ok(())
    })
}

#[test]
fn a_driver_without_virtual_memory_is_named() -> Outcome {
    alone(|_| {
        let usual = softgpu::Settings::from_environment()?;
        softgpu::configure(softgpu::Settings { without: vec!["cuMemCreate".into()], ..usual.clone() })?;
        // SAFETY: softgpu is linked in.
        let old = unsafe { Driver::builder().cuda("softgpu").vkgdr("softgpu").load() };
        softgpu::configure(usual)?;
        let context = old?.device(0)?.primary_context()?;
        for error in [
            VirtualMemory::new(&context, &VirtualOptions::default()).unwrap_err(),
            VirtualMemory::host(&context, &VirtualOptions::default()).unwrap_err(),
            PhysicalMemory::new(&context, 1, &PhysicalOptions::default()).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains("virtual memory management") && text.contains("CUDA 10.2"), "{text}");
        }
        Ok(())
    })
}

#[test]
fn a_refused_free_gives_the_buffer_back_whole() -> Outcome {
    alone(|_| {
        let context = Driver::software()?.device(0)?.primary_context()?;
        let (stream, memory) = (Stream::new(&context)?, VirtualMemory::new(&context, &VirtualOptions::default())?);
        let buffer = Buffer::from_slice(&memory, &[1u8, 2, 3], &stream)?;
        softgpu::faults([softgpu::Fault::call("cuMemUnmap", 1, CUresult::CUDA_ERROR_UNKNOWN)]);
        let refused = buffer.close();
        softgpu::faults([]);
        let refused = refused.expect_err("the driver refused to unmap");
        assert_eq!(refused.error.driver_code(), Some(CUresult::CUDA_ERROR_UNKNOWN), "{}", refused.error);
        assert_eq!(refused.value.to_vec()?, [1, 2, 3]);
        refused.value.close()?;
        assert_eq!(softgpu::ledger().count(softgpu::Kind::PhysicalMemory), 0);

        // What a drop could not free ends with the resource.
        let buffer = Buffer::from_slice(&memory, &[1u8, 2, 3], &stream)?;
        softgpu::faults([softgpu::Fault::call("cuMemUnmap", 1, CUresult::CUDA_ERROR_UNKNOWN)]);
        drop(buffer);
        softgpu::faults([]);
        assert_eq!(context.take_drop_errors().errors.len(), 1);
        assert_eq!(softgpu::ledger().count(softgpu::Kind::PhysicalMemory), 1);
        drop(memory);
        assert_eq!(softgpu::ledger().count(softgpu::Kind::PhysicalMemory), 0);
        Ok(())
    })
}

#[test]
fn memory_ends_also_where_its_context_was_destroyed() -> Outcome {
    alone(|_| {
        let driver = Driver::software()?;
        let context = driver.device(0)?.create_context()?;
        let stream = Stream::new(&context)?;
        let memory = VirtualMemory::new(&context, &VirtualOptions::default())?;
        let buffer = Buffer::<u8, _>::zeroed(&memory, 100, &stream)?;
        let growable = GrowableBuffer::<u8>::with_capacity(&memory, 100, &stream)?;
        // SAFETY: the handle is a live context's.
        assert_eq!(unsafe { driver.raw().cuCtxDestroy_v2(context.raw()) }?, CUresult::CUDA_SUCCESS);
        drop((buffer, growable));
        let ledger = softgpu::ledger();
        assert_eq!(ledger.count(softgpu::Kind::Mapping) + ledger.count(softgpu::Kind::Reservation), 0, "{ledger}");
        assert_eq!(ledger.count(softgpu::Kind::PhysicalMemory), 0, "{ledger}");
        drop((memory, stream));
        assert_eq!(context.take_drop_errors().errors, []);
        Ok(())
    })
}
