//! Copies between buffers of different streams are ordered by the memory that they use, if this library alone uses it.
//! Runs over the driver that the environment names; the software GPU also reports each pair of accesses without an order.

use cuda_mem::buffer::GrowableBuffer;
use cuda_mem::copy::CopyEngine;
use cuda_mem::graph::{CaptureMode, GraphOptions};
use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPoolOptions, Growth, PinnedMemory, VirtualMemory, VirtualOptions, kind,
};
use cuda_mem::{Buffer, Error, Stream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;
use testkit::suite::Outcome;
use testkit::{Setup, alone, hold, joined};

const SIZE: usize = 4096;
/// How often threads that copy at the same time do so.
const ROUNDS: usize = 500;
/// Long enough for work that was not ordered to be done.
const LATER: Duration = Duration::from_millis(50);

type Bytes = Buffer<u8, kind::Device>;

/// A buffer, and a copy of it on another stream that waits for the sender.
struct Reading {
    source: Bytes,
    home: Stream,
    reader: Stream,
    copy: Bytes,
    held: Sender<()>,
}

fn bytes(setup: &Setup, value: u8, stream: &Stream) -> Result<Bytes, Error> {
    Buffer::filled(&DevicePool::current(&setup.context)?, SIZE, value, stream)
}

impl Reading {
    /// A copy of all of the source.
    fn begin(setup: &Setup) -> Result<Self, Error> {
        let (home, reader) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        Self::of(bytes(setup, 1, &home)?, bytes(setup, 0, &reader)?)
    }

    fn of(source: Bytes, mut copy: Bytes) -> Result<Self, Error> {
        let (home, reader) = (source.stream().clone(), copy.stream().clone());
        let held = hold(&reader)?;
        copy.copy_from_buffer(0, &source, ..source.len().min(copy.len()))?;
        Ok(Self { source, home, reader, copy, held })
    }

    /// Checks that a stream waits for the copy, and goes on after it. The copy has the bytes from before.
    fn check_awaited_by(self, stream: &Stream) -> Outcome {
        let Self { held, copy, .. } = self;
        awaited(stream, held)?;
        assert!(copy.to_vec()?.iter().all(|byte| *byte == 1), "the copy saw later work");
        Ok(())
    }
}

/// Checks that a stream waits for the work behind a sender, and goes on after it.
fn awaited(stream: &Stream, held: Sender<()>) -> Outcome {
    thread::sleep(LATER);
    assert!(!stream.is_done()?, "the stream does not wait for the copy");
    drop(held);
    stream.synchronize()?;
    Ok(())
}

/// Runs a call that must wait for the work behind a sender, which another thread drops after a while.
fn waits<R>(held: Sender<()>, call: impl FnOnce() -> R) -> R {
    let is_released = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(LATER);
            is_released.store(true, Ordering::SeqCst);
            drop(held);
        });
        let result = call();
        assert!(is_released.load(Ordering::SeqCst), "the call does not wait for the copy");
        result
    })
}

#[test]
fn copies_that_share_no_memory_run_side_by_side() -> Outcome {
    alone(|setup: &Setup| {
        let streams: Vec<_> = (0..4).map(|_| Stream::new(&setup.context)).collect::<Result<_, _>>()?;
        let sources: Vec<_> = (0..4).map(|n| bytes(setup, n, &streams[usize::from(n)])).collect::<Result<_, _>>()?;
        let mut copies: Vec<_> = streams.iter().map(|stream| bytes(setup, 9, stream)).collect::<Result<_, _>>()?;
        let round =
            |copies: &mut Vec<Bytes>| (0..4).try_for_each(|n| copies[(n + 1) % 4].copy_from_buffer(0, &sources[n], ..));
        round(&mut copies)?;
        streams.iter().try_for_each(Stream::synchronize)?;
        // One stream is blocked, so its copy waits; those of the others do not.
        let held = hold(&streams[0])?;
        round(&mut copies)?;
        streams[1..].iter().try_for_each(Stream::synchronize)?;
        assert!(!streams[0].is_done()?);
        drop(held);
        for (n, copy) in copies.iter().enumerate() {
            assert_eq!(copy.to_vec()?[0], ((n + 3) % 4) as u8);
        }
        Ok(())
    })
}

#[test]
fn a_copy_that_waits_delays_nothing_on_the_sources_stream() -> Outcome {
    alone(|setup: &Setup| {
        let reading = Reading::begin(setup)?;
        bytes(setup, 3, &reading.home)?.fill(.., 4)?;
        reading.home.synchronize()?;
        assert_eq!(reading.source.to_vec()?[0], 1, "reads need not wait for reads");
        drop(reading.held);
        assert_eq!(reading.copy.to_vec()?[0], 1);
        Ok(())
    })
}

#[test]
fn halves_of_a_buffer_are_exchanged_side_by_side() -> Outcome {
    alone(|setup: &Setup| {
        const HALF: usize = SIZE / 2;
        let (producer, consumer) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let (mut halves, mut seen) = (bytes(setup, 0, &producer)?, bytes(setup, 0, &consumer)?);
        let input = bytes(setup, 5, &Stream::new(&setup.context)?)?;
        halves.copy_from_buffer(0, &input, ..HALF)?;
        let held = hold(&consumer)?;
        seen.copy_from_buffer(0, &halves, ..HALF)?;
        // The other half is free; this one is not.
        halves.copy_from_buffer(HALF, &input, ..HALF)?;
        producer.synchronize()?;
        halves.copy_from_buffer(0, &input, ..HALF)?;
        awaited(&producer, held)?;
        assert_eq!(seen.to_vec()?[HALF - 1], 5);
        Ok(())
    })
}

#[test]
fn a_copy_waits_for_what_wrote_its_source() -> Outcome {
    alone(|setup: &Setup| {
        let (home, reader) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let (mut source, mut copy) = (bytes(setup, 0, &home)?, bytes(setup, 0, &reader)?);
        let input = bytes(setup, 7, &Stream::new(&setup.context)?)?;
        for _ in 0..2 {
            let held = hold(&home)?;
            source.fill(.., 6)?;
            copy.copy_from_buffer(0, &source, ..)?;
            awaited(&reader, held)?;
            assert_eq!(copy.to_vec()?[0], 6);
            // A copy has an event of its own.
            let held = hold(&home)?;
            source.copy_from_buffer(0, &input, ..)?;
            copy.copy_from_buffer(0, &source, ..)?;
            awaited(&reader, held)?;
            assert_eq!(copy.to_vec()?[0], 7);
        }
        Ok(())
    })
}

#[test]
fn a_write_waits_for_the_copies_of_its_bytes() -> Outcome {
    alone(|setup: &Setup| {
        let mut reading = Reading::begin(setup)?;
        reading.source.fill(.., 2)?;
        let home = reading.home.clone();
        reading.check_awaited_by(&home)?;
        let mut reading = Reading::begin(setup)?;
        let other = bytes(setup, 3, &reading.home)?;
        reading.source.copy_from_buffer(0, &other, ..)?;
        let home = reading.home.clone();
        reading.check_awaited_by(&home)?;
        let mut reading = Reading::begin(setup)?;
        let (home, upload) = (reading.home.clone(), reading.source.upload(0, vec![4; SIZE]));
        reading.check_awaited_by(&home)?;
        upload?.wait()?;
        Ok(())
    })
}

#[test]
fn memory_is_freed_after_the_copies_that_read_it() -> Outcome {
    alone(|setup: &Setup| {
        for is_divided in [false, true] {
            let Reading { source, home, reader, copy, held } = Reading::begin(setup)?;
            if is_divided {
                let (left, right) = source.split_at(SIZE / 2)?;
                drop((right, left));
            } else {
                source.close()?;
            }
            awaited(&home, held)?;
            reader.synchronize()?;
            assert_eq!(copy.to_vec()?[0], 1);
        }
        Ok(())
    })
}

#[test]
fn a_write_waits_for_the_copies_of_all_threads() -> Outcome {
    alone(|setup: &Setup| {
        let (home, reader) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let mut source = bytes(setup, 1, &home)?;
        let pinned = PinnedMemory::new(&setup.context);
        let mut copies = Vec::new();
        for _ in 0..2 {
            let copy = Buffer::filled(&pinned, SIZE, 0, &reader)?;
            // Then each copy moves the mark, before it is noted: often in another order than the copies were queued.
            copy.mark_work()?;
            copies.push(copy);
        }
        for _ in 0..ROUNDS {
            let together = Barrier::new(copies.len());
            let copy = |copy: &mut Buffer<u8, kind::Pinned>| {
                together.wait();
                copy.copy_from_buffer(0, &source, ..)
            };
            thread::scope(|scope| joined(copies.iter_mut().map(|to| scope.spawn(move || copy(to)))))?;
            source.fill(.., 2)?;
        }
        Ok(())
    })
}

#[test]
fn a_move_waits_for_the_copies_from_the_buffer() -> Outcome {
    alone(|setup: &Setup| {
        let mut reading = Reading::begin(setup)?;
        let third = Stream::new(&setup.context)?;
        reading.source.set_stream(&third)?;
        reading.check_awaited_by(&third)
    })
}

#[test]
fn who_gets_the_address_comes_after_the_copies() -> Outcome {
    alone(|setup: &Setup| {
        let reading = Reading::begin(setup)?;
        assert_ne!(reading.source.device_pointer(), 0);
        let home = reading.home.clone();
        reading.check_awaited_by(&home)
    })
}

#[test]
fn a_part_whose_address_is_told_frees_no_other_part() -> Outcome {
    alone(|setup: &Setup| {
        let (home, reader) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let (left, mut right) = bytes(setup, 1, &home)?.split_at(SIZE / 2)?;
        right.set_stream(&Stream::new(&setup.context)?)?;
        let (copy, _) = bytes(setup, 0, &reader)?.split_at(SIZE / 2)?;
        let mut reading = Reading::of(left, copy)?;
        assert_ne!(right.device_pointer(), 0);
        reading.source.fill(.., 2)?;
        reading.check_awaited_by(&home)
    })
}

#[test]
fn memory_with_a_known_address_is_ordered_by_streams() -> Outcome {
    alone(|setup: &Setup| {
        let (home, reader) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let source = bytes(setup, 1, &home)?;
        assert_ne!(source.device_pointer(), 0);
        let reading = Reading::of(source, bytes(setup, 0, &reader)?)?;
        reading.check_awaited_by(&home)
    })
}

#[test]
fn shared_buffers_come_after_the_copies() -> Outcome {
    alone(|setup: &Setup| {
        let Reading { source, home, reader, copy, held } = Reading::begin(setup)?;
        let mut shared = source.into_shared();
        shared.fill(.., 2)?;
        awaited(&home, held)?;
        // From now on, the streams wait for each other.
        let held = hold(&reader)?;
        let mut again = bytes(setup, 0, &reader)?;
        again.copy_from_buffer(0, &shared, ..)?;
        awaited(&home, held)?;
        assert_eq!((copy.to_vec()?[0], again.to_vec()?[0]), (1, 2));
        Ok(())
    })
}

#[test]
fn the_cpu_waits_for_copies_from_before_memory_was_shared() -> Outcome {
    alone(|setup: &Setup| {
        for (is_marked, is_told) in [(false, false), (true, false), (true, true)] {
            let (home, reader) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
            let source = Buffer::filled(&PinnedMemory::new(&setup.context), SIZE, 1u8, &home)?;
            home.synchronize()?;
            let mut copy = bytes(setup, 0, &reader)?;
            let held = hold(&reader)?;
            copy.copy_from_buffer(0, &source, ..)?;
            if is_marked {
                source.mark_work()?;
            }
            if is_told {
                // The home stream waits for the copy, and forgets it.
                assert!(!source.host_pointer().is_null());
            }
            let shared = source.into_shared();
            waits(held, || shared.store(0, &[2; SIZE]))?;
            assert!(copy.to_vec()?.iter().all(|byte| *byte == 1));
        }
        Ok(())
    })
}

#[test]
fn exclusive_memory_comes_after_the_work_of_its_clones() -> Outcome {
    alone(|setup: &Setup| {
        let (home, third, reader) =
            (Stream::new(&setup.context)?, Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let (left, right) = bytes(setup, 1, &home)?.split_at(SIZE / 2)?;
        let right = right.into_shared();
        let mut clone = right.clone();
        clone.set_stream(&third)?;
        let held = hold(&third)?;
        clone.fill(.., 2)?;
        let mut copy = bytes(setup, 0, &reader)?;
        // All work so far is known to be done on the home stream, or to come before an event there.
        copy.copy_from_buffer(0, &left, ..)?;
        drop((left, clone));
        let right = right.try_into_exclusive()?;
        copy.copy_from_buffer(0, &right, ..)?;
        awaited(&reader, held)?;
        assert_eq!(copy.to_vec()?[..SIZE / 2], [2; SIZE / 2]);
        Ok(())
    })
}

#[test]
fn the_cpu_waits_for_copies_from_the_memory() -> Outcome {
    alone(|setup: &Setup| {
        let (home, reader) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let mut source = Buffer::filled(&PinnedMemory::new(&setup.context), SIZE, 1u8, &home)?;
        home.synchronize()?;
        let mut copy = bytes(setup, 0, &reader)?;
        for value in 1..3 {
            let held = hold(&reader)?;
            copy.copy_from_buffer(0, &source, ..)?;
            waits(held, || source.store(0, &[value + 1; SIZE]))?;
            assert!(copy.to_vec()?.iter().all(|byte| *byte == value));
        }
        let held = hold(&reader)?;
        copy.copy_from_buffer(0, &source, ..)?;
        waits(held, || source.synchronize())?;
        Ok(())
    })
}

#[test]
fn a_block_is_handed_out_after_the_copies() -> Outcome {
    alone(|setup: &Setup| {
        let Reading { source, held, copy, .. } = Reading::begin(setup)?;
        let pool = DevicePool::current(&setup.context)?;
        let (block, _resource, stream) = waits(held, || source.into_block())?;
        // SAFETY: the block comes from this pool, and nobody else has it.
        drop(unsafe { Bytes::from_block(block, &pool, SIZE, &stream) }?);
        assert_eq!(copy.to_vec()?[0], 1);
        Ok(())
    })
}

#[test]
fn memory_shrinks_after_the_copies_that_read_it() -> Outcome {
    alone(|setup: &Setup| {
        let (home, reader) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let memory = VirtualMemory::new(&setup.context, &VirtualOptions::default())?;
        let mut source = GrowableBuffer::<u8>::with_capacity(&memory, SIZE, &home)?;
        assert_eq!(source.grow_to(SIZE)?, Growth::InPlace);
        source.fill(.., 1)?;
        let mut copy = bytes(setup, 0, &reader)?;
        let held = hold(&reader)?;
        copy.copy_from_buffer(0, &source, ..)?;
        waits(held, || source.shrink_to(0))?;
        assert_eq!(copy.to_vec()?[0], 1);
        Ok(())
    })
}

#[test]
fn an_engine_waits_for_the_copies_from_its_memory() -> Outcome {
    alone(|setup: &Setup| {
        let engine = CopyEngine::new(&setup.context)?;
        let Reading { mut source, held, copy, .. } = Reading::begin(setup)?;
        waits(held, || engine.write(&mut source, 0, &[2u8; SIZE]))?;
        assert_eq!((copy.to_vec()?[0], source.to_vec()?[0]), (1, 2));
        Ok(())
    })
}

#[test]
fn a_capture_records_the_order_of_streams() -> Outcome {
    alone(|setup: &Setup| {
        let (home, reader) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let (source, mut copy) = (bytes(setup, 1, &home)?, bytes(setup, 0, &reader)?);
        let mut kept = bytes(setup, 0, &reader)?;
        kept.copy_from_buffer(0, &source, ..)?;
        let graph = reader.capture(CaptureMode::Relaxed, |reader| {
            home.join(reader)?;
            copy.copy_from_buffer(0, &source, ..)?;
            reader.join(&home)
        })?;
        let graph = graph.instantiate(GraphOptions::default())?;
        // SAFETY: both buffers live until the end of the launch.
        unsafe { graph.launch(&reader) }?;
        reader.synchronize()?;
        assert_eq!((copy.to_vec()?[0], kept.to_vec()?[0]), (1, 1));
        Ok(())
    })
}

#[test]
fn a_graph_that_writes_a_source_comes_after_the_copies() -> Outcome {
    alone(|setup: &Setup| {
        let (home, reader) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let mut source = bytes(setup, 1, &home)?;
        let graph = home.capture(CaptureMode::Relaxed, |_| source.fill(.., 2))?;
        let graph = graph.instantiate(GraphOptions::default())?;
        let reading = Reading::of(source, bytes(setup, 0, &reader)?)?;
        // SAFETY: the source lives until the end of the launch.
        unsafe { graph.launch(&home) }?;
        reading.check_awaited_by(&home)
    })
}

#[test]
fn memory_freed_in_a_capture_outlives_its_copies() -> Outcome {
    alone(|setup: &Setup| {
        let Reading { source, home, reader, copy, held } = Reading::begin(setup)?;
        // The drop waits neither for the copy nor for the capture.
        home.capture(CaptureMode::Relaxed, |_| {
            drop(source);
            Ok(())
        })?;
        thread::sleep(LATER);
        drop(held);
        reader.synchronize()?;
        assert_eq!(copy.to_vec()?[0], 1);
        Ok(())
    })
}

#[test]
fn readers_that_end_leave_no_more_than_a_few_events() -> Outcome {
    alone(|setup: &Setup| {
        let home = Stream::new(&setup.context)?;
        let source = Buffer::<u8, _>::filled(&DeviceMemory::new(&setup.context), SIZE, 1, &home)?;
        let pool = DevicePool::new(&setup.context, &DriverPoolOptions::default())?;
        for _ in 0..1000 {
            let mut copy = Buffer::<u8, _>::zeroed(&pool, SIZE, &Stream::new(&setup.context)?)?;
            copy.copy_from_buffer(0, &source, ..)?;
        }
        if setup.is_software() {
            let events = softgpu::ledger().count(softgpu::Kind::Event);
            assert!(events < 100, "{events} events");
        }
        Ok(())
    })
}
