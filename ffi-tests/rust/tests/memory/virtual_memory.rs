//! Virtual memory: sizes, addresses, sharing between devices and with the CPU, and its end. Runs on any driver.

use cuda_mem::buffer::GrowableBuffer;
use cuda_mem::cuda_sys::{CUmemAllocationHandleType, CUresult};
use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPoolOptions, Granularity, Growth, PhysicalLocation, PhysicalMemory,
    PhysicalOptions, VirtualMemory, VirtualOptions, kind,
};
use cuda_mem::{Buffer, Driver, Error, Feature, Stream, Support};
use std::os::fd::{FromRawFd, OwnedFd};
use testkit::suite::Outcome;
use testkit::{Setup, alone, delay, pattern, same};

fn memory(setup: &Setup) -> Result<VirtualMemory, Error> {
    VirtualMemory::new(&setup.context, &VirtualOptions::default())
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

        // An address hint is used if the address is free, and it is only a hint.
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
fn closed_memory_goes_back_to_the_system() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, memory(setup)?);
        let size = if setup.is_software() { memory.granularity() } else { 64 << 20 };
        drop(Buffer::<u8, _>::zeroed(&memory, size, &stream)?); // the driver keeps some memory for itself
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
fn shared_virtual_memory_is_released_after_its_last_user() -> Outcome {
    alone(|setup| {
        if setup.context.device().supports(Feature::SharedPhysicalMemory)? == Support::No {
            println!("skipped: the device shares no physical memory; run it on one that does");
            return Ok(());
        }
        let mut options = VirtualOptions::default();
        options.shareable = true;
        let (stream, memory) = (Stream::new(&setup.context)?, VirtualMemory::new(&setup.context, &options)?);
        let size = if setup.is_software() { memory.granularity() } else { 64 << 20 };
        drop(Buffer::<u8, _>::zeroed(&memory, size, &stream)?); // the driver keeps some memory for itself
        let free = || Ok::<_, Error>(setup.context.memory_info()?.free);
        let before = free()?;
        let buffer = Buffer::filled(&memory, size, 3u8, &stream)?.into_shared();
        let export = memory.export(&buffer)?;
        let import = memory.import::<u8>(export.try_clone()?, &stream)?;
        assert!(free()? <= before - size);
        drop(buffer);
        same("the import", &import.to_vec()?, &vec![3; size])?;
        drop(import);
        // The software GPU does not count memory that only files keep.
        assert!(setup.is_software() || free()? <= before - size, "an export owns its memory");
        drop(export);
        assert_eq!(free()?, before);
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
        // SAFETY: the buffers are used in the order of one stream.
        let mut alias = unsafe { memory.map(&chunks, &stream) }?;
        assert_eq!(alias.len(), 2 * unit);
        first.fill(5..9, 0xcc)?;
        alias.fill(unit - 2.., 0xdd)?;
        let mut model = pattern(unit, 3);
        model[5..9].fill(0xcc);
        model[unit - 2..].fill(0xdd);
        same("the first address", &first.to_vec()?, &model)?;
        model.resize(2 * unit, 0xdd);
        // The bytes live as long as a mapping of them.
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
            // SAFETY: `fd` is writable, and the handle is live.
            let code = unsafe { cuda.cuMemExportToShareableHandle((&raw mut fd).cast(), chunk.raw(), kind, 0) }?;
            assert_eq!(code == CUresult::CUDA_SUCCESS, shareable, "{code:?}");
            if shareable {
                // SAFETY: the driver made the descriptor for this process.
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
            println!("skipped: access of peers: there is only one device; run this on a machine with two");
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
        for (memory, mut allowed) in [(open, true), (memory(setup)?, false)] {
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
                // Copies between devices need no access, and give it.
                let pool = DevicePool::new(&other, &DriverPoolOptions::default())?;
                let mut there = Buffer::<u8, _>::zeroed(&pool, 100, &Stream::new(&other)?)?;
                there.copy_from_buffer(0, &growable, ..100)?;
                assert_eq!(there.to_vec()?, growable.to_vec()?[..100]);
                allowed = true;
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

        // Memory that a drop could not free ends with the resource.
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
