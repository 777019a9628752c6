//! Buffers of mapped memory: typed, with a home stream, read and written by the CPU through guards. Runs on any driver,
//! with every coherence.

use cuda_mem::cuda_sys::CUresult;
use cuda_mem::mapped::{CoherencePolicy, MappedMemory};
use cuda_mem::memory::{Accessibility, DevicePool, DriverPoolOptions, ResourceHandle};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Buffer, Driver, Error, Stream};
use testkit::suite::{Outcome, WISHES};
use testkit::{Setup, alone, delay, pattern, same};

/// Runs a test with each available coherence.
fn with_each_coherence(test: impl Fn(&Setup, &MappedMemory) -> Outcome) -> Outcome {
    alone(|setup| {
        for (name, wish) in WISHES {
            match MappedMemory::with_coherence(&setup.context, wish) {
                Ok(resource) => test(setup, &resource).map_err(|error| format!("{name}: {error}"))?,
                Err(error) if wish == CoherencePolicy::Required => println!("skipped: {name}: {error}"),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    })
}

#[test]
fn guards_flush_and_invalidate() -> Outcome {
    with_each_coherence(|setup, resource| {
        let stream = Stream::new(&setup.context)?;
        for size in [1usize, 63, 64, 65, 4097, 1 << 20] {
            let mut buffer = Buffer::from_slice(resource, &pattern(size, 1), &stream)?;
            assert!(buffer.accessibility().covers(Accessibility::BOTH) && buffer.accessibility().write_combined);
            assert_eq!(buffer.device_ordinal(), Some(0));
            assert!(!buffer.host_pointer().is_null());
            let mut model = pattern(size, 1);
            same("what the driver copied, by the CPU", &buffer.read(..)?, &model)?;
            // Guards at odd offsets, and device work beside them.
            for (step, range) in [0..1, size / 2..size, size / 3..size / 2, size - 1..size].into_iter().enumerate() {
                let bytes = pattern(range.len(), 40 + step as u8);
                let mut guard = buffer.write(range.clone())?;
                guard.copy_from_slice(&bytes);
                if step % 2 == 0 {
                    guard.finish()?
                } else {
                    drop(guard)
                }
                model[range.clone()].copy_from_slice(&bytes);
                same("what the CPU wrote, by the device", &buffer.to_vec()?, &model)?;
                delay(&stream)?;
                buffer.fill(range.start..range.start + range.len() / 2, step as u8)?;
                model[range.start..range.start + range.len() / 2].fill(step as u8);
                same("what the device filled, by the CPU", &buffer.read(..)?, &model)?;
            }
            buffer.close()?;
        }
        Ok(())
    })
}

#[test]
fn elements_may_have_any_type_and_be_copied_between_kinds() -> Outcome {
    with_each_coherence(|setup, resource| {
        let (stream, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let pool = DevicePool::new(&setup.context, &DriverPoolOptions::default())?;
        let mut mapped = Buffer::<[f64; 3], _>::zeroed(resource, 100, &stream)?;
        mapped.write(10..12)?.copy_from_slice(&[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
        let mut device = Buffer::<[f64; 3], _>::zeroed(&pool, 3, &other)?;
        device.copy_from_buffer(0, &mapped, 9..12)?;
        assert_eq!(device.to_vec()?, [[0.0; 3], [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
        mapped.copy_from_buffer(97, &device, ..)?;
        assert_eq!(mapped.read(98..)?[..], [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
        let copy = mapped.try_clone()?;
        mapped.write(..)?.fill([9.0; 3]);
        assert_eq!(copy.to_vec()?[98], [1.0, 2.0, 3.0]);
        if setup.driver.device_count()? > 1 {
            let there = setup.driver.device(1)?.primary_context()?;
            let mut far =
                Buffer::zeroed(&DevicePool::new(&there, &DriverPoolOptions::default())?, 100, &Stream::new(&there)?)?;
            far.copy_from_buffer(0, &mapped, ..)?;
            assert_eq!(far.to_vec()?, [[9.0; 3]; 100]);
        } else {
            println!("skipped: copies to a peer: there is only one device; run this on a machine with two");
        }
        assert_eq!(Buffer::<u8, _>::zeroed(resource, 0, &stream)?.read(..)?.len(), 0);
        Ok(())
    })
}

#[test]
fn parts_never_share_an_atom() -> Outcome {
    with_each_coherence(|setup, resource| {
        let stream = Stream::new(&setup.context)?;
        let atom = testkit::mapped(resource, 1)?.coherence().atom();
        let length = 4 * atom.max(64);
        let buffer = Buffer::<u8, _>::zeroed(resource, length, &stream)?;
        let buffer = match buffer.split_at(1) {
            Ok((left, right)) if atom == 1 => {
                assert_eq!((left.len(), right.len()), (1, length - 1));
                Buffer::zeroed(resource, length, &stream)?
            }
            Err(refused) => match refused.error {
                Error::Misaligned { what: "middle", value: 1, multiple, .. } if multiple == atom => refused.value,
                error => return Err(format!("dividing at 1 with atoms of {atom} bytes: {error}").into()),
            },
            Ok(_) => return Err(format!("parts share an atom of {atom} bytes").into()),
        };
        let (empty, buffer) = buffer.split_at(0)?;
        let (buffer, also_empty) = buffer.split_at(length)?;
        assert!(empty.is_empty() && also_empty.is_empty());
        // The CPU writes one part while the device writes the other part on its own stream.
        let (mut left, mut right) = buffer.split_at(length / 2)?;
        let other = Stream::new(&setup.context)?;
        right.set_stream(&other)?;
        for round in 1..20u8 {
            let mut guard = left.write(..)?;
            right.fill(.., round)?;
            guard.fill(round ^ 0xff);
            guard.finish()?;
            right.synchronize()?;
            same("the CPU's part", &left.to_vec()?, &vec![round ^ 0xff; length / 2])?;
            same("the device's part", &right.read(..)?, &vec![round; length / 2])?;
        }
        Ok(())
    })
}

#[test]
fn writes_of_a_failed_flush_are_not_lost() -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: a failing flush: it needs the software GPU's faults");
            return Ok(());
        }
        let resource = MappedMemory::with_coherence(&setup.context, CoherencePolicy::ForcedNonCoherent)?;
        let stream = Stream::new(&setup.context)?;
        let mut buffer = Buffer::<u8, _>::zeroed(&resource, 1000, &stream)?;
        let mut guard = buffer.write(100..300)?;
        guard.fill(7);
        softgpu::faults([softgpu::Fault::call("vkgdr_memory_flush_checked", 1, CUresult::CUDA_ERROR_UNKNOWN)]);
        let finished = guard.finish();
        softgpu::faults([]);
        let error = finished.expect_err("the flush failed");
        assert!(matches!(error, Error::Vkgdr { .. }), "{error}");
        // The next access to the same atoms posts them first.
        assert_eq!(buffer.read(90..310)?[..], [vec![0; 10], vec![7; 200], vec![0; 10]].concat());
        assert_eq!(buffer.to_vec()?[100..300], [7; 200]);
        Ok(())
    })
}

#[test]
fn writes_of_a_failed_flush_do_not_reach_the_memorys_next_user() -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: a failing flush: it needs the software GPU's faults");
            return Ok(());
        }
        let resource = MappedMemory::with_coherence(&setup.context, CoherencePolicy::ForcedNonCoherent)?;
        let (pool, stream) = (Pool::new(&resource, &PoolOptions::default())?, Stream::new(&setup.context)?);
        let fails = |call| softgpu::Fault::call("vkgdr_memory_flush_checked", call, CUresult::CUDA_ERROR_UNKNOWN);
        for faults in [1, 2] {
            let mut buffer = Buffer::<u8, _>::zeroed(&pool, 1000, &stream)?;
            let address = buffer.device_pointer();
            let mut guard = buffer.write(100..300)?;
            guard.fill(7);
            softgpu::faults((1..=faults).map(fails));
            drop(guard);
            let closed = buffer.close();
            softgpu::faults([]);
            assert_eq!(setup.context.take_drop_errors().errors.len(), 1, "the guard's flush");
            // The memory must not be reused while the writes cannot be posted.
            match closed {
                Ok(()) => assert_eq!(faults, 1),
                Err(refused) => {
                    assert_eq!(faults, 2);
                    refused.value.close()?;
                }
            }
            let mut next = Buffer::filled(&pool, 1000, 9u8, &stream)?;
            assert_eq!(next.device_pointer(), address, "the pool gives the same memory again");
            same("the device", &next.to_vec()?, &[9; 1000])?;
            same("the CPU", &next.read(..)?, &[9; 1000])?;
            same("the device, after the CPU's look", &next.to_vec()?, &[9; 1000])?;
        }
        Ok(())
    })
}

#[test]
fn the_end_waits_for_work_and_gives_the_memory_back() -> Outcome {
    with_each_coherence(|setup, resource| {
        let stream = Stream::new(&setup.context)?;
        let size = 1 << 20;
        drop(Buffer::<u8, _>::zeroed(resource, size, &stream)?);
        let before = setup.context.memory_info()?.free;
        for closed in [true, false] {
            let mut buffer = Buffer::<u8, _>::zeroed(resource, size, &stream)?;
            delay(&stream)?;
            buffer.fill(.., 1)?;
            if closed {
                buffer.close()?
            } else {
                drop(buffer)
            }
            // While a host function is queued, the free is deferred. softgpu would report a free while work uses the
            // memory.
            setup.context.synchronize()?;
            assert!(stream.is_done()?, "the context has work left");
        }
        if setup.is_software() {
            assert_eq!(setup.context.memory_info()?.free, before);
        }
        // A buffer keeps everything that it needs.
        let buffer = {
            let context = setup.context.device().create_context()?;
            Buffer::from_slice(&MappedMemory::new(&context)?, &[1u8, 2, 3], &Stream::new(&context)?)?
        };
        assert_eq!(buffer.to_vec()?, [1, 2, 3]);
        Ok(())
    })
}

#[test]
fn a_block_can_be_handed_out_and_in() -> Outcome {
    with_each_coherence(|setup, resource| {
        let stream = Stream::new(&setup.context)?;
        let buffer = Buffer::from_slice(resource, &[5u32, 6], &stream)?;
        let (block, shared, stream) = buffer.into_block()?;
        assert_eq!((block.size(), shared.is_on_device()), (8, true));
        // SAFETY: the block comes from this resource, and nothing else uses it.
        let mut again = unsafe { Buffer::<u32, _>::from_block(block, resource, 2, &stream) }?;
        assert_eq!(again.read(..)?[..], [5, 6]);
        // The calls refuse addresses that are not the resource's memory.
        for (start, length) in [(block.host_pointer(), 9), (block.host_pointer().wrapping_sub(1), 1)] {
            // SAFETY: there is no reference into the block.
            assert!(matches!(unsafe { shared.invalidate(start, length) }, Err(Error::InvalidArgument { .. })));
            // SAFETY: nobody else uses the block.
            assert!(matches!(unsafe { resource.share().flush(start, length) }, Err(Error::InvalidArgument { .. })));
        }
        Ok(())
    })
}

#[test]
fn impossible_sizes_are_refused() -> Outcome {
    with_each_coherence(|setup, resource| {
        let stream = Stream::new(&setup.context)?;
        match Buffer::<u8, _>::uninit(resource, 1_000_000_000_000_000, &stream) {
            Err(Error::OutOfMemory { requested: 1_000_000_000_000_000, .. }) => {}
            other => return Err(format!("{other:?}").into()),
        }
        #[derive(Clone, Copy)]
        #[repr(align(4096))]
        #[expect(dead_code, reason = "its alignment is what matters")]
        struct Page([u8; 4096]);
        match Buffer::<Page, _>::uninit(resource, 1, &stream) {
            Err(Error::Alignment { .. }) => Ok(()),
            other => Err(format!("{other:?}").into()),
        }
    })
}

#[test]
fn the_cpus_mapping_ends_also_where_the_context_was_destroyed() -> Outcome {
    alone(|_| {
        let driver = Driver::software()?;
        let context = driver.device(0)?.create_context()?;
        let (stream, resource) = (Stream::new(&context)?, MappedMemory::new(&context)?);
        let mut buffer = Buffer::<u8, _>::zeroed(&resource, 100, &stream)?;
        buffer.write(..)?.fill(1);
        // SAFETY: the handle is a live context's.
        assert_eq!(unsafe { driver.raw().cuCtxDestroy_v2(context.raw()) }?, CUresult::CUDA_SUCCESS);
        drop(buffer);
        assert_eq!(softgpu::ledger().count(softgpu::Kind::VkgdrMemory), 0, "{}", softgpu::ledger());
        drop((resource, stream));
        assert_eq!(context.take_drop_errors().errors, []);
        Ok(())
    })
}

/// Queued work that waits for the CPU postpones the free of mapped memory, which may then serve the next allocation.
#[test]
fn exported_memory_serves_nobody_else_while_others_map_it() -> Outcome {
    with_each_coherence(|setup, resource| {
        let (stream, blocked) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        for drops_import in [false, true] {
            let memory = Buffer::from_slice(resource, &pattern(1 << 16, 1), &stream)?.into_shared();
            let twin = resource.import::<u8>(resource.export(&memory)?, &stream)?;
            stream.synchronize()?;
            let (go, gate) = std::sync::mpsc::channel();
            blocked.launch_host_function(move || gate.recv().unwrap_or_default())?;
            let left = if drops_import { (memory, drop(twin)).0 } else { (twin, drop(memory)).0 };
            let next = Buffer::from_slice(resource, &pattern(1 << 16, 2), &stream)?;
            let mut seen = vec![0; 1 << 16];
            left.load(0, &mut seen)?;
            let intact = same("what the others map", &seen, &pattern(1 << 16, 1));
            drop(next);
            go.send(())?;
            blocked.synchronize()?;
            intact?;
        }
        Ok(())
    })
}
