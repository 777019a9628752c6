//! Guarded memory over any driver: what it detects, where it reports damage, and what happens to damaged blocks. One
//! test runs at a time, because the ledger applies to the whole process.

use cuda_mem::adaptor::{DamagedPlace, GuardOptions, Guarded, Limit, Statistics, Tracking, named};
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::mapped::CoherencePolicy;
use cuda_mem::memory::{
    Accessibility, Block, BlockKind, DeviceMemory, DevicePool, DriverPoolOptions, Kind, MemoryResource, PinnedMemory,
    ResourceHandle, SharedResource, kind,
};
use cuda_mem::pool::{Pool, PoolOptions, RingOptions, RingPool};
use cuda_mem::{Buffer, Context, Error, MappedMemory, Stream};
use std::sync::Arc;
use testkit::sources::{self, failures_of_four_threads};
use testkit::suite::Outcome;
use testkit::{Setup, alone, delay, pattern, same};

fn settings(red_zone: usize, quarantine: usize) -> GuardOptions {
    let mut settings = GuardOptions::default();
    (settings.red_zone, settings.quarantine) = (red_zone, quarantine);
    settings
}

/// Runs a test over every available source of memory, including our pools.
fn over_every_source(setup: &Setup, test: impl Fn(&Setup, &SharedResource) -> Outcome) -> Outcome {
    let context = &setup.context;
    let ours = Pool::new(&PinnedMemory::new(context), &PoolOptions::default()).map(|pool| pool.share());
    sources::over_every_source(setup, [("a pool", ours)], test)
}

/// Writes to any address with the device, and waits.
fn write(setup: &Setup, address: u64, byte: u8, count: usize) -> Outcome {
    let _current = setup.context.bind()?;
    // SAFETY: the tests write only memory of guards and of quarantined blocks.
    assert_eq!(unsafe { setup.driver.raw().cuMemsetD8_v2(address, byte, count) }?, CUresult::CUDA_SUCCESS);
    Ok(setup.context.synchronize()?)
}

/// Reads any address with the device.
fn read(setup: &Setup, address: u64, count: usize) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let (mut bytes, _current) = (vec![0; count], setup.context.bind()?);
    // SAFETY: as above; the bytes are writable.
    let code = unsafe { setup.driver.raw().cuMemcpy(bytes.as_mut_ptr() as u64, address, count) }?;
    assert_eq!(code, CUresult::CUDA_SUCCESS);
    Ok(bytes)
}

fn close<K: Kind>(buffer: Buffer<u8, K>) -> Result<(), Error> {
    buffer.close().map_err(|refused| refused.error)
}

fn undamaged(setup: &Setup, source: &SharedResource) -> Outcome {
    let (stream, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
    for settings in [settings(256, 16 << 20), settings(1000, 0), settings(0, 8 << 20), settings(0, 0)] {
        let guarded = Guarded::new(source, &settings)?;
        let mut buffers = Vec::new();
        for (number, size) in [1, 255, 256, 257, 1000, 2500].into_iter().enumerate() {
            let home = if number % 2 == 0 { &stream } else { &other };
            delay(home)?;
            buffers.push(Buffer::from_slice(&guarded, &pattern(size, number as u8), home)?);
        }
        assert_eq!(guarded.check()?, []);
        for (number, buffer) in buffers.iter_mut().enumerate() {
            same("a buffer", &buffer.to_vec()?, &pattern(buffer.len(), number as u8))?;
            buffer.fill(.., 3)?;
        }
        for buffer in buffers.drain(..4) {
            close(buffer)?;
        }
        drop(buffers);
        assert!(guarded.quarantined() <= settings.quarantine);
        assert_eq!((guarded.quarantined() > 0, guarded.check()?), (settings.quarantine > 0, vec![]));
        guarded.release_quarantine();
        assert_eq!(guarded.quarantined(), 0);
        drop(Buffer::filled(&guarded, 100, 1u8, &stream)?);
    }
    assert_eq!(setup.context.take_drop_errors().errors, []);
    Ok(())
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() -> Outcome {
    alone(|setup| over_every_source(setup, undamaged))
}

fn damaged(setup: &Setup, source: &SharedResource) -> Outcome {
    let stream = Stream::new(&setup.context)?;
    let guarded = Guarded::new(source, &settings(256, 4 << 20))?;
    for (start, count, place, offset) in [
        (-1, 1, DamagedPlace::Before, -1),
        (-256, 300, DamagedPlace::Before, -256),
        (100, 1, DamagedPlace::After, 100),
        (90, 12, DamagedPlace::After, 100),
        (355, 1, DamagedPlace::After, 355),
    ] {
        let buffer = named("victim", || Buffer::<u8, kind::Any>::filled(&guarded, 100, 1, &stream))?;
        stream.synchronize()?;
        let address = buffer.device_pointer();
        write(setup, address.wrapping_add_signed(start), 0x42, count)?;
        let found = guarded.check()?;
        let Err(refused) = buffer.close() else { return Err(format!("{start}: not found").into()) };
        let Error::Damaged(damage) = &refused.error else { return Err(refused.error.to_string().into()) };
        assert_eq!(found, [(**damage).clone()]);
        assert_eq!((damage.address, damage.size, damage.name.as_deref()), (address, 100, Some("victim")));
        assert_eq!((damage.place, damage.freed, damage.offset), (place, false, offset));
        assert_eq!((damage.found[0], damage.expected), (0x42, 0xFD));
        assert!(damage.found.len() <= 16, "{damage}");
        // The block was not freed. A second free is not refused.
        same("the block", &refused.value.to_vec()?[..50], &read(setup, address, 50)?)?;
        close(refused.value)?;
        assert_eq!(guarded.check()?, []);
        guarded.release_quarantine();
        assert_eq!(setup.context.take_drop_errors().errors, [], "it was reported once");
    }
    Ok(())
}

#[test]
fn writes_beyond_a_block_are_the_error_of_its_free() -> Outcome {
    alone(|setup| over_every_source(setup, damaged))
}

#[test]
fn a_check_undoes_nothing_that_the_cpu_is_writing() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let memory = MappedMemory::with_coherence(&setup.context, CoherencePolicy::ForcedNonCoherent)?;
        let guarded = Guarded::new(&memory, &settings(256, 0))?;
        let mut buffer = Buffer::<u8, _>::filled(&guarded, 100, 1, &stream)?;
        let mut slice = buffer.write(..)?;
        slice[99] = 2; // in the same atom as the zone behind
        assert_eq!(guarded.check()?, []);
        assert_eq!(slice[99], 2);
        slice.finish()?;
        assert_eq!(buffer.to_vec()?[98..], [1, 2]);
        close(buffer)?;
        Ok(())
    })
}

/// The bytes that a block takes up in quarantine. Sources have different granularities.
fn footprint(source: &SharedResource, size: usize, stream: &Stream) -> Result<usize, Error> {
    let guarded = Guarded::new(source, &settings(256, 64 << 20))?;
    drop(Buffer::<u8, kind::Any>::uninit(&guarded, size, stream)?);
    Ok(guarded.quarantined())
}

fn late_writes(setup: &Setup, source: &SharedResource) -> Outcome {
    let stream = Stream::new(&setup.context)?;
    // Room for four blocks.
    let room = 4 * footprint(source, 500, &stream)?;
    let guarded = Guarded::new(source, &settings(256, room))?;
    let buffer = named("stale", || Buffer::<u8, kind::Any>::filled(&guarded, 100, 1, &stream))?;
    let address = buffer.device_pointer();
    delay(&stream)?;
    close(buffer)?;
    setup.context.synchronize()?;
    same("the poison", &read(setup, address, 100)?, &[0xDD; 100])?;
    write(setup, address + 7, 0x42, 2)?;
    assert_eq!(setup.context.take_drop_errors().errors, [], "it is in quarantine still");
    // Newer blocks push it out of quarantine.
    for _ in 0..8 {
        close(Buffer::<u8, kind::Any>::filled(&guarded, 500, 1, &stream)?)?;
        assert!(guarded.quarantined() <= room);
    }
    let errors = setup.context.take_drop_errors().errors;
    let [error] = &errors[..] else { return Err(format!("one finding was expected: {errors:?}").into()) };
    let Error::Damaged(damage) = &error.error else { return Err(error.to_string().into()) };
    assert_eq!((damage.place, damage.freed, damage.offset), (DamagedPlace::Within, true, 7));
    assert_eq!((damage.name.as_deref(), damage.found[..3].to_vec()), (Some("stale"), vec![0x42, 0x42, 0xDD]));
    Ok(())
}

#[test]
fn writes_after_free_are_reported_when_blocks_leave_quarantine() -> Outcome {
    alone(|setup| over_every_source(setup, late_writes))
}

fn poison(setup: &Setup, source: &SharedResource) -> Outcome {
    let stream = Stream::new(&setup.context)?;
    let guarded = Guarded::new(source, &GuardOptions::default())?;
    let buffer = Buffer::<u8, kind::Any>::uninit(&guarded, 3000, &stream)?;
    stream.synchronize()?;
    same("a new block", &read(setup, buffer.device_pointer(), 3000)?, &[0xCD; 3000])?;
    Ok(())
}

#[test]
fn new_blocks_hold_a_poison_pattern() -> Outcome {
    alone(|setup| over_every_source(setup, poison))
}

#[test]
fn guarded_drop_reports_damage_and_retains_the_block() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let statistics = Statistics::new(&DeviceMemory::new(&setup.context));
        let guarded = Guarded::new(&statistics, &settings(256, 0))?;
        let buffer = Buffer::filled(&guarded, 100, 1u8, &stream)?;
        stream.synchronize()?;
        write(setup, buffer.device_pointer() + 101, 0x42, 1)?;
        drop(buffer);
        let errors = setup.context.take_drop_errors().errors;
        let [error] = &errors[..] else { return Err(format!("one finding was expected: {errors:?}").into()) };
        assert!(matches!(&error.error, Error::Damaged(damage) if damage.offset == 101), "{error}");
        assert!(error.to_string().contains("the memory behind the block of 100 bytes"), "{error}");
        assert_eq!((statistics.counts().blocks.current, guarded.check()?.len()), (1, 1));
        drop(Buffer::filled(&guarded, 100, 1u8, &stream)?);
        drop(guarded);
        assert_eq!(statistics.counts().blocks.current, 0);
        Ok(())
    })
}

#[test]
fn poison_of_device_memory_alone_waits_for_nothing() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let guarded = Guarded::new(&DevicePool::new(&setup.context, &DriverPoolOptions::default())?, &settings(0, 0))?;
        delay(&stream)?;
        let buffer = Buffer::<u8, _>::uninit(&guarded, 1 << 20, &stream)?;
        drop(buffer);
        if setup.is_software() {
            assert!(!stream.is_done()?, "the free has waited");
        }
        stream.synchronize()?;
        Ok(())
    })
}

#[test]
fn guard_zones_are_written_after_work_of_the_former_user() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        for source in [
            Pool::new(&DeviceMemory::new(&setup.context), &PoolOptions::default())?.share(),
            Pool::new(&PinnedMemory::new(&setup.context), &PoolOptions::default())?.share(),
            RingPool::new(&PinnedMemory::new(&setup.context), 8192, &RingOptions::default())?.share(),
        ] {
            let guarded = Guarded::new(&source, &settings(256, 0))?;
            for round in 0..5 {
                // A late write to memory that is freed afterwards, in stream order.
                let mut before =
                    Buffer::<u8, kind::Any>::uninit(&source, 1000, &stream)?.init_from_slice(&[1; 1000])?;
                delay(&stream)?;
                before.fill(.., 0x42)?;
                drop(before);
                let buffer = Buffer::<u8, kind::Any>::filled(&guarded, 300, round, &stream)?;
                same("a buffer", &buffer.to_vec()?, &[round; 300])?;
                close(buffer)?;
            }
        }
        Ok(())
    })
}

#[test]
fn wrong_frees_are_refused_by_name_and_reach_no_driver() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let tracking = Tracking::new(&DeviceMemory::new(&setup.context));
        let guarded = Guarded::new(&tracking, &GuardOptions::default())?.share();
        let block = named("twice", || guarded.allocate(100, 16, &stream))?;
        let other = block.with_size(99);
        // SAFETY: the block is freed once. The other calls are refused.
        unsafe {
            let text = guarded.deallocate(other, &stream).expect_err("another size").to_string();
            assert!(text.contains("of 99 bytes, allocated with 100"), "{text}");
            guarded.deallocate(block, &stream)?;
            let text = guarded.deallocate(block, &stream).expect_err("freed before").to_string();
            assert!(text.contains("of 100 bytes (twice)") && text.contains("freed before"), "{text}");
        }
        assert_eq!(tracking.live().len(), 1, "the block is in quarantine");
        let error = guarded.allocate(isize::MAX as usize, 1, &stream).expect_err("zones have no room");
        assert!(matches!(error, Error::InvalidArgument { argument: "size", .. }), "{error}");
        let error = guarded.allocate(1, 4096, &stream).expect_err("the source aligns less");
        assert!(matches!(error, Error::Alignment { .. }), "{error}");
        let captured = stream.capture(cuda_mem::CaptureMode::Global, |stream| {
            let error = guarded.allocate(100, 1, stream).expect_err("the stream captures");
            assert!(matches!(error, Error::Capturing { .. }), "{error}");
            let other = Stream::new(&setup.context)?;
            let block = guarded.allocate(100, 1, &other)?;
            // SAFETY: the block is freed once.
            unsafe { guarded.deallocate(block, &other) }
        })?;
        drop(captured);
        drop(guarded);
        assert_eq!(tracking.live().len(), 0);
        Ok(())
    })
}

#[test]
fn the_quarantine_makes_room_where_memory_runs_short() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let limit = Limit::new(&DeviceMemory::new(&setup.context), 10_000);
        let guarded = Guarded::new(&limit, &settings(256, 1 << 20))?;
        for _ in 0..20 {
            drop(Buffer::filled(&guarded, 3000, 1u8, &stream)?);
        }
        assert!(guarded.quarantined() > 0 && limit.used() <= 10_000);
        let held = Buffer::filled(&guarded, 9000, 1u8, &stream)?;
        assert_eq!((guarded.quarantined(), limit.used()), (0, 256 + 9472));
        let error = Buffer::<u8, _>::uninit(&guarded, 9000, &stream).expect_err("there is no room");
        assert!(error.is_out_of_memory(), "{error}");
        drop(held);
        Ok(())
    })
}

#[test]
fn many_threads_share_a_guard() -> Outcome {
    alone(|setup| {
        let pool = Pool::new(&PinnedMemory::new(&setup.context), &PoolOptions::default())?;
        let guarded = Guarded::new(&pool, &settings(256, 64 << 10))?;
        let one = |thread: u8| -> Outcome {
            let stream = Stream::new(&setup.context)?;
            for round in 0..50u8 {
                let size = 1 + usize::from(thread) * 100 + usize::from(round) * 50;
                let buffer = Buffer::filled(&guarded, size, round, &stream)?;
                same("a buffer", &buffer.to_vec()?, &vec![round; size])?;
                close(buffer)?;
            }
            Ok(())
        };
        let failed = failures_of_four_threads(one);
        assert_eq!((failed, guarded.check()?), (vec![], vec![]));
        Ok(())
    })
}

/// Pinned memory that reports larger atoms for flushes.
#[derive(Debug)]
struct Coarse {
    memory: SharedResource,
    atom: usize,
}

// SAFETY: the blocks belong to another resource.
unsafe impl MemoryResource for Coarse {
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block, Error> {
        // The CPU reaches memory with atoms only through flushes.
        let block = self.memory.allocate(size, alignment, stream)?;
        Ok(if self.atom > 1 { block.of_kind(BlockKind::NonCoherent) } else { block })
    }

    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<(), Error> {
        // SAFETY: the caller's contract.
        unsafe { self.memory.deallocate(block, stream) }
    }

    fn context(&self) -> &Context {
        self.memory.context()
    }

    fn accessibility(&self) -> Accessibility {
        self.memory.accessibility()
    }

    fn atom(&self, _block: Block) -> usize {
        self.atom
    }
}

#[test]
fn guarded_blocks_share_no_atom_of_any_size() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        for atom in [1, 256, 512, 1024, 4096] {
            let coarse: SharedResource = Arc::new(Coarse { memory: PinnedMemory::new(&setup.context).share(), atom });
            // A pool divides the guard's memory at multiples of the atom, counted from its beginning.
            let guarded = Guarded::new(&coarse, &settings(256, 0))?;
            let pool = Pool::new(&guarded, &PoolOptions::default())?;
            let buffers: Vec<_> =
                (0..4).map(|_| Buffer::<u8, _>::zeroed(&pool, 300, &stream)).collect::<Result<_, _>>()?;
            let mut owners: Vec<(usize, usize)> = Vec::new();
            for (owner, buffer) in buffers.iter().enumerate() {
                let start = buffer.host_pointer_if_any().ok_or("pinned memory has an address")?.addr();
                owners.extend((start / atom..=(start + buffer.len() - 1) / atom).map(|atom| (atom, owner)));
            }
            owners.sort_unstable();
            assert!(owners.windows(2).all(|pair| pair[0].0 != pair[1].0), "atoms of {atom} bytes: {owners:?}");
            // This includes the zones, because a guard's own fills flush whole atoms.
            let single = Buffer::<u8, _>::zeroed(&guarded, 100, &stream)?;
            let start = single.host_pointer_if_any().ok_or("pinned memory has an address")?.addr();
            assert_eq!(start % atom, 0, "atoms of {atom} bytes");
            drop((buffers, single, pool));
            stream.synchronize()?;
        }
        Ok(())
    })
}

#[test]
fn a_context_that_others_end_ends_the_guard_quietly() -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: destroying contexts under values is for the software GPU: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        let context = setup.context.device().create_context()?;
        let stream = Stream::new(&context)?;
        let statistics = Statistics::new(&DeviceMemory::new(&context));
        let guarded = Guarded::new(&statistics, &GuardOptions::default())?;
        let (live, held) = (Buffer::filled(&guarded, 64, 1u8, &stream)?, Buffer::filled(&guarded, 64, 1u8, &stream)?);
        drop(held);
        // SAFETY: the handle is a live context's.
        let code = unsafe { setup.driver.raw().cuCtxDestroy_v2(context.raw()) }?;
        assert_eq!(code, CUresult::CUDA_SUCCESS);
        drop(live);
        drop(guarded);
        assert_eq!(statistics.counts().blocks.current, 0, "the books are right");
        drop((statistics, stream, context));
        assert_eq!(setup.driver.take_drop_errors(), Default::default());
        Ok(())
    })
}
